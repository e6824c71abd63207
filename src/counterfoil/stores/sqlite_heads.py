"""Heads in one SQLite file.

Each write is one UPDATE that compares and sets, in one transaction with the register's
clock: the machine's wall clock, but never less than what any write has acted on. An
advance keeps its moment in the row that it moves, so that a commit changes one page;
every other write keeps it in the register's own row.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

import msgspec

from counterfoil.core.errors import FormatError, LostRaceError
from counterfoil.core.words import Digest, RunId
from counterfoil.ports import Advance, Head
from counterfoil.stores import rules
from counterfoil.stores.migrate import Schema
from counterfoil.stores.sqlite_database import Database
from counterfoil.stores.sqlite_driver import Connection, Value, typed

HEADS_SCHEMA = Schema(
    name="heads", version=2, application_id=0x43464802, page_bytes=4_096, is_small=True
)

_HEADS = """
SELECT run_id, generation, checkpoint, owner, nonce, lease_version, expires_at_ms, status,
    incarnation
FROM head JOIN register
"""
_BY_RUN = _HEADS + "WHERE run_id = ?"
_BY_ORDER = _HEADS + "WHERE run_id > ? ORDER BY run_id LIMIT ?"
_FLOOR = """
max(floor_ms, coalesce(
    (SELECT max(acted_at_ms) FROM head INDEXED BY head_ahead WHERE is_ahead = 1), 0
))
"""
_FREE_AT = """
WITH present (now_ms) AS (SELECT {now} FROM register), free AS (
    SELECT * FROM head INDEXED BY head_free
    WHERE status = 'active' AND nonce = '' AND expires_at_ms <= (SELECT now_ms FROM present)
    ORDER BY expires_at_ms, run_id LIMIT ?2
), over AS (
    SELECT * FROM head INDEXED BY head_held
    WHERE status = 'active' AND nonce <> '' AND expires_at_ms <= (SELECT now_ms FROM present)
)
{heads} ORDER BY expires_at_ms, run_id LIMIT ?2
"""
_BOTH = _HEADS.replace("head JOIN", "(SELECT * FROM free UNION ALL SELECT * FROM over) JOIN")
_FREE = _FREE_AT.format(now=f"max({_FLOOR}, ?1)", heads=_BOTH)
_NOW = "SELECT {now}, incarnation FROM register"
_CLOCK = _NOW.format(now=f"max({_FLOOR}, ?)")
_LATEST = _NOW.format(now=_FLOOR)
_KEEP = "UPDATE register SET floor_ms = max(floor_ms, ?)"
_ALL_BEHIND = "UPDATE head SET is_ahead = 0 WHERE is_ahead = 1"
_CREATE = """
INSERT INTO head VALUES (?, 0, ?, ?, ?, 1, ?, 'active', 0, 0) ON CONFLICT (run_id) DO NOTHING
"""
_ACQUIRE = """
UPDATE head
SET owner = ?, nonce = ?, lease_version = lease_version + 1, expires_at_ms = ?
WHERE run_id = ? AND generation = ? AND checkpoint = ? AND nonce = ? AND lease_version = ?
    AND status = ? AND owner = ? AND (nonce = '' OR expires_at_ms <= ?)
"""
_RENEW = """
UPDATE head SET expires_at_ms = max(expires_at_ms, ?)
WHERE run_id = ? AND nonce = ? AND lease_version = ? AND expires_at_ms > ?
"""
_ADVANCE = """
UPDATE head
SET generation = generation + 1, checkpoint = ?1, acted_at_ms = ?2,
    expires_at_ms = max(expires_at_ms, ?3)
WHERE run_id = ?4 AND generation = ?5 AND checkpoint = ?6 AND nonce = ?7 AND lease_version = ?8
    AND expires_at_ms > ?2 AND status = ?9 AND is_ahead = 1
"""
"""For a head that was advanced before and keeps its status: it changes no index."""

_ADVANCE_FIRST = """
UPDATE head
SET generation = generation + 1, checkpoint = ?1, acted_at_ms = ?2,
    expires_at_ms = max(expires_at_ms, ?3), status = ?9, is_ahead = 1
WHERE run_id = ?4 AND generation = ?5 AND checkpoint = ?6 AND nonce = ?7 AND lease_version = ?8
    AND expires_at_ms > ?2
"""
_TERM = "SELECT owner, expires_at_ms FROM head WHERE run_id = ?"
_RELEASE = """
UPDATE head SET owner = '', nonce = '', expires_at_ms = ?
WHERE run_id = ? AND nonce = ? AND lease_version = ?
"""


class _Row(msgspec.Struct, frozen=True, array_like=True):
    run_id: RunId
    generation: int
    checkpoint: bytes
    owner: str
    nonce: str
    lease_version: int
    expires_at_ms: int
    status: str
    incarnation: str


class _Clock(msgspec.Struct, frozen=True, array_like=True):
    now_ms: int
    incarnation: str


class _Term(msgspec.Struct, frozen=True, array_like=True):
    owner: str
    expires_at_ms: int


class _Write(msgspec.Struct, frozen=True, kw_only=True):
    """One transaction, at one moment of the register's clock."""

    connection: Connection
    now_ms: int
    incarnation: str

    def present(self, run_id: RunId) -> Head | None:
        row = self.connection.execute(_BY_RUN, (run_id,)).fetchone()
        return None if row is None else _head(typed(row, _Row))

    def changed(self, statement: str, bindings: Sequence[Value]) -> bool:
        self.connection.execute(statement, bindings)
        return self.connection.changes() > 0


