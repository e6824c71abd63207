"""What the journal needs of a database: transactions, and how it spells a statement."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, TypeAlias

Value: TypeAlias = int | str | bytes
Rows: TypeAlias = Sequence[tuple[object, ...]]
Run: TypeAlias = Callable[[str, Sequence[Value]], Rows]
"""Runs a spelt statement with its values, and returns the rows that it answers."""

WAIT_MS = 5_000
"""Longest wait for a lock: a transaction of a service that is longer holds up everybody."""


class Database(Protocol):
    """One database with the journal's tables."""

    @property
    def threads(self) -> int:
        """How many transactions can be under way at once."""
        ...

    @property
    def lock(self) -> str:
        """What keeps others from making tables meanwhile; empty where nothing is needed."""
        ...

    def spelt(self, statement: str) -> str:
        """Return a statement of `statements` as this database has it."""
        ...

    def check(self, connection: object) -> None:
        """Accept a connection of the service, if what it writes commits as one.

        Raises:
            UsageError: It is of another driver, or no transaction is open.
        """
        ...

    def transaction(self, *, writes: bool) -> AbstractContextManager[Run]:
        """Run statements, all or none; leaving by an error undoes them.

        Raises:
            UnavailableError: Nothing happened, and it may be tried again.
            UnknownOutcomeError: The answer to the commit was lost.
            FormatError: The tables are not what we made.
        """
        ...

    def close(self) -> None:
        """Let go of connections; a second time does nothing."""
        ...
