"""What follows: `apply` takes a run and one thing that happened to the next run.

The transition table is data: for each standing of a run and each input it says whether
the input is taken, and if not, which refusal it gets. Reducers below fill in the rest.
Nothing here reads a clock; the time comes in and is held above the run's floor.
"""

from collections.abc import Callable, Mapping
from enum import Enum, StrEnum
from typing import Any

from msgspec.structs import replace

from counterfoil.core import authority, judge, resolving, working
from counterfoil.core.errors import (
    ContractError,
    FrozenError,
    InvariantError,
    TerminalError,
    one_line,
)
from counterfoil.core.inputs import (
    Aborted,
    Approved,
    Asked,
    CaseOpened,
    Decided,
    Denied,
    Failed,
    Garbled,
    GivenUp,
    Input,
    Lapsed,
    Migrated,
    Observed,
    Proposed,
    ReceiptSeen,
    Released,
    Remembered,
    Resent,
    Revoked,
    Rules,
    Settled,
    StatementRefused,
    Step,
    Stumbled,
    Unparked,
    Withdrawn,
)
from counterfoil.core.intent import EnvironmentState, Pending
from counterfoil.core.proposal import (
    close_if_spent,
    counted,
    garbled,
    is_spent,
    propose,
    refused,
    unjudged,
)
from counterfoil.core.review import CaseReason
from counterfoil.core.run import Evidence, Phase, Run, with_environment
from counterfoil.core.trace import Event, Outcome, position_name
from counterfoil.core.words import IntentDigest, Risk


class Standing(StrEnum):
    """What decides which inputs a run takes."""

    IDLE = "idle"
    BUSY = "busy"
    FROZEN = "frozen"
    ENDED = "ended"


_COLUMNS = tuple(Standing)


class Rule(Enum):
    """What becomes of an input."""

    TAKE = "take"
    COUNT = "count"
    FREEZE = "frozen"
    END = "ended"
    NEVER = "never"


_T, _C, _F, _E, _N = Rule.TAKE, Rule.COUNT, Rule.FREEZE, Rule.END, Rule.NEVER

TABLE: Mapping[type[Any], tuple[Rule, Rule, Rule, Rule]] = {
    #            idle busy frozen ended
    Proposed: (_T, _C, _F, _E),
    Garbled: (_T, _T, _F, _E),
    Settled: (_T, _T, _F, _E),
    Failed: (_T, _T, _F, _E),
    Remembered: (_T, _C, _F, _E),
    Stumbled: (_T, _T, _F, _E),
    Unparked: (_T, _T, _F, _E),
    ReceiptSeen: (_N, _T, _N, _N),
    Resent: (_N, _T, _F, _N),
    Asked: (_N, _T, _F, _N),
    GivenUp: (_N, _T, _F, _N),
    CaseOpened: (_T, _T, _T, _E),
    Observed: (_T, _T, _F, _E),
    Aborted: (_T, _T, _T, _E),
    Approved: (_T, _T, _F, _E),
    Denied: (_T, _T, _F, _E),
    Revoked: (_T, _T, _F, _E),
    Released: (_N, _T, _F, _N),
    Lapsed: (_N, _T, _N, _N),
    Withdrawn: (_T, _T, _F, _E),
    StatementRefused: (_T, _T, _T, _E),
    Decided: (_T, _T, _T, _E),
    Migrated: (_T, _T, _T, _E),
}
"""TAKE reduces; COUNT refuses as a counted contract error; FREEZE and END raise; NEVER
is a fault of ours."""


def standing(run: Run) -> Standing:
    """Return what decides which inputs `run` takes."""
    if run.phase.has_ended:
        return Standing.ENDED
    if run.phase is Phase.NEEDS_REVIEW:
        return Standing.FROZEN
    return Standing.IDLE if run.pending is None else Standing.BUSY


