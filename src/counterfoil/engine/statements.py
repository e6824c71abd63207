"""Statements from the inbox, applied by the session that holds the lease.

Each is tried by itself, in order of arrival: a bad one never shadows a good one. One
that a trusted signer signed and that does not fit is refused on record; one that nobody
trusted signed is dropped, so that a writer of the inbox cannot grow the trace.
"""

import logging

from msgspec.structs import replace

from counterfoil.core.approval import (
    APPROVAL_TYPE,
    REVOCATION_TYPE,
    STATEMENT_BYTES_MAX,
    open_approval,
    open_revocation,
)
from counterfoil.core.canonical import decode
from counterfoil.core.envelope import Envelope
from counterfoil.core.errors import (
    ApprovalError,
    CounterfoilError,
    FormatError,
    RefusedError,
    SignatureError,
    UnavailableError,
)
from counterfoil.core.inputs import (
    Approved,
    CaseOpened,
    Decided,
    Denied,
    Input,
    Revoked,
    Rules,
    StatementRefused,
)
from counterfoil.core.intent import EnvironmentState, Pending
from counterfoil.core.machine import Standing, apply, standing
from counterfoil.core.receipt import Answer, Receipt, receipt_fingerprint
from counterfoil.core.review import (
    DECISION_TYPE,
    MIGRATION_TYPE,
    Verdict,
    open_decision,
    open_migration,
)
from counterfoil.core.run import environment_of
from counterfoil.core.task import Task
from counterfoil.core.trust import Role, TrustRoots
from counterfoil.core.words import Digest, Level
from counterfoil.engine import acting
from counterfoil.engine.ledger import Ledger

log = logging.getLogger("counterfoil.engine")

STATEMENTS_PAGE = 64
"""Statements taken at once: more wait for the next look."""


def type_of(envelope: bytes) -> str:
    """Return the type that a statement claims; nothing is verified.

    Raises:
        FormatError: It is no envelope.
    """
    return decode(envelope, Envelope, "statement", bytes_max=STATEMENT_BYTES_MAX).payload_type


def signer_of(envelope: bytes, roots: TrustRoots) -> tuple[str, Role]:
    """Return who of the trusted signed a statement, and in which role.

    Raises:
        FormatError, SignatureError: It is no statement, or nobody trusted signed it.
    """
    match type_of(envelope):
        case t if t == APPROVAL_TYPE:
            return open_approval(envelope, roots)[1].entry.id, Role.APPROVER
        case t if t == REVOCATION_TYPE:
            return open_revocation(envelope, roots)[1].entry.id, Role.APPROVER
        case t if t == DECISION_TYPE:
            return open_decision(envelope, roots)[1].entry.id, Role.REVIEWER
        case t if t == MIGRATION_TYPE:
            return open_migration(envelope, roots)[1].entry.id, Role.REVIEWER
        case other:
            raise SignatureError(f"{other!r:.80} is no type of statement")


def take_statements(ledger: Ledger, task: Task, rules: Rules) -> CounterfoilError | None:
    """Apply what waits in the run's inbox, and return the last denial among it.

    Raises:
        LostRaceError, UnavailableError: From a commit or an adapter.
    """
    inbox = ledger.parts.inbox
    if inbox is None or ledger.run.phase.has_ended:
        return None
    said: CounterfoilError | None = None
    for envelope in inbox.pending(ledger.run.run_id, STATEMENTS_PAGE):
        if standing(ledger.run) is Standing.ENDED:
            break
        said = _take(ledger, task, rules, envelope) or said
        inbox.discard(ledger.run.run_id, envelope)
    return said


def _take(ledger: Ledger, task: Task, rules: Rules, envelope: bytes) -> CounterfoilError | None:
    run_id = ledger.run.run_id
    try:
        signer, _ = signer_of(envelope, rules.roots)
    except (FormatError, SignatureError) as error:
        log.warning("run %s: a statement was dropped: %s", run_id, error.message)
        return None
    text = envelope.decode("utf-8")
    try:
        step = apply(ledger.run, _input(ledger, task, text, type_of(envelope), rules), rules)
        _make_impossible(ledger, text, rules)
    except RefusedError as error:
        refused = StatementRefused(envelope=text, signer=signer, reason=error.message)
        ledger.commit(apply(ledger.run, refused, rules))
        _recapture(ledger, task, rules, error)
        return None
    ledger.commit(step)
    return step.error


