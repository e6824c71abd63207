"""Put a stranger's adapter on trial: its clauses, and a crash at every instant of a run.

The bench opens the adapter on a fresh target and counts effects there. What the adapter
claims is compared with what was seen, and it is shown the strongest level that both bear
out. Nothing is shown where the crash drill finds an effect twice, or none.
"""

from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field

from counterfoil.adapters.function import Call as Given
from counterfoil.adapters.function import Effects
from counterfoil.compose import wire
from counterfoil.core.errors import CounterfoilError
from counterfoil.core.intent import KindSpec
from counterfoil.core.task import Budgets, Policy, Task, Verification
from counterfoil.core.words import Level, RunId
from counterfoil.engine.parts import Parts
from counterfoil.keeper import Keeper
from counterfoil.keys import keyring_of
from counterfoil.ports import Adapter
from counterfoil.settings import Settings
from counterfoil.stores.memory import MemoryHeads, MemoryStore
from counterfoil.testing.adapter_bench import AdapterBench, Trait, spec_of
from counterfoil.testing.clock import VirtualClock
from counterfoil.testing.conformance_adapters import ADAPTER_CLAUSES, clauses_for
from counterfoil.testing.crash import Tally, enumerate_crashes
from counterfoil.testing.expect import ConformanceError

WRITES = 2
"""Effects of the run that is killed: a first one, and one that follows another."""

RUN = RunId("trial")
CHECK = "trial.check"
SECOND_DEATHS = 0.1

WANTED: dict[Level, frozenset[Trait]] = {
    Level.TRANSACTIONAL: frozenset({Trait.KEYED, Trait.FENCING, Trait.ASKABLE}),
    Level.DEDUPLICATING: frozenset({Trait.KEYED, Trait.ASKABLE}),
    Level.CONDITIONAL: frozenset({Trait.ASKABLE, Trait.CHECKS_PRESTATE}),
    Level.QUERYABLE: frozenset({Trait.ASKABLE}),
    Level.BLIND: frozenset(),
}
"""What a level rests on, from the strongest to the weakest."""

MakeBench = Callable[[], AdapterBench]


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One clause, and what became of it.

    Attributes:
        sentence: What must hold.
        problem: What was seen instead; empty where it holds.
    """

    sentence: str
    problem: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What a trial came to.

    Attributes:
        adapter: Name of the adapter.
        kind: The kind that the bench writes with.
        claimed: Level that the adapter declares for it.
        shown: Strongest level that was borne out; None where not even `blind` was.
        findings: Each clause that applies, in order.
        untested: Clauses that the bench cannot put to the test.
        crashes: Deaths at instants of the run.
        double_crashes: Deaths of a recovery, after one of those.
        reviews: Deaths after which a person was asked.
        crash_problem: What the crash drill found; empty where nothing.
    """

    adapter: str
    kind: str
    claimed: Level
    shown: Level | None
    findings: tuple[Finding, ...]
    untested: tuple[str, ...]
    crashes: int
    double_crashes: int
    reviews: int
    crash_problem: str

    @property
    def holds(self) -> bool:
        """Whether the adapter is what it claims to be."""
        is_broken = any(finding.problem for finding in self.findings)
        return self.shown is self.claimed and not is_broken


def try_adapter(
    make_bench: MakeBench,
    *,
    second_deaths: float = SECOND_DEATHS,
    tell: Callable[[str], None] = lambda _: None,
) -> Verdict:
    """Hold an adapter to the clauses of its level, and kill a run at each of its calls.

    Args:
        make_bench: Opens a bench over a fresh target; it is called once for each clause
            and each crash, and each bench is closed again.
        second_deaths: Share of a recovery's instants to die at again, 0 to 1.
        tell: Hears what is being tried.

    Raises:
        ConformanceError: The bench does not fit its adapter.
        CounterfoilError: What the adapter said before the first clause.
    """
    with _opened(make_bench) as (bench, adapter):
        spec, name, traits = spec_of(adapter, bench.write(0).kind), adapter.name, bench.traits
    chosen = clauses_for(spec, traits)
    findings: dict[str, Finding] = {}
    for clause in chosen:
        sentence = clause.__name__.replace("_", " ")
        tell(sentence)
        findings[sentence] = Finding(sentence=sentence, problem=_problem_of(make_bench, clause))
    tally, crash_problem = _crashed(make_bench, spec, second_deaths, tell)
    kept = {sentence for sentence, finding in findings.items() if not finding.problem}
    return Verdict(
        adapter=name,
        kind=spec.name,
        claimed=spec.level,
        shown=None if crash_problem else _shown(spec, kept, set(findings)),
        findings=tuple(findings.values()),
        untested=tuple(_untested(spec, traits)),
        crashes=tally.crashes,
        double_crashes=tally.double_crashes,
        reviews=tally.reviews,
        crash_problem=crash_problem,
    )


@contextmanager
def _opened(make_bench: MakeBench) -> Generator[tuple[AdapterBench, Adapter]]:
    bench = make_bench()
    try:
        adapter = bench.open()
        try:
            yield bench, adapter
        finally:
            adapter.close()
    finally:
        bench.close()


