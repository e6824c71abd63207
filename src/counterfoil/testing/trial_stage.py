"""One run of a trial, as it is played again for each death: its target, stores and program."""

from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace

from msgspec import structs

from counterfoil.adapters.function import Call as Given
from counterfoil.adapters.function import Effects
from counterfoil.compose import wire
from counterfoil.core.errors import CounterfoilError
from counterfoil.core.intent import KindSpec
from counterfoil.core.receipt import Fence, LookUp, Receipt
from counterfoil.core.task import Budgets, Policy, Task, Verification
from counterfoil.core.words import Key, Level, RunId
from counterfoil.engine.parts import Parts
from counterfoil.keeper import Keeper
from counterfoil.keys import keyring_of
from counterfoil.ports import Adapter, Operation
from counterfoil.settings import Lease, Settings
from counterfoil.stores.memory import MemoryHeads, MemoryStore
from counterfoil.testing.adapter_bench import AdapterBench, Call, spec_of
from counterfoil.testing.clock import VirtualClock
from counterfoil.testing.crash import SESSIONS_MAX
from counterfoil.testing.saboteur_kinds import Redeclaring
from counterfoil.testing.trial_caller import Caller, started_caller

RUN = RunId("trial")
CHECK = "trial.check"

RETENTION_MARGIN_MS = 120_000
"""What recovery keeps from the end of a key's retention, and twice over."""

MakeBench = Callable[[], AdapterBench]
Tell = Callable[[str, float], None]
"""Hears what is being tried, and within how many seconds it must have ended."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Play:
    """What is played again for each death.

    Attributes:
        make_bench: Opens a bench over a fresh target.
        spec: The kind that it writes with.
        writes: Effects of the run: a first one, and perhaps one that follows another.
        seconds_max: How long one run may take.
        tell: Hears what is being tried.
    """

    make_bench: MakeBench
    spec: KindSpec
    writes: int
    seconds_max: float
    tell: Tell

    def at(self, level: Level) -> "Play":
        """Return the same with the kind declared at another level."""
        return replace(self, spec=replace(self.spec, level=level))

    @property
    def ttl_ms(self) -> int:
        """Term of the run's lease, which must cover the longest call."""
        return Settings().lease.ttl_ms + self.spec.call_ms

    @property
    def wait_ms(self) -> int:
        """How long a dead worker's lease and calls last, at most."""
        return self.ttl_ms + (self.spec.in_flight_ms or 0) + 1

    @property
    def asks_people(self) -> bool:
        """Whether a death may leave the run to a person, at the level that is claimed."""
        spec, kept_ms = self.spec, self.spec.key_retention_ms
        if spec.level not in (Level.TRANSACTIONAL, Level.DEDUPLICATING) or not spec.can_be_asked:
            return True
        return kept_ms is not None and kept_ms < SESSIONS_MAX * self.wait_ms + RETENTION_MARGIN_MS


@contextmanager
def staged(play: Play, *, callers: int = 0) -> Generator["Stage"]:
    """Set a fresh target up, with processes that wait for calls, and take it down."""
    bench = play.make_bench()
    stage = Stage(play=play, bench=bench)
    try:
        for _ in range(callers):
            stage.callers.append(started_caller(bench.open))
        yield stage
    finally:
        stage.close()


@dataclass(kw_only=True)
class Stage:
    """A fresh target, and stores in memory that outlive workers."""

    play: Play
    bench: AdapterBench
    run_id: RunId = RUN
    clock: VirtualClock = field(default_factory=VirtualClock)
    store: MemoryStore = field(default_factory=MemoryStore)
    callers: list[Caller] = field(default_factory=list[Caller])
    _calls: dict[int, Call] = field(default_factory=dict[int, Call])
    _opened: list[Adapter] = field(default_factory=list[Adapter])

    def __post_init__(self) -> None:
        self.heads = MemoryHeads(now_ms=self.clock.now_ms, incarnation="trial")

    def parts(self, wrap: Callable[[Adapter], Adapter] = lambda adapter: adapter) -> Parts:
        """Open everything anew, as a new worker does; the adapter may act through another."""
        adapter = self.bench.open()
        self._opened.append(adapter)
        return wire(
            Settings(lease=Lease(ttl_ms=self.play.ttl_ms)),
            keyring_of(bytes(range(32))),
            self.store,
            self.heads,
            (self._declared(wrap(adapter)), *_checks().adapters(self.clock.now_ms)),
            clock=self.clock,
            owner="trial",
            runs_background=False,
        )

    def _declared(self, adapter: Adapter) -> Adapter:
        spec = self.play.spec
        is_other = spec_of(adapter, spec.name).level is not spec.level
        return _At(adapter, spec) if is_other else adapter

    def work(self, parts: Parts) -> None:
        """Do the writes, verify, and finish."""
        spec, writes = self.play.spec, self.play.writes
        task = Task(
            id="trial",
            policy=Policy(
                permissions=(spec.permission, CHECK), scope={spec.adapter: dict(self.bench.scope)}
            ),
            budgets=Budgets(proposals=8 * writes, steps=4 * writes),
            verifier=Verification(kind=CHECK),
        )
        with Keeper(parts).run(task, self.run_id) as run:
            for number in range(1, writes + 1):
                call = self._call(number)
                run.do(call.kind, **call.arguments)
            run.verify()
            run.finish()

    def _call(self, number: int) -> Call:
        """Return a write as it was first made: a bench may build it on what it finds."""
        if number not in self._calls:
            self._calls[number] = self.bench.write(number)
        return self._calls[number]

    def wait(self) -> None:
        """Let a dead worker's lease end, and its calls."""
        self.clock.advance(self.play.wait_ms)

    def calm(self) -> None:
        """Nothing is under way: these calls end before their worker does."""

    def effects(self) -> tuple[str, ...]:
        """Return the effects by name; a single one may go without."""
        if self.bench.effects is not None:
            return tuple(self.bench.effects())
        return tuple(f"effect {number}" for number in range(1, self.bench.count() + 1))

    def content(self) -> object:
        """Return nothing: only the bench knows the target."""
        return None

    def close(self) -> None:
        """Take everything down."""
        for caller in self.callers:
            caller.close()
        for adapter in self._opened:
            with suppress(CounterfoilError):
                adapter.close()
        self.bench.close()


class _At(Redeclaring):
    """Declares one kind at another level, and puts that level on its receipts."""

    def __init__(self, inner: Adapter, spec: KindSpec) -> None:
        super().__init__(inner, lambda each: spec if each.name == spec.name else each)
        self._spec = spec

    def look_up(self, run_id: RunId, key: Key, kind: str) -> LookUp:
        """Hand on."""
        return self._answered(self.inner.look_up(run_id, key, kind))

    def execute(self, operation: Operation) -> Receipt:
        """Hand on."""
        return self._levelled(self.inner.execute(operation))

    def forbid(self, run_id: RunId, key: Key, kind: str, fence: Fence) -> LookUp:
        """Hand on."""
        return self._answered(self.inner.forbid(run_id, key, kind, fence))

    def _answered(self, answer: LookUp) -> LookUp:
        receipt = answer.receipt
        return (
            answer if receipt is None else structs.replace(answer, receipt=self._levelled(receipt))
        )

    def _levelled(self, receipt: Receipt) -> Receipt:
        return structs.replace(receipt, level=self._spec.level) if receipt.key else receipt


def _checks() -> Effects:
    """Return the verifier of a trial, which is content: the target is counted by the bench."""
    effects = Effects()

    @effects.effect(CHECK, risk="verification")
    def check(call: Given) -> dict[str, bool]:
        return {"passed": True}

    return effects
