"""What statements do to a run: approvals, denials, revocations, decisions, migrations.

Every reducer opens the envelope itself, against the roots that hold now, so that no
caller can hand in a verdict. A statement that does not fit is refused by an error that
names the binding and both values, and changes nothing.
"""

from msgspec.structs import replace

from counterfoil.core.approval import (
    Approval,
    Request,
    check_binding,
    earliest_end_ms,
    liveness_problem,
    open_approval,
    open_revocation,
    request_of,
    statement_digest,
)
from counterfoil.core.canonical import digest
from counterfoil.core.errors import ApprovalError, BindingError, InvariantError
from counterfoil.core.inputs import (
    Approved,
    Denied,
    Lapsed,
    Released,
    Revoked,
    Rules,
    StatementRefused,
    Step,
    Withdrawn,
)
from counterfoil.core.intent import Pending
from counterfoil.core.judge import approvals_required
from counterfoil.core.proposal import close_if_spent
from counterfoil.core.review import (
    Verdict,
    open_decision,
)
from counterfoil.core.run import Run
from counterfoil.core.trace import Event, Outcome
from counterfoil.core.trust import TrustedSigner, TrustRoots
from counterfoil.core.words import IntentDigest


def pending_request(run: Run) -> Request:
    """Return the request that the pending intent of a run stands for.

    Raises:
        ApprovalError: Nothing waits for an approval.
    """
    pending = run.pending
    if pending is None or not pending.approvals_required:
        raise ApprovalError("no action waits for an approval", run.run_id)
    return request_of(
        pending,
        run_id=run.run_id,
        task=run.task_id,
        proposal=run.spent.proposals,
    )


def approval_lack(run: Run, rules: Rules) -> str:
    """Return why the pending intent may not be sent now, or an empty string.

    The policy is asked as well as the record, so that a record which was made by hand
    cannot say that nobody needs to be asked.
    """
    pending = run.pending
    if pending is None:
        return ""
    spec = rules.kinds.get(pending.intent.kind)
    wanted = approvals_required(rules.task, spec) if spec else 0
    if wanted > pending.approvals_required:
        return f"the policy asks for {wanted} approvals, it has {pending.approvals_required}"
    if not pending.approvals_required:
        return ""
    policy = rules.task.policy
    if not pending.sends and pending.policy_version != policy.version:
        return f"it was asked under policy {pending.policy_version}, this is {policy.version}"
    now_ms = max(rules.now_ms, run.floor_ms)
    live, problems = _sorted_approvals(run, pending, rules.roots, now_ms)
    if len(live) >= pending.approvals_required:
        return ""
    counted = f"{len(live)} of {pending.approvals_required} approvals"
    return f"{counted}; {problems[0]}" if problems else f"it has {counted}"


def _sorted_approvals(
    run: Run, pending: Pending, roots: TrustRoots, now_ms: int
) -> tuple[dict[str, str], list[str]]:
    """Return live approvals by signer, and what ails the others."""
    request = pending_request(run)
    live: dict[str, str] = {}
    problems: list[str] = []
    for envelope in pending.approvals:
        approval, signer = open_approval(envelope.encode("utf-8"), roots)
        check_binding(approval, request)
        problem = _problem(approval, signer, pending, request, now_ms)
        if problem:
            problems.append(problem)
        else:
            live[signer.entry.id] = envelope
    return live, problems


def _problem(
    approval: Approval, signer: TrustedSigner, pending: Pending, request: Request, now_ms: int
) -> str:
    """Return why a bound approval does not count, or an empty string."""
    if approval.verdict != "approve":
        return f"{approval.signer} signed a denial"
    until_ms = pending.revoked.get(approval.signer, -1)
    if approval.issued_at_ms <= until_ms:
        return f"{approval.signer} took back what was signed until {until_ms}"
    return liveness_problem(approval, signer, request, now_ms=now_ms)


