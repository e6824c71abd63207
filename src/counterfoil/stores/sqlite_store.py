"""Checkpoints in one SQLite file.

A put is one transaction with one sync: what is compared is in the same row that gives
the run its number.
"""

from collections.abc import Mapping, Sequence
from hashlib import sha256

import msgspec

from counterfoil.core.archive import SEAL
from counterfoil.core.codec import Checkpoint
from counterfoil.core.errors import FormatError
from counterfoil.core.words import Digest, RunId
from counterfoil.ports import FOUND_MAX, Mark
from counterfoil.stores import rules
from counterfoil.stores.facts import Space
from counterfoil.stores.migrate import Schema
from counterfoil.stores.sqlite_database import Database
from counterfoil.stores.sqlite_driver import Connection, typed

STORE_SCHEMA = Schema(
    name="store", version=3, application_id=0x43464301, page_bytes=1_024, is_small=False
)
"""Rows of two to four KiB fill small pages and leave no half page empty between them."""

NO_MARK = -1

SPARE_SHARE = 4
"""A file of which less than one part in so many is free fills again by itself."""

SHORT_BYTES = 8
"""Enough to find a row; the whole digest or name is compared in the row itself."""


class _Run(msgspec.Struct, frozen=True, array_like=True):
    number: int
    lease_version: int
    state_floor: int


class _Row(msgspec.Struct, frozen=True, array_like=True):
    generation: int
    lease_version: int
    digest: bytes
    settles: str
    envelope: bytes
    events: bytes
    state: bytes | None


TAIL_ROWS = 64
"""Newest rows are looked at one by one, until so many are written to `name` at once.

Names are random, so each would dirty a page of its own with each commit.
"""

_SELECT = """
SELECT c.generation, c.lease_version, c.digest, c.settles, c.envelope, c.events, s.state
FROM checkpoint AS c LEFT JOIN state AS s ON s.checkpoint = c.number
WHERE {run} = (SELECT number FROM run WHERE run_id = ?1)
"""
_OF_RUN = _SELECT.format(run="c.run")
_OF_FEW = _SELECT.format(run="+c.run")
"""The sign keeps SQLite from walking all rows of the run where their numbers are known."""
_BY_GENERATION = _OF_RUN + "AND c.generation > ?2 ORDER BY c.generation, c.number LIMIT ?3"
_REST_OF_GENERATION = _OF_RUN + "AND c.generation = ?2 ORDER BY c.number LIMIT -1 OFFSET ?3"
_NAMED = """
AND c.number IN (
    SELECT checkpoint FROM name
    WHERE run = (SELECT number FROM run WHERE run_id = ?1) AND short = ?2
    UNION ALL
    SELECT number FROM checkpoint
    WHERE number > (SELECT max(number) FROM checkpoint) / ?4 * ?4 AND {is_named}
)
ORDER BY c.generation DESC, c.number DESC
"""
_BY_DIGEST = _OF_FEW + _NAMED.format(is_named="digest = ?3")
_BY_NAME = _OF_FEW + _NAMED.format(is_named="instr(settles, ?3)")

_RUN = "SELECT number, lease_version, state_floor FROM run WHERE run_id = ?"
_NEW_RUN = "INSERT INTO run (run_id, lease_version, state_floor) VALUES (?, ?, 0)"
_INSERT = """
INSERT INTO checkpoint (run, generation, lease_version, digest, settles, envelope, events)
SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7 WHERE NOT EXISTS (
    SELECT 1 FROM checkpoint WHERE run = ?1 AND generation = ?2 AND digest = ?4
)
"""
_TAIL = "SELECT number, run, digest, settles FROM checkpoint WHERE number > ? AND number <= ?"
_NAME = "INSERT INTO name VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
_COLLECTED = """
SELECT number, digest, settles FROM checkpoint
WHERE run = ? AND generation <= ? AND digest <> ? ORDER BY generation, number LIMIT ?
"""
_IS_ARCHIVED = "SELECT number FROM run JOIN archive ON run = number WHERE run_id = ? AND name = ?"
_DROP_NAME = "DELETE FROM name WHERE run = ? AND short = ? AND checkpoint = ?"


