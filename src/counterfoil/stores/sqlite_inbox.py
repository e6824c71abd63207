"""Signed statements in one SQLite file, in order of arrival."""

from hashlib import sha256

from counterfoil.core.words import RunId
from counterfoil.stores.migrate import Schema
from counterfoil.stores.sqlite_database import Database

INBOX_SCHEMA = Schema(
    name="inbox", version=1, application_id=0x43464903, page_bytes=4_096, is_small=False
)


class SqliteInbox:
    """An `Inbox` in a SQLite file; safe to share by threads and processes."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put(self, run_id: RunId, statement: bytes) -> None:
        """Keep a statement durably; the same bytes twice are one.

        Raises:
            UnavailableError: Nothing happened.
            UnknownOutcomeError: The commit failed; putting again is harmless.
        """
        with self._database.transaction() as connection:
            connection.execute(
                "INSERT INTO statement (run_id, sha256, statement) VALUES (?, ?, ?) "
                "ON CONFLICT (run_id, sha256) DO NOTHING",
                (run_id, sha256(statement).digest(), statement),
            )

    def pending(self, run_id: RunId, limit: int) -> tuple[bytes, ...]:
        """Return statements in order of arrival, at most `limit`."""
        rows = self._database.rows(
            tuple[bytes],
            "SELECT statement FROM statement WHERE run_id = ? ORDER BY number LIMIT ?",
            (run_id, max(0, limit)),
        )
        return tuple(statement for (statement,) in rows)

    def discard(self, run_id: RunId, statement: bytes) -> None:
        """Drop a statement durably; nothing if it is not there.

        Raises:
            UnavailableError: Nothing happened.
            UnknownOutcomeError: The commit failed; discarding again is harmless.
        """
        with self._database.transaction() as connection:
            connection.execute(
                "DELETE FROM statement WHERE run_id = ? AND sha256 = ?",
                (run_id, sha256(statement).digest()),
            )

    def arrivals(self, after: str, limit: int) -> tuple[RunId, ...]:
        """Return runs that have statements, in order of their code points."""
        rows = self._database.rows(
            tuple[str],
            "SELECT DISTINCT run_id FROM statement WHERE run_id > ? ORDER BY run_id LIMIT ?",
            (after, max(0, limit)),
        )
        return tuple(RunId(run_id) for (run_id,) in rows)

    def close(self) -> None:
        """Let go of the file; a second time does nothing."""
        self._database.close()
