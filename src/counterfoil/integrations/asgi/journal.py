"""The journal of receipts: who may execute a key, and what was answered to it.

Every method is one transaction, may be called again when its answer was lost, and gives
the same answer then. Claims of one key meet in its row: one is first.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from counterfoil.core.errors import FormatError, UnavailableError, UnknownOutcomeError, UsageError
from counterfoil.core.receipt import Fence, Served
from counterfoil.core.words import Digest
from counterfoil.integrations.asgi import bindings, statements
from counterfoil.integrations.asgi.answer import Answer
from counterfoil.integrations.asgi.call import Call
from counterfoil.integrations.asgi.database import Database, Rows, Run, Value
from counterfoil.integrations.asgi.rows import Row, State, Verdict, judge, standing
from counterfoil.integrations.asgi.rules import MARGIN_MS, Commits

Result = TypeVar("Result")

TRIES = 3
"""Of one transaction whose answer was lost; a server that restarts loses one."""

LOOKS = 3
"""At a row that changes between look and claim; each change is another request's doing."""

PURGED_AT_ONCE = 16
"""Receipts past their retention that a new key removes: more than one, so that they end."""

UNSETTLED_MAX = 1_000
"""Keys in one page of those that a person is shown."""


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """What a request with a key got.

    Attributes:
        verdict: What it got.
        row: What stands under the key; None when the request may execute, or is stale.
    """

    verdict: Verdict
    row: Row | None = None