END_OF_TIME_MS = 2**62
"""Later than any lease: a dead holder's term is over whenever it would have ended."""


def never_dead(owner: str) -> bool:
    """Return False: without a way to tell, every holder counts as alive."""
    return False


class SqliteHeads:
    """A `HeadRegister` in a SQLite file; safe to share by threads and processes.

    A wall clock that is set back revives no lease. One that was far ahead once keeps the
    register at that moment: until the clock gets there, leases end by release alone.
    """

    def __init__(
        self,
        database: Database,
        now_ms: Callable[[], int],
        is_dead: Callable[[str], bool] = never_dead,
    ) -> None:
        self._database = database
        self._wall_ms = now_ms
        self._is_dead = is_dead

    def create(
        self, run_id: RunId, checkpoint: Digest, owner: str, nonce: str, ttl_ms: int
    ) -> Head:
        """Register generation 0 durably and hold it under lease version 1.

        Raises:
            StaleHeadError: The run has a head.
            UnavailableError: Nothing happened.
            UnknownOutcomeError: The commit failed; read the head.
        """
        rules.check_lease(nonce, ttl_ms, run_id)
        rules.check_digest(checkpoint)
        with self._writing() as write:
            expires_at_ms = write.now_ms + ttl_ms
            row = (run_id, bytes.fromhex(checkpoint), owner, nonce, expires_at_ms)
            if not write.changed(_CREATE, row):
                raise rules.taken(run_id)
            return Head(
                run_id=run_id,
                generation=0,
                checkpoint=checkpoint,
                owner=owner,
                nonce=nonce,
                lease_version=1,
                expires_at_ms=expires_at_ms,
                incarnation=write.incarnation,
            )

    def read(self, run_id: RunId) -> Head | None:
        """Return the head, or None."""
        heads = self._heads(_BY_RUN, (run_id,))
        return heads[0] if heads else None

    def acquire(self, expected: Head, owner: str, nonce: str, ttl_ms: int) -> Head:
        """Take a lease durably, that is free, released, expired, or of a dead holder.

        Raises:
            LeaseLostError: Another holder's lease stands.
            StaleHeadError: The record is not `expected` any more.
            HeadMissingError: There is none.
            UnavailableError: Nothing happened.
            UnknownOutcomeError: The commit failed; read the head.
        """
        run_id = expected.run_id
        rules.check_lease(nonce, ttl_ms, run_id)
        rules.check_digest(expected.checkpoint)
        with self._writing() as write:
            row = (owner, nonce, write.now_ms + ttl_ms, *_compared(expected))
            ends_before_ms = END_OF_TIME_MS if self._is_dead(expected.owner) else write.now_ms
            is_taken = expected.incarnation == write.incarnation and write.changed(
                _ACQUIRE, (*row, expected.status, expected.owner, ends_before_ms)
            )
            present = write.present(run_id)
            if not is_taken or present is None:
                raise rules.acquire_refusal(present, expected, write.now_ms) or rules.missing(
                    run_id
                )
            return present

    def renew(self, held: Head, ttl_ms: int) -> Head:
        """Extend the lease durably; never shorten it.

        Raises:
            LeaseLostError: It is not the caller's, or has expired.
            HeadMissingError: There is no head.
            UnavailableError: Nothing happened.
            UnknownOutcomeError: The commit failed; renew again.
        """
        rules.check_term(ttl_ms, held.run_id)
        with self._writing() as write:
            is_renewed = write.changed(
                _RENEW,
                (
                    write.now_ms + ttl_ms,
                    held.run_id,
                    held.nonce,
                    held.lease_version,
                    write.now_ms,
                ),
            )
            present = write.present(held.run_id)
            if not is_renewed or present is None:
                raise rules.holder_refusal(present, held, write.now_ms) or rules.missing(
                    held.run_id
                )
            return present

    def advance(self, batch: Sequence[Advance]) -> tuple[Head, ...]:
        """Move heads on, in order, all of the batch in one durable write or none.

        Raises:
            LeaseLostError: A lease is not the caller's, or has expired.
            StaleHeadError: A generation or checkpoint is not the expected one.
            HeadMissingError: There is no such head.
            UnavailableError: Nothing happened.
            UnknownOutcomeError: The commit failed; read the heads.
        """
        for move in batch:
            rules.check_digest(move.checkpoint)
            rules.check_digest(move.expected.checkpoint)
            rules.check_status(move.status, move.expected.run_id)
            rules.check_term(move.ttl_ms, move.expected.run_id)
        if not batch:
            return ()
        wall_ms = self._wall_ms()
        try:
            with self._database.transaction() as connection:
                write = _begun(connection, wall_ms)
                return tuple([_advanced(write, move) for move in batch])
        except LostRaceError:
            self._keep_moment(wall_ms)
            raise

    def release(self, held: Head, pause_ms: int = 0) -> None:
        """Give the lease up, if it is still the caller's; otherwise do nothing.

        Raises:
            UsageError: The pause is negative.
            UnavailableError: Nothing happened.
            UnknownOutcomeError: The commit failed; the lease ends by itself at the latest.
        """
        rules.check_pause(pause_ms, held.run_id)
        with self._writing() as write:
            until_ms = write.now_ms + pause_ms if pause_ms else 0
            write.changed(_RELEASE, (until_ms, held.run_id, held.nonce, held.lease_version))

    def claimable(self, limit: int) -> tuple[Head, ...]:
        """Return active heads that are free, those that are so longest first."""
        return self._heads(_FREE, (self._wall_ms(), max(0, limit)))

    def heads(self, after: str, limit: int) -> tuple[Head, ...]:
        """Return heads in order of run id, from after `after`, at most `limit`."""
        return self._heads(_BY_ORDER, (after, max(0, limit)))

    def floor_ms(self) -> int:
        """Return the latest moment that the register has acted on.

        Raises:
            FormatError: The register has lost its name and its clock.
        """
        for clock in self._database.rows(_Clock, _LATEST, ()):
            return clock.now_ms
        raise _nameless()

    def pragmas(self) -> dict[str, str]:
        """Return the pragmas of the file, as read back."""
        return self._database.pragmas()

    def close(self) -> None:
        """Let go of the file; a second time does nothing."""
        self._database.close()

    def _heads(self, query: str, bindings: Sequence[Value]) -> tuple[Head, ...]:
        return tuple(_head(row) for row in self._database.rows(_Row, query, bindings))

    @contextmanager
    def _writing(self) -> Generator[_Write]:
        wall_ms = self._wall_ms()
        try:
            with self._database.transaction() as connection:
                write = _begun(connection, wall_ms)
                _keep(write)
                yield write
        except LostRaceError:
            self._keep_moment(wall_ms)
            raise

    def _keep_moment(self, wall_ms: int) -> None:
        """Keep the moment that a refusal may rest on: a clock set back must not undo it."""
        with self._database.transaction() as connection:
            _keep(_begun(connection, wall_ms))


