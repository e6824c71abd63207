"""Checkpoints in PostgreSQL.

A put is one statement and one commit: a function locks what it compares, the mark of each
run, and inserts. It changes nothing where it refuses.
"""

from collections.abc import Mapping, Sequence

import msgspec

from counterfoil.core.codec import Checkpoint
from counterfoil.core.errors import (
    CounterfoilError,
    FormatError,
    RollbackError,
    UnknownOutcomeError,
)
from counterfoil.core.words import Digest, RunId
from counterfoil.ports import FOUND_MAX, Mark
from counterfoil.stores import rules
from counterfoil.stores.facts import Space
from counterfoil.stores.postgres_driver import Refusal, typed
from counterfoil.stores.postgres_pool import Access
from counterfoil.stores.postgres_rows import (
    CheckpointRow,
    checkpoint,
    name_hash,
    octets,
    put_call,
    text,
)
from counterfoil.stores.postgres_schema import Part

STORE = Part(name="store", version=2, missing=RollbackError)

PAGE_MAX = 10_000
"""Rows of one page, whatever the caller allows: a page is held in memory."""

_SELECT = """
SELECT c.generation, c.lease_version, c.digest, c.settles, c.envelope, c.events, s.state
FROM {tables} LEFT JOIN {schema}.state AS s ON s.checkpoint = c.number
WHERE c.run = (SELECT number FROM {schema}.run WHERE run_id = %s)
"""
_ROWS = _SELECT.replace("{tables}", "{schema}.checkpoint AS c")
_BY_DIGEST = _ROWS + "AND c.digest = %s"
_PAGE = """
SELECT max(generation) FROM (
    SELECT generation FROM {schema}.checkpoint
    WHERE run = (SELECT number FROM {schema}.run WHERE run_id = %s) AND generation > %s
    ORDER BY generation LIMIT %s
) AS page
"""
_BY_GENERATION = (
    _ROWS
    + "AND c.generation > %s AND c.generation <= ({page}) ORDER BY c.generation, c.number".replace(
        "{page}", _PAGE
    )
)
_BY_NAME = (
    _SELECT.replace(
        "{tables}", "{schema}.settled AS n JOIN {schema}.checkpoint AS c ON c.number = n.checkpoint"
    )
    + "AND n.run = c.run AND n.name = %s ORDER BY n.generation DESC, n.checkpoint DESC LIMIT %s"
)
_PUT = "SELECT {put}"
_MARK = "SELECT {schema}.mark(%s, %s, %s)"
_MARKED = "SELECT mark_version, mark FROM {schema}.run WHERE run_id = %s AND mark IS NOT NULL"
_PRUNE = "SELECT {schema}.prune(%s, %s::bigint[], %s::bytea[], %s)"
_ARCHIVE = "SELECT {schema}.archive(%s, %s, %s)"
_ARCHIVED = """
SELECT content FROM {schema}.archive
WHERE run = (SELECT number FROM {schema}.run WHERE run_id = %s) AND name = %s
"""
_COLLECT = "SELECT {schema}.collect(%s, %s, %s, %s)"
_VACUUM = "VACUUM {schema}.checkpoint, {schema}.state, {schema}.settled"
_RUNS = "SELECT run_id FROM {schema}.run WHERE run_id > %s ORDER BY run_id LIMIT %s"


class _Superseded(msgspec.Struct, frozen=True):
    run_id: str
    lease_version: int
    mark_version: int