class SqliteStore:
    """A `CheckpointStore` in a SQLite file; safe to share by threads and processes."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put(self, batch: Sequence[Checkpoint]) -> None:
        """Store checkpoints durably, all or none; see `CheckpointStore.put`.

        Raises:
            LeaseLostError: The mark of a run is of a newer lease.
            UnavailableError: Nothing happened.
            UnknownOutcomeError: The commit failed; putting again is harmless.
        """
        for row in batch:
            rules.check_digest(row.digest)
        if not batch:
            return
        with self._database.transaction() as connection:
            for row in batch:
                _put(connection, row)

    def get(self, run_id: RunId, checkpoint: Digest) -> Checkpoint | None:
        """Return one checkpoint, or None."""
        rules.check_digest(checkpoint)
        digest = bytes.fromhex(checkpoint)
        rows = self._rows(run_id, _BY_DIGEST, digest[:SHORT_BYTES], digest, TAIL_ROWS)
        return next((row for row in rows if row.digest == checkpoint), None)

    def find(self, run_id: RunId, name: str) -> tuple[Checkpoint, ...]:
        """Return at most `FOUND_MAX` checkpoints that settle `name`, newest first."""
        written = msgspec.json.encode(name).decode()
        rows = self._rows(run_id, _BY_NAME, _short(name), written, TAIL_ROWS)
        return tuple(row for row in rows if name in row.settles)[:FOUND_MAX]

    def trace(self, run_id: RunId, after: int, limit: int) -> tuple[Checkpoint, ...]:
        """Return checkpoints above `after`, oldest first; the last generation is whole.

        So a page holds more than `limit` where its last generation had losers of a race,
        and the generation of its last row is where the next page begins.
        """
        page = self._rows(run_id, _BY_GENERATION, after, max(0, limit))
        if not page:
            return ()
        last = page[-1].generation
        held = sum(row.generation == last for row in page)
        return (*page, *self._rows(run_id, _REST_OF_GENERATION, last, held))

    def mark(self, mark: Mark) -> None:
        """Replace the run's mark durably.

        Raises:
            LeaseLostError: The present mark is of a newer lease.
            UnavailableError: Nothing happened.
            UnknownOutcomeError: The commit failed; marking again is harmless.
        """
        with self._database.transaction() as connection:
            run = _run(connection, mark.run_id)
            if run.lease_version > mark.lease_version:
                raise rules.superseded(mark.run_id, mark.lease_version, run.lease_version)
            connection.execute(
                "UPDATE run SET lease_version = ? WHERE number = ?",
                (mark.lease_version, run.number),
            )
            connection.execute(
                "INSERT INTO mark (run, envelope) VALUES (?, ?) "
                "ON CONFLICT (run) DO UPDATE SET envelope = excluded.envelope",
                (run.number, mark.envelope),
            )

    def marked(self, run_id: RunId) -> Mark | None:
        """Return the run's mark, or None."""
        rows = self._database.rows(
            tuple[int, bytes],
            "SELECT lease_version, envelope FROM run JOIN mark ON run = number WHERE run_id = ?",
            (run_id,),
        )
        for lease_version, envelope in rows:
            return Mark(run_id=run_id, lease_version=lease_version, envelope=envelope)
        return None

    def prune(self, run_id: RunId, chain: Mapping[int, Digest], below: int) -> int:
        """Drop orphans and old states, and return how many checkpoints changed.

        Reads only the generations in `chain` and those below `below` that have kept
        their states since the last time.
        """
        with self._database.transaction() as connection:
            found = connection.execute(_RUN, (run_id,)).fetchone()
            if found is None:
                return 0
            run = typed(found, _Run)
            dropped = sum(
                _drop_orphans(connection, run.number, generation, digest)
                for generation, digest in chain.items()
            )
            connection.execute(
                "DELETE FROM state WHERE checkpoint IN (SELECT number FROM checkpoint "
                "WHERE run = ? AND generation >= ? AND generation < ?)",
                (run.number, run.state_floor, below),
            )
            dropped += connection.changes()
            connection.execute(
                "UPDATE run SET state_floor = max(state_floor, ?) WHERE number = ?",
                (below, run.number),
            )
            return dropped

    def archive(self, run_id: RunId, name: str, content: bytes) -> None:
        """Keep one part of a run's archive durably; another one of its name is replaced.

        Raises:
            UnavailableError: Nothing happened.
            UnknownOutcomeError: The commit failed; keeping it again is harmless.
        """
        with self._database.transaction() as connection:
            number = _run(connection, run_id).number
            connection.execute(
                "INSERT INTO archive (run, name, content) VALUES (?, ?, ?) "
                "ON CONFLICT (run, name) DO UPDATE SET content = excluded.content",
                (number, name, content),
            )

    def archived(self, run_id: RunId, name: str) -> bytes | None:
        """Return one part of a run's archive, or None."""
        rows = self._database.rows(
            tuple[bytes],
            "SELECT content FROM run JOIN archive ON run = number WHERE run_id = ? AND name = ?",
            (run_id, name),
        )
        return rows[0][0] if rows else None

    def collect(self, run_id: RunId, checkpoint: Digest, generation: int, limit: int) -> int:
        """Drop checkpoints of an archived run; see `CheckpointStore.collect`."""
        rules.check_digest(checkpoint)
        kept = bytes.fromhex(checkpoint)
        with self._database.transaction() as connection:
            found = connection.execute(_IS_ARCHIVED, (run_id, SEAL)).fetchone()
            if found is None:
                raise rules.not_archived(run_id)
            (number,) = typed(found, tuple[int])
            bindings = (number, generation, kept, max(0, limit))
            rows = connection.execute(_COLLECTED, bindings).fetchall()
            _drop(connection, number, rows)
            return len(rows)

    def runs(self, after: str, limit: int) -> tuple[RunId, ...]:
        """Return run ids in order of their code points, from after `after`."""
        rows = self._database.rows(
            tuple[str],
            "SELECT run_id FROM run WHERE run_id > ? ORDER BY run_id LIMIT ?",
            (after, max(0, limit)),
        )
        return tuple(RunId(run_id) for (run_id,) in rows)

    def give_back(self, bytes_max: int | None) -> Space:
        """Give free pages back to the file system, where that does not take long.

        The file is written anew while others wait. That is not done where less than a
        quarter of it is free, or where more than `bytes_max` bytes would be written. With
        None it is done wherever a page is free.

        Raises:
            UnavailableError: Another process writes; nothing happened.
            UnknownOutcomeError: What the file holds is the same; give back again.
        """
        pages, free, page_bytes = self._database.pages()
        size_bytes, spare_bytes = pages * page_bytes, free * page_bytes
        is_long = bytes_max is not None and size_bytes - spare_bytes > bytes_max
        is_small = bytes_max is not None and free * SPARE_SHARE < pages
        if not free or is_long or is_small:
            return Space(size_bytes=size_bytes, spare_bytes=spare_bytes)
        self._database.rewrite()
        pages, free, page_bytes = self._database.pages()
        return Space(
            size_bytes=pages * page_bytes,
            given_back_bytes=size_bytes - pages * page_bytes,
            spare_bytes=free * page_bytes,
        )

    def pragmas(self) -> dict[str, str]:
        """Return the pragmas of the file, as read back."""
        return self._database.pragmas()

    def close(self) -> None:
        """Let go of the file; a second time does nothing."""
        self._database.close()

    def _rows(self, run_id: RunId, query: str, *bindings: int | str | bytes) -> list[Checkpoint]:
        rows = self._database.rows(_Row, query, (run_id, *bindings))
        return [_checkpoint(run_id, row) for row in rows]


