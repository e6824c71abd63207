"""A task, its world, and stores that outlive every worker that opens them.

A worker dies by `Killed`, which nothing in the library catches, and a new one opens
the run over the same stores after the lease of the dead one is over.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace

from counterfoil.adapters.sandbox import SandboxAdapter, World, lesson, load_scenario
from counterfoil.compose import wire
from counterfoil.core.intent import Action
from counterfoil.core.receipt import Receipt
from counterfoil.core.task import Budgets, Policy, Task
from counterfoil.core.trace import Event, Outcome
from counterfoil.core.words import Json, RunId
from counterfoil.engine import audit
from counterfoil.engine.parts import Parts
from counterfoil.engine.session import Session
from counterfoil.keeper import Keeper
from counterfoil.keys import Keyring, keyring_of
from counterfoil.ports import Adapter, CheckpointStore, HeadRegister, Operation
from counterfoil.settings import Commit, Settings
from counterfoil.stores.memory import MemoryHeads, MemoryStore
from counterfoil.stores.sqlite import open_heads, open_store
from counterfoil.testing.saboteur_adapters import Passing
from tests.support.folders import FolderWorld

RUN_ID = "run-1"
KEY = "key-1"
BEGAN_MS = 1_700_000_000_000
TTL_MS = 30_000
SECRET = bytes(range(32))
INCARNATION = "register-1"

BROKEN = "def add(a, b):\n    return a - b\n"
SOUND = "def add(a, b):\n    return a + b\n"
EFFECTS = "def add(a, b):\n    raise ValueError\n"


FILES_TASK = Task(
    id="repair-app",
    policy=Policy(permissions=("files.read", "files.write"), scope={"files": {"paths": (".",)}}),
    budgets=Budgets(proposals=20, steps=10),
)
KINDS = {"sandbox": ("read_file", "write_file"), "files": ("files.read", "files.write")}
"""Per adapter, how a read and a write are called."""


class Killed(BaseException):
    """The worker dies here."""


@dataclass(kw_only=True, slots=True)
class StillClock:
    """A clock that stands until it is moved."""

    at_ms: int = BEGAN_MS

    def now_ms(self) -> int:
        return self.at_ms

    def monotonic_ms(self) -> int:
        return self.at_ms

    def move(self, by_ms: int) -> None:
        self.at_ms += by_ms


class DiesBeforeTheCall(Passing):
    """The worker dies right before its first write leaves."""

    def execute(self, operation: Operation) -> Receipt:
        if operation.key:
            raise Killed
        return super().execute(operation)


class DiesAfterTheCall(Passing):
    """The worker dies right after its first write happened."""

    def execute(self, operation: Operation) -> Receipt:
        receipt = super().execute(operation)
        if operation.key:
            raise Killed
        return receipt


@dataclass(kw_only=True)
class Scene:
    """What is there whether or not a worker lives.

    Attributes:
        task: What the runs are for.
        world: What they act on.
        store: Opens the checkpoint store, as each worker does.
        heads: Opens the head register.
        keyring: The checkpoint keys.
        adapter: Opens an adapter of the world.
    """

    clock: StillClock
    task: Task
    world: World | FolderWorld
    store: Callable[[], CheckpointStore]
    heads: Callable[[], HeadRegister]
    keyring: Keyring = field(default_factory=lambda: keyring_of(SECRET))
    adapter: Callable[[], Adapter]
    merges: bool = True
    _opened: list[CheckpointStore | HeadRegister] = field(default_factory=list)

    def parts(
        self, *, owner: str = "worker", wrap: Callable[[Adapter], Adapter] = Passing
    ) -> Parts:
        """Return a new worker's engine over the stores that are there."""
        store, heads = self.store(), self.heads()
        self._opened += [store, heads]
        return wire(
            Settings(commit=Commit(durability="merged" if self.merges else "strict")),
            self.keyring,
            store,
            heads,
            (wrap(self.adapter()),),
            clock=self.clock,
            owner=owner,
            runs_background=False,
        )

    def keeper(
        self, *, owner: str = "worker", wrap: Callable[[Adapter], Adapter] = Passing
    ) -> Keeper:
        """Return a new worker's keeper; it is not closed, as a dead worker closes nothing."""
        return Keeper(self.parts(owner=owner, wrap=wrap))

    def run(
        self,
        run_id: str = RUN_ID,
        *,
        task: Task | None = None,
        wrap: Callable[[Adapter], Adapter] = Passing,
    ) -> Session:
        """Open a run as a new worker, after the lease of any earlier one is over."""
        self.clock.move(TTL_MS + 1)
        return self.keeper(wrap=wrap).run(task or self.task, run_id)

    def close(self) -> None:
        """Close whatever workers have opened."""
        for opened in self._opened:
            opened.close()
        if isinstance(self.world, FolderWorld):
            self.world.close()


