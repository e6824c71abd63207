"""The two halves of an HTTP exchange, held whole: a request's body, and an answer.

The application is not told that its client left: its effect may have begun, and its
answer is kept for the next try.
"""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

from counterfoil.core.errors import ContractError, UsageError
from counterfoil.integrations.asgi.answer import Answer, Headers
from counterfoil.integrations.asgi.rules import Scope

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]


async def read_body(receive: Receive, *, bytes_max: int) -> bytes | None:
    """Return the body of a request, or None when its client left before the end.

    Raises:
        ContractError: It is longer than `bytes_max`.
    """
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        part: bytes = message.get("body", b"")
        size += len(part)
        if size > bytes_max:
            raise ContractError(f"the body has more than {bytes_max} bytes")
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)


async def send_answer(send: Send, answer: Answer, *extra: tuple[bytes, bytes]) -> None:
    """Send a whole answer, with `extra` headers after its own."""
    headers = [*answer.raw_headers, *extra]
    await send({"type": "http.response.start", "status": answer.status_code, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})


class Exchange:
    """What an application sees of one exchange: a request that is there, an answer to fill.

    Args:
        body: Body of the request.
        bytes_max: Longest body of the answer.
        conclude: Called once with the whole answer, or with None when it is longer.
    """

    def __init__(
        self,
        body: bytes,
        *,
        bytes_max: int,
        conclude: Callable[[int, Answer | None], Awaitable[None]],
    ) -> None:
        self._body: bytes | None = body
        self._bytes_max = bytes_max
        self._conclude = conclude
        self._status = 0
        self._headers: Headers = ()
        self._parts: list[bytes] = []
        self._size = 0
        self._is_over = asyncio.Event()
        self.is_answered = False
        """Whether the application has answered in full."""

    async def receive(self) -> Message:
        """Give the application its request, and then nothing until it has answered."""
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._is_over.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """Take a part of the answer; conclude it with the last one."""
        if self.is_answered:
            return
        if message["type"] == "http.response.start":
            self._status = message["status"]
            pairs = message.get("headers", ())
            self._headers = tuple((bytes(name), bytes(value)) for name, value in pairs)
        elif message["type"] == "http.response.body":
            if not self._status:
                raise UsageError("the application sent a body without a start")
            part: bytes = message.get("body", b"")
            self._size += len(part)
            if self._size <= self._bytes_max:
                self._parts.append(bytes(part))
            if not message.get("more_body", False):
                self.is_answered = True
                try:
                    await self._conclude(self._status, self._whole())
                finally:
                    # No sooner: an application that is told of a disconnect may stop sending.
                    self._is_over.set()

    def _whole(self) -> Answer | None:
        if self._size > self._bytes_max:
            return None
        return Answer(
            status_code=self._status, raw_headers=self._headers, body=b"".join(self._parts)
        )
