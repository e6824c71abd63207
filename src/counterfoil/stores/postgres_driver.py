"""The part of the PostgreSQL driver that stores use, and what its errors mean to a caller.

An error that the server itself reports ended the transaction, so nothing happened. An
answer that never came is another matter: the statement was sent, and may have committed.
"""

from collections.abc import Callable
from time import monotonic
from typing import TypeAlias, TypeVar

import msgspec
import psycopg
from psycopg.abc import PQGen
from psycopg.rows import TupleRow
from psycopg_pool import PoolClosed, PoolTimeout, TooManyRequests

from counterfoil.core.errors import (
    ConfigError,
    CounterfoilError,
    FormatError,
    InvariantError,
    StaleHeadError,
    UnavailableError,
    UnknownOutcomeError,
    UsageError,
)
from counterfoil.stores.postgres_url import Place

Row = TypeVar("Row")
Result = TypeVar("Result")
Rows: TypeAlias = list[TupleRow]
Cursor: TypeAlias = psycopg.Cursor[TupleRow]

PREPARED_AFTER = 5
"""Uses of a statement before it is prepared, where that is allowed at all."""

LOOK_SECONDS = 0.1
"""Between two looks at the time, as the driver has it."""

REFUSALS = ("CF001", "CF002", "CF003")
"""States that our functions raise: superseded by a mark, a head exists, a head refuses."""

MEANINGS: dict[str, tuple[type[CounterfoilError], str]] = {
    "CF009": (InvariantError, "would change what never changes"),
    "22": (UsageError, "was given a value that no row can hold"),
    "23": (StaleHeadError, "has a row that stands in the way"),
    "25006": (UnavailableError, "takes no writes now"),
    "28": (ConfigError, "does not let this user in"),
    "3D000": (ConfigError, "does not exist"),
    "3F000": (FormatError, "has lost our schema"),
    "40": (UnavailableError, "undid the transaction in favour of another"),
    "42501": (ConfigError, "does not allow this to the role that is connected"),
    "42": (FormatError, "does not have the tables and functions that we made"),
    "53": (UnavailableError, "is out of space or memory"),
    "54": (UsageError, "was given a value larger than a row can hold"),
    "55P03": (UnavailableError, "was locked by another transaction for too long"),
    "57014": (UnavailableError, "cancelled the statement"),
    "58": (UnavailableError, "cannot read or write its files"),
    "XX001": (FormatError, "is damaged"),
    "XX002": (FormatError, "has a damaged index"),
}
"""By state or class of states (PostgreSQL, appendix A); the longest that fits counts."""

REFUSED_AT_THE_DOOR = (
    "password authentication failed",
    "SASL authentication failed",
    "no password supplied",
    "does not exist",
    "no such database",
    "no such user",
    "no pg_hba.conf entry",
    "is not permitted to log in",
    "permission denied for database",
    "does not support SSL",
    "certificate verify failed",
)
"""What servers, poolers and libpq say, in English, to one who gets in by no other try."""


class Refusal(Exception):  # noqa: N818 - it says what the server decided, and never leaves a port
    """One of our functions refused and undid everything.

    Attributes:
        code: One of `REFUSALS`.
        detail: JSON.
    """

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(code, detail)
        self.code = code
        self.detail = detail


class BoundedConnection(psycopg.Connection[TupleRow]):
    """A connection that waits for an answer so long, and then counts as lost.

    Attributes:
        answer_seconds: How long.
    """

    answer_seconds: float = 0

    def wait(
        self, gen: PQGen[Result], interval: float = LOOK_SECONDS, timeout: float | None = None
    ) -> Result:
        """Wait for the server as the driver does, and close the connection when time is over.

        Raises:
            psycopg.OperationalError: No answer came.
        """
        if self.answer_seconds:
            gen = _until(gen, monotonic() + self.answer_seconds, self.pgconn.finish)
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


def connect(place: Place) -> BoundedConnection:
    """Open a connection without session state; statements commit by themselves.

    Raises:
        ConfigError: The server does not let us in, or does not know the database.
        UnavailableError: It cannot be reached.
    """
    try:
        connection = BoundedConnection.connect(
            place.conninfo, autocommit=True, prepare_threshold=prepare_threshold(place)
        )
    except psycopg.Error as error:
        text = " ".join(str(error).split())
        if any(each in text for each in REFUSED_AT_THE_DOOR):
            raise ConfigError(f"{place.name} cannot be opened: {text}") from error
        raise UnavailableError(f"{place.name} cannot be reached: {text}") from error
    connection.answer_seconds = place.answer_seconds
    return connection


def prepare_threshold(place: Place) -> int | None:
    """Return after how many uses the driver prepares a statement; None for never."""
    return PREPARED_AFTER if place.prepares else None


def typed(row: object, kind: type[Row]) -> Row:
    """Return a row as the tuple or array-like struct that its query promises.

    Raises:
        FormatError: A column holds another type.
    """
    try:
        return msgspec.convert(row, kind)
    except msgspec.ValidationError as error:
        raise FormatError("a row does not have the form that we write") from error


def translated(error: psycopg.Error, place: Place, *, writes: bool) -> Exception:
    """Return what an error of the driver means to the caller; it names no value.

    Args:
        error: What the driver raised, after a statement may have been sent.
        place: The database.
        writes: Whether the statement commits something if it succeeds.
    """
    code = error.sqlstate
    if code is None or not _is_answer(error):
        if writes:
            return UnknownOutcomeError(f"the answer of {place.name} was lost ({code or 'silence'})")
        return UnavailableError(f"{place.name} did not answer ({code or 'silence'})")
    if code in REFUSALS:
        return Refusal(code, error.diag.message_detail or "")
    for length in (5, 2):
        if code[:length] in MEANINGS:
            kind, what = MEANINGS[code[:length]]
            return kind(f"{place.name} {what} ({code})")
    return UnavailableError(f"{place.name} cannot be used now ({code})")


def _is_answer(error: psycopg.Error) -> bool:
    """Return whether the server ended the transaction and kept the connection.

    What is fatal to a connection may come after a commit: then nobody knows.
    """
    code, severity = error.sqlstate or "", error.diag.severity_nonlocalized
    return severity in {None, "ERROR"} and code[:2] != "08" and code[:3] != "57P"


def unserved(error: PoolTimeout | PoolClosed | TooManyRequests, place: Place) -> CounterfoilError:
    """Return what it means that the pool gave no connection: nothing was sent."""
    if isinstance(error, PoolClosed):
        return UsageError(f"{place.name} was closed by its user")
    return UnavailableError(f"{place.name} gave no connection in time")
