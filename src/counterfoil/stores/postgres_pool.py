"""Connections to one database, shared by the ports of a process that use the same URL.

No connection keeps anything from one transaction to the next: each call is one
transaction, so that a pooler between us and the server may give each of them another
connection. Nothing is retried here.
"""

import os
import select
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from threading import Lock
from weakref import WeakValueDictionary

import psycopg
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout, TooManyRequests

from counterfoil.core.errors import ConfigError, UsageError
from counterfoil.stores.postgres_driver import (
    BoundedConnection,
    Cursor,
    Row,
    Rows,
    connect,
    prepare_threshold,
    translated,
    typed,
    unserved,
)
from counterfoil.stores.postgres_url import Place

WAIT_SECONDS = 5.0
"""Longest wait for a free connection, or for a server that is starting again."""

IDLE_SECONDS = 300.0
LIFE_SECONDS = 3_600.0
READS_MAX = 3
"""Messages that a server may send to an idle connection: a ticket, a setting, its end."""

LOCK_MS, STATEMENT_MS = 5_000, 60_000
"""Bounds of a transaction of several statements: it makes tables, or prunes a long run."""

BINDINGS_MAX = 65_535
"""Of one statement, by the protocol: thousands of rows."""

SERVER_VERSION_MIN = 14_00_00
"""The oldest that binds the body of a function when it is made."""

_SETTINGS = "SELECT current_setting('fsync'), current_setting('full_page_writes')"


