"""The requests that are sent: a call with its key, a look-up, an observation.

The same intent under the same key is always the same bytes, whoever sends it, since
services compare the whole request.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from urllib.parse import quote

from counterfoil.adapters.http.credentials import Headers, resolved
from counterfoil.adapters.http.declare import Header, KeyForm, Mark, Question, Service
from counterfoil.adapters.http.kinds import BODY, Kind, address_of, as_form, has_body
from counterfoil.adapters.http.pointer import put
from counterfoil.adapters.http.template import expanded, parse_template
from counterfoil.adapters.http.wire import Deadline, Exchange, Request
from counterfoil.core.canonical import canonical
from counterfoil.core.errors import RefusedError
from counterfoil.core.receipt import Fence
from counterfoil.core.words import Json, Key, RunId
from counterfoil.ports import Operation

JSON = "application/json"
FORM = "application/x-www-form-urlencoded"

ACCEPTING: Mapping[str, Header] = {"Accept": f"{JSON}, */*;q=0.5"}

_PLAIN_KEY = re.compile(r"(?!sha256-)[A-Za-z0-9][A-Za-z0-9._~:-]{0,199}")
"""Keys that headers, paths, queries and logs on the way all leave as they are."""


_STRONG = re.compile(r'"[\x21\x23-\x7e]*"')
"""A strong ETag, as far as it is ASCII."""


def wire_key(key: Key) -> str:
    """Return the text that stands for a key at the service.

    A key of letters, digits and ``._~:-`` stands for itself; any other one, its digest.
    Different keys have different texts.
    """
    if _PLAIN_KEY.fullmatch(key):
        return key
    return f"sha256-{sha256(key.encode()).hexdigest()}"


def key_header(key: Key, form: KeyForm) -> str:
    """Return the value of the key's header: a string of RFC 8941, or the bare text.

    Source: draft-ietf-httpapi-idempotency-key-header, section 2.
    """
    text = wire_key(key)
    return f'"{text}"' if form == "quoted" else text


@dataclass(frozen=True, kw_only=True, slots=True)
class Site:
    """A service, and how it is reached."""

    service: Service
    exchange: Exchange


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """A receipt that is asked for, and until when."""

    kind: Kind
    run_id: RunId
    key: Key
    deadline: Deadline


def call_request(
    service: Service,
    kind: Kind,
    operation: Operation,
    deadline: Deadline,
    *,
    commits: Sequence[str] = (),
) -> Request:
    """Return the request of a call, secrets read.

    Args:
        service: The service.
        kind: What is called.
        operation: The call.
        deadline: When it must be over.
        commits: How the service must commit effect and receipt, where it keeps receipts.

    Raises:
        RefusedError: The state that it is built on has no ETag that `If-Match` takes.
        UnavailableError: A secret cannot be read.
    """
    endpoint = kind.endpoint
    own: dict[str, Header] = {}
    if operation.key and endpoint.key_form != "none":
        own[endpoint.key_header] = key_header(operation.key, endpoint.key_form)
    if operation.key and kind.spec.forbids:
        own |= evidence(operation, commits)
    if endpoint.if_match:
        own["If-Match"] = _strong(operation.prestate.fingerprint)
    content = None
    body = operation.arguments.get(BODY)
    if has_body(endpoint) and (body is not None or endpoint.marks):
        texts: dict[Mark, str] = {
            "key": wire_key(operation.key),
            "run": operation.run_id,
            "digest": operation.digest,
        }
        marked = _marked(body, endpoint.marks, texts)
        if endpoint.body == "form":
            content, own["Content-Type"] = as_form(marked).encode("ascii"), FORM
        else:
            content, own["Content-Type"] = canonical(marked), JSON
    headers = resolved((ACCEPTING, service.headers, endpoint.headers, own), deadline.left())
    return _request(endpoint.method, address_of(kind, operation.arguments), headers, content)


def question_request(service: Service, wanted: Wanted, asked: Question) -> Request:
    """Return the request of a look-up.

    Raises:
        UnavailableError: A secret cannot be read.
    """
    texts: dict[Mark, str] = {"key": wire_key(wanted.key), "run": wanted.run_id}
    own: dict[str, Header] = {}
    content = None
    if asked.body is not None or asked.marks:
        content, own["Content-Type"] = canonical(_marked(asked.body, asked.marks, texts)), JSON
    given = (ACCEPTING, service.headers, wanted.kind.endpoint.headers, own)
    headers = resolved(given, wanted.deadline.left())
    address = expanded(
        parse_template(asked.url, "look_up"), {str(name): text for name, text in texts.items()}
    )
    return _request(asked.method, address, headers, content)


def plain_request(
    service: Service,
    method: str,
    url: str,
    deadline: Deadline,
    *,
    body: Json = None,
    extra: Mapping[str, Header] | None = None,
) -> Request:
    """Return a request of the adapter's own: an observation, a receipt, a fence.

    Raises:
        UnavailableError: A secret cannot be read.
    """
    content = None if body is None else canonical(body)
    own = dict(extra or {}) | ({} if content is None else {"Content-Type": JSON})
    headers = resolved((ACCEPTING, service.headers, own), deadline.left())
    return _request(method, url, headers, content)


def evidence(operation: Operation, commits: Sequence[str]) -> dict[str, Header]:
    """Return the headers by which the middleware keeps whose call this was.

    The first two are conditions: another client, or a receipt that is committed in
    another way, is refused before anything happens.
    """
    served = operation.served
    headers: dict[str, Header] = {
        "Counterfoil-Client": operation.prestate.account,
        "Counterfoil-Commits": ", ".join(commits),
        "Counterfoil-Intent": operation.digest,
        "Counterfoil-Fence": fence_header(operation.run_id, operation.fence),
    }
    if served is not None:
        headers["Counterfoil-Served"] = f"{served.generation};{served.checkpoint}"
    if operation.statement:
        headers["Counterfoil-Statement"] = operation.statement
    return headers


def fence_header(run_id: RunId, fence: Fence) -> str:
    """Return a fence as its header has it."""
    return f"{quote(run_id, safe='')};{fence.lease_version};{quote(fence.nonce, safe='')}"


def _strong(etag: str) -> str:
    """Return an ETag that `If-Match` compares: strong, in quotes, in ASCII (RFC 9110, 8.8.3)."""
    if not _STRONG.fullmatch(etag):
        raise RefusedError(
            f"the state has {etag!r:.80} for an ETag, which If-Match does not compare; "
            "nothing was sent",
            move="watch an address that answers with a strong ETag, or leave if_match out",
        )
    return etag


def _request(method: str, url: str, headers: Headers, content: bytes | None) -> Request:
    return Request(
        method=method, url=url, headers=headers.pairs, content=content, hidden=headers.hidden
    )


def _marked(body: Json, marks: Mapping[str, Mark] | None, texts: Mapping[Mark, str]) -> Json:
    for pointer, mark in (marks or {}).items():
        body = put(body, pointer, texts[mark])
    return body
