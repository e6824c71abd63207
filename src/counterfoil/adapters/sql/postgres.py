"""PostgreSQL by psycopg: no state outlives a transaction, so a pooler may stand between.

A transaction sees one snapshot (`REPEATABLE READ`): a row that another one changed
meanwhile undoes it, and it is done again. An error that the server itself reports ended
the transaction; silence after COMMIT is the one thing that leaves an outcome unknown.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import TypeVar

import psycopg
from psycopg import ProgrammingError, pq
from psycopg.abc import PQGen
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import TupleRow

from counterfoil.adapters.sql.database import LOCK_SHARE, READS, Connection, Rows, Value
from counterfoil.adapters.sql.trouble import Sort, Trouble
from counterfoil.core.errors import ConfigError

Result = TypeVar("Result")

SCHEMA_DEFAULT = "counterfoil_sql"
SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,39}")
"""Lower-case, so that it is the same with and without quotes."""

IDLE_MAX = 8
"""Connections kept for the next call: as many as sessions of a usual worker."""

LOOK_SECONDS = 0.1
"""Between two looks at the time, as the driver has it."""

ONE_INSTALLER = 0x4366_5371
""""CfSq": the advisory lock under which tables are made."""

SET_UP = (
    "SELECT set_config('synchronous_commit', 'on', true) "
    "WHERE current_setting('synchronous_commit') = 'off'"
)
DEFAULTS = {
    "application_name": "counterfoil",
    "connect_timeout": "5",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "target_session_attrs": "read-write",
}
"""A standby answers with what was, so it is never asked."""

REFUSED_AT_THE_DOOR = (
    "authentication failed",
    "no password supplied",
    "does not exist",
    "no pg_hba.conf entry",
    "is not permitted to log in",
    "permission denied for database",
    "certificate verify failed",
)
"""What the server and libpq say, in English, to one who gets in by no other try."""

_SORTS = {
    "0A": Sort.SETUP,
    "21": Sort.REFUSED,
    "22": Sort.REFUSED,
    "23": Sort.REFUSED,
    "25006": Sort.SETUP,
    "27": Sort.REFUSED,
    "3D": Sort.SETUP,
    "3F": Sort.SETUP,
    "40001": Sort.AGAIN,
    "40P01": Sort.AGAIN,
    "42": Sort.SETUP,
    "44": Sort.REFUSED,
    "54": Sort.REFUSED,
    "P0": Sort.REFUSED,
    "XX001": Sort.DAMAGED,
    "XX002": Sort.DAMAGED,
}
"""By state or class of states (PostgreSQL, appendix A); others may be over in a moment."""


class BoundedConnection(psycopg.Connection[TupleRow]):
    """A connection that waits for answers until a moment, and then counts as lost.

    Attributes:
        ends_at: The moment, on the monotonic clock; 0 for none.
    """

    ends_at: float = 0

    def wait(
        self, gen: PQGen[Result], interval: float = LOOK_SECONDS, timeout: float | None = None
    ) -> Result:
        """Wait for the server as the driver does, and close the connection when time is over.

        Raises:
            psycopg.OperationalError: No answer came.
        """
        if self.ends_at:
            gen = _until(gen, self.ends_at, self.pgconn.finish)
        if timeout is None:
            return super().wait(gen, interval)
        return super().wait(gen, interval, timeout)


def _until(gen: PQGen[Result], end: float, give_up: Callable[[], None]) -> PQGen[Result]:
    """Drive what waits for the server; between two looks, see whether the time is over."""
    try:
        waits = next(gen)
        while True:
            ready = yield waits
            if not ready and monotonic() > end:
                give_up()
                raise psycopg.OperationalError("no answer came in time")
            waits = gen.send(ready)
    except StopIteration as end_of_wait:
        answer: Result = end_of_wait.value
        return answer


class PostgresDatabase:
    """One database, and the schema in it that holds our tables.

    Args:
        url: `postgresql://…`; of its parameters `schema` is ours, the others are libpq's.

    Raises:
        ConfigError: It is no such URL.
    """

    style = "pyformat"
    text_type = "TEXT"
    reads = READS
    account = "current_user"

    def __init__(self, url: str) -> None:
        schema, given = _parsed(url)
        self._conninfo = make_conninfo("", **{**DEFAULTS, **given, "client_encoding": "utf8"})
        self._schema = schema
        self._idle: list[BoundedConnection] = []
        self._is_closed = False
        self.prefix = f'"{schema}".counterfoil_'
        host = given.get("host") or given.get("hostaddr") or given.get("service") or "here"
        port = f":{given['port']}" if "port" in given else ""
        self.title = f"the database {given.get('dbname', '')!r} at {host}{port}"

    def begin(self, *, writes: bool, ends_at: float) -> Connection:
        """Begin, on a connection that waits where there is one."""
        while True:
            waiting = self._taken()
            db = waiting or self._connected(ends_at)
            db.ends_at = ends_at
            try:
                db.execute(_beginning(writes=writes, ends_at=ends_at))
            except psycopg.Error as error:
                db.close()
                if waiting is None or monotonic() >= ends_at:
                    raise trouble_of(error, self.title) from error
            else:
                return PostgresConnection(db, self, streams=not writes)

    def _taken(self) -> BoundedConnection | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _connected(self, ends_at: float) -> BoundedConnection:
        left_seconds = max(1, int(ends_at - monotonic()))
        patience = min(left_seconds, int(DEFAULTS["connect_timeout"]))
        try:
            return BoundedConnection.connect(
                self._conninfo, autocommit=True, prepare_threshold=None, connect_timeout=patience
            )
        except psycopg.Error as error:
            text = " ".join(str(error).split())
            is_final = any(each in text for each in REFUSED_AT_THE_DOOR)
            sort = Sort.SETUP if is_final else Sort.UNAVAILABLE
            raise Trouble(sort, f"{self.title} cannot be opened: {text:.200}") from error

    def give_back(self, db: BoundedConnection) -> None:
        """Keep a connection that is in no transaction for the next call."""
        if len(self._idle) < IDLE_MAX and not self._is_closed:
            self._idle.append(db)
        else:
            db.close()

    def has_table(self, connection: Connection, name: str) -> bool:
        """Say whether one of our tables is there."""
        text = "SELECT 1 WHERE to_regclass(%(name)s) IS NOT NULL"
        return bool(connection.run(text, {"name": f"{self.prefix}{name}"}, 1).rows)

    def guard(self, connection: Connection) -> None:
        """Make the schema, one installer after the other."""
        connection.run(f"SELECT pg_advisory_xact_lock({ONE_INSTALLER})", {}, 1)
        text = "SELECT 1 WHERE to_regnamespace(%(name)s) IS NOT NULL"
        if not connection.run(text, {"name": self._schema}, 1).rows:
            connection.run(f'CREATE SCHEMA "{self._schema}"', {}, 1)

    def check(self) -> None:
        """Refuse a server that loses what it has committed.

        Raises:
            ConfigError: It does.
            Trouble: It does not answer.
        """
        patience = float(DEFAULTS["connect_timeout"])
        connection = self.begin(writes=False, ends_at=monotonic() + patience)
        try:
            text = "SELECT current_setting('fsync'), current_setting('full_page_writes')"
            settings = connection.run(text, {}, 1).rows
        finally:
            connection.end()
        if settings != (("on", "on"),):
            raise ConfigError(
                f"{self.title} runs with fsync or full_page_writes off, and loses commits",
                move="turn both on, and start again",
            )

    def close(self) -> None:
        """Let go of idle connections; a second time does nothing."""
        self._is_closed = True
        while (db := self._taken()) is not None:
            db.close()


class PostgresConnection:
    """One transaction on a connection that is given back after it."""

    def __init__(self, db: BoundedConnection, database: PostgresDatabase, *, streams: bool) -> None:
        self._db = db
        self._database = database
        self._streams = streams

    def run(
        self, text: str, parameters: Mapping[str, Value] | Sequence[Value], rows_max: int
    ) -> Rows:
        """Run one statement; a long answer to a read is fetched only as far as it is wanted."""
        try:
            if self._streams and rows_max > 1:
                with self._db.cursor(name="counterfoil") as stream:
                    stream.execute(text.encode(), parameters)
                    return _rows(stream, rows_max)
            with self._db.cursor() as cursor:
                cursor.execute(text.encode(), parameters)
                return _rows(cursor, rows_max)
        except psycopg.Error as error:
            raise trouble_of(error, self._database.title) from error

    def commit(self) -> None:
        """Commit; what the server itself refuses did not happen."""
        title = self._database.title
        try:
            said = self._db.execute("COMMIT").statusmessage
        except psycopg.Error as error:
            if is_answer(error):
                raise trouble_of(error, title) from error
            raise Trouble(Sort.UNKNOWN, f"the answer of {title} to COMMIT was lost") from error
        if said != "COMMIT":
            raise Trouble(Sort.UNAVAILABLE, f"{title} undid the transaction")

    def end(self) -> None:
        """Undo what is open, and give the connection back if it is as good as before."""
        try:
            if self._db.info.transaction_status is not pq.TransactionStatus.IDLE:
                self._db.execute("ROLLBACK")
        except psycopg.Error:
            self._db.close()
            return
        if self._db.closed:
            return
        self._database.give_back(self._db)


def _beginning(*, writes: bool, ends_at: float) -> bytes:
    """Return what begins a transaction that the server itself ends when time is over."""
    left_ms = max(1, int((ends_at - monotonic()) * 1000))
    return (
        f"BEGIN ISOLATION LEVEL REPEATABLE READ {'READ WRITE' if writes else 'READ ONLY'}; "
        f"SET LOCAL lock_timeout = {max(1, left_ms // LOCK_SHARE)}; "
        f"SET LOCAL statement_timeout = {left_ms}; "
        f"SET LOCAL idle_in_transaction_session_timeout = {left_ms}; {SET_UP}"
    ).encode()


def _rows(cursor: psycopg.Cursor[TupleRow], rows_max: int) -> Rows:
    if cursor.description is None:
        return Rows(count=max(0, cursor.rowcount))
    rows = cursor.fetchmany(rows_max + 1)
    columns = tuple(column.name for column in cursor.description)
    kept = tuple(tuple(row) for row in rows[:rows_max])
    return Rows(columns=columns, rows=kept, count=len(kept), has_more=len(rows) > rows_max)


def is_answer(error: psycopg.Error) -> bool:
    """Return whether the server ended the transaction and kept the connection.

    What is fatal to a connection may come after a commit: then nobody knows.
    """
    code, severity = error.sqlstate, error.diag.severity_nonlocalized
    if code is None:
        return False
    return severity in {None, "ERROR"} and code[:2] != "08" and code[:3] != "57P"


def trouble_of(error: psycopg.Error, title: str) -> Trouble:
    """Return what an error says about a transaction whose COMMIT was not sent."""
    code = error.sqlstate
    if code is None:
        if isinstance(error, ProgrammingError):
            return Trouble(Sort.SETUP, f"the driver cannot bind the parameters ({error!s:.100})")
        if isinstance(error, psycopg.DataError):
            return Trouble(Sort.REFUSED, f"a value of {title} cannot be read or written")
        return Trouble(Sort.UNAVAILABLE, f"{title} did not answer")
    if not is_answer(error):
        return Trouble(Sort.UNAVAILABLE, f"{title} ended the connection ({code})")
    sort = next((_SORTS[code[:n]] for n in (5, 2) if code[:n] in _SORTS), Sort.UNAVAILABLE)
    diagnosis = error.diag
    names = [name for name in (diagnosis.table_name, diagnosis.constraint_name) if name]
    told = f" of {'.'.join(names)}" if names else ""
    if code[:2] == "42":
        told = f": {diagnosis.message_primary or ''!s:.200}"
    return Trouble(sort, f"{title} says {code}{told}")


def _parsed(url: str) -> tuple[str, dict[str, str]]:
    base, _, query = url.partition("?")
    schema, theirs = SCHEMA_DEFAULT, list[str]()
    for given in filter(None, query.split("&")):
        name, _, value = given.partition("=")
        if name == "schema":
            schema = value
        else:
            theirs.append(given)
    if SCHEMA.fullmatch(schema) is None:
        raise ConfigError("the schema of a PostgreSQL URL is a lower-case name of 1 to 40 letters")
    try:
        parsed = conninfo_to_dict(f"{base}?{'&'.join(theirs)}" if theirs else base)
    except ProgrammingError:
        # libpq quotes the URL, password and all, so its message stays here.
        raise ConfigError("the PostgreSQL URL is malformed, or has an unknown parameter") from None
    return schema, {name: str(value) for name, value in parsed.items() if value is not None}