class PostgresPool:
    """At least one and at most `pool_max` connections; safe to share by threads.

    Ports hold it together: each enters, and when the last leaves the connections close.
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self._lock = Lock()
        self._pool: ConnectionPool[BoundedConnection] | None = None
        self._process_id = os.getpid()
        self._users = 0

    def enter(self) -> None:
        """Count another user."""
        with self._lock:
            self._users += 1

    def leave(self) -> None:
        """Count one user less; after the last, the connections are closed."""
        with self._lock:
            self._users -= 1
            if self._users > 0 or self._process_id != os.getpid():
                return
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()

    def run(self, query: bytes, bindings: Sequence[object], *, writes: bool) -> Rows:
        """Run one statement that commits by itself, and return its rows.

        Raises:
            UsageError: It has more than `BINDINGS_MAX` bindings: the batch is too large.
            UnavailableError: Nothing happened.
            UnknownOutcomeError: The answer to a write was lost.
            Refusal: A function of ours refused; nothing happened.
            CounterfoilError: As `translated` says; nothing happened.
        """
        if len(bindings) > BINDINGS_MAX:
            raise UsageError(f"a batch is larger than one statement: {len(bindings)} values")
        with self._connection() as connection:
            try:
                return connection.execute(query, bindings, binary=True).fetchall()
            except psycopg.Error as error:
                raise translated(error, self._place, writes=writes) from error

    @contextmanager
    def transaction(self) -> Generator[Cursor]:
        """Run several statements in one transaction, with bounds that end with it.

        Raises:
            UnavailableError: Nothing happened.
            UnknownOutcomeError: The answer to the commit was lost.
        """
        committing = False
        with self._connection() as connection:
            try:
                with connection.transaction(), connection.cursor() as cursor:
                    cursor.execute(f"SET LOCAL lock_timeout = {LOCK_MS:d}".encode())
                    cursor.execute(f"SET LOCAL statement_timeout = {STATEMENT_MS:d}".encode())
                    yield cursor
                    committing = True
            except psycopg.Error as error:
                raise translated(error, self._place, writes=committing) from error

    @contextmanager
    def _connection(self) -> Generator[BoundedConnection]:
        pool = self._live()
        try:
            connection = pool.getconn()
        except (PoolTimeout, PoolClosed, TooManyRequests) as error:
            raise unserved(error, self._place) from error
        try:
            yield connection
        finally:
            pool.putconn(connection)

    def _live(self) -> ConnectionPool[BoundedConnection]:
        if self._process_id != os.getpid():
            raise UsageError(f"{self._place.name} was opened before a fork; open it after it")
        with self._lock:
            if self._pool is None:
                _check_server(self._place)
                self._pool = self._opened()
            return self._pool

    def _opened(self) -> ConnectionPool[BoundedConnection]:
        pool = ConnectionPool[BoundedConnection](
            self._place.conninfo,
            connection_class=BoundedConnection,
            kwargs={"autocommit": True, "prepare_threshold": prepare_threshold(self._place)},
            min_size=1,
            max_size=self._place.pool_max,
            timeout=WAIT_SECONDS,
            reconnect_timeout=WAIT_SECONDS,
            max_idle=IDLE_SECONDS,
            max_lifetime=LIFE_SECONDS,
            configure=self._bound,
            check=self._check,
            name="counterfoil",
            open=False,
        )
        pool.open()
        return pool

    def _bound(self, connection: BoundedConnection) -> None:
        connection.answer_seconds = self._place.answer_seconds

    def _check(self, connection: BoundedConnection) -> None:
        """Hand out no connection that the server has closed; costs no round trip.

        Raises:
            psycopg.OperationalError: It is closed; the pool makes another.
        """
        try:
            for _ in range(READS_MAX):
                if not _is_readable(connection.fileno()):
                    return
                connection.pgconn.consume_input()
        except psycopg.OperationalError:
            pass
        pool = self._pool
        if pool is not None:
            pool.drain()  # what ended one connection has usually ended all
        connection.close()
        raise psycopg.OperationalError("the server has closed the connection")


class Access:
    """One port's way to a schema of a database; closing it leaves the other ports theirs.

    Attributes:
        place: The schema, and how the database is reached.
    """

    def __init__(self, pool: PostgresPool, place: Place) -> None:
        self.place = place
        self._pool = pool
        self._lock = Lock()
        self._is_open = True
        pool.enter()

    def rows(self, kind: type[Row], query: bytes, bindings: Sequence[object]) -> list[Row]:
        """Return the rows of a query, each as a `kind` of tuple.

        Raises:
            UnavailableError: The server cannot be reached now.
            FormatError: Tables are gone, or a row is not of this kind.
        """
        return [typed(row, kind) for row in self._live().run(query, bindings, writes=False)]

    def write(self, query: bytes, bindings: Sequence[object]) -> Rows:
        """Run one statement that commits by itself; errors are those of `PostgresPool.run`."""
        return self._live().run(query, bindings, writes=True)

    @contextmanager
    def transaction(self) -> Generator[Cursor]:
        """Run several statements in one transaction; see `PostgresPool.transaction`."""
        with self._live().transaction() as cursor:
            yield cursor

    def close(self) -> None:
        """Let go of the pool; a second time does nothing."""
        with self._lock:
            was_open, self._is_open = self._is_open, False
        if was_open:
            self._pool.leave()

    def _live(self) -> PostgresPool:
        if not self._is_open:
            raise UsageError(f"{self.place.name} was closed by its user")
        return self._pool


_pools: WeakValueDictionary[tuple[int, str, int, bool, int], PostgresPool] = WeakValueDictionary()
_pools_lock = Lock()


def access(place: Place) -> Access:
    """Return a way to a schema, through the one pool of this process for its database."""
    key = (
        os.getpid(),
        place.conninfo,
        place.pool_max,
        place.prepares,
        place.answer_seconds,
    )
    with _pools_lock:
        pool = _pools.get(key)
        if pool is None:
            pool = _pools[key] = PostgresPool(place)
        return Access(pool, place)


def _check_server(place: Place) -> None:
    """Refuse a server that is too old, or that may lose what it acknowledges.

    Raises:
        ConfigError: It is, or does not let us in.
        UnavailableError: It cannot be reached.
    """
    with connect(place) as connection:
        version = connection.info.server_version
        try:
            row = connection.execute(_SETTINGS).fetchone()
        except psycopg.Error as error:
            raise translated(error, place, writes=False) from error
    if version < SERVER_VERSION_MIN:
        raise ConfigError(
            f"{place.name} is PostgreSQL {version // 10_000}, the oldest that can be used is "
            f"{SERVER_VERSION_MIN // 10_000}"
        )
    if row != ("on", "on"):
        raise ConfigError(
            f"{place.name} runs with fsync or full_page_writes off, and loses commits in a crash",
            move="set both to on in postgresql.conf and start the server again",
        )


def _is_readable(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))
