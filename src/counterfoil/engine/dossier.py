"""Requests and cases as files: to be read and signed where there is no store.

A file holds all that is signed and all that a person needs to judge it. It is not to be
believed for itself: what is signed are digests, and they are computed again from what
the file shows.
"""

from typing import Literal

import msgspec

from counterfoil.core.approval import Request
from counterfoil.core.bounds import EVENTS_BYTES_MAX
from counterfoil.core.canonical import encode, shaped, strict_json
from counterfoil.core.errors import ContractError
from counterfoil.core.intent import Intent, intent_digest
from counterfoil.core.receipt import receipt_fingerprint
from counterfoil.core.review import Case
from counterfoil.core.trust import Role
from counterfoil.core.words import Digest, Json, RunId
from counterfoil.engine.control import RunView
from counterfoil.engine.matters import CaseRecord, approvals_of, request_in
from counterfoil.engine.parts import Parts
from counterfoil.engine.proof import make_proof

REQUEST_TYPE = "counterfoil.request"
CASE_TYPE = "counterfoil.case"
DOSSIER_BYTES_MAX = 8 * EVENTS_BYTES_MAX
"""A case with its receipt, and the proof of its event in base64."""


class KeyHolder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who has a key, by the trust file: the name that a statement must carry."""

    id: str
    key: str


class Given(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An approval that is there already, by the digest that a revocation names."""

    signer: str
    digest: Digest


class RequestFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request to be signed elsewhere.

    Attributes:
        type: "counterfoil.request".
        format: Version of this form.
        required: How many distinct approvers must sign.
        request: What is asked.
        approvers: Who may sign.
        approvals: What was signed before.
    """

    type: Literal["counterfoil.request"] = "counterfoil.request"
    format: Literal[1] = 1
    required: int
    request: Request
    approvers: tuple[KeyHolder, ...] = ()
    approvals: tuple[Given, ...] = ()


class CaseFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A case to be signed elsewhere, or to be kept, with the proof that it is genuine.

    Attributes:
        type: "counterfoil.case".
        format: Version of this form.
        run: The run.
        task: Its task.
        is_open: Whether a decision may still close it.
        case: What was captured.
        reviewers: Who may sign.
        opened: Proof of the event that opened it, as `counterfoil check-proof` takes it.
        closed: Proof of the event that closed it; None while it is open.
    """

    type: Literal["counterfoil.case"] = "counterfoil.case"
    format: Literal[1] = 1
    run: RunId
    task: str
    is_open: bool
    case: Case
    reviewers: tuple[KeyHolder, ...] = ()
    opened: dict[str, Json]
    closed: dict[str, Json] | None = None


def request_file(parts: Parts, view: RunView) -> bytes:
    """Return the open request of a run as a file.

    Raises:
        ApprovalError: Nothing waits for an approval.
    """
    pending = view.run.pending
    return _written(
        RequestFile(
            required=pending.approvals_required if pending else 0,
            request=request_in(view),
            approvers=_holders(parts, Role.APPROVER),
            approvals=tuple(
                Given(signer=row.approval.signer, digest=row.digest)
                for row in approvals_of(parts, view)
            ),
        )
    )


def case_file(parts: Parts, view: RunView, record: CaseRecord) -> bytes:
    """Return a case of a run as a file, with proofs of the events around it."""
    run_id = view.run.run_id
    return _written(
        CaseFile(
            run=run_id,
            task=view.run.task_id,
            is_open=record.end is None,
            case=record.case,
            reviewers=_holders(parts, Role.REVIEWER),
            opened=_proof(parts, run_id, record.opened_index),
            closed=_proof(parts, run_id, record.closed_index) if record.end else None,
        )
    )


def read_dossier(raw: bytes) -> RequestFile | CaseFile:
    """Return what a file asks a person to sign.

    Raises:
        ContractError: It is no such file, or what it shows is not what would be signed.
    """
    value = strict_json(raw, "file", bytes_max=DOSSIER_BYTES_MAX)
    kind = _kind(value)
    if kind == REQUEST_TYPE:
        read = shaped(value, RequestFile, "request file")
        _check_intent(read.request.intent, read.request.digest)
        return read
    if kind == CASE_TYPE:
        case_read = shaped(value, CaseFile, "case file")
        _check_case(case_read.case)
        return case_read
    raise ContractError(
        "the file is neither a request nor a case",
        move="take what `counterfoil requests --export` or `review show --export` wrote",
    )


def _kind(value: Json) -> Json:
    match value:
        case {"type": kind}:
            return kind
        case _:
            return None


def _check_intent(intent: Intent, named: str) -> None:
    found = intent_digest(intent)
    if found != named:
        raise ContractError(
            f"the file names intent {named:.80}, what it shows has {found}",
            move="sign nothing, and have it exported again",
        )


def _check_case(case: Case) -> None:
    if case.pending is not None:
        _check_intent(case.pending.intent, case.pending.digest)
    found = receipt_fingerprint(case.receipt) if case.receipt else ""
    if found != case.receipt_digest:
        raise ContractError(
            f"the file names receipt {case.receipt_digest or 'none':.80}, what it shows has "
            f"{found or 'none'}",
            move="sign nothing, and have it exported again",
        )


def _holders(parts: Parts, role: Role) -> tuple[KeyHolder, ...]:
    return tuple(
        KeyHolder(id=signer.entry.id, key=key)
        for key, signer in parts.roots.of(role).items()
        if not signer.entry.revoked_at_ms
    )


def _proof(parts: Parts, run_id: RunId, index: int) -> dict[str, Json]:
    proof: dict[str, Json] = msgspec.json.decode(make_proof(parts, run_id, index))
    return proof


def _written(value: RequestFile | CaseFile) -> bytes:
    return msgspec.json.format(encode(value), indent=2) + b"\n"
