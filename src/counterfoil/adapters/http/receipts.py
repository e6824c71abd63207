"""The receipts of a service behind Counterfoil's middleware: read, forbidden, fenced.

A receipt is the service's own record, committed with the effect. What it does not say
in so many words is unknown.
"""

import base64
from typing import TypeVar
from urllib.parse import quote

import msgspec

from counterfoil.adapters.http.asking import (
    Site,
    Wanted,
    fence_header,
    plain_request,
    wire_key,
)
from counterfoil.adapters.http.credentials import without
from counterfoil.adapters.http.declare import Meaning, Service
from counterfoil.adapters.http.meaning import document_of, meaning_of, problem_of
from counterfoil.adapters.http.questions import unseen
from counterfoil.adapters.http.wire import ANSWER_BYTES_MAX, Answer, Deadline
from counterfoil.core.canonical import bounded
from counterfoil.core.errors import FencedError, UnavailableError
from counterfoil.core.receipt import ABSENT, Fence, LookUp, Receipt, Served, found, unknown
from counterfoil.core.receipt import Answer as Said
from counterfoil.core.words import IntentDigest, Json, Key, RunId

_T = TypeVar("_T")

STALE = 412
NO_RECEIPT = 404
RECORD_BYTES_MAX = 2 * ANSWER_BYTES_MAX
"""An answer at its bound in base64, and what stands around it."""


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """A receipt as the middleware shows it; further members are for people.

    Attributes:
        id: Of the receipt.
        key: On the wire.
        status: Of the answer that the call got.
        headers: Of that answer.
        body_base64: Its body.
        committed_at_ms: When, UTC, by the service.
        intent: Intent digest that the call carried.
        run: Run that the call was for.
        served: Checkpoint that the call carried.
        statement: Digest of the approval that it carried.
    """

    id: str
    key: str
    status: int
    headers: list[tuple[str, str]]
    body_base64: str
    committed_at_ms: int
    intent: str = ""
    run: str = ""
    served: Served | None = None
    statement: str = ""


class _Taken(msgspec.Struct, frozen=True, kw_only=True):
    served: Served | None


class _Barred(msgspec.Struct, frozen=True, kw_only=True):
    forbidden: bool


class _Place(msgspec.Struct, frozen=True, kw_only=True):
    instance: str


def instance(site: Site, deadline: Deadline) -> str:
    """Return the identity of the service's receipts.

    Raises:
        UnavailableError: It does not say.
    """
    answer = _send(site, "GET", _address(site.service), deadline)
    place = _decoded(answer, _Place) if answer.status == 200 else None
    if place is None or not place.instance:
        raise UnavailableError(f"the receipts answer {answer.status}, and name no instance")
    return place.instance


def take(site: Site, run_id: RunId, fence: Fence, deadline: Deadline) -> Served | None:
    """Raise the fence of a run, and return what was served last for it.

    Raises:
        FencedError: A newer fence, or an equal version with another nonce, stands.
        UnavailableError: The service does not say, so the fence may not stand.
    """
    body: Json = {"run": run_id, "lease_version": fence.lease_version, "nonce": fence.nonce}
    url = f"{_address(site.service)}/fences"
    answer = _send(site, "POST", url, deadline, body=body)
    if answer.status == STALE:
        raise FencedError(f"the service knows a newer lease than {fence.lease_version}", run_id)
    taken = _decoded(answer, _Taken) if answer.status == 200 else None
    if taken is None:
        raise UnavailableError(f"the fence was answered with status {answer.status}", run_id)
    return taken.served


def look_up(site: Site, wanted: Wanted) -> LookUp:
    """Return what the service has on record under a key.

    Raises:
        CounterfoilError: There was no answer.
    """
    answer = _send(site, "GET", _address(site.service, wanted.key), wanted.deadline)
    return ABSENT if answer.status == NO_RECEIPT else _on_record(site, wanted, answer)


def forbid(site: Site, wanted: Wanted, fence: Fence) -> LookUp:
    """Make a key impossible unless it is done.

    Raises:
        FencedError: The fence is old.
        CounterfoilError: There was no answer.
    """
    url = _address(site.service, wanted.key)
    token = fence_header(wanted.run_id, fence)
    answer = _send(site, "PUT", url, wanted.deadline, body={"forbid": True}, fence=token)
    if answer.status == STALE:
        raise FencedError(
            f"the service knows a newer lease than {fence.lease_version}", wanted.run_id
        )
    return _on_record(site, wanted, answer)


def _on_record(site: Site, wanted: Wanted, answer: Answer) -> LookUp:
    barred = _decoded(answer, _Barred) if answer.status == 200 else None
    if barred is not None and barred.forbidden:
        return ABSENT
    stored = _decoded(answer, Stored) if answer.status == 200 else None
    if stored is None:
        why = f"the receipt was answered with status {answer.status} {problem_of(answer):.80}"
        return unknown(why.rstrip())
    if stored.key != wire_key(wanted.key):
        return unknown("the service shows the receipt of another key")
    first = _first_answer(stored, answer.hidden)
    if first is None:
        return unknown("the receipt holds a body that is not base64")
    return _judged(site, wanted, stored, first)


def _judged(site: Site, wanted: Wanted, stored: Stored, first: Answer) -> LookUp:
    """Return a receipt; one that proves nothing lacks its id, so that a person decides."""
    service = site.service
    meaning = meaning_of(wanted.kind.endpoint, first, is_recorded=True)
    if meaning is Meaning.REFUSED:
        return ABSENT
    receipt = Receipt(
        id=stored.id if meaning is Meaning.DONE else "",
        adapter=service.name,
        kind=wanted.kind.spec.name,
        run_id=RunId(stored.run),
        key=wanted.key,
        digest=IntentDigest(stored.intent),
        level=wanted.kind.spec.level,
        poststate=unseen(service, service.instance or instance(site, wanted.deadline)),
        committed_at_ms=stored.committed_at_ms,
        served=stored.served,
        statement=stored.statement,
        result=bounded(document_of(first)),
    )
    if stored.run != wanted.run_id:
        return LookUp(answer=Said.FOUND_OTHER, receipt=receipt)
    return found(receipt)


def _address(service: Service, key: Key | None = None) -> str:
    base = service.receipts.rstrip("/")
    return base if key is None else f"{base}/{quote(wire_key(key), safe='')}"


def _send(
    site: Site, method: str, url: str, deadline: Deadline, *, body: Json = None, fence: str = ""
) -> Answer:
    extra = {"Counterfoil-Fence": fence} if fence else None
    request = plain_request(site.service, method, url, deadline, body=body, extra=extra)
    return site.exchange.send(request, deadline, bytes_max=RECORD_BYTES_MAX)


def _first_answer(stored: Stored, hidden: tuple[str, ...]) -> Answer | None:
    """Return the answer that a call got, or None when it cannot be read."""
    try:
        body = base64.b64decode(stored.body_base64, validate=True)
    except ValueError:
        return None
    headers = {name.lower(): value for name, value in stored.headers}
    return Answer(status=stored.status, headers=headers, body=without(body, hidden), hidden=hidden)


def _decoded(answer: Answer, shape: type[_T]) -> _T | None:
    try:
        return msgspec.json.decode(answer.body or b"", type=shape)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
