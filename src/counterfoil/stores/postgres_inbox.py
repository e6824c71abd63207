"""Signed statements in PostgreSQL, in order of arrival."""

from hashlib import sha256

from counterfoil.core.errors import ConfigError
from counterfoil.core.words import RunId
from counterfoil.stores.postgres_pool import Access
from counterfoil.stores.postgres_rows import octets, text
from counterfoil.stores.postgres_schema import Part

INBOX = Part(name="inbox", version=1, missing=ConfigError)

_PUT = "SELECT {schema}.put_statement(%s, %s, %s)"
_PENDING = "SELECT statement FROM {schema}.statement WHERE run_id = %s ORDER BY number LIMIT %s"
_DISCARD = "SELECT {schema}.discard_statement(%s, %s)"
_ARRIVALS = (
    "SELECT DISTINCT run_id FROM {schema}.statement WHERE run_id > %s ORDER BY run_id LIMIT %s"
)


class PostgresInbox:
    """An `Inbox` in a PostgreSQL schema; safe to share by threads and processes."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._sql = access.place.sql

    def put(self, run_id: RunId, statement: bytes) -> None:
        """Keep a statement durably; the same bytes twice are one.

        Raises:
            UnavailableError: Nothing happened.
            UnknownOutcomeError: The answer was lost; putting again is harmless.
        """
        bindings = (octets(run_id), sha256(statement).digest(), statement)
        self._access.write(self._sql(_PUT), bindings)

    def pending(self, run_id: RunId, limit: int) -> tuple[bytes, ...]:
        """Return statements in order of arrival, at most `limit`."""
        bindings = (octets(run_id), max(0, limit))
        rows = self._access.rows(tuple[bytes], self._sql(_PENDING), bindings)
        return tuple(statement for (statement,) in rows)

    def discard(self, run_id: RunId, statement: bytes) -> None:
        """Drop a statement durably; nothing if it is not there.

        Raises:
            UnavailableError: Nothing happened.
            UnknownOutcomeError: The answer was lost; discarding again is harmless.
        """
        bindings = (octets(run_id), sha256(statement).digest())
        self._access.write(self._sql(_DISCARD), bindings)

    def arrivals(self, after: str, limit: int) -> tuple[RunId, ...]:
        """Return runs that have statements, in order of their code points."""
        bindings = (octets(after), max(0, limit))
        rows = self._access.rows(tuple[bytes], self._sql(_ARRIVALS), bindings)
        return tuple(RunId(text(run_id)) for (run_id,) in rows)

    def close(self) -> None:
        """Let go of the connections; a second time does nothing."""
        self._access.close()
