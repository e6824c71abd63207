"""The journal's tables in a PostgreSQL database, which may be the service's own.

An error that the server reports ended the transaction. Where the answer to a COMMIT never
came, nobody knows, and the journal asks again.
"""

import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from queue import Empty, Full, LifoQueue
from time import monotonic
from typing import TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow

from counterfoil.core.errors import (
    ConfigError,
    CounterfoilError,
    FormatError,
    UnavailableError,
    UnknownOutcomeError,
    UsageError,
)
from counterfoil.integrations.asgi.database import WAIT_MS, Rows, Run, Value
from counterfoil.integrations.asgi.sqlite import INSTALL

CONNECTIONS_MAX = 8
"""Of one process at once: more wait for each other's disk anyway."""

CONNECT_SECONDS = 10
ANSWER_MS = 2 * WAIT_MS
"""Longest statement: a wait for a lock, and as much again."""

SILENCE_SECONDS = 2 * ANSWER_MS / 1_000
"""After which a server that does not even cancel the statement counts as lost."""

LOOK_SECONDS = 0.1
"""Between two looks at the time, as the driver has it."""

MISSING = ("3F", "42P01", "42703")
"""States of a schema, table or column that is not there (PostgreSQL, appendix A)."""

SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,39}")

SETTINGS = f"""SELECT pg_is_in_recovery(), set_config('lock_timeout', '{WAIT_MS}', true),
    set_config('statement_timeout', '{ANSWER_MS}', true),
    CASE WHEN current_setting('synchronous_commit') = 'off'
        THEN set_config('synchronous_commit', 'on', true) END"""
"""For the transaction alone, so that a pooler may lend the connection on."""

READS = "SELECT pg_is_in_recovery()"
"""Shows that a connection which was idle is still there, and not to a standby: that one knows
what was, and behind a pooler each transaction may meet another server."""

Result = TypeVar("Result")


class BoundedConnection(psycopg.Connection[TupleRow]):
    """A connection that waits for an answer so long, and then counts as lost."""

    def wait(
        self, gen: PQGen[Result], interval: float = LOOK_SECONDS, timeout: float | None = None
    ) -> Result:
        """Wait for the server as the driver does, and close the connection when time is over.

        Raises:
            psycopg.OperationalError: No answer came.
        """
        bounded = self._until(gen, monotonic() + SILENCE_SECONDS)
        if timeout is None:
            return super().wait(bounded, interval)
        return super().wait(bounded, interval, timeout)

    def _until(self, gen: PQGen[Result], end: float) -> PQGen[Result]:
        try:
            waits = next(gen)
            while True:
                ready = yield waits
                if not ready and monotonic() > end:
                    self.pgconn.finish()
                    raise psycopg.OperationalError("no answer came in time")
                waits = gen.send(ready)
        except StopIteration as end_of_wait:
            answer: Result = end_of_wait.value
            return answer


