"""What went wrong in a database, before anybody is told what it means.

Drivers sort their errors here. Words name constraints, tables and codes, and never a
value: a row may hold what no message may.
"""

from enum import Enum

from counterfoil.core.errors import (
    ConfigError,
    CounterfoilError,
    FormatError,
    RefusedError,
    UnavailableError,
    UnknownOutcomeError,
)

INSTALL = "run `counterfoil adapters sql install URL` on it, as a user that may make tables"
"""The next move where the tables of receipts are not as they must be."""


class Sort(Enum):
    """What may be believed, and done next. Only `UNKNOWN` may have happened."""

    AGAIN = "another transaction came first"
    REFUSED = "the database refuses it"
    SETUP = "it does not fit the database"
    UNAVAILABLE = "the database cannot do it now"
    DAMAGED = "the database is damaged"
    UNKNOWN = "the answer to COMMIT was lost"


_FAMILIES: dict[Sort, type[CounterfoilError]] = {
    Sort.AGAIN: UnavailableError,
    Sort.REFUSED: RefusedError,
    Sort.SETUP: ConfigError,
    Sort.UNAVAILABLE: UnavailableError,
    Sort.DAMAGED: FormatError,
    Sort.UNKNOWN: UnknownOutcomeError,
}


class Trouble(Exception):  # noqa: N818 - it says what a database did, and never leaves the package
    """A call of a database failed.

    Attributes:
        sort: What may be believed.
        words: What happened, as a clause for people.
        move: The next move, in place of the error's own.
    """

    def __init__(self, sort: Sort, words: str, move: str = "") -> None:
        super().__init__(sort, words, move)
        self.sort = sort
        self.words = words
        self.move = move


def meaning(
    trouble: Trouble, run_id: str = "", key: str = "", *, is_repeatable: bool = False
) -> CounterfoilError:
    """Return what a failure means to the caller of the adapter.

    Args:
        trouble: What a driver said.
        run_id: The run that it happened to.
        key: The key that it happened to.
        is_repeatable: The same call again does nothing more, so a lost answer is no doubt.
    """
    sort = trouble.sort
    if is_repeatable and sort is Sort.UNKNOWN:
        sort = Sort.UNAVAILABLE
    return _FAMILIES[sort](trouble.words, run_id, key, trouble.move)
