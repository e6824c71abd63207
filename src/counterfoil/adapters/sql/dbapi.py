"""Any database with a driver of PEP 249, by its module and a connection factory.

One connection for each call, used by one thread, in transactions as the driver begins
them. What a driver says is believed only as far as PEP 249 goes: after a failed commit
nobody knows, and every other failure is undone with its transaction.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Protocol

from counterfoil.adapters.sql.database import POSITIONAL, STYLES, Connection, Rows, Value, own
from counterfoil.adapters.sql.trouble import Sort, Trouble
from counterfoil.core.errors import ConfigError
from counterfoil.core.words import Json

REFUSALS = ("IntegrityError", "DataError")
"""Errors of PEP 249 that say that a row does not fit: its constraints, or its columns."""

CHECK_SECONDS = 10.0
"""Longest look at a database while it is opened or set up."""


class DriverModule(Protocol):
    """What is read of a driver's module; the names are those of PEP 249."""

    @property
    def paramstyle(self) -> str:
        """How statements write parameters."""
        ...

    @property
    def Error(self) -> type[Exception]:  # noqa: N802 - the name of PEP 249
        """Base of the driver's errors."""
        ...

    @property
    def ProgrammingError(self) -> type[Exception]:  # noqa: N802 - the name of PEP 249
        """A statement does not fit the database."""
        ...


class DriverCursor(Protocol):
    """The answer to one statement; the names are those of PEP 249."""

    @property
    def description(self) -> Sequence[Sequence[object]] | None:
        """Columns; None where the statement returns none."""
        ...

    @property
    def rowcount(self) -> int:
        """Rows that were changed; below 0 where the driver cannot say."""
        ...

    def execute(self, text: str, parameters: Json, /) -> object:
        """Run one statement."""
        ...

    def fetchmany(self, size: int, /) -> Sequence[Sequence[object]]:
        """Return the next rows."""
        ...

    def close(self) -> None:
        """Let go of it."""
        ...


