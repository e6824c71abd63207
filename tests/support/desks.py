"""A scene with people: an inbox, and the roots of those who may sign."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from counterfoil.adapters.sandbox import SandboxAdapter
from counterfoil.core.approval import Request
from counterfoil.core.review import Case
from counterfoil.core.task import Budgets, Task
from counterfoil.core.trust import TrustRoots
from counterfoil.core.words import Json, Level, RunId
from counterfoil.engine.parts import Parts
from counterfoil.engine.session import Session
from counterfoil.keeper import Keeper
from counterfoil.ports import Adapter, Inbox
from counterfoil.stores.memory import MemoryInbox
from counterfoil.testing.saboteur_adapters import Passing
from tests.support.people import ADA, BOB, RITA, ROB, Person, roots
from tests.support.scenes import (
    KEY,
    RUN_ID,
    SOUND,
    TTL_MS,
    Scene,
    lesson_task,
    memory_scene,
    write,
)

BUDGETS = Budgets(proposals=20, steps=10)


@dataclass(kw_only=True)
class Desk:
    """A scene, and the people that its runs may ask.

    Attributes:
        scene: What is there whether or not a worker lives.
        inbox: What people have signed.
        roots: Who is trusted, by whichever worker opens a run next.
    """

    scene: Scene
    inbox: Inbox = field(default_factory=MemoryInbox)
    roots: TrustRoots

    def parts(
        self, *, wrap: Callable[[Adapter], Adapter] = Passing, owner: str = "worker"
    ) -> Parts:
        """Return a new worker's engine."""
        return replace(self.scene.parts(wrap=wrap, owner=owner), inbox=self.inbox, roots=self.roots)

    def run(
        self,
        run_id: str = RUN_ID,
        *,
        task: Task | None = None,
        wrap: Callable[[Adapter], Adapter] = Passing,
    ) -> Session:
        """Open a run as a new worker, after the lease of any earlier one is over."""
        self.scene.clock.move(TTL_MS + 1)
        return Keeper(self.parts(wrap=wrap)).run(task or self.scene.task, run_id)

    def hand(self, *statements: bytes, run_id: str = RUN_ID) -> None:
        """Put statements into the inbox of a run."""
        for statement in statements:
            self.inbox.put(RunId(run_id), statement)

    def asks(self, content: str = SOUND, *, key: str = KEY) -> tuple[Session, Request]:
        """Propose a write as a new worker, and return its run and its request."""
        run = self.run()
        run.propose(write(run, content, key=key))
        return run, request_of(run)


def desk(
    *people: Person,
    level: Level = Level.TRANSACTIONAL,
    in_flight_ms: int | None = None,
    budgets: Budgets = BUDGETS,
    **policy: Json,
) -> Desk:
    """Return a desk where writes need an approval, unless the policy is changed."""
    rules: dict[str, Json] = {"approval_kinds": ("write_file",)} | policy
    scene = memory_scene(lesson_task(budgets=budgets, **rules))
    world = scene.world
    scene.adapter = lambda: SandboxAdapter(world, level=level, in_flight_ms=in_flight_ms)
    return Desk(scene=scene, roots=roots(*(people or (ADA, BOB, RITA, ROB))))


def request_of(run: Session) -> Request:
    """Return what a person is asked at present."""
    assert run.request is not None
    return run.request


def case_of(run: Session) -> Case:
    """Return the open case."""
    assert run.state.case is not None
    return run.state.case
