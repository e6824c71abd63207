"""What the adapter needs of a database: transactions, and statements inside them.

Three drivers keep this contract. A transaction sees one snapshot or holds locks, so
that what was compared still holds when it commits; whatever is not committed is undone.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Protocol, TypeAlias, TypeVar

from counterfoil.adapters.sql.trouble import INSTALL, Sort, Trouble

Value: TypeAlias = bool | int | float | str | bytes | None
Outcome = TypeVar("Outcome")

TRIES_MAX = 16
"""Transactions that one call may begin: each loser lost to one that committed."""

LOCK_SHARE = 2
"""A lock is waited for at most this part of the time of a call, so that time is left."""

_OWN_NAME = re.compile(r":(\w+)")
_OWN_TABLE = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Rows:
    """The answer to one statement.

    Attributes:
        columns: Names; empty where the statement returns none.
        rows: At most as many as were asked for.
        count: Rows that were changed, or returned.
        has_more: Whether rows were left out.
    """

    columns: tuple[str, ...] = ()
    rows: tuple[tuple[object, ...], ...] = ()
    count: int = 0
    has_more: bool = False


class Connection(Protocol):
    """One open transaction. Its methods raise `Trouble` and nothing else of a driver."""

    def run(
        self, text: str, parameters: Mapping[str, Value] | Sequence[Value], rows_max: int
    ) -> Rows:
        """Run one statement in the driver's own style, and return at most `rows_max` rows."""
        ...

    def commit(self) -> None:
        """Make all of it durable. `Sort.UNKNOWN` where no answer came, and only then."""
        ...

    def end(self) -> None:
        """Undo what is not committed, and let go of the connection; raises nothing."""
        ...


class Database(Protocol):
    """One database, before any transaction."""

    @property
    def title(self) -> str:
        """Return what people call it; without a password."""
        ...

    @property
    def style(self) -> str:
        """Return how parameters are written, by its name in PEP 249."""
        ...

    @property
    def prefix(self) -> str:
        """Return what stands before the names of our tables."""
        ...

    @property
    def text_type(self) -> str:
        """Return the type of a column for text of any length."""
        ...

    @property
    def reads(self) -> tuple[str, ...]:
        """Return the words that a statement which only reads may begin with."""
        ...

    @property
    def account(self) -> str:
        """Return an expression for the user that statements act as."""
        ...

    def begin(self, *, writes: bool, ends_at: float) -> Connection:
        """Begin a transaction that is given up at `ends_at` on the monotonic clock."""
        ...

    def has_table(self, connection: Connection, name: str) -> bool:
        """Say whether one of our tables is there."""
        ...

    def guard(self, connection: Connection) -> None:
        """Keep others from setting up at the same time, until the transaction ends."""
        ...

    def check(self) -> None:
        """Refuse a database that loses what it has committed.

        Raises:
            ConfigError: It does.
        """
        ...

    def close(self) -> None:
        """Let go of idle connections; a second time does nothing."""
        ...


def transact(
    database: Database, work: Callable[[Connection], Outcome], *, writes: bool, ends_at: float
) -> Outcome:
    """Do all of `work` in one transaction, again from its start where another came first.

    Nothing but the database is called in between, so that doing it again is harmless.

    Raises:
        Trouble: It was not done; or, with `Sort.UNKNOWN`, nobody knows.
    """
    for _ in range(TRIES_MAX):
        connection = database.begin(writes=writes, ends_at=ends_at)
        try:
            outcome = work(connection)
            if writes:
                _check_time(database, ends_at)
                connection.commit()
            return outcome
        except Trouble as trouble:
            if trouble.sort is not Sort.AGAIN:
                raise
        finally:
            connection.end()
        _check_time(database, ends_at)
    raise Trouble(Sort.UNAVAILABLE, f"other transactions of {database.title} kept coming first")


def _check_time(database: Database, ends_at: float) -> None:
    """Refuse to go on, or to commit, after the end of a call: another may act by then."""
    if monotonic() >= ends_at:
        raise Trouble(Sort.UNAVAILABLE, f"{database.title} took too long, and nothing is committed")


def own(database: Database, connection: Connection, text: str, **values: Value) -> Rows:
    """Run a statement of ours, written with `{table}` and `:name`.

    A row that stands in its way is another transaction's, so it is tried again; a table
    that is missing says that nobody has set the database up.

    Raises:
        Trouble: As said, or as the driver says.
    """
    named = _OWN_TABLE.sub(rf"{database.prefix}\1", text)
    names: list[str] = _OWN_NAME.findall(named)
    spelled = _OWN_NAME.sub(_speller(database.style), named)
    is_positional = database.style in POSITIONAL
    given = [values[name] for name in names] if is_positional else values
    try:
        return connection.run(spelled, given, 1)
    except Trouble as trouble:
        match trouble.sort:
            case Sort.REFUSED:
                raise Trouble(Sort.AGAIN, trouble.words) from trouble
            case Sort.SETUP:
                words = f"the tables of receipts cannot be used: {trouble.words}"
                raise Trouble(Sort.SETUP, words, INSTALL) from trouble
            case _:
                raise


READS = ("SELECT", "VALUES", "WITH")
"""First words of statements that may only read; a transaction that reads holds them to it."""

POSITIONAL = ("qmark", "format", "numeric")
"""Styles of PEP 249 that take values in order."""

STYLES = {
    "named": ":{name}",
    "pyformat": "%({name})s",
    "qmark": "?",
    "format": "%s",
    "numeric": ":{number}",
}
"""How each style of PEP 249 writes one parameter."""


def _speller(style: str) -> Callable[[re.Match[str]], str]:
    count = 0

    def spell(match: re.Match[str]) -> str:
        nonlocal count
        count += 1
        return STYLES[style].format(name=match[1], number=count)

    return spell
