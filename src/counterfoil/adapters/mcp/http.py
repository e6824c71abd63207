"""A server over streamable HTTP: the SDK's transport, on connections that are watched.

Each request has a connection of its own, so that a refused one is known to have left
nothing. Nothing is redirected, an answer has a bound, and only an answer that names a
request is the answer to it: the SDK takes whatever answer comes on a request's stream. It
reads what was checked here, written anew, so that both read the same.
"""

import json
import re
import ssl
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import httpx2
from mcp.client.streamable_http import streamable_http_client

from counterfoil.adapters.mcp.wire import MESSAGE_BYTES_MAX, Wire
from counterfoil.core.words import Json

TURNED_AWAY = frozenset({401, 403, 405, 406, 413, 415, 421, 429})
"""A gate said no: the request was not carried out (RFC 9110, 15.5, and RFC 6585)."""

SESSION = "mcp-session-id"
NO_SESSION = 404
"""To a request that names a session: it has ended (MCP, transports, session management)."""

CONNECT_SECONDS = 30.0
_LINE_END = re.compile(rb"\r\n|\n|\r(?=[^\n])")


@asynccontextmanager
async def http_streams(
    url: str, headers: dict[str, str], tls: ssl.SSLContext | None, wire: Wire
) -> AsyncGenerator[tuple[object, object]]:
    """Exchange messages with a server, over connections that `wire` watches."""
    limits = httpx2.Limits(max_keepalive_connections=0)
    is_plain = url.lower().startswith("http:")  # nobody to trust, and it takes long to load whom
    inner = httpx2.AsyncHTTPTransport(verify=tls or not is_plain, trust_env=False, limits=limits)
    client = httpx2.AsyncClient(
        transport=Watched(inner, wire),
        headers={**headers, "accept-encoding": "identity"},
        timeout=httpx2.Timeout(CONNECT_SECONDS, read=None),
        trust_env=False,
    )
    async with (
        client,
        streamable_http_client(url, http_client=client, max_sse_event_size=None) as (read, write),
    ):
        yield read, write


class Watched(httpx2.AsyncBaseTransport):
    """Sends requests, and notes in a `Wire` what became of each."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, wire: Wire) -> None:
        self._inner = inner
        self._wire = wire

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request, unless it was given up, and return its bounded answer."""
        name = _request_id(request)
        if name and not self._wire.leaves(name):
            raise httpx2.ConnectError("the request was given up", request=request)
        try:
            answer = await self._inner.handle_async_request(request)
        except (httpx2.ConnectError, httpx2.ConnectTimeout):
            self._wire.sent.discard(name)
            raise
        if answer.is_redirect:
            await answer.aclose()
            raise httpx2.RemoteProtocolError("the server redirects", request=request)
        is_gone = answer.status_code == NO_SESSION and SESSION in request.headers
        inner = answer.stream
        if not isinstance(inner, httpx2.AsyncByteStream):
            raise httpx2.RemoteProtocolError("an answer without a body to read")
        answer.stream = _body(answer, inner, name)
        if name and (is_gone or answer.status_code in TURNED_AWAY):
            self._wire.turned_away[name] = answer.status_code
            answer.stream = _Body(inner, _nothing())
        return answer

    async def aclose(self) -> None:
        """Let go of connections."""
        await self._inner.aclose()


def _body(
    answer: httpx2.Response, inner: httpx2.AsyncByteStream, name: str
) -> httpx2.AsyncByteStream:
    if not name:
        return _Body(inner, _bounded_lines(inner))
    kind = answer.headers.get("content-type", "").lower()
    if answer.is_success and kind.startswith("text/event-stream"):
        return _Body(inner, _own_events(inner, name))
    return _Body(inner, _own_document(inner, name))


class _Body(httpx2.AsyncByteStream):
    """The body of an answer, as it may be read."""

    def __init__(self, inner: httpx2.AsyncByteStream, pieces: AsyncIterator[bytes]) -> None:
        self._inner = inner
        self._pieces = pieces

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._pieces:
            yield piece

    async def aclose(self) -> None:
        await self._inner.aclose()


async def _nothing() -> AsyncIterator[bytes]:
    """Yield no body: the status says it all."""
    yield b""


async def _own_document(inner: httpx2.AsyncByteStream, name: str) -> AsyncIterator[bytes]:
    """Yield a body that is the answer to a request, whatever its status; else none.

    Without a body the SDK has no answer, and says so with a code that is ambiguous.
    """
    body = bytearray()
    async for piece in inner:
        body += piece
        _check_size(len(body))
    message = _object(bytes(body))
    yield _written(message) if _is_answer(message, name) else b""


async def _own_events(inner: httpx2.AsyncByteStream, name: str) -> AsyncIterator[bytes]:
    """Yield the messages of one request's stream: its answer, and what is no answer at all.

    Ids of events are left out: a stream that broke off is not taken up again, since what
    would come on the next one need not belong to this request.
    """
    taken = 0
    event: list[tuple[bytes, bytes]] = []
    async for line in _lines(inner):
        taken += len(line)
        _check_size(taken)
        if line:
            field, _, value = line.partition(b":")
            event.append((field, value.removeprefix(b" ")))
            continue
        data = b"\n".join(value for field, value in event if field == b"data")
        kinds = [value for field, value in event if field == b"event" and value]
        event = []
        if not data or kinds[-1:] not in ([], [b"message"]):
            continue
        message = _object(data)
        if not _is_answer(message, name) and not _is_call(message):
            raise httpx2.RemoteProtocolError("an event that is no message, or answers another")
        yield b"data: " + _written(message) + b"\n\n"


async def _bounded_lines(inner: httpx2.AsyncByteStream) -> AsyncIterator[bytes]:
    """Yield a stream that lasts as long as the session, in events that have a bound."""
    taken = 0
    async for line in _lines(inner):
        taken = taken + len(line) if line else 0
        _check_size(taken)
        yield line + b"\n"


async def _lines(inner: httpx2.AsyncByteStream) -> AsyncIterator[bytes]:
    rest = b""
    async for piece in inner:
        *lines, rest = _LINE_END.split(rest + piece)
        _check_size(len(rest))
        for line in lines:
            yield line
    if rest:
        yield rest.removesuffix(b"\r")


def _check_size(size: int) -> None:
    if size > MESSAGE_BYTES_MAX:
        raise httpx2.RemoteProtocolError(f"the answer has more than {MESSAGE_BYTES_MAX} bytes")


def _is_answer(message: dict[str, Json], name: str) -> bool:
    """Return whether a message answers the request of this name, and nothing else."""
    has_answer = ("result" in message) != ("error" in message)
    return has_answer and "method" not in message and message.get("id") == name


def _is_call(message: dict[str, Json]) -> bool:
    """Return whether a message is a request or a notification of the server, and no answer."""
    return "method" in message and "result" not in message and "error" not in message


def _request_id(request: httpx2.Request) -> str:
    """Return the id of the JSON-RPC request that is posted; empty for everything else."""
    if request.method != "POST":
        return ""
    message = _object(request.content)
    name = message.get("id")
    return name if isinstance(name, str) and "method" in message else ""


def _object(text: bytes) -> dict[str, Json]:
    try:
        value = json.loads(text)
        json.dumps(value)
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Json]", value) if isinstance(value, dict) else {}  # a JSON object


def _written(message: dict[str, Json]) -> bytes:
    """Return a message in ASCII and one line, which every reader reads alike."""
    return json.dumps(message).encode("ascii")