class PostgresDatabase:
    """Connections to one database; one that is idle is used again.

    Args:
        conninfo: Where it is, as libpq has it.
        schema: Schema of the tables.
    """

    threads = CONNECTIONS_MAX
    lock = "SELECT pg_advisory_xact_lock(4815162342)"

    def __init__(self, conninfo: str, schema: str) -> None:
        self._conninfo = conninfo
        self._idle: LifoQueue[BoundedConnection] = LifoQueue(CONNECTIONS_MAX)
        self._is_closed = False
        self._spellings = {
            "at": f'"{schema}".',
            "bytes": "BYTEA",
            "long": "BIGINT",
            "skip": " FOR UPDATE SKIP LOCKED",
        }

    def spelt(self, statement: str) -> str:
        """Return a statement as psycopg has it."""
        return statement.format_map(self._spellings).replace("?", "%s")

    def check(self, connection: object) -> None:
        """Accept a connection of psycopg that has a transaction open, or opens one by itself.

        Raises:
            UsageError: It is none.
        """
        if not isinstance(connection, psycopg.Connection | psycopg.AsyncConnection):
            raise UsageError(f"a receipt is written by psycopg, not by {connection!r:.60}")
        is_idle = connection.info.transaction_status is TransactionStatus.IDLE
        if connection.autocommit and is_idle:
            raise UsageError("no transaction is open that the receipt could be part of")

    @contextmanager
    def transaction(self, *, writes: bool) -> Generator[Run]:
        """Run statements, all or none.

        Raises:
            UnavailableError: Nothing happened.
            UnknownOutcomeError: The answer to the commit was lost.
            FormatError: The database has no such tables.
        """
        connection = self._begun(SETTINGS if writes else READS)
        try:
            try:
                yield _runner(connection)
            except psycopg.Error as error:
                raise translated(error) from error
            try:
                connection.commit()
            except psycopg.Error as error:
                if is_answer(error):
                    raise translated(error) from error
                raise UnknownOutcomeError("the answer to a commit was lost") from error
        finally:
            self._give_back(connection)

    def close(self) -> None:
        """Let go of the connections; a second time does nothing."""
        self._is_closed = True
        with suppress(Empty):
            while True:
                self._idle.get_nowait().close()

    def _begun(self, first: str) -> BoundedConnection:
        """Return a connection whose transaction has begun with a statement."""
        if self._is_closed:
            raise UsageError("the journal of receipts was closed by its user")
        with suppress(Empty):
            while True:
                idle = self._idle.get_nowait()
                with suppress(CounterfoilError):
                    _begin(idle, first)
                    return idle
        connection = self._connected()
        _begin(connection, first)
        return connection

    def _connected(self) -> BoundedConnection:
        try:
            return BoundedConnection.connect(
                self._conninfo,
                connect_timeout=CONNECT_SECONDS,
                prepare_threshold=None,  # behind a pooler the next transaction is elsewhere
            )
        except psycopg.Error as error:
            raise UnavailableError("no database that takes writes can be reached now") from error

    def _give_back(self, connection: BoundedConnection) -> None:
        try:
            connection.rollback()
            if not self._is_closed:
                self._idle.put_nowait(connection)
                return
        except (psycopg.Error, Full):
            pass
        connection.close()


def _begin(connection: BoundedConnection, first: str) -> None:
    """Begin a transaction with a statement, or close the connection."""
    try:
        row = connection.execute(first.encode()).fetchone()
    except psycopg.Error as error:
        connection.close()
        raise translated(error) from error
    if row is None or row[0]:
        connection.close()
        raise UnavailableError("the database is a standby now, which knows what was alone")


def _runner(connection: BoundedConnection) -> Run:
    def run(statement: str, values: Sequence[Value]) -> Rows:
        cursor = connection.execute(statement.encode(), values)
        return cursor.fetchall() if cursor.description else ()

    return run


def open_server(url: str, schema: str) -> PostgresDatabase:
    """Return a database; it is reached when it is first used.

    Raises:
        ConfigError: The schema's name is none, or the URL cannot be used.
    """
    if not SCHEMA.fullmatch(schema):
        raise ConfigError(f"schema is {schema!r:.80}: a lower-case name of at most 40 characters")
    try:
        given = {"target_session_attrs": "read-write"} | conninfo_to_dict(url)
        return PostgresDatabase(make_conninfo("", **given), schema)
    except psycopg.ProgrammingError:
        # libpq quotes the URL, password and all, so its message stays here.
        raise ConfigError("the URL of the database cannot be used") from None


def translated(error: psycopg.Error) -> CounterfoilError:
    """Return what an error of the driver means, before a commit; it names no value."""
    code = error.sqlstate or "silence"
    if code.startswith(MISSING):
        return FormatError(f"the database has no journal of receipts ({code})", move=INSTALL)
    return UnavailableError(f"the database cannot be used now ({code})")


def is_answer(error: psycopg.Error) -> bool:
    """Return whether the server said itself that the transaction is undone."""
    code = error.sqlstate
    return code is not None and code[:2] != "08" and code[:3] != "57P"