def _advanced(write: _Write, move: Advance) -> Head:
    expected, connection = move.expected, write.connection
    row = (
        bytes.fromhex(move.checkpoint),
        write.now_ms,
        write.now_ms + move.ttl_ms,
        *_compared(expected),
        move.status,
    )
    is_moved = expected.incarnation == write.incarnation and (
        write.changed(_ADVANCE, row) or write.changed(_ADVANCE_FIRST, row)
    )
    found = connection.execute(_TERM, (expected.run_id,)).fetchone() if is_moved else None
    if found is None:
        present = write.present(expected.run_id)
        refusal = rules.advance_refusal(present, expected, write.now_ms)
        raise refusal or rules.missing(expected.run_id)
    term = typed(found, _Term)
    return Head(
        run_id=expected.run_id,
        generation=expected.generation + 1,
        checkpoint=move.checkpoint,
        owner=term.owner,
        nonce=expected.nonce,
        lease_version=expected.lease_version,
        expires_at_ms=term.expires_at_ms,
        status=move.status,
        incarnation=write.incarnation,
    )


def _begun(connection: Connection, wall_ms: int) -> _Write:
    """Return a write at the register's time."""
    row = connection.execute(_CLOCK, (wall_ms,)).fetchone()
    if row is None:
        raise _nameless()
    clock = typed(row, _Clock)
    return _Write(connection=connection, now_ms=clock.now_ms, incarnation=clock.incarnation)


def _keep(write: _Write) -> None:
    """Keep the moment in the register's own row, so that no head is ahead of it."""
    write.connection.execute(_KEEP, (write.now_ms,))
    write.connection.execute(_ALL_BEHIND)


def _nameless() -> FormatError:
    return FormatError("the register has lost its name and its clock")


def _compared(head: Head) -> tuple[str, int, bytes, str, int]:
    return (
        head.run_id,
        head.generation,
        bytes.fromhex(head.checkpoint),
        head.nonce,
        head.lease_version,
    )


def _head(row: _Row) -> Head:
    return Head(
        run_id=row.run_id,
        generation=row.generation,
        checkpoint=Digest(row.checkpoint.hex()),
        owner=row.owner,
        nonce=row.nonce,
        lease_version=row.lease_version,
        expires_at_ms=row.expires_at_ms,
        status=row.status,
        incarnation=row.incarnation,
    )
