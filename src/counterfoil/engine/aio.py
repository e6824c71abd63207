"""The same session, awaited: each verb runs in the session's own thread.

Stores and adapters are synchronous, and durable writes block; one thread per session
keeps its verbs in order and the event loop free. Coroutines that users declare as
effects run on the loop that awaits.
"""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

from counterfoil.core.intent import Action
from counterfoil.core.run import Run
from counterfoil.core.words import Json
from counterfoil.engine.performing import Proposal
from counterfoil.engine.session import Session
from counterfoil.engine.settling import Settlement
from counterfoil.ports import Observation, running_loop

_P = ParamSpec("_P")
_R = TypeVar("_R")


class AsyncSession:
    """A held run with awaited verbs; they mean what those of `Session` mean.

    A cancelled verb is awaited to its end before the cancellation goes on: a call that
    has left cannot be taken back, and its receipt is not thrown away.
    """

    def __init__(self, open_session: Callable[[], Session], *, closes: bool = True) -> None:
        self._open = open_session
        self._closes = closes
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="counterfoil")
        self._session: Session | None = None

    async def __aenter__(self) -> Self:
        try:
            await self._in_thread(self._begin)
        except BaseException:  # nobody will leave what was never entered
            self._thread.submit(self._let_go)
            self._thread.shutdown(wait=False)
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if self._closes:
                await self._in_thread(self._held.__exit__, kind, error, trace)
        finally:
            self._thread.shutdown(wait=False)

    @property
    def arguments(self) -> dict[str, Json]:
        """What the run was submitted with; empty when nobody submitted it."""
        return self._held.arguments

    @property
    def state(self) -> Run:
        """The run as this session knows it; frozen."""
        return self._held.state

    async def do(self, kind: str, /, *, key: str | None = None, **arguments: object) -> Json:
        """Await `Session.do`."""
        return await self._in_thread(self._held.do, kind, key=key, **arguments)

    async def remember(
        self, name: str, compute: Callable[[], object] | Callable[[], Awaitable[object]]
    ) -> Json:
        """Await `Session.remember`; `compute` may be a coroutine function."""
        loop = asyncio.get_running_loop()

        def computed() -> object:
            value = compute()
            if asyncio.iscoroutine(value):
                return asyncio.run_coroutine_threadsafe(value, loop).result()
            return value

        return await self._in_thread(self._held.remember, name, computed)

    async def verify(self) -> Json:
        """Await `Session.verify`."""
        return await self._in_thread(self._held.verify)

    async def finish(self) -> Run:
        """Await `Session.finish`."""
        return await self._in_thread(self._held.finish)

    async def cancel(self, reason: str = "") -> Run:
        """Await `Session.cancel`."""
        return await self._in_thread(self._held.cancel, reason)

    async def observe(self) -> dict[str, Observation]:
        """Await `Session.observe`."""
        return await self._in_thread(self._held.observe)

    async def propose(self, action: Action | str | bytes) -> Proposal:
        """Await `Session.propose`."""
        return await self._in_thread(self._held.propose, action)

    async def settle(self) -> Settlement | None:
        """Await `Session.settle`."""
        return await self._in_thread(self._held.settle)

    async def wait(self, *, timeout_ms: int) -> Settlement | None:
        """Await `Session.wait`."""
        return await self._in_thread(self._held.wait, timeout_ms=timeout_ms)

    async def withdraw(self, reason: str = "withdrawn by the planner") -> Run:
        """Await `Session.withdraw`."""
        return await self._in_thread(self._held.withdraw, reason)

    async def flush(self) -> None:
        """Await `Session.flush`."""
        await self._in_thread(self._held.flush)

    def _begin(self) -> None:
        self._session = self._open()

    def _let_go(self) -> None:
        if self._session is not None:
            self._session.close()

    @property
    def _held(self) -> Session:
        if self._session is None:
            raise RuntimeError("enter the session with `async with` first")
        return self._session

    async def _in_thread(self, verb: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
        loop = asyncio.get_running_loop()

        def call() -> _R:
            token = running_loop.set(loop)
            try:
                return verb(*args, **kwargs)
            finally:
                running_loop.reset(token)

        future: asyncio.Future[Any] = loop.run_in_executor(self._thread, call)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            await asyncio.wait({future})
            raise
