"""What the code of a service gets, to write a receipt in its own transaction.

The statement compares that the key is still this request's. A request that was superseded
writes nothing and is told so, and its transaction must be undone.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from counterfoil.core.errors import FencedError, UsageError
from counterfoil.integrations.asgi.answer import Answer, Response, whole
from counterfoil.integrations.asgi.call import Call
from counterfoil.integrations.asgi.database import Value
from counterfoil.integrations.asgi.journal import Journal
from counterfoil.integrations.asgi.rules import Commits, Rules

STATE = "counterfoil"
"""Name in the state of the scope: `request.state.counterfoil` in Starlette."""


class Cursor(Protocol):
    """The answer to one statement."""

    def fetchall(self) -> Sequence[object]:
        """Return its rows."""
        ...


class Connection(Protocol):
    """A connection of apsw or psycopg, with a transaction open."""

    def execute(self, statement: Any, values: Any, /) -> Cursor:  # noqa: ANN401 - drivers differ
        """Run a statement."""
        ...


class AsyncCursor(Protocol):
    """The answer to one statement, of an asynchronous driver."""

    def fetchall(self) -> Awaitable[Any]:
        """Return its rows."""
        ...


class AsyncConnection(Protocol):
    """A connection of psycopg's asynchronous kind, with a transaction open."""

    def execute(
        self,
        statement: Any,  # noqa: ANN401 - drivers differ
        values: Any,  # noqa: ANN401 - drivers differ
        /,
    ) -> Awaitable[AsyncCursor]:
        """Run a statement."""
        ...


class PromisedReceipt:
    """The receipt of a request that is being executed.

    Args:
        journal: Where it will be.
        rules: Of the service.
        call: The request.
        attempt: Name of this try, and of the receipt.
        now_ms: Clock, UTC.
    """

    def __init__(
        self,
        *,
        journal: Journal,
        rules: Rules,
        call: Call,
        attempt: str,
        now_ms: Callable[[], int],
    ) -> None:
        self._journal = journal
        self._rules = rules
        self._call = call
        self._attempt = attempt
        self._now_ms = now_ms

    @property
    def id(self) -> str:
        """Id of the receipt."""
        return self._attempt

    @property
    def key(self) -> str:
        """Key of the request."""
        return self._call.key

    def commit_in(self, connection: Connection, response: Response) -> None:
        """Write the receipt in the transaction of `connection`; commit it with the effect.

        Args:
            connection: In the database of the journal, with a transaction open.
            response: The whole answer, which is what the client will get.

        Raises:
            FencedError: The request was superseded. Undo the transaction.
            UsageError: The route is not declared `Commits.TOGETHER`, no transaction is open, or
                the connection is of another driver than apsw and psycopg.
            ContractError: The answer cannot be kept.
        """
        statement, values = self._finishing(connection, response)
        self._check(connection.execute(statement, values).fetchall())

    async def commit_in_async(self, connection: AsyncConnection, response: Response) -> None:
        """Do what `commit_in` does, on an asynchronous connection.

        Raises:
            FencedError: The request was superseded. Undo the transaction.
            UsageError: The route is not declared `Commits.TOGETHER`, no transaction is open, or
                the connection is of another driver than apsw and psycopg.
            ContractError: The answer cannot be kept.
        """
        statement, values = self._finishing(connection, response)
        cursor = await connection.execute(statement, values)
        self._check(await cursor.fetchall())

    def _finishing(self, connection: object, response: Response) -> tuple[str, tuple[Value, ...]]:
        if self._call.commits is not Commits.TOGETHER:
            raise UsageError(
                "the receipt of this request is not committed by the service",
                key=self.key,
                move="declare its route `Commits.TOGETHER`",
            )
        answer: Answer = whole(response, bytes_max=self._rules.answer_bytes_max)
        return self._journal.finishing(
            connection,
            self._call,
            self._attempt,
            answer,
            now_ms=self._now_ms(),
            retention_ms=self._rules.retention_ms,
        )

    def _check(self, rows: Sequence[object]) -> None:
        if len(rows) != 1:
            raise FencedError(
                "another request with the key took over", key=self.key, move="undo the transaction"
            )


def receipt_of(scope: Mapping[str, Any]) -> PromisedReceipt | None:
    """Return the receipt that a request is to get, or None when it has no key.

    Args:
        scope: The ASGI scope, or a request of Starlette or FastAPI.
    """
    found = scope.get("state", {}).get(STATE)
    return found if isinstance(found, PromisedReceipt) else None
