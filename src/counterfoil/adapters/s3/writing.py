"""One write, from the key's record to its receipt.

Record, fence, request, receipt: each is durable before the next begins, so every kill is
decided by looking. A caller that finds another call of its key under way waits for it.
"""

import time
from contextlib import suppress
from typing import NamedTuple

from msgspec.structs import replace

from counterfoil.adapters.s3 import kinds
from counterfoil.adapters.s3.calls import Arguments, Part, Plan, body, planned, signed
from counterfoil.adapters.s3.evidence import (
    Effect,
    Evidence,
    Trace,
    answered,
    effect_of,
    gathered,
    receipt_of,
)
from counterfoil.adapters.s3.records import TRIES_MAX, Held, Note, Stage, check_fence
from counterfoil.adapters.s3.site import Site
from counterfoil.adapters.s3.uploading import abort, upload
from counterfoil.adapters.s3.wire import LOST, SUCCESSES, Sent
from counterfoil.core.errors import (
    ContractError,
    CounterfoilError,
    FencedError,
    IdempotencyConflictError,
    PermissionDeniedError,
    StaleObservationError,
    UnavailableError,
    UnknownOutcomeError,
)
from counterfoil.core.intent import KindSpec
from counterfoil.core.receipt import Answer, LookUp, Receipt
from counterfoil.core.words import Key, RunId
from counterfoil.ports import Operation

POLL_S = 0.05
"""Between two looks at a call of another caller."""

REFUSALS, CONFLICT = range(300, 500), 409
"""Statuses: it did not happen and will not; another request is under way."""

CONFLICTS_MAX = 4
"""Tries of a request that the service refuses because another is under way (409)."""


class Call(NamedTuple):
    """One call: who, what, and how the kind is declared."""

    site: Site
    spec: KindSpec
    operation: Operation
    arguments: Arguments


def write(call: Call) -> Receipt:
    """Do it, once per key, and return the receipt.

    Raises:
        CounterfoilError: As `Adapter.execute` says.
    """
    site, operation = call.site, call.operation
    records = site.records
    check_fence(records.fence(operation.run_id), operation.run_id, operation.fence)
    for _ in range(TRIES_MAX):
        held, known = quiet(site, call.spec, operation.key, operation.run_id)
        if known.answer is Answer.UNKNOWN:
            raise UnavailableError(known.reason, operation.run_id, operation.key)
        earlier = _earlier(call, held)
        if earlier is not None:
            return earlier
        plan, parts = planned(site, call.spec, operation, call.arguments), tuple[Part, ...]()
        if operation.kind == kinds.UPLOAD:
            sent = upload(site, operation, call.arguments, held, plan.note)
            if sent is None:
                continue
            held, note, parts = sent
            plan = plan._replace(note=note)
        receipt = _perform(call, held, plan, parts)
        if receipt is not None:
            return receipt
    raise UnavailableError("other callers use the key", operation.run_id, operation.key)


def settle(site: Site, spec: KindSpec, held: Held, run_id: RunId) -> LookUp:
    """Return what is known of a key, and put a receipt that was found on its record.

    Raises:
        UnavailableError: It cannot be looked at.
    """
    answer = answered(site, spec, held, run_id)
    note = held.note
    if answer.answer is Answer.FOUND and note is not None and note.receipt is None:
        site.records.write(held, _done(note, answer.receipt))
    return answer


def quiet(site: Site, spec: KindSpec, key: Key, run_id: RunId) -> tuple[Held, LookUp]:
    """Return a key's record and what is known of it, once no call is under way.

    Waits as long as a call lasts; the answer is unknown when one may still land.

    Raises:
        UnavailableError: It cannot be looked at.
    """
    held = site.records.read(key)
    answer = answered(site, spec, held, run_id)
    for _ in range(int(site.times.lasts_s / POLL_S)):
        if answer.answer is not Answer.UNKNOWN:
            break
        time.sleep(POLL_S)
        held = site.records.read(key)
        answer = answered(site, spec, held, run_id)
    return held, answer


def _earlier(call: Call, held: Held) -> Receipt | None:
    """Return the receipt of this very intent; refuse a key that holds another."""
    site, operation, note = call.site, call.operation, held.note
    if note is None:
        return None
    if note.run_id != operation.run_id:
        raise _conflict(operation, "the key belongs to another run")
    if note.stage is Stage.FORBIDDEN:
        raise PermissionDeniedError("the key was made impossible", operation.run_id, operation.key)
    is_ours = (note.digest, note.kind) == (operation.digest, operation.kind)
    if not note.until and note.receipt is None:
        if not is_ours:
            abort(site, note)
        return None
    if not is_ours:
        raise _conflict(operation, "the key holds the effect of another intent")
    answer = settle(site, call.spec, held, operation.run_id)
    if answer.receipt is not None:
        site.records.raise_fence(operation.run_id, operation.fence, operation.served)
        return replace(answer.receipt, replayed=True)
    if answer.answer is Answer.FOUND_OTHER:
        raise _conflict(operation, answer.reason)
    return None