def _problem_of(make_bench: MakeBench, clause: Callable[[AdapterBench], None]) -> str:
    """Return why a clause does not hold; empty where it does."""
    bench = make_bench()
    try:
        clause(bench)
    except ConformanceError as error:
        return str(error) or "it does not hold"
    except Exception as error:  # noqa: BLE001 - whatever a stranger's adapter raises where it should not
        return f"{type(error).__name__}: {error!s:.300}"
    finally:
        bench.close()
    return ""


def _untested(spec: KindSpec, traits: frozenset[Trait]) -> Iterator[str]:
    """Return clauses that would apply if the bench could do more."""
    able = frozenset({Trait.DISTURBS, Trait.LOSES_ANSWERS, Trait.CUTS_OFF})
    chosen = clauses_for(spec, traits)
    for clause in clauses_for(spec, traits | able):
        if clause not in chosen:
            yield clause.__name__.replace("_", " ")


def _shown(spec: KindSpec, kept: set[str], tried: set[str]) -> Level | None:
    """Return the strongest level up to the claimed one whose clauses all hold."""
    levels = list(WANTED)
    for level in levels[levels.index(spec.level) :]:
        if _bears_out(level, kept, tried):
            return level
    return None


def _bears_out(level: Level, kept: set[str], tried: set[str]) -> bool:
    """Return whether no clause failed that a level rests on, alone or with what a bench does."""
    rests_on = WANTED[level] | {Trait.DISTURBS, Trait.LOSES_ANSWERS, Trait.CUTS_OFF}
    if level is not Level.BLIND:
        rests_on |= {Trait.PRIVATE_KEYS, Trait.SHARED_KEYS}
    if level is Level.TRANSACTIONAL:
        rests_on |= {Trait.FORBIDDING, Trait.CHECKS_PRESTATE}
    sentences = {
        clause.__name__.replace("_", " ")
        for clause, needs in ADAPTER_CLAUSES.items()
        if needs <= rests_on
    }
    return sentences & tried <= kept


# ---------------------------------------------------------------- the crash drill


def _crashed(
    make_bench: MakeBench, spec: KindSpec, second_deaths: float, tell: Callable[[str], None]
) -> tuple[Tally, str]:
    """Kill a run at each of its calls; return the tally, and what was found."""
    tried = 0

    @contextmanager
    def staging() -> Generator["_Stage"]:
        nonlocal tried
        tell(f"a run that dies, number {tried}" if tried else "a run that goes unharmed")
        tried += 1
        stage = _Stage(bench=make_bench(), spec=spec)
        try:
            yield stage
        finally:
            stage.close()

    asks_people = spec.level in (Level.BLIND, Level.QUERYABLE, Level.CONDITIONAL)
    stages: Callable[[], AbstractContextManager[_Stage]] = staging
    try:
        tally = enumerate_crashes(stages, may_need_review=asks_people, second_deaths=second_deaths)
    except ConformanceError as error:
        return Tally(crashes=max(0, tried - 1)), str(error)
    return tally, ""


@dataclass(kw_only=True)
class _Stage:
    """A fresh target, and stores in memory that outlive processes."""

    bench: AdapterBench
    spec: KindSpec
    run_id: RunId = RUN
    clock: VirtualClock = field(default_factory=VirtualClock)
    store: MemoryStore = field(default_factory=MemoryStore)
    _opened: list[Adapter] = field(default_factory=list[Adapter])

    def __post_init__(self) -> None:
        self.heads = MemoryHeads(now_ms=self.clock.now_ms, incarnation="trial")

    def parts(self) -> Parts:
        adapter = self.bench.open()
        self._opened.append(adapter)
        return wire(
            Settings(),
            keyring_of(bytes(range(32))),
            self.store,
            self.heads,
            (adapter, *_checks().adapters(self.clock.now_ms)),
            clock=self.clock,
            owner="trial",
            runs_background=False,
        )

    def work(self, parts: Parts) -> None:
        task = Task(
            id="trial",
            policy=Policy(
                permissions=(self.spec.permission, CHECK),
                scope={self.spec.adapter: dict(self.bench.scope)},
            ),
            budgets=Budgets(proposals=8 * WRITES, steps=4 * WRITES),
            verifier=Verification(kind=CHECK),
        )
        with Keeper(parts).run(task, self.run_id) as run:
            for number in range(1, WRITES + 1):
                call = self.bench.write(number)
                run.do(call.kind, **call.arguments)
            run.verify()
            run.finish()

    def wait(self) -> None:
        in_flight_ms = self.spec.in_flight_ms or 0
        self.clock.advance(Settings().lease.ttl_ms + in_flight_ms + 1)

    def calm(self) -> None:
        """Nothing is under way: calls of this trial end before their process does."""

    def effects(self) -> tuple[str, ...]:
        return tuple(f"effect {number}" for number in range(1, self.bench.count() + 1))

    def content(self) -> object:
        return None

    def close(self) -> None:
        for adapter in self._opened:
            with suppress(CounterfoilError):
                adapter.close()
        self.bench.close()


def _checks() -> Effects:
    """Return the verifier of a trial, which is content: the target is counted by the bench."""
    effects = Effects()

    @effects.effect(CHECK, risk="verification")
    def check(call: Given) -> dict[str, bool]:
        return {"passed": True}

    return effects
