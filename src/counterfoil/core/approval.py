"""Approvals: what a person is asked, what a person signs, and when it counts.

An approval binds one exact action in one exact state of its environment, answers the
challenge of its request, and ends by two clocks: wall time (exclusive) and proposal
count (inclusive). One that has ended always loads and shows; it executes nothing.
"""

from collections.abc import Iterable
from typing import Literal

import msgspec

from counterfoil.core.canonical import decode, digest
from counterfoil.core.envelope import key_ids, payload_of, unseal
from counterfoil.core.errors import ApprovalError, FormatError, SignatureError
from counterfoil.core.intent import EnvironmentState, Intent, Pending
from counterfoil.core.trust import Role, TrustedSigner, TrustRoots, standing_problem
from counterfoil.core.words import Digest, IntentDigest, Key, Level, RunId

APPROVAL_TYPE = "application/vnd.counterfoil.approval.v1+json"
REVOCATION_TYPE = "application/vnd.counterfoil.revocation.v1+json"
STATEMENT_BYTES_MAX = 8 * 1024
"""A statement in its envelope: names, digests and times."""

FORMAT = 1


class Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a person is asked to approve: everything that decides, and a preview.

    Attributes:
        format: Version of this form.
        run: The run.
        task: Its task.
        policy_version: Version of the policy that asks.
        action_id: Given by the runtime.
        key: Idempotency key.
        digest: Digest of the intent.
        intent: The whole intent.
        environment: State of the environment that the intent was built on.
        level: What can be proved about a lost call.
        preview: What would change, for people; empty when there is none.
        challenge: Random; an approval answers it.
        proposal: Proposals judged so far.
        requested_at_ms: When, UTC.
    """

    format: int
    run: RunId
    task: str
    policy_version: str
    action_id: str
    key: Key
    digest: IntentDigest
    intent: Intent
    environment: EnvironmentState
    level: Level
    preview: str
    challenge: str
    proposal: int
    requested_at_ms: int


class Approval(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an approver signs.

    Attributes:
        format: Version of this form.
        verdict: "approve" or "deny".
        signer: Name of the approver.
        run, task, policy_version, action_id, key, digest, environment, challenge: As in
            the request.
        issued_at_ms: When it was signed, UTC.
        expires_at_ms: First moment at which it no longer counts, UTC.
        last_proposal: Last proposal count at which it counts.
        note: For people.
    """

    format: int
    verdict: Literal["approve", "deny"]
    signer: str
    run: RunId
    task: str
    policy_version: str
    action_id: str
    key: Key
    digest: IntentDigest
    environment: EnvironmentState
    challenge: str
    issued_at_ms: int
    expires_at_ms: int
    last_proposal: int
    note: str = ""


