"""Put a stranger's adapter on trial: its clauses, and a run that dies at every instant.

The bench opens the adapter on a fresh target and counts effects there. What the adapter
claims is compared with what was seen, and it is shown the strongest level that was borne
out: by clauses that were tried, and by a crash drill at that very level.
"""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum

from counterfoil.core.words import Level
from counterfoil.ports import Adapter
from counterfoil.testing.adapter_bench import AdapterBench
from counterfoil.testing.conformance_adapters import Clause
from counterfoil.testing.crash import Tally
from counterfoil.testing.expect import ConformanceError
from counterfoil.testing.trial_claim import Untried, claim_of, levels_of, sentence_of
from counterfoil.testing.trial_drill import Kills, die_between_calls, die_inside_calls
from counterfoil.testing.trial_stage import MakeBench, Play, Tell

SECOND_DEATHS = 0.1

ANSWER_S = 5.0
"""What a clause or a run may take beside its calls."""

CALLS_MAX = 20
"""Calls of one clause or one run, and a few more."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One clause, and what became of it.

    Attributes:
        sentence: What must hold.
        problem: What was seen instead; empty where it holds.
    """

    sentence: str
    problem: str


class Outcome(Enum):
    """What a trial comes to, in one word or a few."""

    HELD = "held"
    PARTLY_TRIED = "partly tried"
    NOT_HELD = "not held"


@dataclass(frozen=True, kw_only=True, slots=True)
class Drill:
    """What deaths of a run came to.

    Attributes:
        tally: Those between its calls.
        kills: Those inside a call.
        problem: What was found; empty where nothing.
    """

    tally: Tally
    kills: Kills
    problem: str

    @property
    def reviews(self) -> int:
        """Deaths after which a person was asked."""
        return self.tally.reviews + self.kills.reviews


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What a trial came to.

    Attributes:
        adapter: Name of the adapter.
        kind: The kind that the bench writes with.
        claimed: Level that the adapter declares for it.
        shown: Strongest level that was borne out; None where not even `blind` was.
        findings: Each clause that was tried, in order.
        untried: What was not, though it belongs to the claim.
        drill: What deaths came to, at the level that is claimed.
    """

    adapter: str
    kind: str
    claimed: Level
    shown: Level | None
    findings: tuple[Finding, ...]
    untried: tuple[Untried, ...]
    drill: Drill

    @property
    def outcome(self) -> Outcome:
        """Whether the adapter is what it claims to be, and all of the claim was tried."""
        is_broken = any(finding.problem for finding in self.findings)
        if self.shown is not self.claimed or is_broken:
            return Outcome.NOT_HELD
        return Outcome.PARTLY_TRIED if self.untried else Outcome.HELD


def tell_nobody(what: str, within_s: float) -> None:
    """Hear what is being tried, and keep it."""


def try_adapter(
    make_bench: MakeBench,
    *,
    second_deaths: float = SECOND_DEATHS,
    tell: Tell = tell_nobody,
) -> Verdict:
    """Hold an adapter to the clauses of its level, and kill a run between and inside its calls.

    Args:
        make_bench: Opens a bench over a fresh target; it is called once for each clause
            and each death, and each bench is closed again.
        second_deaths: Share of a recovery's instants to die at again, 0 to 1.
        tell: Hears what is being tried, and within how many seconds it must end; 0 while
            the bench sets a target up, for which nothing is declared.

    Raises:
        ConformanceError: The bench does not fit its adapter.
        CounterfoilError: What the adapter said before the first clause.
        Exception: Whatever the bench raised.
    """
    tell("setting a target up", 0)
    with _opened(make_bench) as (bench, adapter):
        claim = claim_of(bench, adapter)
    spec = claim.spec
    play = Play(
        make_bench=make_bench,
        spec=spec,
        writes=2 if claim.has_names else 1,
        seconds_max=ANSWER_S + CALLS_MAX * spec.call_ms / 1000,
        tell=tell,
    )
    problems = {clause: _problem_of(play, clause) for clause in claim.clauses}
    levels = levels_of(claim, problems)
    drill = _drilled(play, second_deaths)
    return Verdict(
        adapter=spec.adapter,
        kind=spec.name,
        claimed=spec.level,
        shown=_shown(play, second_deaths, levels, drill),
        findings=tuple(Finding(sentence=sentence_of(c), problem=p) for c, p in problems.items()),
        untried=(*claim.untried, *_unkilled(drill)),
        drill=drill,
    )


def _drilled(play: Play, second_deaths: float) -> Drill:
    tally, problem = die_between_calls(play, second_deaths)
    kills = Kills() if problem else die_inside_calls(play)
    return Drill(tally=tally, kills=kills, problem=problem or kills.problem)


def _shown(
    play: Play, second_deaths: float, levels: tuple[Level, ...], drill: Drill
) -> Level | None:
    """Return the strongest of the levels at which the crash drill finds nothing."""
    for level in levels:
        at_level = drill
        if level is not play.spec.level:
            at_level = _drilled(play.at(level), second_deaths)
        if not at_level.problem:
            return level
    return None


def _unkilled(drill: Drill) -> Iterator[Untried]:
    kills = drill.kills
    if kills.why:
        sentence = "a process is killed inside a call"
        yield Untried(sentence=sentence, why=kills.why, offer=kills.offer)


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


def _problem_of(play: Play, clause: Clause) -> str:
    """Return why a clause does not hold; empty where it does."""
    play.tell("setting a target up", 0)
    bench = play.make_bench()
    try:
        play.tell(sentence_of(clause), play.seconds_max)
        clause(bench)
    except ConformanceError as error:
        return f"not so: {error}"
    except Exception as error:  # noqa: BLE001 - whatever a stranger's adapter raises where it should not
        return f"it raises {type(error).__name__}: {error!s:.300}"
    finally:
        bench.close()
    return ""