class PostgresStore:
    """A `CheckpointStore` in a PostgreSQL schema; safe to share by threads and processes."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._sql = access.place.sql

    def put(self, batch: Sequence[Checkpoint]) -> None:
        """Store checkpoints durably, all or none; see `CheckpointStore.put`.

        Raises:
            LeaseLostError: The mark of a run is of a newer lease.
            UnavailableError: Nothing happened.
            UnknownOutcomeError: The answer was lost; putting again is harmless.
        """
        check_rows(batch)
        if not batch:
            return
        call = put_call(batch)
        try:
            self._access.write(self._sql(_PUT.replace("{put}", call.text)), call.bindings)
        except Refusal as refusal:
            raise superseded(refusal) from refusal

    def get(self, run_id: RunId, checkpoint: Digest) -> Checkpoint | None:
        """Return one checkpoint, or None."""
        rules.check_digest(checkpoint)
        rows = self._rows(run_id, _BY_DIGEST, bytes.fromhex(checkpoint))
        return rows[0] if rows else None

    def find(self, run_id: RunId, name: str) -> tuple[Checkpoint, ...]:
        """Return at most `FOUND_MAX` checkpoints that settle `name`, newest first."""
        return tuple(self._rows(run_id, _BY_NAME, name_hash(name), FOUND_MAX))

    def trace(self, run_id: RunId, after: int, limit: int) -> tuple[Checkpoint, ...]:
        """Return checkpoints above `after`, oldest first; the last generation is whole.

        So a page holds more than `limit` where its last generation had losers of a race,
        and the generation of its last row is where the next page begins. No page holds
        more than `PAGE_MAX` rows besides.
        """
        most = min(max(0, limit), PAGE_MAX)
        return tuple(self._rows(run_id, _BY_GENERATION, after, octets(run_id), after, most))

    def mark(self, mark: Mark) -> None:
        """Replace the run's mark durably.

        Raises:
            LeaseLostError: The present mark is of a newer lease.
            UnavailableError: Nothing happened.
            UnknownOutcomeError: The answer was lost; marking again is harmless.
        """
        bindings = (octets(mark.run_id), mark.lease_version, mark.envelope)
        try:
            self._access.write(self._sql(_MARK), bindings)
        except Refusal as refusal:
            raise superseded(refusal) from refusal

    def marked(self, run_id: RunId) -> Mark | None:
        """Return the run's mark, or None."""
        rows = self._access.rows(tuple[int, bytes], self._sql(_MARKED), (octets(run_id),))
        for lease_version, envelope in rows:
            return Mark(run_id=run_id, lease_version=lease_version, envelope=envelope)
        return None

    def prune(self, run_id: RunId, chain: Mapping[int, Digest], below: int) -> int:
        """Drop orphans and old states, and return how many checkpoints changed.

        Reads only the generations in `chain` and those below `below` that have kept
        their states since the last time. What another checkpoint follows, and what a
        head in the same schema names, stays whatever `chain` says; and an orphan stays
        until that of the chain has a successor.
        """
        for digest in chain.values():
            rules.check_digest(digest)
        digests = [bytes.fromhex(digest) for digest in chain.values()]
        bindings = (octets(run_id), list(chain), digests, below)
        with self._access.transaction() as cursor:
            row = cursor.execute(self._sql(_PRUNE), bindings).fetchone()
            return typed(row, tuple[int])[0]

    def archive(self, run_id: RunId, name: str, content: bytes) -> None:
        """Keep one part of a run's archive durably; another one of its name is replaced.

        Raises:
            ConfigError: The role that is connected does not own the tables.
            UnavailableError: Nothing happened.
            UnknownOutcomeError: The answer was lost; keeping it again is harmless.
        """
        self._access.write(self._sql(_ARCHIVE), (octets(run_id), octets(name), content))

    def archived(self, run_id: RunId, name: str) -> bytes | None:
        """Return one part of a run's archive, or None."""
        bindings = (octets(run_id), octets(name))
        rows = self._access.rows(tuple[bytes], self._sql(_ARCHIVED), bindings)
        return rows[0][0] if rows else None

    def collect(self, run_id: RunId, checkpoint: Digest, generation: int, limit: int) -> int:
        """Drop checkpoints of an archived run; see `CheckpointStore.collect`.

        One of the last generation stays, even where it lost a race.

        Raises:
            ConfigError: The role that is connected does not own the tables.
        """
        rules.check_digest(checkpoint)
        bindings = (octets(run_id), bytes.fromhex(checkpoint), generation, max(0, limit))
        with self._access.transaction() as cursor:
            row = cursor.execute(self._sql(_COLLECT), bindings).fetchone()
            return typed(row, tuple[int])[0]

    def runs(self, after: str, limit: int) -> tuple[RunId, ...]:
        """Return run ids in order of their code points, from after `after`."""
        bindings = (octets(after), max(0, limit))
        rows = self._access.rows(tuple[bytes], self._sql(_RUNS), bindings)
        return tuple(RunId(text(run_id)) for (run_id,) in rows)

    def give_back(self) -> Space:
        """Let the server fill the room of dropped rows again; it shrinks no table for that.

        Raises:
            ConfigError: The server does not let us in.
            UnavailableError: Nothing happened.
        """
        try:
            self._access.write(self._sql(_VACUUM), ())
            note = "PostgreSQL fills the room of dropped rows again, and files keep their size"
        except UnknownOutcomeError:
            note = "PostgreSQL still looks for room in its tables, and goes on by itself"
        return Space(note=note)

    def close(self) -> None:
        """Let go of the connections; a second time does nothing."""
        self._access.close()

    def _rows(self, run_id: RunId, query: str, *bindings: int | bytes) -> list[Checkpoint]:
        rows = self._access.rows(CheckpointRow, self._sql(query), (octets(run_id), *bindings))
        return [checkpoint(run_id, row) for row in rows]


def check_rows(batch: Sequence[Checkpoint]) -> None:
    """Refuse a row whose digest is none.

    Raises:
        UsageError: A digest is not 64 lower-case hexadecimal digits.
    """
    for row in batch:
        rules.check_digest(row.digest)


def superseded(refusal: Refusal) -> CounterfoilError:
    """Return the error for a write under an older lease than the mark."""
    try:
        said = msgspec.json.decode(refusal.detail, type=_Superseded)
        run_id = RunId(text(bytes.fromhex(said.run_id)))
    except (msgspec.MsgspecError, ValueError):
        return FormatError("the database refused a row in a way that is not ours")
    return rules.superseded(run_id, said.lease_version, said.mark_version)
