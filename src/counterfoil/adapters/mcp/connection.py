"""One session with a server: one generation, whose answers belong to no other one.

Every request has an id that no other session gives, so that an answer that comes late,
or by another way, meets nobody who waits for it.
"""

import asyncio
import itertools
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, cast

from mcp import ClientSession
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.types import METHOD_NOT_FOUND, UNSUPPORTED_PROTOCOL_VERSION

from counterfoil.adapters.mcp.wire import Wire
from counterfoil.core.errors import CounterfoilError, UnavailableError
from counterfoil.core.words import Json


@dataclass(kw_only=True, slots=True)
class Request:
    """The request that a task makes.

    Attributes:
        name: Its id, once it has one.
    """

    name: str = ""


making: ContextVar[Request | None] = ContextVar("making", default=None)
"""The request that is being made, for the dispatcher to name."""


class Dispatcher(JSONRPCDispatcher[Any]):
    """Gives each request an id that starts with the name of its session."""

    def __init__(self, streams: tuple[Any, Any], session: str) -> None:
        super().__init__(*streams)
        self._names = (f"{session}-{number}" for number in itertools.count(1))

    async def send_raw_request(self, method: str, *given: Json, **named: Json) -> dict[str, Any]:
        """Send a request under an id of this session."""
        name = next(self._names)
        request = making.get()
        if request is not None:
            request.name = name
        call = {**dict(zip(("params", "opts"), given, strict=False)), **named}
        call["opts"] = {**(call.get("opts") or {}), "request_id": name}
        return await super().send_raw_request(method, **call)


@dataclass(kw_only=True, eq=False)
class Connection:
    """A session and the task that holds it open.

    Attributes:
        name: Of the session.
        wire: What became of its requests.
        uses: Calls that are under way on it.
        is_retired: Whether it takes no further call.
    """

    name: str
    wire: Wire
    uses: int = 0
    is_retired: bool = False
    _ends: asyncio.Event = field(default_factory=asyncio.Event)
    _task: "asyncio.Task[None] | None" = None
    _session: ClientSession | None = None

    async def open(self, streams: AbstractAsyncContextManager[tuple[Any, Any]]) -> None:
        """Connect, and shake hands.

        Raises:
            UnavailableError: There is no session; no tool was called.
        """
        ready = asyncio.Event()
        self._task = task = asyncio.create_task(self._hold(streams, ready))
        task.add_done_callback(self._note_end)
        waiting = asyncio.create_task(ready.wait())
        try:
            await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
            if not ready.is_set():
                self.retire()
        if not ready.is_set():
            raise _refusal(None if task.cancelled() else task.exception())

    @property
    def session(self) -> ClientSession:
        """The session.

        Raises:
            UnavailableError: It was never opened.
        """
        if self._session is None:
            raise UnavailableError("there is no session with the server")
        return self._session

    @property
    def is_over(self) -> bool:
        """Whether nothing of it is left."""
        return self._task is not None and self._task.done()

    def retire(self) -> None:
        """Take no further call, and end once nobody uses it."""
        self.is_retired = True
        self.release()

    def release(self) -> None:
        """End, if it is retired and nobody uses it."""
        if self.is_retired and not self.uses:
            self._ends.set()
            if self._session is None and self._task is not None:
                self._task.cancel()

    async def ended(self) -> None:
        """Wait for the end of a connection that is retired."""
        self.uses = 0
        self.release()
        if self._task is not None:
            await asyncio.wait({self._task})

    def _note_end(self, task: "asyncio.Task[None]") -> None:
        self.is_retired = True
        if not task.cancelled():
            task.exception()

    async def _hold(
        self, streams: AbstractAsyncContextManager[tuple[Any, Any]], ready: asyncio.Event
    ) -> None:
        """Hold the session open until it is to end: it ends in the task that began it."""
        async with (
            streams as pair,
            ClientSession(dispatcher=Dispatcher(pair, self.name)) as session,
        ):
            await _shake_hands(session)
            self._session = session
            ready.set()
            await self._ends.wait()


async def _shake_hands(session: ClientSession) -> None:
    try:
        await session.initialize()
    except MCPError as error:
        if error.code not in (METHOD_NOT_FOUND, UNSUPPORTED_PROTOCOL_VERSION):
            raise
        await session.discover()


def _refusal(error: BaseException | None) -> CounterfoilError:
    """Return the reason why there is no session, as a person can be told."""
    while isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)  # isinstance says no more
        error = group.exceptions[0]
    if isinstance(error, CounterfoilError):
        return error
    refusal = UnavailableError(f"the server gave no session: {type(error).__name__}")
    refusal.__cause__ = error
    return refusal
