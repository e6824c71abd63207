"""One server, the session with it, and the calls that are made on it.

A call is made once. A session on which anything went wrong takes no further call: what
comes on it late meets nobody. Another one is opened by the next call, and never to
repeat one.
"""

import asyncio
import shutil
import ssl
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from mcp import types
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel

from counterfoil.adapters.mcp.connection import Connection, Request, making
from counterfoil.adapters.mcp.declare import Server, Stdio
from counterfoil.adapters.mcp.http import NO_SESSION, http_streams
from counterfoil.adapters.mcp.kinds import AMBIGUOUS_CODES
from counterfoil.adapters.mcp.listing import Listing, listing_of
from counterfoil.adapters.mcp.stdio import stdio_streams
from counterfoil.adapters.mcp.variables import resolved, without
from counterfoil.adapters.mcp.wire import Wire
from counterfoil.core.errors import (
    CounterfoilError,
    PermissionDeniedError,
    RefusedError,
    UnavailableError,
    UnknownOutcomeError,
)
from counterfoil.core.words import Json

_T = TypeVar("_T", bound=BaseModel)

PAGES_MAX = 32
"""Pages of a list of tools; a list without end is none."""

TOO_MANY = 429


@dataclass(frozen=True, kw_only=True, slots=True)
class Deadline:
    """The moment at which a call must be over.

    Attributes:
        ends: On the clock of the loop, in seconds.
    """

    ends: float

    def left(self) -> float:
        """Return the seconds that are left, 0 when none are."""
        return max(0.0, self.ends - asyncio.get_running_loop().time())


def deadline_in(milliseconds: int) -> Deadline:
    """Return a deadline that is so far from here; in the loop."""
    return Deadline(ends=asyncio.get_running_loop().time() + milliseconds / 1000)


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """What a tool answered, without secrets.

    Attributes:
        document: Its structured content; None where there is none.
        texts: Its blocks of content, as JSON.
        is_error: Whether the tool says that it failed.
    """

    document: Json
    texts: Json
    is_error: bool

    @property
    def shown(self) -> Json:
        """Its structured content, or its texts where there is none."""
        return self.texts if self.document is None else self.document


@dataclass(frozen=True, kw_only=True, slots=True)
class Visit:
    """A session for one operation, with the tools as they are at its beginning.

    Attributes:
        connection: The session.
        listing: The tools.
        hidden: Secrets, which are hidden in what comes back.
        deadline: When all of the operation must be over.
    """

    connection: Connection
    listing: Listing
    hidden: tuple[str, ...]
    deadline: Deadline

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Json],
        meta: Mapping[str, Json] | None = None,
        refused_codes: tuple[int, ...] = (),
    ) -> Result:
        """Call a tool, once.

        Raises:
            UnavailableError: No byte of the call was sent, or its session had ended.
            PermissionDeniedError: The server lets nobody in with these credentials.
            RefusedError: It was turned away before it was carried out.
            UnknownOutcomeError: It was sent, and no whole answer came in time.
        """
        params = types.CallToolRequestParams.model_validate(
            {"name": tool, "arguments": dict(arguments)} | ({"_meta": dict(meta)} if meta else {})
        )
        request = types.CallToolRequest(params=params)
        answer = await _exchanged(
            self.connection, request, types.CallToolResult, self.deadline, refused_codes
        )
        if answer.result_type != "complete":
            raise UnknownOutcomeError(f"{tool!r:.80} was answered, and not to its end")
        return _result(answer, self.hidden)


