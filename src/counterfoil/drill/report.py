"""What a drill found, and what it means."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from statistics import median

from counterfoil.core.errors import CounterfoilError, IntegrityError, UnavailableError
from counterfoil.core.words import Json
from counterfoil.drill.chronicle import Chronicle
from counterfoil.drill.faults import Action
from counterfoil.drill.plan import STEPS, Plan
from counterfoil.drill.program import business_ids
from counterfoil.drill.target import Counts
from counterfoil.urls import shown


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """What a drill found. Times are milliseconds; None where nothing was there to be timed.

    Attributes:
        store: Where checkpoints lay.
        heads: Where heads lay.
        workers: Worker processes.
        seconds: How long workers were killed and paused.
        runs: Runs that were submitted.
        completed: Runs that completed.
        steps: Effects that had to be there: those of every run that completed.
        effects: Effects that are on the target.
        duplicates: Effects beyond the first of their business id, and those of no run.
        lost: Business ids of completed runs without an effect.
        arrivals: Calls that reached the target, by what became of them.
        kills: SIGKILL, to a worker and its process group.
        pauses: SIGSTOP for longer than a lease.
        short_pauses: SIGSTOP for less.
        takeovers: Runs claimed from a holder that had not let go.
        stale_commits_refused: Commits refused to a worker whose lease was another's.
        stale_calls_refused: Calls that the target refused for their fence.
        lease_ms: Term of a lease.
        slowest_takeover_ms: From a kill or a long pause of a holder to the next claim.
        slowest_after_kill_ms: The same, after kills alone.
        median_takeover_ms: The same as `slowest_takeover_ms`, in the middle.
        events: What workers logged, counted.
        alarms: Events that no kill and no pause explains, the first ones.
        seed: Seed of the faults.
        command: What repeats the drill.
    """

    store: str
    heads: str
    workers: int
    seconds: int
    runs: int
    completed: int
    steps: int
    effects: int
    duplicates: int
    lost: int
    arrivals: dict[str, int]
    kills: int
    pauses: int
    short_pauses: int
    takeovers: int
    stale_commits_refused: int
    stale_calls_refused: int
    lease_ms: int
    slowest_takeover_ms: int | None
    slowest_after_kill_ms: int | None
    median_takeover_ms: int | None
    events: dict[str, int]
    alarms: tuple[str, ...]
    seed: int
    command: str

    def as_json(self) -> dict[str, Json]:
        """Return the report as one JSON object."""
        return {**asdict(self), "alarms": list(self.alarms)}

    def failure(self) -> CounterfoilError | None:
        """Return what the drill must end with; None when every effect happened once."""
        if self.duplicates or self.lost:
            return IntegrityError(
                f"{_times(self.duplicates, 'effect')} too many and {self.lost} missing on the "
                f"target, of {self.steps}",
                move="trust no run on these places until it is explained; repeat it with "
                f"`{self.command}`",
            )
        if self.completed < self.runs or not self.runs:
            why = f"; the first alarm: {self.alarms[0]}" if self.alarms else ""
            return UnavailableError(
                f"{self.completed} of {_times(self.runs, 'run')} completed in time{why}",
                move="look at store, register and machine, and start again with more --seconds",
            )
        return None


def _times(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def make_report(
    plan: Plan,
    *,
    chronicle: Chronicle,
    counts: Counts,
    runs: Iterable[str],
    completed: frozenset[str],
) -> Report:
    """Return the report of a drill that is over.

    Args:
        plan: What was asked.
        chronicle: What was heard of the workers.
        counts: What the target has.
        runs: Every run that was submitted.
        completed: Those that the store says are completed.
    """
    submitted = tuple(runs)
    known = {what for run_id in submitted for what in business_ids(run_id, STEPS)}
    wanted = {what for run_id in completed for what in business_ids(run_id, STEPS)}
    effects = Counter(counts.effects)
    killed = chronicle.waits_ms.get(Action.KILL, [])
    struck = [*killed, *chronicle.waits_ms.get(Action.LONG_PAUSE, [])]
    return Report(
        store=shown(plan.store),
        heads=shown(plan.heads),
        workers=plan.workers,
        seconds=plan.seconds,
        runs=len(submitted),
        completed=len(completed),
        steps=len(wanted),
        effects=effects.total(),
        duplicates=sum(count - 1 if what in known else count for what, count in effects.items()),
        lost=sum(what not in effects for what in wanted),
        arrivals=counts.verdicts,
        kills=chronicle.strikes[Action.KILL],
        pauses=chronicle.strikes[Action.LONG_PAUSE],
        short_pauses=chronicle.strikes[Action.SHORT_PAUSE],
        takeovers=chronicle.takeovers,
        stale_commits_refused=chronicle.stale_commits,
        stale_calls_refused=counts.verdicts.get("fenced", 0),
        lease_ms=plan.lease_ms,
        slowest_takeover_ms=round(max(struck)) if struck else None,
        slowest_after_kill_ms=round(max(killed)) if killed else None,
        median_takeover_ms=round(median(struck)) if struck else None,
        events=dict(sorted(chronicle.told.items())),
        alarms=tuple(chronicle.alarms),
        seed=plan.seed,
        command=plan.command,
    )
