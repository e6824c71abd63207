"""The one thread in which everything asynchronous of an adapter happens.

Callers hand it coroutines from any thread and wait. It ends with the adapter, and with
the process when nobody closes it.
"""

import asyncio
import concurrent.futures
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from counterfoil.core.errors import UnavailableError, UnknownOutcomeError

_T = TypeVar("_T")

MARGIN_SECONDS = 10.0
"""What is limited inside the loop ends by itself; this is for a loop that stands still."""


class Loop:
    """An event loop in a thread of its own, which `close` ends."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._lock = threading.Lock()
        self._is_open = True
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, _T], seconds: float) -> _T:
        """Return what a coroutine comes to, which limits itself to so many seconds.

        Raises:
            UnavailableError: The loop has ended, so that nothing was begun.
            UnknownOutcomeError: It ended, or stood still, before the coroutine was done.
        """
        with self._lock:
            if not self._is_open:
                coroutine.close()
                raise UnavailableError("the connection to the server was closed for good")
            begun = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return begun.result(seconds + MARGIN_SECONDS)
        except concurrent.futures.CancelledError as error:
            raise UnknownOutcomeError("it was closed before its answer came") from error
        except concurrent.futures.TimeoutError as error:
            begun.cancel()
            raise UnknownOutcomeError("no answer came in time") from error

    def close(self, last: Coroutine[Any, Any, None], seconds: float) -> None:
        """Let a last coroutine run, end what is under way, and end the thread."""
        with self._lock:
            was_open, self._is_open = self._is_open, False
        if not was_open:
            last.close()
            return
        ending = asyncio.run_coroutine_threadsafe(_ended(last), self._loop)
        concurrent.futures.wait([ending], seconds + MARGIN_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(MARGIN_SECONDS)
        if not self._thread.is_alive():
            self._loop.close()


async def _ended(last: Coroutine[Any, Any, None]) -> None:
    try:
        await last
    finally:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.get_running_loop().shutdown_default_executor()