def _put(connection: Connection, row: Checkpoint) -> None:
    run = _run(connection, row.run_id)
    if run.lease_version > row.lease_version:
        raise rules.superseded(row.run_id, row.lease_version, run.lease_version)
    connection.execute(
        _INSERT,
        (
            run.number,
            row.generation,
            row.lease_version,
            bytes.fromhex(row.digest),
            msgspec.json.encode(row.settles).decode(),
            row.envelope,
            row.events,
        ),
    )
    if not connection.changes():
        return
    number = connection.last_insert_rowid()
    if row.state:
        connection.execute("INSERT INTO state VALUES (?, ?)", (number, row.state))
    if row.generation < run.state_floor:
        connection.execute(
            "UPDATE run SET state_floor = ? WHERE number = ?", (row.generation, run.number)
        )
    if number % TAIL_ROWS == 0:
        _name_tail(connection, number)


def _name_tail(connection: Connection, last: int) -> None:
    """Write down the names of the newest rows, in order, so that pages are met once."""
    rows = connection.execute(_TAIL, (last - TAIL_ROWS, last)).fetchall()
    names: list[tuple[int, bytes, int]] = []
    for row in rows:
        number, run, digest, settles = typed(row, tuple[int, int, bytes, str])
        names += [(run, short, number) for short in _shorts(digest, settles)]
    for name in sorted(names):
        connection.execute(_NAME, name)


def _shorts(digest: bytes, settles: str) -> set[bytes]:
    return {digest[:SHORT_BYTES], *map(_short, _names(settles))}


def _run(connection: Connection, run_id: RunId) -> _Run:
    """Return what a put compares, giving a run its number first."""
    found = connection.execute(_RUN, (run_id,)).fetchone()
    if found is not None:
        return typed(found, _Run)
    connection.execute(_NEW_RUN, (run_id, NO_MARK))
    return _Run(connection.last_insert_rowid(), NO_MARK, 0)


def _drop_orphans(connection: Connection, number: int, generation: int, digest: Digest) -> int:
    rules.check_digest(digest)
    rows = connection.execute(
        "SELECT number, digest, settles FROM checkpoint "
        "WHERE run = ? AND generation = ? AND digest <> ?",
        (number, generation, bytes.fromhex(digest)),
    ).fetchall()
    _drop(connection, number, rows)
    return len(rows)


def _drop(connection: Connection, run: int, rows: Sequence[tuple[object, ...]]) -> None:
    """Drop checkpoints of a run with their states and names."""
    for row in rows:
        checkpoint, digest, settles = typed(row, tuple[int, bytes, str])
        for short in _shorts(digest, settles):
            connection.execute(_DROP_NAME, (run, short, checkpoint))
        connection.execute("DELETE FROM checkpoint WHERE number = ?", (checkpoint,))


def _checkpoint(run_id: RunId, row: _Row) -> Checkpoint:
    return Checkpoint(
        run_id=run_id,
        generation=row.generation,
        digest=Digest(row.digest.hex()),
        lease_version=row.lease_version,
        envelope=row.envelope,
        state=row.state or b"",
        events=row.events,
        settles=_names(row.settles),
    )


def _names(settles: str) -> tuple[str, ...]:
    try:
        return msgspec.json.decode(settles, type=tuple[str, ...])
    except msgspec.MsgspecError as error:
        raise FormatError("a row does not have the form that we write") from error


def _short(name: str) -> bytes:
    return sha256(name.encode()).digest()[:SHORT_BYTES]