class DriverConnection(Protocol):
    """What is used of a driver's connection; the names are those of PEP 249."""

    def cursor(self) -> DriverCursor:
        """Return a cursor."""
        ...

    def commit(self) -> None:
        """Make all of it durable."""
        ...

    def rollback(self) -> None:
        """Undo what is not committed."""
        ...

    def close(self) -> None:
        """Let go of it."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Dbapi:
    """A database that is reached by a driver of PEP 249.

    Attributes:
        module: The driver, such as `sqlite3` or `pymysql`.
        connect: Makes a connection that commits nothing by itself; called for each call
            of the adapter. Its timeouts must end a call before `call_ms`.
        title: What people call the database; without a password.
        text_type: Type of a column for text of 128 KiB, such as "LONGTEXT" for MySQL.
    """

    module: DriverModule
    connect: Callable[[], DriverConnection]
    title: str = "the database"
    text_type: str = "TEXT"


class DbapiDatabase:
    """One database behind a connection factory.

    No transaction only reads here, and drivers such as `sqlite3` begin none for "WITH", so
    that a change behind it would commit by itself: queries begin otherwise.

    Args:
        place: What the user gave.

    Raises:
        ConfigError: The driver writes parameters in none of the ways of PEP 249.
    """

    prefix = "counterfoil_"
    reads = ("SELECT", "VALUES")
    account = "''"

    def __init__(self, place: Dbapi) -> None:
        self._place = place
        self.title = place.title
        self.text_type = place.text_type
        self.style = place.module.paramstyle
        if self.style not in STYLES:
            raise ConfigError(f"the driver of {self.title} has the paramstyle {self.style!r:.40}")

    def begin(self, *, writes: bool, ends_at: float) -> Connection:
        """Connect; the driver begins with the first statement."""
        module = self._place.module
        try:
            db = self._place.connect()
        except (module.Error, OSError) as error:
            words = f"{self.title} cannot be opened: {type(error).__name__}"
            raise Trouble(Sort.UNAVAILABLE, words) from error
        connection = DbapiConnection(db, module, self.title, self.style)
        if getattr(db, "autocommit", False) is True:
            connection.end()
            raise Trouble(Sort.SETUP, f"connections of {self.title} commit by themselves")
        return connection

    def has_table(self, connection: Connection, name: str) -> bool:
        """Say whether one of our tables is there: whether it can be read."""
        probe = self.begin(writes=False, ends_at=monotonic() + CHECK_SECONDS)
        try:
            own(self, probe, "SELECT COUNT(*) FROM {table}".replace("{table}", f"{{{name}}}"))
        except Trouble:
            return False
        finally:
            probe.end()
        return True

    def guard(self, connection: Connection) -> None:
        """Do nothing: of two that make one table, the database refuses the second."""

    def check(self) -> None:
        """Refuse connections on which a change outlives its undoing.

        Raises:
            ConfigError: They commit by themselves.
            Trouble: The database does not answer, or nobody has set it up.
        """
        connection = self.begin(writes=True, ends_at=monotonic() + CHECK_SECONDS)
        try:
            before = self._probes(connection)
            own(self, connection, "UPDATE {environment} SET probes = probes + 1")
        finally:
            connection.end()
        again = self.begin(writes=False, ends_at=monotonic() + CHECK_SECONDS)
        try:
            after = self._probes(again)
        finally:
            again.end()
        if before != after:
            raise ConfigError(
                f"connections of {self.title} commit by themselves, or its tables cannot be undone",
                move="turn autocommit off in the factory, and keep the tables in an engine "
                "with transactions",
            )

    def _probes(self, connection: Connection) -> object:
        return own(self, connection, "SELECT probes FROM {environment}").rows

    def close(self) -> None:
        """Hold nothing, so let go of nothing."""


class DbapiConnection:
    """One transaction on a connection of its own."""

    def __init__(self, db: DriverConnection, module: DriverModule, title: str, style: str) -> None:
        self._db = db
        self._module = module
        self._title = title
        self._style = style
        self._refusals = tuple(getattr(module, name) for name in REFUSALS if hasattr(module, name))

    def run(
        self, text: str, parameters: Mapping[str, Value] | Sequence[Value], rows_max: int
    ) -> Rows:
        """Run one statement; named values become a sequence where the driver wants one."""
        given: Json = parameters
        if self._style in POSITIONAL and isinstance(parameters, Mapping):
            given = tuple(parameters.values())
        try:
            cursor = self._db.cursor()
            cursor.execute(text, given)
            if cursor.description is None:
                return Rows(count=max(0, cursor.rowcount))
            rows = cursor.fetchmany(rows_max + 1)
            columns = tuple(str(column[0]) for column in cursor.description)
            cursor.close()
        except self._module.Error as error:
            raise self._trouble(error) from error
        kept = tuple(tuple(row) for row in rows[:rows_max])
        return Rows(columns=columns, rows=kept, count=len(kept), has_more=len(rows) > rows_max)

    def commit(self) -> None:
        """Commit; whatever is raised here, nobody knows."""
        try:
            self._db.commit()
        except (self._module.Error, OSError) as error:
            words = f"a commit of {self._title} failed: {type(error).__name__}"
            raise Trouble(Sort.UNKNOWN, words) from error

    def end(self) -> None:
        """Undo what is not committed, and close the connection."""
        with suppress(self._module.Error, OSError):
            self._db.rollback()
        with suppress(self._module.Error, OSError):
            self._db.close()

    def _trouble(self, error: Exception) -> Trouble:
        words = f"{self._title} says {type(error).__name__}"
        if isinstance(error, self._refusals):
            return Trouble(Sort.REFUSED, words)
        if isinstance(error, self._module.ProgrammingError):
            return Trouble(Sort.SETUP, words)
        return Trouble(Sort.UNAVAILABLE, words)