class Site:
    """The one server of an adapter; used in one loop only, and closed once.

    Args:
        server: The declaration.
        tls: Whom to trust; None for those whom the system trusts.
        unique: Names a session as no other one is named.
    """

    def __init__(
        self, server: Server, tls: ssl.SSLContext | None, unique: Callable[[], str]
    ) -> None:
        self._server = server
        self._tls = tls
        self._unique = unique
        self._opening = asyncio.Lock()
        self._current: tuple[Connection, tuple[str, ...]] | None = None
        self._opened: set[Connection] = set()

    @asynccontextmanager
    async def visit(self, milliseconds: int) -> AsyncGenerator[Visit]:
        """Have a session, and the tools as they are, for one operation.

        Raises:
            UnavailableError: There is no session; no tool was called.
        """
        deadline = deadline_in(milliseconds)
        connection, hidden, listing = await self._ready(deadline)
        try:
            yield Visit(connection=connection, listing=listing, hidden=hidden, deadline=deadline)
        finally:
            connection.uses -= 1
            connection.release()

    async def close(self) -> None:
        """End every session, and the servers that were started for them."""
        for connection in tuple(self._opened):
            connection.retire()
            await connection.ended()

    async def _ready(self, deadline: Deadline) -> tuple[Connection, tuple[str, ...], Listing]:
        """Return a session that answers; one that does not answer any more is replaced."""
        current = self._current
        if current is not None and not current[0].is_retired:
            try:
                return await self._listed(*current, deadline)
            except CounterfoilError:
                current[0].retire()
        try:
            async with asyncio.timeout_at(deadline.ends), self._opening:
                current = self._current
                if current is None or current[0].is_retired:
                    current = await self._open()
                    self._current = current
        except TimeoutError as error:
            raise UnavailableError(f"{self._server.name} gave no session in time") from error
        return await self._listed(*current, deadline)

    async def _open(self) -> tuple[Connection, tuple[str, ...]]:
        self._opened = {each for each in self._opened if not each.is_over}
        wire = Wire()
        streams, hidden = self._streams(wire)
        connection = Connection(name=self._unique(), wire=wire)
        self._opened.add(connection)
        await connection.open(streams)
        return connection, hidden

    def _streams(
        self, wire: Wire
    ) -> tuple[AbstractAsyncContextManager[tuple[Any, Any]], tuple[str, ...]]:
        reach = self._server.reach
        if isinstance(reach, Stdio):
            environment, hidden = resolved(reach.environment)
            program = shutil.which(reach.command[0])
            if program is None:
                raise UnavailableError(f"there is no program {reach.command[0]!r:.80}")
            command = (program, *reach.command[1:])
            return stdio_streams(command, environment, reach.folder, wire), hidden
        headers, hidden = resolved(reach.headers)
        return http_streams(reach.url, headers, self._tls, wire), hidden

    async def _listed(
        self, connection: Connection, hidden: tuple[str, ...], deadline: Deadline
    ) -> tuple[Connection, tuple[str, ...], Listing]:
        connection.uses += 1
        try:
            return connection, hidden, listing_of(self._server, await _tools(connection, deadline))
        except BaseException:
            connection.uses -= 1
            connection.release()
            raise


def _result(answer: types.CallToolResult, hidden: tuple[str, ...]) -> Result:
    blocks = [
        block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in answer.content
    ]
    return Result(
        document=without(answer.structured_content, hidden),
        texts=without(blocks, hidden),
        is_error=answer.is_error,
    )


async def _tools(connection: Connection, deadline: Deadline) -> list[types.Tool]:
    tools: list[types.Tool] = []
    cursor: str | None = None
    for _ in range(PAGES_MAX):
        params = types.PaginatedRequestParams(cursor=cursor) if cursor else None
        try:
            page = await _exchanged(
                connection,
                types.ListToolsRequest(params=params),
                types.ListToolsResult,
                deadline,
            )
        except (UnknownOutcomeError, RefusedError) as error:
            raise UnavailableError(f"the tools were not listed: {error.message}") from error
        tools += page.tools
        cursor = page.next_cursor
        if not cursor:
            return tools
    raise UnavailableError(f"the server lists more than {PAGES_MAX} pages of tools")


async def _exchanged(
    connection: Connection,
    request: types.ClientRequest,
    shape: type[_T],
    deadline: Deadline,
    refused_codes: tuple[int, ...] = (),
) -> _T:
    """Send a request once, and return its answer.

    The task that waits for the answer is left behind when the time is over: what it
    still has to say to the server may not hold up the caller.
    """
    made = Request()
    making.set(made)
    session = connection.session
    task = asyncio.create_task(session.send_request(request, shape))
    try:
        await asyncio.wait({task}, timeout=deadline.left())
        if task.done() and not task.cancelled() and task.exception() is None:
            return task.result()
        failed = task.exception() if task.done() and not task.cancelled() else None
        raise _failure(connection, made.name, request.method, failed, refused_codes)
    finally:
        task.cancel()


def _failure(
    connection: Connection,
    name: str,
    method: str,
    failed: BaseException | None,
    refused_codes: tuple[int, ...],
) -> CounterfoilError:
    """Return what follows from a request that has no answer."""
    code = failed.code if isinstance(failed, MCPError) else None
    is_sent = connection.wire.give_up(name)
    status = connection.wire.turned_away.get(name, 0)
    is_answered = code is not None and code not in AMBIGUOUS_CODES and not status
    if not is_answered:
        connection.retire()
    why = "no answer in time" if failed is None else type(failed).__name__
    what = f"{method} ended with {why}{'' if code is None else f' {code}'}"
    error: CounterfoilError = UnknownOutcomeError(f"{what} after it was sent")
    if not is_sent:
        error = UnavailableError(f"{what} before it was sent")
    elif status in (401, 403):
        error = PermissionDeniedError(f"{method} is refused with status {status}")
    elif status in (NO_SESSION, TOO_MANY):
        error = UnavailableError(f"{method} is put off with status {status}")
    elif status:
        error = RefusedError(f"{method} is refused with status {status}")
    elif is_answered and code in refused_codes:
        error = RefusedError(f"{method} is refused with code {code}")
    error.__cause__ = failed
    return error
