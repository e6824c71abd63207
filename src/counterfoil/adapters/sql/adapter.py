"""A database as the engine sees it: one port, one transaction for each call.

A write locks the run's fence, looks at the key, compares the state, runs its statements
and writes the receipt, all in one transaction. So a kill at any instant leaves all of it
or nothing, and a call that is still open is waited for by whoever takes the fence.
"""

from collections.abc import Callable, Mapping
from time import monotonic
from typing import TypeVar

from msgspec.structs import replace

from counterfoil.adapters.sql import values
from counterfoil.adapters.sql.database import Connection, Database, Rows, transact
from counterfoil.adapters.sql.preview import preview
from counterfoil.adapters.sql.receipts import Book
from counterfoil.adapters.sql.running import answered, changed, checked, watched
from counterfoil.adapters.sql.statements import Known
from counterfoil.adapters.sql.trouble import Trouble, meaning
from counterfoil.core.canonical import bounded, digest
from counterfoil.core.errors import (
    ConfigError,
    ContractError,
    IdempotencyConflictError,
    PermissionDeniedError,
    StaleObservationError,
    UnavailableError,
)
from counterfoil.core.intent import EnvironmentState, KindSpec
from counterfoil.core.receipt import ABSENT, Answer, Fence, LookUp, Receipt, Served, found, unknown
from counterfoil.core.words import Json, Key, RunId
from counterfoil.ports import Observation, Operation

Outcome = TypeVar("Outcome")


