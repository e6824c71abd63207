"""Cases and decisions: a frozen matter with all its evidence, until a person decides.

A decision binds the whole case: what was pending, what receipt was observed, how the
environment looked. It answers the case's challenge and ends by the wall clock. If the
world moved meanwhile it is refused, and the case is captured anew.
"""

from enum import StrEnum

import msgspec

from counterfoil.core.approval import FORMAT, STATEMENT_BYTES_MAX, check_name, open_statement
from counterfoil.core.canonical import decode
from counterfoil.core.errors import ApprovalError
from counterfoil.core.intent import EnvironmentState, Pending
from counterfoil.core.receipt import Receipt
from counterfoil.core.trust import Role, TrustedSigner, TrustRoots, standing_problem
from counterfoil.core.words import Digest, Key, RunId

DECISION_TYPE = "application/vnd.counterfoil.decision.v1+json"
MIGRATION_TYPE = "application/vnd.counterfoil.migration.v1+json"


class CaseReason(StrEnum):
    """Why a run may not go on by itself."""

    INTENT_CONFLICT = "intent_conflict"
    OUTCOME_UNKNOWN = "outcome_unknown"
    ENVIRONMENT_DRIFT = "environment_drift"
    LATE_COMMIT = "late_commit"
    INCOMPLETE_RECEIPT = "incomplete_receipt"


