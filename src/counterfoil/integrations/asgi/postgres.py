"""The journal's tables in a PostgreSQL database, which may be the service's own.

An error that the server reports ended the transaction. Where the answer to a COMMIT never
came, nobody knows, and the journal asks again.
"""

import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout, TooManyRequests

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

POOL_CONNECTIONS = 8
"""Transactions of one process at once: more wait for each other's disk anyway."""

CONNECT_SECONDS = 10
ANSWER_MS = 2 * WAIT_MS
"""Longest statement: a wait for a lock, and as much again."""

MISSING = ("3F", "42P01", "42703")
"""States of a schema, table or column that is not there (PostgreSQL, appendix A)."""

SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,39}")

SETTINGS = f"""SELECT set_config('lock_timeout', '{WAIT_MS}', true),
    set_config('statement_timeout', '{ANSWER_MS}', true),
    CASE WHEN current_setting('synchronous_commit') = 'off'
        THEN set_config('synchronous_commit', 'on', true) END"""
"""For the transaction alone, so that a pooler may lend the connection on."""

Pool = ConnectionPool[psycopg.Connection[TupleRow]]


class PostgresDatabase:
    """A pool of connections to one database.

    Args:
        pool: Open; `close` closes it.
        schema: Schema of the tables.
    """

    threads = POOL_CONNECTIONS
    lock = "SELECT pg_advisory_xact_lock(4815162342)"

    def __init__(self, pool: Pool, schema: str) -> None:
        self._pool = pool
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
        connection = self._connection()
        try:
            try:
                if writes:
                    connection.execute(SETTINGS.encode())
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
            with suppress(psycopg.Error):
                connection.rollback()
            self._pool.putconn(connection)

    def close(self) -> None:
        """Let go of the connections; a second time does nothing."""
        self._pool.close()

    def _connection(self) -> psycopg.Connection[TupleRow]:
        try:
            return self._pool.getconn()
        except PoolClosed as error:
            raise UsageError("the journal of receipts was closed by its user") from error
        except (PoolTimeout, TooManyRequests, psycopg.Error) as error:
            raise UnavailableError("the database gave no connection in time") from error


def _runner(connection: psycopg.Connection[TupleRow]) -> Run:
    def run(statement: str, values: Sequence[Value]) -> Rows:
        cursor = connection.execute(statement.encode(), values)
        return cursor.fetchall() if cursor.description else ()

    return run


def open_server(url: str, schema: str) -> PostgresDatabase:
    """Open a pool of connections; tables are looked at by whoever uses it.

    Raises:
        ConfigError: The URL or the schema's name is none.
        UnavailableError: The server cannot be reached, or does not let us in.
    """
    if not SCHEMA.fullmatch(schema):
        raise ConfigError(f"schema is {schema!r:.80}: a lower-case name of at most 40 characters")
    pool: Pool = ConnectionPool(
        url,
        min_size=1,
        max_size=POOL_CONNECTIONS,
        timeout=CONNECT_SECONDS,
        kwargs={"connect_timeout": CONNECT_SECONDS},
        check=ConnectionPool.check_connection,
        open=False,
    )
    try:
        pool.open(wait=True, timeout=CONNECT_SECONDS)
    except PoolTimeout as error:
        pool.close()
        raise UnavailableError("the database gave no connection in time") from error
    except psycopg.Error as error:
        pool.close()
        raise ConfigError("the URL of the database cannot be used") from error
    return PostgresDatabase(pool, schema)


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
