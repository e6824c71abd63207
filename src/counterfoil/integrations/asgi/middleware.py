"""Claims a request's key, lets the application answer once, and keeps what it answered.

Three moments are durable, in this order: the claim, the effect, the answer. Nothing of
the answer is sent before it is kept.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

from counterfoil.core.errors import ContractError, CounterfoilError
from counterfoil.integrations.asgi import problems
from counterfoil.integrations.asgi.answer import ERROR_STATUS_MIN, Answer, kept_headers
from counterfoil.integrations.asgi.call import (
    COMMITS,
    KEY,
    UNNAMED,
    Call,
    call_of,
    client_of,
    values_of,
)
from counterfoil.integrations.asgi.exchange import (
    App,
    Exchange,
    Receive,
    Send,
    read_body,
    send_answer,
)
from counterfoil.integrations.asgi.journal import Journal
from counterfoil.integrations.asgi.problems import Problem, Refusal, problem
from counterfoil.integrations.asgi.promised import STATE, PromisedReceipt
from counterfoil.integrations.asgi.receipts import BODY_BYTES_MAX, Desk, answered, is_below
from counterfoil.integrations.asgi.rows import Row, State, Verdict
from counterfoil.integrations.asgi.rules import Commits, Rules, Scope

RECEIPT = b"counterfoil-receipt"
COMMITTED_AT = b"counterfoil-committed-at"
REPLAYED = (b"idempotent-replayed", b"true")
CLOSE = (b"connection", b"close")
"""Servers close a connection when an application fails, so a client must not use it again."""

REFUSALS: dict[Verdict, Refusal] = {
    Verdict.STALE: (problems.STALE_FENCE, "another worker holds the run; open the run again"),
    Verdict.OTHER: (
        problems.OTHER_PAYLOAD,
        "the key belongs to a request with another path, header, body or intent; use another key",
    ),
    Verdict.FORBIDDEN: (problems.FORBIDDEN, "it will never be executed; use another key"),
    Verdict.IN_FLIGHT: (problems.IN_FLIGHT, "ask again in a moment"),
    Verdict.UNKNOWN: (
        problems.UNKNOWN,
        "it may have taken effect, so it is not executed again until an operator settles it",
    ),
}
"""What a request gets that is neither executed nor answered by a receipt."""

log = logging.getLogger("counterfoil.asgi")

P = ParamSpec("P")
Result = TypeVar("Result")


def wall_clock_ms() -> int:
    """Return the wall clock, UTC, in milliseconds."""
    return time.time_ns() // 1_000_000


class ReceiptMiddleware:
    """Gives the requests of an ASGI application authoritative receipts.

    Put it inside what authenticates clients, so that keys are of clients that are known.

    Args:
        app: The application.
        journal: Open; whoever opened it closes it, when the application is down.
        rules: What the service declares.
        now_ms: Clock, UTC.
    """

    def __init__(
        self,
        app: App,
        *,
        journal: Journal,
        rules: Rules | None = None,
        now_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        self._app = app
        self._journal = journal
        self._rules = rules or Rules()
        self._now_ms = now_ms
        self._desk = Desk(journal=journal, rules=self._rules, now_ms=now_ms)
        self._threads = ThreadPoolExecutor(journal.threads, thread_name_prefix="counterfoil")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection, as ASGI has it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif is_below(scope, self._rules.receipts_path):
            await self._serve_receipts(scope, receive, send)
        elif scope["method"] not in self._rules.methods:
            await self._app(scope, receive, send)
        elif values_of(scope, KEY):
            await self._serve_call(scope, receive, send)
        elif self._rules.requires(scope):
            detail = "this operation needs an Idempotency-Key, such as a UUID in quotes"
            await self._refuse(send, problems.MISSING_KEY, detail)
        else:
            await self._app(scope, receive, send)

    async def _serve_receipts(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = client_of(scope, self._rules, self._journal.secret)
        if client is None:
            await self._refuse(send, *UNNAMED)
            return
        try:
            body = await read_body(receive, bytes_max=BODY_BYTES_MAX)
        except ContractError as error:
            await self._refuse(send, problems.TOO_LARGE, error.message)
            return
        if body is not None:
            await send_answer(
                send, await self._in_thread(answered, self._desk, client, scope, body)
            )

    async def _serve_call(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            body = await read_body(receive, bytes_max=self._rules.body_bytes_max)
        except ContractError as error:
            await self._refuse(send, problems.TOO_LARGE, error.message)
            return
        if body is None:
            return
        call = call_of(scope, body, self._rules, self._journal.secret)
        if isinstance(call, Call):
            await self._judge(call, body, scope, send)
        else:
            await self._refuse(send, *call)

    async def _judge(self, call: Call, body: bytes, scope: Scope, send: Send) -> None:
        attempt = secrets.token_hex(16)
        try:
            claim = await self._in_thread(
                self._journal.claim,
                call,
                attempt,
                now_ms=self._now_ms(),
                lease_ms=self._rules.lease_ms,
            )
        except CounterfoilError as error:
            log.warning("a request was not executed: %s", error)
            await self._refuse(send, problems.UNAVAILABLE, "ask again in a moment")
            return
        if claim.verdict is Verdict.CLAIMED:
            await self._execute(call, attempt, body, scope, send)
        elif claim.verdict is Verdict.DONE and claim.row is not None:
            await self._give(send, claim.row, REPLAYED)
        else:
            await self._refuse(send, *REFUSALS[claim.verdict])

    async def _execute(
        self, call: Call, attempt: str, body: bytes, scope: Scope, send: Send
    ) -> None:
        async def conclude(status: int, answer: Answer | None) -> None:
            await self._conclude(call, attempt, send, answer or self._too_large(status))

        exchange = Exchange(body, bytes_max=self._rules.answer_bytes_max, conclude=conclude)
        scope.setdefault("state", {})[STATE] = PromisedReceipt(
            journal=self._journal,
            rules=self._rules,
            call=call,
            attempt=attempt,
            now_ms=self._now_ms,
        )
        extensions = scope.get("extensions", {})
        scope["extensions"] = {}  # how bodies are sent: ours are held whole before they are kept
        try:
            await self._app(scope, exchange.receive, exchange.send)
        except Exception:
            if not exchange.is_answered:
                close = (CLOSE,) if scope.get("http_version", "").startswith("1") else ()
                await self._conclude(call, attempt, send, self._unanswered("it failed"), *close)
            raise
        finally:
            scope["extensions"] = extensions
        if not exchange.is_answered:
            await self._conclude(call, attempt, send, self._unanswered("it came to no end"))

    async def _conclude(
        self, call: Call, attempt: str, send: Send, answer: Answer, *extra: tuple[bytes, bytes]
    ) -> None:
        """Keep an answer and send what stands then, with `extra` headers."""
        try:
            row = await self._in_thread(self._kept, call, attempt, answer)
        except CounterfoilError:
            log.exception("a request was executed, and its answer is not kept")
            await self._refuse(send, problems.NOT_STORED, "ask again in a moment", *extra)
            return
        if row is None or row.state is not State.DONE:
            await self._refuse(send, problems.SUPERSEDED, "ask again in a moment", *extra)
        elif row.attempt == attempt:
            await self._give(send, row, *extra)
        else:
            await self._give(send, row, REPLAYED, *extra)

    def _kept(self, call: Call, attempt: str, answer: Answer) -> Row | None:
        """Return the row under a key, once an answer is kept in it."""
        if call.commits is Commits.TOGETHER and answer.status_code < ERROR_STATUS_MIN:
            row = self._journal.read(call.client, call.key)
            if row is not None and row.state is State.DONE:
                return row
            answer = self._not_committed(answer)
        return self._journal.finish(
            call,
            attempt,
            answer,
            now_ms=self._now_ms(),
            retention_ms=self._rules.retention_ms,
        )

    async def _give(self, send: Send, row: Row, *extra: tuple[bytes, bytes]) -> None:
        """Send the answer that is kept in a row."""
        answer = Answer(
            status_code=row.status, raw_headers=kept_headers(row.headers), body=row.body
        )
        id_header = (RECEIPT, row.attempt.encode("ascii"))
        moment = (COMMITTED_AT, str(row.committed_at_ms).encode("ascii"))
        commits = (COMMITS, row.commits.value.encode("ascii"))
        await send_answer(send, answer, id_header, moment, commits, *extra)

    async def _refuse(
        self, send: Send, kind: Problem, detail: str, *extra: tuple[bytes, bytes]
    ) -> None:
        await send_answer(send, self._problem(kind, detail), *extra)

    def _problem(self, kind: Problem, detail: str) -> Answer:
        return problem(kind, detail, documentation=self._rules.documentation)

    def _too_large(self, status: int) -> Answer:
        return self._problem(
            problems.ANSWER_TOO_LARGE,
            f"the request was executed and answered with {status}, in more than "
            f"{self._rules.answer_bytes_max} bytes",
        )

    def _unanswered(self, what: str) -> Answer:
        return self._problem(
            problems.UNANSWERED, f"{what}; the request was executed, in part at least"
        )

    def _not_committed(self, answer: Answer) -> Answer:
        return self._problem(
            problems.NOT_COMMITTED,
            f"it answered with {answer.status_code}, and no receipt was committed before that",
        )

    async def _in_thread(
        self, work: Callable[P, Result], *args: P.args, **kwargs: P.kwargs
    ) -> Result:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, partial(work, *args, **kwargs))