class SqlAdapter:
    """Runs registered statements in one database, each write once per key.

    Args:
        database: What `open_sql` checked; `close` lets go of it.
        statements: By name, what planners may run.
        specs: What is declared of the kinds.
        watch: A query for what the fingerprint covers; empty for none.
        now_ms: Clock for receipts, UTC.
    """

    def __init__(
        self,
        database: Database,
        *,
        statements: Mapping[str, Known],
        specs: tuple[KindSpec, ...],
        watch: str,
        now_ms: Callable[[], int],
    ) -> None:
        self._database = database
        self._statements = statements
        self._specs = {spec.name: spec for spec in specs}
        self._watch = watch
        self._now_ms = now_ms
        self._call_ms = specs[0].call_ms
        self._name = specs[0].adapter

    @property
    def name(self) -> str:
        """Name in intents, scopes and settings."""
        return self._name

    @property
    def kinds(self) -> tuple[KindSpec, ...]:
        """`sql.execute`, `sql.query` and `sql.check`, each by the adapter's name."""
        return tuple(self._specs.values())

    def take(self, run_id: RunId, fence: Fence) -> Served | None:
        """Raise the run's fence, and return what was served last.

        Raises:
            FencedError: A newer fence, or an equal version with another nonce, stands.
            UnavailableError: The database does not answer, or an earlier call is still open.
        """

        def work(connection: Connection) -> Served | None:
            book = Book(self._database, connection)
            book.hold(run_id, fence)
            return book.served(run_id)

        try:
            return self._transacted(work, writes=True)
        except Trouble as trouble:
            raise meaning(trouble, run_id, is_repeatable=True) from trouble

    def observe(self, scope: Mapping[str, tuple[str, ...]]) -> Observation:
        """Return which database it is, and the digest of what `watch` sees; its rows as facts.

        Raises:
            ConfigError: The tables of receipts are missing, or `watch` does not fit.
            UnavailableError: The database does not answer.
        """

        def work(connection: Connection) -> Observation:
            state, rows = self._seen(Book(self._database, connection), connection)
            facts = {"watched": bounded(values.records(rows))} if self._watch else {}
            return Observation(state=state, facts=facts)

        try:
            return self._transacted(work, writes=False)
        except Trouble as trouble:
            raise meaning(trouble) from trouble

    def look_up(self, run_id: RunId, key: Key, kind: str) -> LookUp:
        """Say what is on record under a key; what cannot be asked now is unknown.

        Raises:
            FormatError: The tables of receipts are damaged.
        """
        try:
            return self._transacted(lambda each: self._on_record(each, run_id, key), writes=False)
        except Trouble as trouble:
            error = meaning(trouble, run_id, key)
            if isinstance(error, UnavailableError | ConfigError):
                return unknown(trouble.words)
            raise error from trouble
        except ConfigError as error:
            return unknown(error.message)

    def execute(self, operation: Operation) -> Receipt:
        """Run statements, a change once per key.

        Raises:
            ConfigError: A statement or the tables of receipts do not fit the database.
            ContractError: The kind is unknown or its arguments are out of contract.
            FencedError: The lease was followed by another.
            IdempotencyConflictError: The key holds another intent.
            PermissionDeniedError: The key is forbidden, or a statement is out of scope.
            RefusedError: A constraint of the database refuses the change.
            StaleObservationError: The state, or a row, is not the expected one.
            UnavailableError: Nothing happened, and it may be tried again.
            UnknownOutcomeError: The answer to COMMIT was lost; only a look-up can tell.
        """
        spec = self._specs.get(operation.kind)
        if spec is None:
            raise ContractError(f"{self._name} declares no kind {operation.kind!r:.80}")
        arguments = spec.normalise(operation.arguments)
        ends_at = monotonic() + min(operation.timeout_ms, spec.call_ms) / 1000
        work = self._change if spec.risk.writes else self._read
        try:
            return transact(
                self._database,
                lambda connection: work(connection, spec, operation, arguments),
                writes=spec.risk.writes,
                ends_at=ends_at,
            )
        except Trouble as trouble:
            raise meaning(trouble, operation.run_id, operation.key) from trouble

    def forbid(self, run_id: RunId, key: Key, kind: str, fence: Fence) -> LookUp:
        """Make the key impossible for the run unless it is done; return found or absent.

        Raises:
            FencedError: The fence is old.
            UnavailableError: The database does not answer, or an earlier call is still open.
        """

        def work(connection: Connection) -> LookUp:
            book = Book(self._database, connection)
            book.hold(run_id, fence)
            answer = self._on_record(connection, run_id, key)
            if answer.answer is not Answer.FOUND:
                book.forbid(run_id, key, fence, self._now_ms())
            return answer

        try:
            return self._transacted(work, writes=True)
        except Trouble as trouble:
            raise meaning(trouble, run_id, key, is_repeatable=True) from trouble

    def preview(self, kind: str, arguments: dict[str, Json]) -> str:
        """Return the statements with what they are given, as a text for people.

        Raises:
            ContractError: The kind is unknown or its arguments are out of contract.
        """
        spec = self._specs.get(kind)
        if spec is None:
            raise ContractError(f"{self._name} declares no kind {kind!r:.80}")
        return preview(spec.normalise(arguments), self._statements)

    def close(self) -> None:
        """Let go of idle connections; a second time does nothing."""
        self._database.close()

    def _transacted(self, work: Callable[[Connection], Outcome], *, writes: bool) -> Outcome:
        ends_at = monotonic() + self._call_ms / 1000
        return transact(self._database, work, writes=writes, ends_at=ends_at)

    def _on_record(self, connection: Connection, run_id: RunId, key: Key) -> LookUp:
        receipt = Book(self._database, connection).receipt(key)
        if receipt is None:
            return ABSENT
        if receipt.run_id != run_id:
            return LookUp(answer=Answer.FOUND_OTHER, receipt=receipt)
        return found(receipt)

    def _seen(self, book: Book, connection: Connection) -> tuple[EnvironmentState, Rows]:
        """Return the state as this transaction sees it, and the rows that are watched.

        Without a watch nothing of the content is seen, and the version says nothing.
        """
        standing = book.standing()
        state = EnvironmentState(
            adapter=self._name, instance=standing.instance, account=standing.account
        )
        if not self._watch:
            return state, Rows()
        rows = watched(connection, self._watch)
        fingerprint = values.fingerprint_of(rows)
        return replace(state, version=standing.version, fingerprint=fingerprint), rows

    def _read(
        self,
        connection: Connection,
        spec: KindSpec,
        operation: Operation,
        arguments: dict[str, Json],
    ) -> Receipt:
        book = Book(self._database, connection)
        book.check_fence(operation.run_id, operation.fence)
        self._check_scope(spec, operation, arguments)
        state, _ = self._seen(book, connection)
        known = self._statements[arguments["statement"]]
        is_check = "expected" in arguments
        run = checked if is_check else answered
        return Receipt(
            id="",
            adapter=self._name,
            kind=operation.kind,
            run_id=operation.run_id,
            key=Key(""),
            digest=operation.digest,
            level=spec.level,
            poststate=state,
            committed_at_ms=self._now_ms(),
            result=run(connection, known, arguments),
        )

    def _change(
        self,
        connection: Connection,
        spec: KindSpec,
        operation: Operation,
        arguments: dict[str, Json],
    ) -> Receipt:
        book = Book(self._database, connection)
        book.hold(operation.run_id, operation.fence)
        earlier = self._earlier(book, operation)
        if earlier is not None:
            return earlier
        self._check_scope(spec, operation, arguments)
        self._check_state(book, connection, operation)
        result = changed(connection, self._statements, arguments, operation)
        state, _ = self._seen(book, connection)
        committed_at_ms = self._now_ms()
        key_digest = digest(operation.key.encode())
        receipt = Receipt(
            id=f"{key_digest[:32]}-{committed_at_ms}",
            adapter=self._name,
            kind=operation.kind,
            run_id=operation.run_id,
            key=operation.key,
            digest=operation.digest,
            level=spec.level,
            poststate=state,
            committed_at_ms=committed_at_ms,
            served=operation.served,
            statement=operation.statement,
            result=bounded(result),
        )
        book.add_receipt(receipt, operation.fence)
        book.set_served(operation.run_id, operation.served)
        return receipt

    def _earlier(self, book: Book, operation: Operation) -> Receipt | None:
        """Return the receipt of this very intent; refuse a key that holds another."""
        receipt = book.receipt(operation.key)
        if receipt is None:
            if book.is_forbidden(operation.run_id, operation.key):
                raise PermissionDeniedError(
                    "the key was made impossible", operation.run_id, operation.key
                )
            return None
        for what, held, asked in (
            ("run", receipt.run_id, operation.run_id),
            ("intent", receipt.digest, operation.digest),
        ):
            if held != asked:
                raise IdempotencyConflictError(
                    f"the key holds the effect of another {what}", operation.run_id, operation.key
                )
        book.set_served(operation.run_id, operation.served)
        return replace(receipt, replayed=True)

    def _check_scope(
        self, spec: KindSpec, operation: Operation, arguments: dict[str, Json]
    ) -> None:
        for list_name, value in spec.touches(arguments):
            if value not in operation.scope.get(list_name, ()):
                raise PermissionDeniedError(
                    f"{value!r:.120} is outside {list_name} of {self._name}",
                    operation.run_id,
                    operation.key,
                )

    def _check_state(self, book: Book, connection: Connection, operation: Operation) -> None:
        """Refuse a change that was built on another state, and count it from here on.

        A state that nobody watches is compared by its identity alone.
        """
        state, _ = self._seen(book, connection)
        built_on = operation.prestate
        if not self._watch:
            built_on = replace(built_on, version=state.version, fingerprint=state.fingerprint)
        if state != built_on:
            raise StaleObservationError(
                f"{self._database.title} is at version {state.version}, the change was built on "
                f"version {built_on.version} of what may be another state",
                operation.run_id,
                operation.key,
            )
        if self._watch:
            book.count_effect()