def memory_scene(
    task: Task | None = None, *, merges: bool = True, shared_keys: bool = False
) -> Scene:
    """Return the shipped lesson over stores in memory."""
    clock = StillClock()
    lesson_task, world = load_scenario(lesson(), now_ms=clock.now_ms)
    store = MemoryStore()
    heads = MemoryHeads(now_ms=clock.now_ms, incarnation=INCARNATION)
    return Scene(
        clock=clock,
        task=task or lesson_task,
        world=world,
        store=lambda: store,
        heads=lambda: heads,
        adapter=lambda: SandboxAdapter(world, shared_keys=shared_keys),
        merges=merges,
    )


def sqlite_scene(folder: Path, task: Task | None = None, *, merges: bool = True) -> Scene:
    """Return the shipped lesson over SQLite files, opened anew by each worker."""
    scene = memory_scene(task, merges=merges)
    scene.store = lambda: open_store(folder / "project" / "checkpoints.db", create=True)
    scene.heads = lambda: open_heads(
        folder / "state" / "heads.db",
        create=True,
        now_ms=scene.clock.now_ms,
        incarnation=lambda: INCARNATION,
    )
    return scene


def files_scene(folder: Path) -> Scene:
    """Return a broken file in a real folder, over SQLite files."""
    scene = sqlite_scene(folder, FILES_TASK)
    world = FolderWorld(folder, {"app.py": BROKEN, "README.md": "Small.\n"}, scene.clock.now_ms)
    scene.world = world
    scene.adapter = world.adapter
    return scene


def lesson_task(*, budgets: Budgets | None = None, **policy: Json) -> Task:
    """Return the shipped task with another budget or with changes to its policy."""
    task, _ = load_scenario(lesson())
    changed: Policy = replace(task.policy, **policy)
    return replace(task, policy=changed, budgets=budgets or task.budgets)


def act(
    run: Session,
    kind: str,
    *,
    key: str | None = None,
    version: int | None = None,
    **arguments: Json,
) -> Action:
    """Return an action that is built on the version that the run knows."""
    seen = run.state.environments[0].version if version is None else version
    return Action(kind=kind, arguments=arguments, preconditions={"version": seen}, key=key)


def read(run: Session, path: str = "app.py", **fields: Json) -> Action:
    """Return a read."""
    kind, _ = KINDS[run.state.environments[0].adapter]
    return act(run, kind, path=path, **fields)


def write(run: Session, content: str = SOUND, *, key: str = KEY, **fields: Json) -> Action:
    """Return a write of the broken file."""
    _, kind = KINDS[run.state.environments[0].adapter]
    return act(run, kind, key=key, path="app.py", content=content, **fields)


def check(run: Session, target: str = "unit") -> Action:
    """Return a verification."""
    return act(run, "run_tests", target=target)


def written(run: Session, content: str = SOUND, *, key: str = KEY) -> Receipt:
    """Propose a write, settle it, and return its receipt."""
    run.propose(write(run, content, key=key))
    settled = run.settle()
    assert settled is not None
    return settled.receipt


def events(run: Session) -> list[Event]:
    """Return the whole trace of a run, as an audit reads it."""
    if not run.state.phase.has_ended:
        run.flush()
    parts = run._parts
    return [event for _, event in audit.events(parts, RunId(run.run_id))]


def outcomes(run: Session) -> list[Outcome]:
    """Return the outcome of each event in the trace."""
    return [event.outcome for event in events(run)]


def last(run: Session) -> Outcome:
    """Return the outcome of the last event in the trace."""
    return outcomes(run)[-1]


def counts(run: Session) -> tuple[int, int]:
    """Return how many proposals were judged, and how many steps were taken."""
    return run.state.spent.proposals, run.state.spent.steps