def apply(run: Run, given: Input, rules: Rules) -> Step:
    """Return what follows when `given` happens to `run`.

    Raises:
        FrozenError: The run is in review and takes no such input.
        BudgetError: No proposal is left, and an action is pending.
        TerminalError: The run has ended.
        InvariantError: The input cannot happen here; a fault of ours.
    """
    now = standing(run)
    rule = TABLE[type(given)][_COLUMNS.index(now)]
    at_ms = max(rules.now_ms, run.floor_ms)
    run = replace(run, floor_ms=at_ms)
    match rule:
        case Rule.TAKE:
            return _REDUCERS[type(given)](run, given, rules)
        case Rule.COUNT:
            if is_spent(run, rules):
                return unjudged(run)
            busy = ContractError("an action is pending: settle it first", run.run_id)
            return refused(counted(run), Outcome.CONTRACT_REJECTED, busy, rules)
        case Rule.FREEZE:
            finding = run.case.finding if run.case else ""
            raise FrozenError(f"the run is in review: {finding}", run.run_id)
        case Rule.END:
            raise TerminalError(f"the run has {run.phase}: {run.reason}", run.run_id)
        case Rule.NEVER:
            raise InvariantError(f"{type(given).__name__} while the run is {now}", run.run_id)


def opened(run: Run) -> Step:
    """Return the first step of a run: its own beginning, and what it found."""
    event = Event(at_ms=run.floor_ms, outcome=Outcome.OPENED, environments=run.environments)
    return Step(run=run, events=(event,))


def _settled(run: Run, given: Settled, rules: Rules) -> Step:
    spec, position = given.admitted.spec, run.cursor
    is_verification = spec.risk is Risk.VERIFICATION
    for state in given.environments:
        run = with_environment(run, state)
    evidence = run.evidence
    if is_verification and not given.passed:
        evidence = None
    elif is_verification and judge.is_verifier(rules.task, given.admitted):
        evidence = Evidence(
            event=run.trace_size,
            digest=given.admitted.digest,
            environments=run.environments,
        )
    event = Event(
        at_ms=run.floor_ms,
        outcome=Outcome.VERIFIED if is_verification else Outcome.READ,
        proposal=run.spent.proposals,
        position=position,
        action_id=given.action_id,
        kind=spec.name,
        digest=given.admitted.digest,
        result=given.result,
        environments=given.environments,
        passed=given.passed,
    )
    run = replace(run, evidence=evidence, pending=None)
    settles: tuple[str, ...] = ()
    if given.passed or not is_verification:  # a failed verification may be tried again
        run = replace(run, cursor=position + 1, attempt=0)
        settles = (position_name(position),)
    return close_if_spent(Step(run=run, events=(event,), settles=settles), rules)


def _failed(run: Run, given: Failed, rules: Rules) -> Step:
    event = Event(
        at_ms=run.floor_ms,
        outcome=Outcome.EXECUTION_ERROR,
        proposal=run.spent.proposals,
        kind=given.admitted.spec.name,
        digest=given.admitted.digest,
        reason=given.error.message,
    )
    return close_if_spent(Step(run=run, events=(event,), error=given.error), rules)


def _remembered(run: Run, given: Remembered, rules: Rules) -> Step:
    event = Event(
        at_ms=run.floor_ms,
        outcome=Outcome.REMEMBERED,
        position=run.cursor,
        kind=given.name,
        digest=given.digest,
        result=given.value,
    )
    settles = (position_name(run.cursor),)
    return Step(
        run=replace(run, cursor=run.cursor + 1, attempt=0), events=(event,), settles=settles
    )


def _receipt_seen(run: Run, given: ReceiptSeen, rules: Rules) -> Step:
    pending, receipt = _pending(run), given.receipt
    run = with_environment(run, receipt.poststate)
    outcome = Outcome.RECONCILED if given.was_recovered else Outcome.EXECUTED
    if receipt.replayed and not given.was_recovered:
        outcome = Outcome.REPLAYED
    events = [
        Event(
            at_ms=run.floor_ms,
            outcome=outcome,
            proposal=run.spent.proposals,
            position=pending.position,
            action_id=pending.action_id,
            kind=pending.intent.kind,
            key=pending.key,
            digest=pending.digest,
            receipt=receipt,
        )
    ]
    if given.observed is not None:
        run = with_environment(run, given.observed)
        events.append(_moved(run, (given.observed,), "the environment moved after our effect"))
    run = replace(
        run,
        pending=None,
        evidence=None,
        cursor=pending.position + 1,
        attempt=0,
        writes=run.writes + (outcome is not Outcome.REPLAYED),
    )
    settles = (position_name(pending.position), pending.key)
    return close_if_spent(Step(run=run, events=tuple(events), settles=settles), rules)


def _moved(run: Run, states: tuple[EnvironmentState, ...], reason: str) -> Event:
    return Event(at_ms=run.floor_ms, outcome=Outcome.OBSERVED, environments=states, reason=reason)