class Revocation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an approver signs to take an approval back.

    Attributes:
        format: Version of this form.
        signer: Name of the approver.
        run: The run.
        challenge: Challenge that the approval answered.
        approval: Digest of the approval's envelope.
        issued_at_ms: When it was signed, UTC.
        note: For people.
    """

    format: int
    signer: str
    run: RunId
    challenge: str
    approval: Digest
    issued_at_ms: int
    note: str = ""


def request_of(pending: Pending, *, run_id: RunId, task: str, proposal: int) -> Request:
    """Return the request that a waiting intent stands for."""
    return Request(
        format=FORMAT,
        run=run_id,
        task=task,
        policy_version=pending.policy_version,
        action_id=pending.action_id,
        key=pending.key,
        digest=pending.digest,
        intent=pending.intent,
        environment=pending.prestate,
        level=pending.level,
        preview=pending.preview,
        challenge=pending.challenge,
        proposal=proposal,
        requested_at_ms=pending.requested_at_ms,
    )


def open_statement(
    envelope: bytes, payload_type: str, roots: TrustRoots, role: Role
) -> tuple[bytes, TrustedSigner]:
    """Return the payload of a statement and who signed it.

    Raises:
        FormatError: It is no envelope in its one form, or too large.
        SignatureError: Nobody of this role signed it, or it is of another type.
    """
    if len(envelope) > STATEMENT_BYTES_MAX:
        raise FormatError(
            f"the statement has {len(envelope)} bytes, the bound is {STATEMENT_BYTES_MAX}"
        )
    signers = roots.of(role)
    ids = key_ids(envelope)
    if len(ids) != 1:
        raise SignatureError(f"a statement has one signature, this one has {len(ids)}")
    signer = signers.get(ids[0])
    if signer is None:
        raise SignatureError(f"no {role} has key {ids[0]!r:.80}")
    payload = unseal(envelope, payload_type, {signer.key_id: signer.verifier})
    return payload, signer


def open_approval(envelope: bytes, roots: TrustRoots) -> tuple[Approval, TrustedSigner]:
    """Return an approval that an approver signed, whether or not it still counts.

    Raises:
        FormatError, SignatureError: As `open_statement`; also when the signer's name is
            not the one that the trust file gives to the key.
    """
    payload, signer = open_statement(envelope, APPROVAL_TYPE, roots, Role.APPROVER)
    approval = decode(payload, Approval, "approval", bytes_max=STATEMENT_BYTES_MAX)
    check_name(approval.format, approval.signer, signer)
    return approval, signer


def open_revocation(envelope: bytes, roots: TrustRoots) -> tuple[Revocation, TrustedSigner]:
    """Return a revocation that an approver signed.

    Raises:
        FormatError, SignatureError: As `open_approval`.
    """
    payload, signer = open_statement(envelope, REVOCATION_TYPE, roots, Role.APPROVER)
    revocation = decode(payload, Revocation, "revocation", bytes_max=STATEMENT_BYTES_MAX)
    check_name(revocation.format, revocation.signer, signer)
    return revocation, signer


def check_name(form: int, name: str, signer: TrustedSigner) -> None:
    """Refuse a statement of another form, or in another signer's name.

    Raises:
        FormatError, SignatureError: It is.
    """
    if form != FORMAT:
        raise FormatError(f"statement format {form} is unknown")
    if name != signer.entry.id:
        raise SignatureError(f"the statement names {name!r:.80}, its key is {signer.entry.id}'s")


def check_binding(approval: Approval, request: Request) -> None:
    """Refuse an approval of anything but exactly this.

    Raises:
        ApprovalError: Names the field, with both values.
    """
    wanted, given = request.environment, approval.environment
    pairs: tuple[tuple[str, object, object], ...] = (
        ("run", request.run, approval.run),
        ("task", request.task, approval.task),
        ("policy_version", request.policy_version, approval.policy_version),
        ("action_id", request.action_id, approval.action_id),
        ("key", request.key, approval.key),
        ("digest", request.digest, approval.digest),
        ("adapter", wanted.adapter, given.adapter),
        ("instance", wanted.instance, given.instance),
        ("environment generation", wanted.generation, given.generation),
        ("version", wanted.version, given.version),
        ("fingerprint", wanted.fingerprint, given.fingerprint),
        ("account", wanted.account, given.account),
        ("challenge", request.challenge, approval.challenge),
    )
    for name, ours, theirs in pairs:
        if ours != theirs:
            raise ApprovalError(
                f"the approval is for {name} {theirs!r:.120}, this action has {ours!r:.120}",
                request.run,
                request.key,
            )


def liveness_problem(
    approval: Approval, signer: TrustedSigner, request: Request, *, now_ms: int
) -> str:
    """Return why a bound approval lets nothing happen now, or an empty string.

    Args:
        approval: Signed, and bound to the request.
        signer: Who signed it.
        request: What it was asked, with the present proposal count.
        now_ms: UTC, never before the run's floor.
    """
    if now_ms >= approval.expires_at_ms:
        return f"the approval of {approval.signer} ended at {approval.expires_at_ms}"
    if request.proposal > approval.last_proposal:
        return (
            f"the approval of {approval.signer} ended with proposal {approval.last_proposal}, "
            f"this is {request.proposal}"
        )
    if approval.issued_at_ms < request.requested_at_ms - CLOCKS_APART_MS:
        return f"the approval of {approval.signer} is older than its request"
    intent = request.intent
    return standing_problem(
        signer.entry,
        issued_at_ms=approval.issued_at_ms,
        now_ms=now_ms,
        task=request.task,
        kind=intent.kind,
        risk=intent.risk,
        adapter=intent.adapter,
    )


CLOCKS_APART_MS = 24 * 3_600_000
"""How far a signer's clock may be behind the worker's."""


def earliest_end_ms(envelopes: Iterable[str]) -> int:
    """Return when the first of some bound approvals ends; they were verified before."""
    ends: list[int] = []
    for envelope in envelopes:
        payload = payload_of(envelope.encode("utf-8"))
        approval = decode(payload, Approval, "approval", bytes_max=STATEMENT_BYTES_MAX)
        ends.append(approval.expires_at_ms)
    return min(ends, default=0)


def statement_digest(envelopes: Iterable[str]) -> str:
    """Return what an adapter is told it acts under: one digest over all approvals.

    Empty when there is none.
    """
    each = sorted(digest(envelope.encode("utf-8")) for envelope in envelopes)
    return digest("\n".join(each).encode("ascii")) if each else ""