class Case(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was found when the run froze.

    Attributes:
        reason: One of five.
        finding: One sentence for people.
        challenge: Random, issued with the case; a decision must answer it.
        pending: The intent in doubt, if there is one.
        receipt: The receipt that was observed, if there is one.
        receipt_digest: Fingerprint of that receipt; empty when there is none.
        recorded: Environment as the checkpoint has it.
        observed: Environment as it was found; None when it could not be observed.
        opened_at_ms: When, UTC.
    """

    reason: CaseReason
    finding: str
    challenge: str
    pending: Pending | None = None
    receipt: Receipt | None = None
    receipt_digest: Digest = Digest("")
    recorded: EnvironmentState | None = None
    observed: EnvironmentState | None = None
    opened_at_ms: int


class Verdict(StrEnum):
    """What a reviewer may decide."""

    REPLAN = "replan"
    ABORT = "abort"
    CONFIRM_DONE = "confirm_done"
    CONFIRM_ABSENT = "confirm_absent"


class Decision(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a reviewer signs.

    Attributes:
        format: Version of this form.
        verdict: What is to become of the matter.
        signer: Name of the reviewer.
        run: The run.
        task: Its task.
        reason: Reason of the case.
        challenge: Challenge of the case.
        key: Key of the pending intent; empty when none is pending.
        digest: Its digest; empty when none is pending.
        receipt_digest: Fingerprint of the observed receipt; empty when there is none.
        observed: The environment as the case has it.
        evidence: For "confirm_done": the business id, or where the proof lies.
        issued_at_ms: When it was signed, UTC.
        expires_at_ms: First moment at which it no longer counts, UTC.
        note: For people.
    """

    format: int
    verdict: Verdict
    signer: str
    run: RunId
    task: str
    reason: CaseReason
    challenge: str
    key: str
    digest: str
    receipt_digest: str
    observed: EnvironmentState | None
    evidence: str = ""
    issued_at_ms: int
    expires_at_ms: int
    note: str = ""


class Migration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a reviewer signs to let a run go on under another version of its task.

    Attributes:
        format: Version of this form.
        signer: Name of the reviewer.
        run: The run.
        checkpoint: Digest of the head that it goes on from.
        from_task, to_task: Fingerprints of the task.
        issued_at_ms: When it was signed, UTC.
        expires_at_ms: First moment at which it no longer counts, UTC.
        note: For people.
    """

    format: int
    signer: str
    run: RunId
    checkpoint: Digest
    from_task: Digest
    to_task: Digest
    issued_at_ms: int
    expires_at_ms: int
    note: str = ""


class Resolution(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The latest case that a decision closed, kept so that it can be checked again.

    Attributes:
        challenge: Challenge of the case.
        statement: The decision's envelope, as it was signed.
    """

    challenge: str
    statement: str


def open_decision(envelope: bytes, roots: TrustRoots) -> tuple[Decision, TrustedSigner]:
    """Return a decision that a reviewer signed, whether or not it still counts.

    Raises:
        FormatError, SignatureError: It is no such statement, or nobody of the
            reviewers signed it.
    """
    payload, signer = open_statement(envelope, DECISION_TYPE, roots, Role.REVIEWER)
    decision = decode(payload, Decision, "decision", bytes_max=STATEMENT_BYTES_MAX)
    check_name(decision.format, decision.signer, signer)
    return decision, signer


def open_migration(envelope: bytes, roots: TrustRoots) -> tuple[Migration, TrustedSigner]:
    """Return a migration that a reviewer signed.

    Raises:
        FormatError, SignatureError: As `open_decision`.
    """
    payload, signer = open_statement(envelope, MIGRATION_TYPE, roots, Role.REVIEWER)
    migration = decode(payload, Migration, "migration", bytes_max=STATEMENT_BYTES_MAX)
    check_name(migration.format, migration.signer, signer)
    return migration, signer


def decision_for(
    case: Case,
    *,
    run_id: RunId,
    task: str,
    verdict: Verdict,
    signer: str,
    evidence: str = "",
    issued_at_ms: int,
    expires_at_ms: int,
    note: str = "",
) -> Decision:
    """Return the unsigned decision that binds exactly this case."""
    pending = case.pending
    return Decision(
        format=FORMAT,
        verdict=verdict,
        signer=signer,
        run=run_id,
        task=task,
        reason=case.reason,
        challenge=case.challenge,
        key=pending.key if pending else Key(""),
        digest=pending.digest if pending else "",
        receipt_digest=case.receipt_digest,
        observed=case.observed,
        evidence=evidence,
        issued_at_ms=issued_at_ms,
        expires_at_ms=expires_at_ms,
        note=note,
    )


def check_decision(
    decision: Decision, signer: TrustedSigner, case: Case, *, run_id: RunId, task: str, now_ms: int
) -> None:
    """Refuse a decision on anything but exactly this case, now.

    Raises:
        ApprovalError: Names what does not fit, with both values.
    """
    wanted = decision_for(
        case,
        run_id=run_id,
        task=task,
        verdict=decision.verdict,
        signer=decision.signer,
        evidence=decision.evidence,
        issued_at_ms=decision.issued_at_ms,
        expires_at_ms=decision.expires_at_ms,
        note=decision.note,
    )
    for name in ("run", "task", "reason", "challenge", "key", "digest", "receipt_digest"):
        ours, theirs = getattr(wanted, name), getattr(decision, name)
        if ours != theirs:
            raise ApprovalError(
                f"the decision is for {name} {theirs!r:.120}, the case has {ours!r:.120}", run_id
            )
    if wanted.observed != decision.observed:
        raise ApprovalError(
            f"the decision is for environment {_shown(decision.observed)}, the case has "
            f"{_shown(wanted.observed)}",
            run_id,
        )
    if now_ms >= decision.expires_at_ms:
        raise ApprovalError(f"the decision ended at {decision.expires_at_ms}", run_id)
    intent = case.pending.intent if case.pending else None
    problem = standing_problem(
        signer.entry,
        issued_at_ms=decision.issued_at_ms,
        now_ms=now_ms,
        task=task,
        kind=intent.kind if intent else "",
        risk=intent.risk if intent else None,
        adapter=intent.adapter if intent else "",
    )
    if problem:
        raise ApprovalError(problem, run_id)
    _check_verdict(decision, case, run_id)


def _check_verdict(decision: Decision, case: Case, run_id: RunId) -> None:
    confirms = decision.verdict in (Verdict.CONFIRM_DONE, Verdict.CONFIRM_ABSENT)
    if confirms and case.reason is not CaseReason.OUTCOME_UNKNOWN:
        raise ApprovalError(
            f"{decision.verdict} answers outcome_unknown, this case is {case.reason}", run_id
        )
    if decision.verdict is Verdict.CONFIRM_ABSENT and case.receipt is not None:
        raise ApprovalError("confirm_absent: the target shows a receipt under the key", run_id)
    if decision.verdict is Verdict.CONFIRM_DONE and not decision.evidence:
        raise ApprovalError("confirm_done needs evidence: a business id, or where it lies", run_id)


def _shown(state: EnvironmentState | None) -> str:
    if state is None:
        return "none"
    return f"{state.instance} version {state.version} ({state.fingerprint:.12})"
