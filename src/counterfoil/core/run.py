"""The run: a frozen value that holds all that must survive, and the rules it obeys."""

from enum import StrEnum

import msgspec
from msgspec import UNSET, UnsetType

from counterfoil.core.errors import ContractError, InvariantError
from counterfoil.core.intent import EnvironmentState, Pending, intent_digest
from counterfoil.core.merkle import check_frontier
from counterfoil.core.review import Case, Resolution
from counterfoil.core.task import Task
from counterfoil.core.words import IntentDigest, Json, RunId


class Phase(StrEnum):
    """Where a run stands."""

    RUNNING = "running"
    NEEDS_REVIEW = "needs_review"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def has_ended(self) -> bool:
        """Whether nothing can follow."""
        return self in _ENDS


_ENDS = (Phase.COMPLETED, Phase.FAILED, Phase.CANCELLED)


class Spent(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the run has spent or reserved; never given back."""

    proposals: int = 0
    steps: int = 0
    cost_micros: int = 0


class Evidence(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A verifier's pass, bound to the environments it looked at.

    Attributes:
        event: Index of the event in the trace.
        digest: Digest of the verification intent.
        environments: The states that were verified.
    """

    event: int
    digest: IntentDigest
    environments: tuple[EnvironmentState, ...]


class Failure(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a worker's program ended last, when it did not get past a position.

    Attributes:
        cursor: The position.
        count: Times in a row that it ended there.
        reason: How it ended the last time, one sentence for people.
        is_parked: Whether workers leave the run to a person.
    """

    cursor: int
    count: int
    reason: str
    is_parked: bool


class Run(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One attempt at a task; bounded, whatever came before.

    Attributes:
        run_id: Name of the run.
        task_id: Name of its task.
        phase: Where it stands.
        reason: Why it stopped; empty while it runs.
        cursor: Positions of the plan that are settled.
        attempt: Tries at the present position that were given up.
        writes: Effects that were committed.
        spent: Budgets used.
        salt: Derives the keys of this run; not secret from its own workers.
        started_at_ms: First open, UTC.
        floor_ms: Latest time seen, UTC; the clock of this run never goes back.
        environments: Last known state of each environment.
        pending: Intent made durable and not settled.
        case: Open case.
        evidence: Live evidence of completion.
        resolution: The latest case that a decision closed.
        trace_size: Events so far.
        frontier: Merkle frontier over them.
        arguments: What its program is called with; unset in a run that no one submitted.
        failure: How its program ended last, if a worker's program failed.
    """

    run_id: RunId
    task_id: str
    phase: Phase = Phase.RUNNING
    reason: str = ""
    cursor: int = 0
    attempt: int = 0
    writes: int = 0
    spent: Spent = Spent()
    salt: bytes
    started_at_ms: int
    floor_ms: int
    environments: tuple[EnvironmentState, ...] = ()
    pending: Pending | None = None
    case: Case | None = None
    evidence: Evidence | None = None
    resolution: Resolution | None = None
    trace_size: int = 0
    frontier: tuple[bytes, ...] = ()
    arguments: dict[str, Json] | UnsetType = UNSET
    failure: Failure | UnsetType = UNSET


def standing_failure(run: Run) -> Failure | None:
    """Return how the program of a run failed at the position where it still is."""
    failure = run.failure
    if isinstance(failure, UnsetType) or failure.cursor != run.cursor:
        return None
    return failure


def parked(run: Run) -> Failure | None:
    """Return why workers leave a run to a person; None when they do not."""
    failure = standing_failure(run)
    return failure if failure is not None and failure.is_parked else None


def lacks_approvals(run: Run) -> bool:
    """Return whether the pending action has fewer approvals than it needs."""
    pending = run.pending
    return pending is not None and len(pending.approvals) < pending.approvals_required


def head_status(run: Run) -> str:
    """Return what a head says of a run: "active", "frozen" or "terminal".

    Frozen is what only a person can bring further: a case, an action that lacks
    approvals, a parked run.
    """
    if run.phase.has_ended:
        return "terminal"
    waits = run.phase is Phase.NEEDS_REVIEW or lacks_approvals(run) or parked(run)
    return "frozen" if waits else "active"


def environment_of(run: Run, adapter: str) -> EnvironmentState | None:
    """Return the last known state of an adapter's environment."""
    return next((state for state in run.environments if state.adapter == adapter), None)


def with_environment(run: Run, state: EnvironmentState) -> Run:
    """Return the run with one environment's state put in place."""
    rest = tuple(known for known in run.environments if known.adapter != state.adapter)
    merged = sorted((*rest, state), key=lambda known: known.adapter)
    return msgspec.structs.replace(run, environments=tuple(merged))


def verified_version(run: Run, adapter: str) -> int | None:
    """Return the environment version that live evidence is bound to."""
    if run.evidence is None:
        return None
    states = run.evidence.environments
    return next((state.version for state in states if state.adapter == adapter), None)


def check_invariants(run: Run, task: Task | None) -> None:
    """Refuse a run value that no sequence of steps can lead to.

    Args:
        run: The value.
        task: Its task; None where an operator acts without it.

    Raises:
        InvariantError: Names the broken rule.
    """
    for rule, holds in _rules(run, task):
        if not holds:
            raise InvariantError(f"the state breaks a rule: {rule}", run.run_id)
    check_frontier(run.trace_size, run.frontier)


def _rules(run: Run, task: Task | None) -> tuple[tuple[str, bool], ...]:
    pending, case = run.pending, run.case
    ended = run.phase.has_ended
    return (
        ("counts are not negative", min(run.cursor, run.attempt, run.writes) >= 0),
        ("spent counts are not negative", min(run.spent.steps, run.spent.cost_micros) >= 0),
        ("the proposal budget holds", _is_within_budget(run, task)),
        ("a running run has no stop reason", (run.reason == "") == (not ended)),
        ("a run in review has a case", (case is not None) == (run.phase is Phase.NEEDS_REVIEW)),
        ("an ended run has nothing pending", pending is None or not ended),
        ("a completed run has evidence", run.phase is not Phase.COMPLETED or _is_proved(run)),
        ("evidence is in the trace", _evidence_is_in_trace(run)),
        ("the case holds the pending intent", case is None or case.pending == pending),
        ("the pending digest fits its intent", pending is None or _digest_fits(pending)),
        ("a pending intent was sent in order", pending is None or _sends_fit(pending)),
        ("a waiting intent has a challenge", pending is None or _challenge_fits(pending)),
        ("a failure is counted and behind or at the cursor", _failure_fits(run)),
        ("environments are named once", _names_are_distinct(run.environments)),
        ("time does not go back", run.floor_ms >= run.started_at_ms),
    )


def _is_within_budget(run: Run, task: Task | None) -> bool:
    return run.spent.proposals >= 0 and (
        task is None or run.spent.proposals <= task.budgets.proposals
    )


def _is_proved(run: Run) -> bool:
    return run.evidence is not None and run.evidence.environments == run.environments


def _evidence_is_in_trace(run: Run) -> bool:
    return run.evidence is None or 0 <= run.evidence.event < run.trace_size


def _digest_fits(pending: Pending) -> bool:
    try:
        return intent_digest(pending.intent) == pending.digest
    except ContractError:  # a state that was made by hand holds what no intent can
        return False


def _sends_fit(pending: Pending) -> bool:
    least = 0 if pending.approvals_required else 1
    return pending.sends >= least and pending.first_sent_at_ms <= pending.last_sent_at_ms


def _challenge_fits(pending: Pending) -> bool:
    return bool(pending.challenge) == bool(pending.approvals_required) and (
        len(pending.approvals) <= pending.approvals_required
    )


def _failure_fits(run: Run) -> bool:
    failure = run.failure
    return isinstance(failure, UnsetType) or (
        failure.count >= 1 and 0 <= failure.cursor <= run.cursor
    )


def _names_are_distinct(states: tuple[EnvironmentState, ...]) -> bool:
    return len({state.adapter for state in states}) == len(states)
