"""SQLite files by apsw: one connection for each call, so that it is the file of that name.

A file that was put in the place of another is seen at once, and nothing is shared
between threads. Write transactions begin by locking the file.

Source: "How To Corrupt An SQLite Database File", sqlite.org, 2.2 and 2.2.1, for what one
process must not do to a file.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import Protocol

import apsw

from counterfoil.adapters.sql.database import LOCK_SHARE, READS, Connection, Rows, Value
from counterfoil.adapters.sql.trouble import Sort, Trouble

STEPS_BETWEEN_LOOKS = 10_000
"""Instructions of SQLite's machine between two looks at the clock: a millisecond or so."""

_SETTINGS = (("synchronous", 3), ("foreign_keys", 1))
"""Read back. `synchronous` 3 is EXTRA: in every journal mode it keeps a commit through a
power cut."""

_WAITING = (apsw.SQLITE_BUSY, apsw.SQLITE_LOCKED)
_SORTS: dict[int, Sort] = {
    apsw.SQLITE_CONSTRAINT: Sort.REFUSED,
    apsw.SQLITE_MISMATCH: Sort.REFUSED,
    apsw.SQLITE_TOOBIG: Sort.REFUSED,
    apsw.SQLITE_ERROR: Sort.SETUP,
    apsw.SQLITE_RANGE: Sort.SETUP,
    apsw.SQLITE_READONLY: Sort.SETUP,
    apsw.SQLITE_AUTH: Sort.SETUP,
    apsw.SQLITE_CORRUPT: Sort.DAMAGED,
    apsw.SQLITE_NOTADB: Sort.DAMAGED,
    apsw.SQLITE_FORMAT: Sort.DAMAGED,
}
"""By primary result; what is missing here may be over in a moment."""

_TELLS_VALUES = (apsw.SQLITE_CONSTRAINT_TRIGGER, apsw.SQLITE_CONSTRAINT_DATATYPE)
"""Extended results whose message may quote a row."""


class Cursor(Protocol):
    """What is used of the driver's cursor; its own types name a protocol of Python 3.12."""

    exec_trace: Callable[..., bool] | None

    def execute(
        self, statements: str, bindings: Sequence[Value] | Mapping[str, Value], /
    ) -> Iterator[tuple[object, ...]]:
        """Run a statement, and step through its rows."""
        ...

    def get_description(self) -> tuple[tuple[object, ...], ...]:
        """Return the columns."""
        ...

    def close(self, force: bool = False) -> None:
        """Let go of it."""
        ...


class Handle(Protocol):
    """The same of the driver's connection."""

    def cursor(self) -> Cursor:
        """Return a cursor."""
        ...

    def execute(self, statements: str, /) -> object:
        """Run statements."""
        ...

    def pragma(self, name: str, value: int | None = None, /) -> object:
        """Set or read a pragma."""
        ...

    def set_busy_timeout(self, milliseconds: int, /) -> None:
        """Wait so long for a lock."""
        ...

    def changes(self) -> int:
        """Return how many rows the last statement changed."""
        ...

    def close(self, force: bool = False) -> None:
        """Let go of the file."""
        ...

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        ...


OPEN_FILES = Path("/proc/self/fd")
"""Where Linux tells which files a process has open."""

LOOKS = 3
"""Looks at them, since others open and close the file by apsw meanwhile."""

_moves = Lock()
"""Held while a connection of ours is opened or closed, so that none moves between the two
halves of a look."""


def is_open_otherwise(path: Path) -> bool:
    """Return whether this process has a file open by other means than apsw, as far as can be told.

    Locks of one process do not hold each other off, and whoever closes the file drops them
    all: another copy of SQLite, such as that of `sqlite3`, and a plain `open`.
    """
    if not apsw.using_amalgamation:
        return False  # it may be the copy that `sqlite3` has
    return all(_is_open_by_others(path) for _ in range(LOOKS))


def _is_open_by_others(path: Path) -> bool:
    with _moves:
        return _is_open(path) and not _may_be_ours(path)


def _is_open(path: Path) -> bool:
    with suppress(OSError):
        return any(_is_same(number, path) for number in OPEN_FILES.iterdir())
    return False


def _may_be_ours(path: Path) -> bool:
    try:
        return any(_is_same(Path(opened.filename), path) for opened in apsw.connections())
    except apsw.Error:  # one is busy in another thread, and does not say which file it has
        return True


def _is_same(one: Path, other: Path) -> bool:
    with suppress(OSError):
        return one.samefile(other)
    return False


