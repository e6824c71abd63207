"""Reducers for what a reviewer signs: decisions on an open case, and migrations.

As with approvals, each opens the envelope itself against the roots that hold now.
"""

from msgspec.structs import replace

from counterfoil.core.authority import pending_event, statement_event
from counterfoil.core.canonical import digest
from counterfoil.core.errors import ApprovalError
from counterfoil.core.inputs import Decided, Migrated, Rules, Step
from counterfoil.core.intent import Pending
from counterfoil.core.judge import approvals_required
from counterfoil.core.proposal import close_if_spent
from counterfoil.core.receipt import Receipt, receipt_fingerprint
from counterfoil.core.review import (
    Case,
    CaseReason,
    Resolution,
    Verdict,
    check_decision,
    open_decision,
    open_migration,
)
from counterfoil.core.run import Phase, Run, with_environment
from counterfoil.core.trace import Event, Outcome, position_name


def decided(run: Run, given: Decided, rules: Rules) -> Step:
    """Close the open case as a reviewer decided."""
    case = run.case
    if case is None:
        raise ApprovalError("no case is open", run.run_id)
    decision, signer = open_decision(given.envelope.encode("utf-8"), rules.roots)
    check_decision(decision, signer, case, run_id=run.run_id, task=run.task_id, now_ms=run.floor_ms)
    _check_unmoved(case, given)
    event = replace(
        statement_event(run, Outcome.RESOLVED, given.envelope, signer.entry.id),
        case=case,
        receipt=given.receipt,
        reason=f"{decision.verdict}: {decision.note}" if decision.note else decision.verdict,
    )
    resolution = Resolution(challenge=case.challenge, statement=given.envelope)
    run = replace(run, phase=Phase.RUNNING, case=None, resolution=resolution, evidence=None)
    if given.observed is not None:
        run = with_environment(run, given.observed)
    match decision.verdict:
        case Verdict.REPLAN:
            run = replace(run, pending=None, attempt=run.attempt + 1)
            return close_if_spent(Step(run=run, events=(event,)), rules)
        case Verdict.ABORT:
            is_conflict = case.reason is CaseReason.INTENT_CONFLICT
            name = "receipt_conflict" if is_conflict else case.reason.value
            failed = replace(run, phase=Phase.FAILED, reason=f"{name}_reviewed", pending=None)
            return Step(run=failed, events=(event,))
        case Verdict.CONFIRM_ABSENT:
            pending = replace(_sent(run), is_cleared=True)
            return Step(run=replace(run, pending=pending), events=(event,))
        case Verdict.CONFIRM_DONE:
            return _confirmed(run, event, decision.evidence, given.envelope, rules)


def _check_unmoved(case: Case, given: Decided) -> None:
    """Refuse a decision on a matter that looks different now."""
    now = receipt_fingerprint(given.receipt) if given.receipt else ""
    if now != case.receipt_digest:
        raise ApprovalError(
            f"the receipt changed: the case has {case.receipt_digest or 'none'}, now it is "
            f"{now or 'none'}"
        )
    if given.observed != case.observed:
        raise ApprovalError("the environment changed since the case was captured")


def _confirmed(run: Run, event: Event, evidence: str, envelope: str, rules: Rules) -> Step:
    """Settle the pending intent on a reviewer's word."""
    pending = _sent(run)
    poststate = replace(pending.prestate, version=pending.prestate.version + 1)
    seen = next((s for s in run.environments if s.adapter == pending.intent.adapter), None)
    receipt = Receipt(
        id=evidence,
        adapter=pending.intent.adapter,
        kind=pending.intent.kind,
        run_id=run.run_id,
        key=pending.key,
        digest=pending.digest,
        level=pending.level,
        poststate=seen if seen is not None and seen.fingerprint else poststate,
        committed_at_ms=0,
        statement=digest(envelope.encode("utf-8")),
        result={"confirmed": evidence},
    )
    done = replace(
        pending_event(run, pending, Outcome.CONFIRMED_DONE),
        position=pending.position,
        receipt=receipt,
        signer=event.signer,
    )
    run = replace(
        with_environment(run, receipt.poststate),
        pending=None,
        cursor=pending.position + 1,
        attempt=0,
        writes=run.writes + 1,
    )
    settles = (position_name(pending.position), pending.key)
    return close_if_spent(Step(run=run, events=(event, done), settles=settles), rules)


def migrated(run: Run, given: Migrated, rules: Rules) -> Step:
    """Record that a reviewer lets the run go on under another version of its task.

    What waits for a person is asked again under the policy that holds from here on.
    """
    _, signer = open_migration(given.envelope.encode("utf-8"), rules.roots)
    event = statement_event(run, Outcome.MIGRATED, given.envelope, signer.entry.id)
    run = replace(run, evidence=None)
    pending = run.pending
    if pending is None or pending.sends or not pending.approvals_required:
        return Step(run=run, events=(event,))
    spec = rules.kinds.get(pending.intent.kind)
    required = approvals_required(rules.task, spec) if spec else 0
    asked = replace(
        pending,
        approvals_required=max(pending.approvals_required, required),
        policy_version=rules.task.policy.version,
        approvals=(),
    )
    sealed = replace(event, statements=(given.envelope, *pending.approvals))
    case = replace(run.case, pending=asked) if run.case is not None else None
    return Step(run=replace(run, pending=asked, case=case), events=(sealed,))


def _sent(run: Run) -> Pending:
    if run.pending is None:
        raise ApprovalError("no action is pending in this case", run.run_id)
    return run.pending
