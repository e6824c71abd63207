"""Stages for crash tests: a target, stores that outlive processes, and a program.

Processes of one stage share its clock. SQLite files are shared by all stages of a test,
each with a run of its own, so that only connections are opened anew.
"""

import itertools
import shutil
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from counterfoil.adapters.files import FilesAdapter, open_files
from counterfoil.adapters.files.disk import Disk
from counterfoil.adapters.function import Effects
from counterfoil.adapters.function.call import Call, Found, State
from counterfoil.adapters.function.effects import Bounds
from counterfoil.adapters.sandbox import SandboxAdapter, World
from counterfoil.compose import wire
from counterfoil.core.canonical import canonical, digest
from counterfoil.core.intent import Action
from counterfoil.core.task import Budgets, Policy, Task, Verification
from counterfoil.core.words import Json, Level, RunId
from counterfoil.engine.parts import Parts
from counterfoil.engine.session import Session
from counterfoil.keeper import Keeper
from counterfoil.keys import keyring_of
from counterfoil.ports import Adapter, CheckpointStore, HeadRegister
from counterfoil.settings import Commit, Settings
from counterfoil.stores.memory import MemoryHeads, MemoryStore
from counterfoil.stores.sqlite import open_heads, open_store
from counterfoil.testing.clock import VirtualClock
from tests.support.folders import RESERVED

TTL_MS = 30_000
IN_FLIGHT_MS = 5_000
RETENTION_MS = 86_400_000
SECRET = bytes(range(32))
KEYRING = keyring_of(SECRET)
INCARNATION = "register-1"
Program = Callable[[Session], object]


@dataclass(frozen=True, kw_only=True, slots=True)
class Form:
    """How commits are made."""

    merges: bool = True
    marks: bool = False

    @property
    def name(self) -> str:
        merged = "merged" if self.merges else "eager"
        return f"{merged} with marks" if self.marks else merged


FORMS = tuple(
    Form(merges=merges, marks=marks) for marks in (False, True) for merges in (True, False)
)


class Backend:
    """Stores that outlive processes, in memory or in SQLite files below a folder."""

    def __init__(self, folder: Path | None = None) -> None:
        self.clock = VirtualClock()
        self._folder = folder
        self._store = MemoryStore()
        self._heads = MemoryHeads(now_ms=self.clock.now_ms, incarnation=INCARNATION)
        self._numbers = itertools.count(1)

    def open(self) -> tuple[CheckpointStore, HeadRegister]:
        """Open the stores as a new process does."""
        if self._folder is None:
            return self._store, self._heads
        return (
            open_store(self._folder / "project" / "checkpoints.db", create=True),
            open_heads(
                self._folder / "state" / "heads.db",
                create=True,
                now_ms=self.clock.now_ms,
                incarnation=lambda: INCARNATION,
            ),
        )

    def new_run(self) -> RunId:
        """Name a run that there is not yet."""
        return RunId(f"run-{next(self._numbers)}")


@dataclass(kw_only=True)
class PlayStage:
    """A `Stage`: everything that is there whether or not a process lives.

    Attributes:
        backend: The stores.
        run_id: The run.
        task: The task.
        program: What each process runs.
        adapters: Opens the adapters, as each process does.
        count: Names the effects on the target.
        look: What the target holds.
        arrive: Lets late calls arrive.
        arrives: Whether they arrive before a recovery, or only after the run's end.
    """

    backend: Backend
    run_id: RunId
    task: Task
    program: Program
    adapters: Callable[[], tuple[Adapter, ...]]
    count: Callable[[], tuple[str, ...]]
    look: Callable[[], object]
    arrive: Callable[[], object] = tuple
    arrives_early: bool = False
    form: Form = Form()
    _opened: list[CheckpointStore | HeadRegister | Adapter] = field(default_factory=list)

    def parts(self, owner: str = "worker") -> Parts:
        store, heads = self.backend.open()
        adapters = self.adapters()
        self._opened += [store, heads, *adapters]
        return wire(
            Settings(commit=Commit(merge=self.form.merges, marker=self.form.marks)),
            KEYRING,
            store,
            heads,
            adapters,
            clock=self.backend.clock,
            owner=owner,
            runs_background=False,
        )

    def work(self, parts: Parts) -> None:
        with Keeper(parts).run(self.task, self.run_id) as run:
            self.program(run)

    def wait(self) -> None:
        if self.arrives_early:
            self.arrive()
        self.backend.clock.advance(TTL_MS + 1)

    def calm(self) -> None:
        self.arrive()

    def effects(self) -> tuple[str, ...]:
        return self.count()

    def content(self) -> object:
        return self.look()

    def close(self) -> None:
        while self._opened:
            self._opened.pop().close()


