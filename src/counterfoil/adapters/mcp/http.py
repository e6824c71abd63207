"""A server over streamable HTTP: the SDK's transport, on connections that are watched.

Each request has a connection of its own, so that a refused one is known to have left
nothing. Nothing is redirected, an answer has a bound, and only an answer that names a
request is the answer to it: the SDK takes whatever answer comes on a request's stream.
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
    inner = httpx2.AsyncHTTPTransport(verify=tls or True, trust_env=False, limits=limits)
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
        if name and (is_gone or answer.status_code in TURNED_AWAY):
            self._wire.turned_away[name] = answer.status_code
        answer.stream = _body(answer, name)
        return answer

    async def aclose(self) -> None:
        """Let go of connections."""
        await self._inner.aclose()


def _body(answer: httpx2.Response, name: str) -> httpx2.AsyncByteStream:
    inner = answer.stream
    if not isinstance(inner, httpx2.AsyncByteStream):
        raise httpx2.RemoteProtocolError("an answer without a body to read")
    kind = answer.headers.get("content-type", "").lower()
    if not name:
        return _Body(inner, _bounded_lines(inner))
    if kind.startswith("text/event-stream"):
        return _Body(inner, _own_events(inner, name))
    return _Body(inner, _own_document(inner, name, is_whole=answer.is_success))


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


async def _own_document(
    inner: httpx2.AsyncByteStream, name: str, *, is_whole: bool
) -> AsyncIterator[bytes]:
    """Yield a body, once it was read within its bound and is no answer to another request."""
    body = bytearray()
    async for piece in inner:
        body += piece
        _check_size(len(body))
    if is_whole:
        _check_own(bytes(body), name)
    yield bytes(body)


async def _own_events(inner: httpx2.AsyncByteStream, name: str) -> AsyncIterator[bytes]:
    """Yield the events of one request's stream, none of which answers another request.

    Their ids are left out: a stream that broke off is not taken up again, since what
    would come on the next one need not belong to this request.
    """
    taken = 0
    event: list[bytes] = []
    async for line in _lines(inner):
        taken += len(line)
        _check_size(taken)
        if line:
            if line.startswith((b"data:", b"event:", b":")):
                event.append(line)
            continue
        data = [part[5:].removeprefix(b" ") for part in event if part.startswith(b"data:")]
        _check_own(b"\n".join(data), name)
        yield b"\n".join([*event, b"", b""])
        event = []


async def _bounded_lines(inner: httpx2.AsyncByteStream) -> AsyncIterator[bytes]:
    """Yield a stream that lasts as long as the session, in lines that have a bound."""
    async for line in _lines(inner):
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


def _check_own(text: bytes, name: str) -> None:
    message = _object(text)
    is_answer = "result" in message or "error" in message
    if is_answer and message.get("id") not in (name, None):
        raise httpx2.RemoteProtocolError("an answer to another request")


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
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Json]", value) if isinstance(value, dict) else {}  # a JSON object
