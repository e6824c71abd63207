"""The receipts of a service behind Counterfoil's middleware: read, forbidden, fenced.

A receipt is the service's own record, committed with the effect. What it does not say
in so many words is unknown.
"""

import base64
from collections.abc import Callable, Iterable, Mapping
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
from counterfoil.adapters.http.kinds import Kind
from counterfoil.adapters.http.meaning import (
    NO_RECEIPT,
    STALE_FENCE,
    document_of,
    meaning_of,
    problem_of,
)
from counterfoil.adapters.http.wire import ANSWER_BYTES_MAX, Answer, Deadline
from counterfoil.core.canonical import bounded
from counterfoil.core.errors import ConfigError, FencedError, UnavailableError
from counterfoil.core.intent import EnvironmentState, KindSpec
from counterfoil.core.receipt import ABSENT, Fence, LookUp, Receipt, Served, found, unknown
from counterfoil.core.receipt import Answer as Said
from counterfoil.core.words import IntentDigest, Json, Key, Level, RunId

_T = TypeVar("_T")

RECORD_BYTES_MAX = 2 * ANSWER_BYTES_MAX
"""An answer at its bound in base64, and what stands around it."""

NAME_CHARS_MAX = 200
"""Of a journal or a client; those of the middleware are digests."""


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
        commits: How effect and receipt were committed.
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
    commits: str = ""


class _Taken(msgspec.Struct, frozen=True, kw_only=True):
    run: str
    lease_version: int
    nonce: str
    served: Served | None


class _Barred(msgspec.Struct, frozen=True, kw_only=True):
    key: str
    forbidden: bool


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """What a service says of its receipts.

    Attributes:
        instance: Identity of the journal that holds them.
        client: Who asks; a client sees its own receipts alone.
        retention_ms: How long they are kept.
        commits: How effect and receipt are committed; None where it depends on the request.
    """

    instance: str
    client: str
    retention_ms: int
    commits: str | None


HOLDING: Mapping[Level, tuple[str, ...]] = {
    Level.TRANSACTIONAL: ("together",),
    Level.DEDUPLICATING: ("together", "apart"),
    Level.QUERYABLE: ("together", "apart", "repeatable"),
}
"""How effect and receipt must be committed for a level to hold."""


def level_shown(spec: KindSpec, commits: str) -> Level:
    """Return the level of a receipt that was committed in this way: the declared one, or none."""
    return spec.level if commits in HOLDING[spec.level] else Level.BLIND


def described(site: Site, deadline: Deadline) -> Place:
    """Return what the service says of its receipts.

    Raises:
        UnavailableError: It does not say.
    """
    answer = _send(site, "GET", _address(site.service), deadline)
    place = _decoded(answer, Place) if answer.status == 200 else None
    if place is None or not (_is_name(place.instance) and _is_name(place.client)):
        what = f"{answer.status} {problem_of(answer):.80}".rstrip()
        raise UnavailableError(f"the receipts answer {what}, and do not describe themselves")
    return place


def _is_name(text: str) -> bool:
    """Return whether a header can carry it, as the next call will."""
    is_plain = text.isascii() and text.isprintable() and " " not in text
    return is_plain and 0 < len(text) <= NAME_CHARS_MAX


def check_held(kinds: Iterable[Kind], place: Place) -> None:
    """Refuse a service whose receipts hold less than was declared.

    Raises:
        ConfigError: They are kept for a shorter time, or committed in another way.
    """
    for spec in (kind.spec for kind in kinds if kind.spec.forbids):
        declared_ms = spec.key_retention_ms or 0
        if place.retention_ms < declared_ms:
            raise ConfigError(
                f"{spec.name} declares key_retention_ms={declared_ms}, and the service keeps "
                f"receipts for {place.retention_ms} ms",
                move="declare what the service keeps, or have it keep receipts for longer",
            )
        if place.commits is not None and place.commits not in HOLDING[spec.level]:
            raise ConfigError(
                f"{spec.name} is {spec.level}, and the service commits effect and receipt "
                f"{place.commits!r:.40}, not {' or '.join(HOLDING[spec.level])}",
                move="declare a lower level, or have the service commit both together",
            )