@contextmanager
def closing(stage: PlayStage) -> Generator[PlayStage]:
    try:
        yield stage
    finally:
        stage.close()


# ---------------------------------------------------------------- the sandbox

SANDBOX_FILES = {"app.py": "broken", "notes.md": "old"}
SANDBOX_TESTS = {"unit": {"app.py": "sound", "notes.md": "new"}}
SANDBOX_TASK = Task(
    id="repair",
    policy=Policy(
        permissions=("workspace.read", "workspace.write", "tests.run"),
        scope={"sandbox": {"paths": (".",), "targets": ("unit",)}},
    ),
    budgets=Budgets(proposals=12, steps=6),
    verifier=Verification(kind="run_tests", arguments={"target": "unit"}),
)


def repair(run: Session) -> None:
    """Remember, write, read, write, verify, finish."""
    run.remember("plan", lambda: ["app.py", "notes.md"])
    run.do("write_file", path="app.py", content="sound")
    run.do("read_file", path="app.py")
    run.do("write_file", path="notes.md", content="new")
    run.verify()
    run.finish()


def plan_and_repair(run: Session) -> None:
    """Do the same as a planner does: settle, look, propose one action."""
    wanted = (("app.py", "sound"), ("notes.md", "new"))
    if run.state.phase.has_ended:
        return
    run.settle()
    while run.state.writes < len(wanted):
        run.observe()
        path, content = wanted[run.state.writes]
        (state,) = run.state.environments
        action = Action(
            kind="write_file",
            arguments={"path": path, "content": content},
            preconditions={"version": state.version},
            key=f"{run.run_id}/{path}",
        )
        run.propose(action)
        run.settle()
    if run.state.evidence is None:
        run.verify()
    run.finish()


@dataclass(frozen=True, kw_only=True, slots=True)
class Late:
    """A first call that is under way when its caller gives up on it.

    Attributes:
        arrives_early: Whether it arrives before the next process looks.
    """

    arrives_early: bool


def sandbox_stage(
    backend: Backend,
    *,
    level: Level = Level.TRANSACTIONAL,
    in_flight_ms: int | None = None,
    form: Form = Form(),
    late: Late | None = None,
    program: Program = repair,
    task: Task = SANDBOX_TASK,
    wrap: Callable[[World, Adapter], Adapter] = lambda _, adapter: adapter,
) -> AbstractContextManager[PlayStage]:
    """Return a fresh sandbox at a level."""
    world = World(SANDBOX_FILES, tests=SANDBOX_TESTS, now_ms=backend.clock.now_ms)
    if late is not None:
        world.delay_next()
    stage = PlayStage(
        backend=backend,
        run_id=backend.new_run(),
        task=task,
        program=program,
        adapters=lambda: (
            wrap(world, SandboxAdapter(world, level=level, in_flight_ms=in_flight_ms)),
        ),
        count=lambda: tuple(f"{effect.path}={effect.content}" for effect in world.effects),
        look=lambda: (world.files, world.version),
        arrive=world.land_delayed,
        arrives_early=late is not None and late.arrives_early,
        form=form,
    )
    return closing(stage)


# ---------------------------------------------------------------- functions


@dataclass(kw_only=True)
class Shop:
    """A target that functions reach: orders by key, and every arrival counted."""

    dedupes: bool
    loses: int = 0
    orders: dict[str, dict[str, object]] = field(default_factory=dict)
    placed: list[str] = field(default_factory=list)

    def order(self, key: str, sku: str) -> dict[str, object]:
        if self.dedupes and key in self.orders:
            return self.orders[key]
        self.placed.append(sku)
        self.orders[key] = {"sku": sku, "number": len(self.placed)}
        if self.loses:
            self.loses -= 1
            raise ConnectionError("the answer was lost")
        return self.orders[key]

    def state(self) -> State:
        return State(
            instance="shop-1",
            version=len(self.placed),
            fingerprint=digest(canonical(list[Json](self.placed))),
        )