def _input(ledger: Ledger, task: Task, text: str, kind: str, rules: Rules) -> Input:
    if kind == REVOCATION_TYPE:
        return Revoked(envelope=text)
    if kind == DECISION_TYPE:
        receipt, observed = look_again(ledger, task)
        return Decided(envelope=text, receipt=receipt, observed=observed)
    if kind == APPROVAL_TYPE:
        approval, _ = open_approval(text.encode("utf-8"), rules.roots)
        return Approved(envelope=text) if approval.verdict == "approve" else Denied(envelope=text)
    raise ApprovalError("a migration counts when a run is opened", ledger.run.run_id)


def _make_impossible(ledger: Ledger, text: str, rules: Rules) -> None:
    """Have the old key forbidden once an accepted decision gives it up, where the adapter can.

    Where it fences only, the fence that was raised when the run was opened stops a call
    of an earlier lease; elsewhere the reviewer vouches for it.

    Raises:
        ApprovalError: The effect has landed meanwhile.
        UnavailableError: The adapter does not say, or a call of this very lease may still
            land; the decision waits.
    """
    case, raw = ledger.run.case, text.encode("utf-8")
    if case is None or case.pending is None or case.receipt is not None:
        return
    spec = rules.kinds.get(case.pending.intent.kind)
    if type_of(raw) != DECISION_TYPE or spec is None:
        return
    decision, _ = open_decision(raw, rules.roots)
    if decision.verdict not in (Verdict.REPLAN, Verdict.ABORT):
        return
    if not spec.forbids:
        is_replan = decision.verdict is Verdict.REPLAN
        if is_replan and spec.fences and ledger.has_sent(case.pending):
            raise UnavailableError(
                "a call of this session may still land",
                ledger.run.run_id,
                case.pending.key,
                move="close the run and open it again, which fences that call off",
            )
        return
    answer = acting.forbid(ledger, case.pending)
    if decision.verdict is Verdict.ABORT and answer.answer is not Answer.FOUND:
        return
    if answer.answer is Answer.UNKNOWN and answer.is_final:
        return  # nobody will ever know; a person has decided so
    if answer.answer is Answer.UNKNOWN:
        raise UnavailableError(f"the old key cannot be made impossible: {answer.reason}")
    if answer.answer is not Answer.ABSENT:
        raise ApprovalError(
            f"the old key cannot be made impossible: {answer.reason or answer.answer}",
            ledger.run.run_id,
            case.pending.key,
        )


def look_again(ledger: Ledger, task: Task) -> tuple[Receipt | None, EnvironmentState | None]:
    """Return the receipt and the environment of an open case as they are now.

    Raises:
        UnavailableError: They cannot be looked at.
    """
    case = ledger.run.case
    if case is None:
        return None, None
    receipt = case.receipt
    pending = case.pending
    if pending is not None and _has_look_up(ledger, pending):
        answer = acting.look_up(ledger, pending)
        if answer.answer is Answer.UNKNOWN and not answer.is_final:
            raise UnavailableError(f"the receipt cannot be read again: {answer.reason}")
        receipt = answer.receipt
    observed = case.observed
    if observed is not None:
        seen = acting.observe(ledger.parts, task, observed.adapter).state
        observed = acting.merged(observed, seen)
    return receipt, observed


def _has_look_up(ledger: Ledger, pending: Pending) -> bool:
    spec = ledger.parts.kinds.get(pending.intent.kind)
    return pending.level is not Level.BLIND and (spec is None or spec.has_look_up)


def _recapture(ledger: Ledger, task: Task, rules: Rules, error: CounterfoilError) -> None:
    """Capture a case anew whose matter has changed since, so that it can be decided."""
    case = ledger.run.case
    if case is None or not isinstance(error, ApprovalError):
        return
    receipt, observed = look_again(ledger, task)
    fingerprint = receipt_fingerprint(receipt) if receipt else Digest("")
    if (fingerprint, observed) == (case.receipt_digest, case.observed):
        return
    adapter = observed.adapter if observed else ""
    fresh = replace(
        case,
        challenge=ledger.parts.nonce(),
        receipt=receipt,
        receipt_digest=fingerprint,
        observed=observed,
        recorded=environment_of(ledger.run, adapter) or case.recorded,
        opened_at_ms=max(rules.now_ms, ledger.run.floor_ms),
    )
    ledger.commit(apply(ledger.run, CaseOpened(case=fresh), rules))