def _perform(call: Call, held: Held, plan: Plan, parts: tuple[Part, ...]) -> Receipt | None:
    """Send the request; return the receipt, or None when another caller was first."""
    site, operation = call.site, call.operation
    for number in range(CONFLICTS_MAX):
        request = signed(site, plan, call.arguments)
        note = replace(plan.note, until=request.until)
        written = site.records.write(held, note)
        if written is None:
            return None
        held = written
        try:
            site.records.raise_fence(operation.run_id, operation.fence, operation.served)
            sent = site.wire.send(request, body(note, call.arguments, parts))
        except (FencedError, UnavailableError):
            _withdraw(site, held)
            raise
        may_try_again = sent.status == CONFLICT and number + 1 < CONFLICTS_MAX
        if may_try_again and _look(call, note, sent).trace is Trace.STANDING:
            time.sleep(POLL_S)
            continue
        return _concluded(call, held, sent)
    return None


def _concluded(call: Call, held: Held, sent: Sent) -> Receipt:
    """Return the receipt of a request that has its answer, or say what became of it."""
    note = _note(held)
    if sent.status in SUCCESSES and sent.at:
        return _kept(call, held, Effect(etag=sent.etag, version=sent.version, at=sent.at))
    evidence = _look(call, note, sent)
    match evidence.trace:
        case Trace.OURS:
            return _kept(call, held, effect_of(evidence.seen))
        case Trace.CHANGED:
            raise _conflict(call.operation, evidence.finding)
        case Trace.STANDING | Trace.OTHER if sent.status not in REFUSALS:
            raise _unknown(call.operation, _said(sent))
        case Trace.STANDING | Trace.OTHER:
            _withdraw(call.site, held)
            raise _refusal(call.operation, sent, evidence)


def _look(call: Call, note: Note, sent: Sent) -> Evidence:
    """Look at the object after a request; what cannot be seen leaves it unknown."""
    try:
        return gathered(call.site, note)
    except UnavailableError as error:
        raise _unknown(call.operation, f"{_said(sent)}, and then {error.message}") from error


def _kept(call: Call, held: Held, effect: Effect) -> Receipt:
    """Put the receipt on record, and return it; nothing is done before it is there."""
    note, records = _note(held), call.site.records
    try:
        receipt = receipt_of(call.site, call.spec, note, effect)
        if records.write(held, _done(note, receipt)) is None:
            kept = records.read(note.key).note
            receipt = kept.receipt if kept and kept.receipt else receipt
    except CounterfoilError as error:
        raise _unknown(call.operation, f"it is done, and then {error.message}") from error
    return receipt


def _done(note: Note, receipt: Receipt | None) -> Note:
    return replace(note, stage=Stage.DONE, receipt=receipt, upload="")


def _withdraw(site: Site, held: Held) -> None:
    """Put it on record that nothing of the key can land; if that fails, its deadline says so.

    What was sent before was found absent before this call began.
    """
    with suppress(UnavailableError):
        site.records.write(held, replace(_note(held), until=0))


def _note(held: Held) -> Note:
    if held.note is None:
        raise UnavailableError("the record of the key is gone")
    return held.note


def _refusal(operation: Operation, sent: Sent, evidence: Evidence) -> CounterfoilError:
    """Return what a request was refused with; nothing has happened."""
    names = (operation.run_id, operation.key)
    match sent.status:
        case 404 | 412 if sent.code not in ("NoSuchUpload", "NoSuchBucket"):
            why = evidence.finding or "an object changed meanwhile"
            return StaleObservationError(f"{_said(sent)}: {why}", *names)
        case _ if sent.code in _OURS_TO_MEND:
            return ContractError(_said(sent), *names)
        case _:
            return UnavailableError(_said(sent), *names)


_OURS_TO_MEND = ("EntityTooLarge", "EntityTooSmall", "InvalidArgument", "MetadataTooLarge")
"""Refusals that the same request will get again."""


def _said(sent: Sent) -> str:
    if sent.status == LOST:
        return "the answer was lost"
    return f"the service answers {sent.status} {sent.code}".rstrip()


def _unknown(operation: Operation, why: str) -> UnknownOutcomeError:
    return UnknownOutcomeError(why, operation.run_id, operation.key)


def _conflict(operation: Operation, why: str) -> IdempotencyConflictError:
    return IdempotencyConflictError(why, operation.run_id, operation.key)