def shop_effects(
    shop: Shop,
    level: Level,
    *,
    in_flight_ms: int | None,
    is_observed: bool,
    can_be_asked: bool = True,
) -> Effects:
    """Declare the shop's functions at a level."""
    effects = Effects()
    retention_ms = None if can_be_asked else RETENTION_MS
    bounds = Bounds(call_ms=1_000, in_flight_ms=in_flight_ms, key_retention_ms=retention_ms)

    @effects.effect(
        "shop.order",
        level=level,
        look_up=shop.orders.get if can_be_asked and level is not Level.BLIND else None,
        bounds=bounds,
    )
    def order(call: Call, *, sku: str) -> Found:
        return Found(result=shop.order(call.key, sku), digest=call.digest)

    @effects.effect("shop.check", risk="verification", level="queryable")
    def check(call: Call, *, count: int) -> dict[str, object]:
        return {"passed": len(shop.orders) == count}

    if is_observed:
        effects.observer("shop")(shop.state)
    return effects


SHOP_TASK = Task(
    id="restock",
    policy=Policy(permissions=("shop.order", "shop.check")),
    budgets=Budgets(proposals=12, steps=6),
    verifier=Verification(kind="shop.check", arguments={"count": 2}),
)


def restock(run: Session) -> None:
    first = run.do("shop.order", sku="A-7")
    run.remember("first", lambda: first)
    run.do("shop.order", sku="B-9")
    run.verify()
    run.finish()


def shop_stage(
    backend: Backend,
    *,
    level: Level,
    in_flight_ms: int | None = None,
    is_observed: bool = False,
    loses: int = 0,
    can_be_asked: bool = True,
    form: Form = Form(),
) -> AbstractContextManager[PlayStage]:
    """Return a fresh shop reached through functions."""
    shop = Shop(dedupes=level is Level.DEDUPLICATING, loses=loses)
    effects = shop_effects(
        shop,
        level,
        in_flight_ms=in_flight_ms,
        is_observed=is_observed,
        can_be_asked=can_be_asked,
    )
    stage = PlayStage(
        backend=backend,
        run_id=backend.new_run(),
        task=SHOP_TASK,
        program=restock,
        adapters=lambda: effects.adapters(backend.clock.now_ms),
        count=lambda: tuple(shop.placed),
        look=lambda: sorted(str(order) for order in shop.orders.values()),
        form=form,
    )
    return closing(stage)


# ---------------------------------------------------------------- files

FOLDER = {"old.txt": "old", "source.txt": "moved", "gone.txt": "gone"}
FOLDER_AFTER = {"new.txt": "new", "old.txt": "replaced", "target.txt": "moved"}
FOLDER_TASK = Task(
    id="tidy",
    policy=Policy(
        permissions=("files.read", "files.write", "files.delete", "files.move", "folder.check"),
        scope={"files": {"paths": (".",)}},
    ),
    budgets=Budgets(proposals=16, steps=8),
    verifier=Verification(kind="folder.check"),
)


class NamingDisk(Disk):
    """The file system as it is, with a list of the names that were changed in it."""

    def __init__(self) -> None:
        self.renamed: list[str] = []

    def rename(self, folder: int, name: str, other_folder: int, other: str, flags: int) -> None:
        super().rename(folder, name, other_folder, other, flags)
        names = [part for part in (name, other) if not part.startswith(RESERVED)]
        if names:
            self.renamed.append(" to ".join(names))


def tidy(run: Session) -> None:
    """Write, replace, move, delete, verify, finish."""
    run.do("files.write", path="new.txt", content="new")
    run.do("files.write", path="old.txt", content="replaced")
    run.do("files.move", source="source.txt", target="target.txt")
    run.do("files.delete", path="gone.txt")
    run.verify()
    run.finish()


def texts(root: Path) -> dict[str, str]:
    """Return the text of each file below a folder."""
    return {path.name: path.read_text() for path in sorted(root.iterdir()) if path.is_file()}


@contextmanager
def files_stage(
    backend: Backend, place: Path, *, form: Form = Form(), program: Program = tidy
) -> Generator[PlayStage]:
    """Return a fresh folder."""
    run_id = backend.new_run()
    home = place / run_id
    root, disk = home / "root", NamingDisk()
    root.mkdir(parents=True)
    for name, text in FOLDER.items():
        (root / name).write_text(text)
    effects = Effects()

    @effects.effect("folder.check", risk="verification", level="queryable")
    def check(call: Call) -> dict[str, object]:
        return {"passed": texts(root) == FOLDER_AFTER}

    def files() -> FilesAdapter:
        return open_files(root, journal=home / "journal", now_ms=backend.clock.now_ms, disk=disk)

    stage = PlayStage(
        backend=backend,
        run_id=run_id,
        task=FOLDER_TASK,
        program=program,
        adapters=lambda: (files(), *effects.adapters(backend.clock.now_ms)),
        count=lambda: tuple(disk.renamed),
        look=lambda: texts(root),
        form=form,
    )
    with closing(stage):
        yield stage
    shutil.rmtree(home)