def take(site: Site, run_id: RunId, fence: Fence, deadline: Deadline) -> Served | None:
    """Raise the fence of a run, and return what was served last for it.

    Raises:
        FencedError: A newer fence, or an equal version with another nonce, stands.
        UnavailableError: The service does not say, so the fence may not stand.
    """
    body: Json = {"run": run_id, "lease_version": fence.lease_version, "nonce": fence.nonce}
    url = f"{_address(site.service)}/fences"
    answer = _send(site, "POST", url, deadline, body=body)
    if _says(answer, 412, STALE_FENCE):
        raise FencedError(f"the service knows a newer lease than {fence.lease_version}", run_id)
    taken = _decoded(answer, _Taken) if answer.status == 200 else None
    asked = (run_id, fence.lease_version, fence.nonce)
    if taken is None or (taken.run, taken.lease_version, taken.nonce) != asked:
        raise UnavailableError(f"the fence was answered with status {answer.status}", run_id)
    return taken.served


def look_up(site: Site, wanted: Wanted, look: Callable[[], EnvironmentState]) -> LookUp:
    """Return what the service has on record under a key.

    A 404 of anybody else, such as a proxy or another application, says nothing.

    Args:
        site: The service.
        wanted: What is asked for.
        look: Observes the environment, once something was found.

    Raises:
        CounterfoilError: There was no answer.
    """
    answer = _send(site, "GET", _address(site.service, wanted.key), wanted.deadline)
    if _says(answer, 404, NO_RECEIPT):
        return ABSENT
    return _on_record(wanted, answer, look)


def forbid(
    site: Site, wanted: Wanted, fence: Fence, place: Place, look: Callable[[], EnvironmentState]
) -> LookUp:
    """Make a key impossible unless it is done.

    Args:
        site: The service.
        wanted: What is given up.
        fence: Of the run.
        place: The receipts among which the key was looked for.
        look: Observes the environment, if it is done.

    Raises:
        FencedError: The fence is old.
        CounterfoilError: There was no answer.
    """
    extra = {
        "Counterfoil-Client": place.client,
        "Counterfoil-Fence": fence_header(wanted.run_id, fence),
    }
    url = _address(site.service, wanted.key)
    answer = _send(site, "PUT", url, wanted.deadline, body={"forbid": True}, extra=extra)
    if _says(answer, 412, STALE_FENCE):
        raise FencedError(
            f"the service knows a newer lease than {fence.lease_version}", wanted.run_id
        )
    return _on_record(wanted, answer, look)


def _says(answer: Answer, status: int, problem: str) -> bool:
    """Return whether the middleware itself says this, and nobody on the way."""
    return answer.status == status and problem_of(answer) == problem


def _on_record(wanted: Wanted, answer: Answer, look: Callable[[], EnvironmentState]) -> LookUp:
    barred = _decoded(answer, _Barred) if answer.status == 200 else None
    if barred is not None and barred.forbidden and barred.key == wire_key(wanted.key):
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
    return _judged(wanted, stored, first, look)


def _judged(
    wanted: Wanted, stored: Stored, first: Answer, look: Callable[[], EnvironmentState]
) -> LookUp:
    """Return a receipt; one that proves nothing lacks its id, so that a person decides."""
    spec = wanted.kind.spec
    meaning = meaning_of(wanted.kind.endpoint, first, is_recorded=True)
    if meaning is Meaning.REFUSED:
        return ABSENT
    receipt = Receipt(
        id=stored.id if meaning is Meaning.DONE else "",
        adapter=spec.adapter,
        kind=spec.name,
        run_id=RunId(stored.run),
        key=wanted.key,
        digest=IntentDigest(stored.intent),
        level=level_shown(spec, stored.commits),
        poststate=look(),
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
    site: Site,
    method: str,
    url: str,
    deadline: Deadline,
    *,
    body: Json = None,
    extra: Mapping[str, str] | None = None,
) -> Answer:
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
