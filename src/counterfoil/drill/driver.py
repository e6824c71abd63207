"""The drill itself: submit runs, strike workers, let everything settle, count."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import counterfoil as cf
from counterfoil.core.words import RunId
from counterfoil.drill import calls, stage
from counterfoil.drill.company import Company
from counterfoil.drill.faults import Action, faults
from counterfoil.drill.plan import STEPS, Plan
from counterfoil.drill.program import declare_target
from counterfoil.drill.report import Report, make_report
from counterfoil.drill.submitter import Submitter
from counterfoil.drill.target import Counts
from counterfoil.engine import control
from counterfoil.keeper import Keeper

DRAIN_SECONDS = 30
ATTEND_SECONDS = 0.05


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """How far a drill has come.

    Attributes:
        phase: What is done just now.
        seconds: Since the first worker was hired.
        submitted: Runs so far.
        open_runs: Those of them that have not ended.
        kills: Workers killed so far.
        pauses: Workers paused so far.
        takeovers: Runs taken over so far.
    """

    phase: str
    seconds: float
    submitted: int
    open_runs: int
    kills: int
    pauses: int
    takeovers: int


def run_drill(plan: Plan, watch: Callable[[Progress], None]) -> Report:
    """Kill and pause workers for a while, let every run complete, and count.

    Everything but what URLs name lies in a temporary folder, which is gone afterwards.

    Args:
        plan: What to do.
        watch: Told how far it has come, several times a second.

    Raises:
        ConfigError: A URL cannot be used, holds runs, or needs what is not installed.
        UnavailableError: A server, the target or workers cannot be started.
    """
    with stage.premises(plan) as place:
        with stage.target(plan, place) as port, _keeper(plan, place, port) as keeper:
            drill = _Drill(plan, keeper, watch)
            with stage.company(plan, place, port) as company:
                completed = drill.perform(company, port)
        return make_report(
            plan,
            chronicle=company.chronicle,
            counts=Counts(place.database),
            runs=drill.submitter.runs(),
            completed=completed,
        )


class _Drill:
    """Owns the course of a drill."""

    def __init__(self, plan: Plan, keeper: Keeper, watch: Callable[[Progress], None]) -> None:
        self._plan = plan
        self._keeper = keeper
        self._watch = watch
        self._began_at = time.monotonic()
        self.submitter = Submitter(keeper, open_max=plan.open_runs_max)

    def perform(self, company: Company, port: int) -> frozenset[str]:
        """Strike, settle, drain, and return the runs that are completed."""
        self.submitter.start()
        try:
            self._strike(company)
            company.cease()
            self.submitter.cease()
            self._settle(company, port)
        finally:
            self.submitter.stop()
        if self.submitter.error is not None:
            raise self.submitter.error
        company.dismiss(DRAIN_SECONDS)
        return self._completed()

    def _strike(self, company: Company) -> None:
        plan = self._plan
        ends_at = time.monotonic() + plan.seconds
        coming = faults(seed=plan.seed, workers=plan.workers, lease_ms=plan.lease_ms)
        due_at = time.monotonic()
        for fault in coming:
            due_at += fault.after_s
            while (now := time.monotonic()) < min(due_at, ends_at):
                company.attend(min(ATTEND_SECONDS, due_at - now))
                self._tell(company, "killing and pausing workers")
            if now >= ends_at or self.submitter.error is not None:
                return
            company.strike(fault)

    def _settle(self, company: Company, port: int) -> None:
        """Wait until all runs have ended and every late arrival has arrived."""
        ends_at = time.monotonic() + self._plan.settle_seconds
        while time.monotonic() < ends_at and self.submitter.error is None:
            company.attend(ATTEND_SECONDS)
            self._tell(company, "letting every run complete")
            if self.submitter.is_settled() and _is_quiet(port, self._plan):
                return

    def _completed(self) -> frozenset[str]:
        """Return the runs of which a signed checkpoint says that they are completed."""
        found: set[str] = set()
        for run_id in self.submitter.runs():
            try:
                run = control.show(self._keeper.parts, RunId(run_id)).run
            except cf.UnknownRunError:
                continue
            if run.phase is cf.Phase.COMPLETED:
                found.add(run_id)
        return frozenset(found)

    def _tell(self, company: Company, phase: str) -> None:
        strikes = company.chronicle.strikes
        kills = strikes[Action.KILL]
        self._watch(
            Progress(
                phase=phase,
                seconds=time.monotonic() - self._began_at,
                submitted=self.submitter.submitted,
                open_runs=len(self.submitter.open_runs),
                kills=kills,
                pauses=strikes.total() - kills,
                takeovers=company.chronicle.takeovers,
            )
        )


def _is_quiet(port: int, plan: Plan) -> bool:
    """Return whether the target says that nothing is under way to it."""
    try:
        answer = calls.ask(port, calls.Look(), timeout_ms=plan.call_ms)
    except (cf.UnavailableError, cf.UnknownOutcomeError):
        return False
    return isinstance(answer, calls.Seen) and answer.flying == 0


def _keeper(plan: Plan, place: stage.Place, port: int) -> Keeper:
    effects = declare_target(port, call_ms=plan.call_ms, steps=STEPS)
    return cf.open(place.project, effects=effects)