def _resent(run: Run, given: Resent, rules: Rules) -> Step:
    pending = _pending(run)
    again = replace(
        authority.under_approvals(run, pending, rules),
        sends=pending.sends + 1,
        last_sent_at_ms=run.floor_ms,
        is_cleared=False,
    )
    event = Event(
        at_ms=run.floor_ms,
        outcome=Outcome.RESENT,
        position=pending.position,
        kind=pending.intent.kind,
        key=pending.key,
        digest=pending.digest,
        reason=f"the look-up said {given.answer}" if given.answer else "",
    )
    return Step(run=replace(run, pending=again), events=(event,))


def _asked(run: Run, given: Asked, rules: Rules) -> Step:
    pending = _pending(run)
    event = Event(
        at_ms=run.floor_ms,
        outcome=Outcome.ASKED,
        position=pending.position,
        kind=pending.intent.kind,
        key=pending.key,
        digest=pending.digest,
        reason=one_line(f"the look-up said {given.answer}: {given.reason}"),
    )
    return Step(run=run, events=(event,))


def _given_up(run: Run, given: GivenUp, rules: Rules) -> Step:
    pending = _pending(run)
    if given.observed is not None:
        run = with_environment(run, given.observed)
    event = Event(
        at_ms=run.floor_ms,
        outcome=given.outcome,
        proposal=run.spent.proposals,
        kind=pending.intent.kind,
        key=pending.key,
        digest=pending.digest,
        environments=(given.observed,) if given.observed else (),
        reason=given.error.message,
    )
    run = replace(run, pending=None, attempt=run.attempt + 1)
    return close_if_spent(Step(run=run, events=(event,), error=given.error), rules)


def _case_opened(run: Run, given: CaseOpened, rules: Rules) -> Step:
    case = replace(given.case, finding=one_line(given.case.finding))
    is_conflict = case.reason is CaseReason.INTENT_CONFLICT
    event = Event(
        at_ms=run.floor_ms,
        outcome=Outcome.IDEMPOTENCY_CONFLICT if is_conflict else Outcome.NEEDS_REVIEW,
        key=run.pending.key if run.pending else "",
        digest=run.pending.digest if run.pending else IntentDigest(""),
        case=case,
        reason=case.finding,
    )
    return Step(run=replace(run, phase=Phase.NEEDS_REVIEW, case=case), events=(event,))


def _observed(run: Run, given: Observed, rules: Rules) -> Step:
    changed = tuple(state for state in given.environments if state not in run.environments)
    if not changed:
        return Step(run=run)
    for state in changed:
        run = with_environment(run, state)
    return Step(
        run=replace(run, evidence=None), events=(_moved(run, changed, "the environment moved"),)
    )


def _aborted(run: Run, given: Aborted, rules: Rules) -> Step:
    pending = run.pending
    finding = f" ({given.finding})" if given.finding else ""
    event = Event(
        at_ms=run.floor_ms,
        outcome=Outcome.ABORTED,
        kind=pending.intent.kind if pending else "",
        key=pending.key if pending else "",
        digest=pending.digest if pending else IntentDigest(""),
        intent=pending.intent if pending else None,
        receipt=given.receipt,
        case=run.case,
        reason=one_line(f"{given.actor}: {given.reason}{finding}"),
    )
    final = replace(run, phase=Phase.FAILED, reason="aborted", pending=None, case=None)
    return Step(run=final, events=(event,))


def _pending(run: Run) -> Pending:
    if run.pending is None:
        raise InvariantError("nothing is pending", run.run_id)
    return run.pending


_REDUCERS: Mapping[type[Any], Callable[[Run, Any, Rules], Step]] = {
    Proposed: propose,
    Garbled: garbled,
    Settled: _settled,
    Failed: _failed,
    Remembered: _remembered,
    Stumbled: working.stumbled,
    Unparked: working.unparked,
    ReceiptSeen: _receipt_seen,
    Resent: _resent,
    Asked: _asked,
    GivenUp: _given_up,
    CaseOpened: _case_opened,
    Observed: _observed,
    Aborted: _aborted,
    Approved: authority.approved,
    Denied: authority.denied,
    Revoked: authority.revoked,
    Released: authority.released,
    Lapsed: authority.lapsed,
    Withdrawn: authority.withdrawn,
    StatementRefused: authority.statement_refused,
    Decided: resolving.decided,
    Migrated: resolving.migrated,
}