class SqliteDatabase:
    """One file.

    Args:
        path: Where it is; it is not made.
    """

    style = "named"
    prefix = "main.counterfoil_"
    text_type = "TEXT"
    reads = READS
    account = "''"

    def __init__(self, path: Path) -> None:
        self._path = path
        self.title = f"the database file {path}"

    def begin(self, *, writes: bool, ends_at: float) -> Connection:
        """Open the file and begin; a write transaction holds its lock."""
        try:
            with _moves:
                opened = apsw.Connection(str(self._path), flags=apsw.SQLITE_OPEN_READWRITE)
        except apsw.Error as error:
            raise self._trouble(error) from error
        opened.set_progress_handler(lambda: monotonic() > ends_at, STEPS_BETWEEN_LOOKS)
        db: Handle = opened
        connection = SqliteConnection(db, self.title)
        try:
            self._begin(db, writes=writes, ends_at=ends_at)
        except apsw.Error as error:
            connection.end()
            raise self._trouble(error) from error
        except BaseException:
            connection.end()
            raise
        return connection

    def _begin(self, db: Handle, *, writes: bool, ends_at: float) -> None:
        left_ms = max(1, int((ends_at - monotonic()) * 1000))
        db.set_busy_timeout(max(1, left_ms // LOCK_SHARE))
        for name, wanted in _SETTINGS:
            db.pragma(name, wanted)
            if db.pragma(name) != wanted:
                raise Trouble(Sort.SETUP, f"{self.title} does not keep {name}={wanted}")
        if not writes:
            db.pragma("query_only", 1)
        db.execute("BEGIN IMMEDIATE" if writes else "BEGIN")

    def has_table(self, connection: Connection, name: str) -> bool:
        """Say whether one of our tables is there."""
        text = "SELECT 1 FROM main.sqlite_schema WHERE type = 'table' AND name = :name"
        return bool(connection.run(text, {"name": f"counterfoil_{name}"}, 1).rows)

    def guard(self, connection: Connection) -> None:
        """Do nothing: a write transaction has the file to itself."""

    def check(self) -> None:
        """Refuse nothing: what a commit needs is set for each connection."""

    def close(self) -> None:
        """Hold nothing, so let go of nothing."""

    def _trouble(self, error: apsw.Error) -> Trouble:
        return trouble_of(error, self.title)


class SqliteConnection:
    """One transaction on a connection of its own."""

    def __init__(self, db: Handle, title: str) -> None:
        self._db = db
        self._title = title

    def run(
        self, text: str, parameters: Mapping[str, Value] | Sequence[Value], rows_max: int
    ) -> Rows:
        """Run one statement."""
        columns: tuple[str, ...] = ()

        def describe(cursor: Cursor, statement: str, bindings: object) -> bool:
            nonlocal columns
            columns = tuple(str(column[0]) for column in cursor.get_description())
            return True

        cursor = self._db.cursor()
        cursor.exec_trace = describe  # a statement that returns no row tells its columns only here
        try:
            rows = _fetched(cursor.execute(text, parameters), rows_max)
            cursor.close(True)
        except apsw.Error as error:
            raise trouble_of(error, self._title) from error
        except KeyError as error:
            raise Trouble(Sort.SETUP, "a parameter of the text is not declared") from error
        kept = tuple(rows[:rows_max])
        count = len(kept) if columns else self._db.changes()
        return Rows(columns=columns, rows=kept, count=count, has_more=len(rows) > rows_max)

    def commit(self) -> None:
        """Commit; what is still open after a failure can be undone, so it did not happen."""
        try:
            self._db.execute("COMMIT")
        except apsw.Error as error:
            trouble = trouble_of(error, self._title)
            is_certain = _code(error) in (*_WAITING, apsw.SQLITE_CONSTRAINT)
            if is_certain and self._db.in_transaction:
                raise trouble from error
            raise Trouble(Sort.UNKNOWN, f"a commit failed: {trouble.words}") from error

    def end(self) -> None:
        """Close the connection, which undoes what is not committed."""
        with _moves:
            self._db.close(True)


def _fetched(answer: Iterator[tuple[object, ...]], rows_max: int) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    for row in answer:
        rows.append(row)
        if len(rows) > rows_max:
            break
    return rows


def _code(error: apsw.Error) -> int:
    code: int = getattr(error, "result", apsw.SQLITE_MISUSE)
    return code


def trouble_of(error: apsw.Error, title: str) -> Trouble:
    """Return what an error of the driver says about a transaction that is not committed."""
    code = _code(error)
    extended: int = getattr(error, "extendedresult", code)
    name = apsw.mapping_extended_result_codes.get(
        extended, apsw.mapping_result_codes.get(code, str(code))
    )
    if code in _WAITING:
        return Trouble(Sort.UNAVAILABLE, f"{title} was locked by another program ({name})")
    if code == apsw.SQLITE_INTERRUPT:
        return Trouble(Sort.UNAVAILABLE, f"a statement took too long in {title} ({name})")
    sort = _SORTS.get(code, Sort.UNAVAILABLE)
    quoted = "" if extended in _TELLS_VALUES else f": {error!s:.200}"
    return Trouble(sort, f"{title} says {name}{quoted}")