class Journal:
    """Receipts by client and key, and fences by client and run.

    `open_journal` makes one. It may be used by several threads at once.

    Args:
        database: Open, with the journal's tables; `close` closes it.
        instance: Random name that the journal was given when it was made.
        secret: What the digests of its clients are made with; it leaves the journal nowhere.
    """

    def __init__(self, database: Database, *, instance: str, secret: str) -> None:
        self._database = database
        self.instance = instance
        self.secret = secret

    @property
    def threads(self) -> int:
        """How many calls can be under way at once."""
        return self._database.threads

    def claim(self, call: Call, attempt: str, *, now_ms: int, lease_ms: int) -> Claim:
        """Claim a key for one request, unless something stands under it.

        Args:
            call: The request.
            attempt: Random name of this try to execute it, the same when asked again.
            now_ms: The time, UTC.
            lease_ms: How long it counts as under way.

        Returns:
            Verdict `CLAIMED` when the request is to be executed, by the caller alone.

        Raises:
            UnavailableError: It is not claimed.
            UnknownOutcomeError: It may be claimed; it must not be executed.
        """
        seen = self._tried(lambda run: self._seen(run, call, attempt, now_ms), writes=False)
        if seen is not None:
            return seen

        def claimed(run: Run) -> Claim:
            return self._claimed(run, call, attempt, now_ms, now_ms + lease_ms)

        return self._tried(claimed, writes=True)

    def finish(
        self, call: Call, attempt: str, answer: Answer, *, now_ms: int, retention_ms: int
    ) -> Row | None:
        """Keep the answer to a claimed request, unless another stands.

        Returns:
            What stands under the key afterwards.

        Raises:
            UnavailableError: It is not kept.
            UnknownOutcomeError: It may be kept.
        """
        values = bindings.finished(call, attempt, answer, now_ms, retention_ms)

        def finished(run: Run) -> Row | None:
            self._do(run, statements.FINISH, values)
            return self._row(run, call.client, call.key)

        return self._tried(finished, writes=True)

    def finishing(
        self,
        connection: object,
        call: Call,
        attempt: str,
        answer: Answer,
        *,
        now_ms: int,
        retention_ms: int,
    ) -> tuple[str, tuple[Value, ...]]:
        """Return the statement that keeps an answer, and its values, for the service's connection.

        It returns one row when the key is still the request's, and none when it is not.

        Raises:
            UsageError: The connection cannot commit the receipt with the effect.
        """
        self._database.check(connection)
        values = bindings.finishing(call, attempt, answer, now_ms, retention_ms)
        return self._database.spelt(statements.FINISH), values

    def read(self, client: str, key: str) -> Row | None:
        """Return what stands under a key, and change nothing.

        Raises:
            UnavailableError: It cannot be read now.
        """
        return self._tried(lambda run: self._row(run, client, key), writes=False)

    def look_up(self, client: str, key: str, *, now_ms: int) -> Claim:
        """Say what stands under a key; what can be settled is settled first.

        Raises:
            UnavailableError: It cannot be said now.
        """
        seen = self._tried(lambda run: self._standing(run, client, key, now_ms), writes=False)
        if seen.verdict is not Verdict.ABANDONED:
            return seen

        def settled(run: Run) -> Claim:
            found = self._standing(run, client, key, now_ms)
            if found.verdict is Verdict.ABANDONED and found.row is not None:
                self._drop(run, found.row)
                return self._standing(run, client, key, now_ms)
            return found

        return self._tried(settled, writes=True)

    def forbid(
        self, client: str, key: str, *, run_id: str, fence: Fence | None, now_ms: int
    ) -> Claim:
        """Make a key impossible unless it is done.

        Returns:
            Verdict `FORBIDDEN`, `DONE`, `STALE`, or one that says that nobody can tell.

        Raises:
            UnavailableError: Nothing happened.
        """

        def forbidden(run: Run) -> Claim:
            if fence is not None and self._raised(run, client, run_id, fence) is None:
                return Claim(verdict=Verdict.STALE)
            row = self._row(run, client, key)
            if row is None:
                self._do(
                    run, statements.INSERT, bindings.tombstone(client, key, run_id, fence, now_ms)
                )
            elif row.state is State.IN_FLIGHT and row.commits is Commits.TOGETHER:
                self._do(run, statements.FORBID, (now_ms, client, key, row.attempt))
            row = self._row(run, client, key)
            if row is not None and row.state is State.DONE:
                return Claim(verdict=Verdict.DONE, row=row)
            return self._standing(run, client, key, now_ms)

        return self._tried(forbidden, writes=True)

    def take(self, client: str, run_id: str, fence: Fence) -> tuple[bool, Served | None]:
        """Raise a run's fence; keys in flight under older ones are settled.

        Returns:
            Whether the fence is not stale, and what was served last under older ones.

        Raises:
            UnavailableError: It may be raised, or not.
        """

        def taken(run: Run) -> tuple[bool, Served | None]:
            held = self._raised(run, client, run_id, fence)
            return held is not None, _served(*held) if held else None

        return self._tried(taken, writes=True)

    def unsettled(self, *, now_ms: int, after: Row | None = None) -> tuple[Row, ...]:
        """Return a page of keys whose request is not known to be under way, oldest first.

        Args:
            now_ms: The time, UTC.
            after: Last row of the page before; None for the first page.

        Raises:
            UnavailableError: They cannot be read now.
        """
        last = (after.started_at_ms, after.client, after.key) if after else (-1, "", "")
        values = (now_ms, *last, UNSETTLED_MAX)
        return self._tried(
            lambda run: tuple(map(_typed, self._do(run, statements.OPEN, values))), writes=False
        )

    def unsettled_of(self, attempt: str) -> Row | None:
        """Return the key that an attempt left open, if there is one, under way or not.

        Raises:
            UnavailableError: It cannot be read now.
        """
        rows = self._tried(
            lambda run: self._do(run, statements.UNSETTLED, (attempt,)), writes=False
        )
        return _typed(rows[0]) if rows else None

    def settle(self, row: Row, answer: Answer | None, *, now_ms: int) -> Row | None:
        """Say what became of an unsettled key, as a person has found out.

        Args:
            row: The key, as it was shown.
            answer: What is to be answered from here on, for longer than any service promises;
                None when nothing happened, so that the next request with the key is executed.
            now_ms: The time, UTC.

        Returns:
            What stands under the key afterwards: None when it is free.

        Raises:
            UsageError: The key is not unsettled any more.
            UnavailableError: Nothing happened.
        """

        def settled(run: Run) -> Row | None:
            if standing(self._row(run, row.client, row.key), now_ms) is Verdict.IN_FLIGHT:
                raise UsageError("the request is under way, so there is nothing to settle yet")
            if answer is None:
                self._drop(run, row)
            else:
                self._do(run, statements.FINISH, bindings.settled(row, answer, now_ms))
            left = self._row(run, row.client, row.key)
            if not _is_settled(left, row, answer):
                raise UsageError("the key is not in the state that was shown")
            return left

        return self._tried(settled, writes=True)

    def close(self) -> None:
        """Let go of the database; a second time does nothing."""
        self._database.close()

    def _tried(self, work: Callable[[Run], Result], *, writes: bool) -> Result:
        """Run a transaction, and run it again when the answer to its commit was lost."""
        for _ in range(TRIES - 1):
            try:
                with self._database.transaction(writes=writes) as run:
                    return work(run)
            except UnknownOutcomeError:
                continue
        with self._database.transaction(writes=writes) as run:
            return work(run)

    def _do(self, run: Run, statement: str, values: Sequence[Value]) -> Rows:
        return run(self._database.spelt(statement), values)

    def _row(self, run: Run, client: str, key: str) -> Row | None:
        rows = self._do(run, statements.ROW, (client, key))
        return _typed(rows[0]) if rows else None

    def _standing(self, run: Run, client: str, key: str, now_ms: int) -> Claim:
        row = self._row(run, client, key)
        return Claim(verdict=standing(row, now_ms), row=row)

    def _drop(self, run: Run, row: Row) -> bool:
        values = (row.client, row.key, row.state.value, row.attempt)
        return bool(self._do(run, statements.DROP, values))

    def _seen(self, run: Run, call: Call, attempt: str, now_ms: int) -> Claim | None:
        """Return what a request gets if that changes nothing, or None."""
        authority = call.authority
        if authority.fence is not None:
            held = self._do(run, statements.STANDING_FENCE, (call.client, authority.run))
            if not held:
                return None
            version, nonce, generation, checkpoint = msgspec.convert(
                held[0], tuple[int, str, int, str]
            )
            if authority.fence != Fence(lease_version=version, nonce=nonce):
                return None
            if authority.served not in (None, _served(generation, checkpoint)):
                return None
        row = self._row(run, call.client, call.key)
        verdict = judge(row, call, attempt, now_ms)
        is_writing = verdict in (Verdict.ABSENT, Verdict.ABANDONED)
        return None if is_writing else Claim(verdict=verdict, row=row)

    def _claimed(
        self, run: Run, call: Call, attempt: str, now_ms: int, lease_until_ms: int
    ) -> Claim:
        authority = call.authority
        fence = authority.fence
        if fence and self._raised(run, call.client, authority.run, fence) is None:
            return Claim(verdict=Verdict.STALE)
        for _ in range(LOOKS):
            row = self._row(run, call.client, call.key)
            verdict = judge(row, call, attempt, now_ms)
            if verdict is Verdict.ABSENT:
                if row is not None:
                    self._drop(run, row)
                is_ours = self._do(
                    run, statements.INSERT, bindings.inserted(call, attempt, now_ms, lease_until_ms)
                )
                self._do(run, statements.PURGE, (now_ms - MARGIN_MS, PURGED_AT_ONCE))
            elif verdict is Verdict.ABANDONED and row is not None:
                values = (*bindings.taken_over(call, attempt, now_ms, lease_until_ms), row.attempt)
                is_ours = self._do(run, statements.TAKE_OVER, values)
            else:
                self._serve(run, call, verdict)
                return Claim(verdict=verdict, row=row)
            if is_ours:
                self._serve(run, call, Verdict.CLAIMED)
                return Claim(verdict=Verdict.CLAIMED)
        raise UnavailableError("the key is claimed by many requests at once")

    def _raised(self, run: Run, client: str, run_id: str, fence: Fence) -> tuple[int, str] | None:
        """Raise a fence, and return what was served last, or None when the fence is stale."""
        values = (client, run_id, fence.lease_version, fence.nonce)
        rows = self._do(run, statements.RAISE_FENCE, values)
        if not rows:
            return None
        self._do(run, statements.SUPERSEDE, values)
        return msgspec.convert(rows[0], tuple[int, str])

    def _serve(self, run: Run, call: Call, verdict: Verdict) -> None:
        """Remember which checkpoint was served, if one was; an older one changes nothing."""
        authority = call.authority
        served = authority.served
        if authority.fence and served and verdict in (Verdict.CLAIMED, Verdict.DONE):
            place = (call.client, authority.run)
            values = (served.generation, served.checkpoint, *place, served.generation)
            self._do(run, statements.SERVE, values)


def _typed(row: object) -> Row:
    try:
        return msgspec.convert(row, Row)
    except msgspec.ValidationError as error:
        raise FormatError("a row of the journal does not have the form that we write") from error


def _is_settled(left: Row | None, row: Row, answer: Answer | None) -> bool:
    if left is None or answer is None:
        return left is None and answer is None
    kept = (left.state, left.attempt, left.status, left.body)
    return kept == (State.DONE, row.attempt, answer.status_code, answer.body)


def _served(generation: int, checkpoint: str) -> Served | None:
    if not checkpoint:
        return None
    return Served(generation=generation, checkpoint=Digest(checkpoint))