def check_authority(run: Run, roots: TrustRoots) -> None:
    """Refuse a state whose statements were not signed by those who are trusted.

    Whether they still count is not asked: what has expired always loads.

    Raises:
        SignatureError: A statement is not signed by anybody of its role.
        FormatError: It is not in its one form.
        BindingError: An approval is for another action or is a denial, or what allows
            another call is for another matter.
    """
    pending = run.pending
    if pending is not None and pending.approvals_required:
        request = pending_request(run)
        for envelope in pending.approvals:
            approval, _ = open_approval(envelope.encode("utf-8"), roots)
            try:
                check_binding(approval, request)
            except ApprovalError as error:
                raise BindingError(error.message, run.run_id, pending.key) from error
            if approval.verdict != "approve":
                raise BindingError(f"{approval.signer} signed a denial", run.run_id, pending.key)
    allowed: tuple[str, str, str] | None = None
    if run.resolution is not None:
        decision, _ = open_decision(run.resolution.statement.encode("utf-8"), roots)
        if (decision.run, decision.challenge) != (run.run_id, run.resolution.challenge):
            raise BindingError("the decision is for another case", run.run_id)
        allowed = (decision.verdict, decision.key, decision.digest)
    if pending is None or not pending.is_cleared:
        return
    if allowed != (Verdict.CONFIRM_ABSENT, pending.key, pending.digest):
        raise BindingError("no decision allows another call", run.run_id, pending.key)


def approved(run: Run, given: Approved, rules: Rules) -> Step:
    """Bind an approval to the pending intent; what has ended before is sealed away."""
    pending = _waiting(run)
    request = pending_request(run)
    approval, signer = open_approval(given.envelope.encode("utf-8"), rules.roots)
    check_binding(approval, request)
    problem = _problem(approval, signer, pending, request, run.floor_ms)
    if problem:
        raise ApprovalError(problem, run.run_id, pending.key)
    live, _ = _sorted_approvals(run, pending, rules.roots, run.floor_ms)
    if signer.entry.id in live:
        raise ApprovalError(f"{signer.entry.id} has approved this already", run.run_id, pending.key)
    if len(live) >= pending.approvals_required:
        raise ApprovalError(
            f"{' and '.join(sorted(live))} approved this already", run.run_id, pending.key
        )
    ended = tuple(envelope for envelope in pending.approvals if envelope not in live.values())
    kept = (*live.values(), given.envelope)
    events = [statement_event(run, Outcome.APPROVED, given.envelope, signer.entry.id)]
    if ended:
        sealed = replace(events[0], outcome=Outcome.REFRESHED, statements=ended)
        events.insert(0, sealed)
    return Step(run=replace(run, pending=replace(pending, approvals=kept)), events=tuple(events))


def denied(run: Run, given: Denied, rules: Rules) -> Step:
    """Give up an intent that a person does not allow and that has not been sent."""
    pending = _waiting(run)
    approval, signer = open_approval(given.envelope.encode("utf-8"), rules.roots)
    request = pending_request(run)
    check_binding(approval, request)
    if approval.verdict != "deny":
        raise ApprovalError(f"{approval.signer} signed no denial", run.run_id, pending.key)
    if pending.sends:
        raise ApprovalError("it may have been sent already", run.run_id, pending.key)
    problem = liveness_problem(approval, signer, request, now_ms=run.floor_ms)
    if problem:
        raise ApprovalError(problem, run.run_id, pending.key)
    event = statement_event(run, Outcome.DENIED, given.envelope, signer.entry.id)
    note = f": {approval.note}" if approval.note else ""
    error = ApprovalError(f"{signer.entry.id} denied it{note}", run.run_id, pending.key)
    run = replace(run, pending=None, attempt=run.attempt + 1)
    return close_if_spent(Step(run=run, events=(event,), error=error), rules)


def revoked(run: Run, given: Revoked, rules: Rules) -> Step:
    """Take back all that an approver has signed for this request until then.

    It holds for what is not bound yet as well, so that neither the order in which
    statements arrive nor a repeated approval brings it back.
    """
    pending = _waiting(run)
    revocation, signer = open_revocation(given.envelope.encode("utf-8"), rules.roots)
    if (revocation.run, revocation.challenge) != (run.run_id, pending.challenge):
        raise ApprovalError("the revocation is for another request", run.run_id, pending.key)
    name, until_ms = signer.entry.id, revocation.issued_at_ms
    if until_ms <= pending.revoked.get(name, -1):
        raise ApprovalError(f"{name} took that back already", run.run_id, pending.key)
    kept: list[str] = []
    for envelope in pending.approvals:
        raw = envelope.encode("utf-8")
        approval, _ = open_approval(raw, rules.roots)
        if approval.signer != name:
            kept.append(envelope)
        elif digest(raw) == revocation.approval:
            until_ms = max(until_ms, approval.issued_at_ms)
        elif approval.issued_at_ms > until_ms:
            kept.append(envelope)
    event = statement_event(run, Outcome.REVOKED, given.envelope, name)
    left = replace(pending, approvals=tuple(kept), revoked=dict(pending.revoked) | {name: until_ms})
    return Step(run=replace(run, pending=left), events=(event,))


def released(run: Run, given: Released, rules: Rules) -> Step:
    """Record that the approved call is about to leave for the first time."""
    pending = _waiting(run)
    if pending.sends:
        raise InvariantError("a sent intent is released again", run.run_id)
    sent = under_approvals(run, pending, rules)
    sent = replace(sent, sends=1, first_sent_at_ms=run.floor_ms, last_sent_at_ms=run.floor_ms)
    event = replace(
        pending_event(run, pending, Outcome.RELEASED),
        statements=pending.approvals,
        reason=f"under statement {statement_digest(pending.approvals)}",
    )
    return Step(run=replace(run, pending=sent), events=(event,))


def under_approvals(run: Run, pending: Pending, rules: Rules) -> Pending:
    """Return the pending intent with a note of the approvals that a call leaves under.

    Raises:
        ApprovalError: They do not suffice now.
    """
    lack = approval_lack(run, rules)
    if lack:
        raise ApprovalError(f"it may not be sent: {lack}", run.run_id, pending.key)
    return replace(
        pending,
        released=statement_digest(pending.approvals),
        released_until_ms=earliest_end_ms(pending.approvals),
    )


def lapsed(run: Run, given: Lapsed, rules: Rules) -> Step:
    """Keep it that bound approvals have ended, so that no clock set back revives them."""
    pending = _waiting(run)
    event = replace(
        pending_event(run, pending, Outcome.APPROVAL_REJECTED),
        statements=pending.approvals,
        reason=given.reason,
    )
    return Step(run=run, events=(event,))


def withdrawn(run: Run, given: Withdrawn, rules: Rules) -> Step:
    """Give up an intent that its planner takes back and that has not been sent."""
    pending = _waiting(run)
    if pending.sends:
        raise ApprovalError("it may have been sent already", run.run_id, pending.key)
    event = replace(pending_event(run, pending, Outcome.WITHDRAWN), reason=given.reason)
    run = replace(run, pending=None, attempt=run.attempt + 1)
    return close_if_spent(Step(run=run, events=(event,)), rules)


def statement_refused(run: Run, given: StatementRefused, rules: Rules) -> Step:
    """Record a genuine statement that was refused, so that nothing is hidden."""
    event = replace(
        statement_event(run, Outcome.STATEMENT_REFUSED, given.envelope, given.signer),
        reason=given.reason,
    )
    return Step(run=run, events=(event,))


def _waiting(run: Run) -> Pending:
    pending = run.pending
    if pending is None or not pending.approvals_required:
        raise ApprovalError("no action waits for an approval", run.run_id)
    return pending


def statement_event(run: Run, outcome: Outcome, envelope: str, signer: str) -> Event:
    """Return the event of a statement about what is pending."""
    pending = run.pending
    return Event(
        at_ms=run.floor_ms,
        outcome=outcome,
        action_id=pending.action_id if pending else "",
        kind=pending.intent.kind if pending else "",
        key=pending.key if pending else "",
        digest=pending.digest if pending else IntentDigest(""),
        statements=(envelope,),
        signer=signer,
    )


def pending_event(run: Run, pending: Pending, outcome: Outcome) -> Event:
    """Return an event about the pending intent."""
    return Event(
        at_ms=run.floor_ms,
        outcome=outcome,
        proposal=run.spent.proposals,
        action_id=pending.action_id,
        kind=pending.intent.kind,
        key=pending.key,
        digest=pending.digest,
    )
