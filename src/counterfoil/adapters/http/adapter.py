"""One service of HTTP as the engine sees it: requests with keys, and receipts by asking.

A request is sent once per call. Whatever goes wrong after its first byte is unknown, and
the service is asked. Level, look-up and key retention are as they were declared.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress

from msgspec.structs import replace

from counterfoil.adapters.http import meaning as meanings
from counterfoil.adapters.http import receipts
from counterfoil.adapters.http.asking import Site, Wanted, call_request
from counterfoil.adapters.http.declare import Meaning, Service
from counterfoil.adapters.http.kinds import Kind, address_of, has_body, kinds_of
from counterfoil.adapters.http.questions import asked, lacks_marks, receipt_of, watched
from counterfoil.adapters.http.wire import Answer, Deadline, Exchange, deadline_in
from counterfoil.core.canonical import bounded, canonical
from counterfoil.core.errors import (
    ConfigError,
    ContractError,
    CounterfoilError,
    IdempotencyConflictError,
    PermissionDeniedError,
    UnavailableError,
    UnknownOutcomeError,
)
from counterfoil.core.intent import EnvironmentState, KindSpec
from counterfoil.core.receipt import Answer as Said
from counterfoil.core.receipt import Fence, LookUp, Receipt, Served, unknown
from counterfoil.core.task import PATHS, covers
from counterfoil.core.words import Json, Key, RunId
from counterfoil.pointers import at
from counterfoil.ports import Observation, Operation

ASK_AGAIN_SECONDS = 0.1
ASK_AGAIN_SECONDS_MAX = 1.0
"""Between two look-ups while the first call under a key is under way; it doubles."""


class HttpAdapter:
    """Requests to one service, each kind as it was declared.

    Args:
        service: The declaration.
        exchange: Makes exchanges; `close` lets go of it.
        now_ms: Clock for receipts of services that name no time, UTC.
        pause: Waits for so many seconds, between two look-ups.
    """

    def __init__(
        self,
        service: Service,
        exchange: Exchange,
        *,
        now_ms: Callable[[], int],
        pause: Callable[[float], None],
    ) -> None:
        self._service = service
        self._site = Site(service=service, exchange=exchange)
        self._now_ms = now_ms
        self._pause = pause
        self._kinds = kinds_of(service)
        origins = sorted({kind.url.origin for kind in self._kinds.values()} - {""})
        self._instance = service.instance or " ".join(origins)[:200] or f"http:{service.name}"
        self._place: receipts.Place | None = None

    @property
    def name(self) -> str:
        """Name in intents, scopes and settings."""
        return self._service.name

    @property
    def kinds(self) -> tuple[KindSpec, ...]:
        """What was declared."""
        return tuple(kind.spec for kind in self._kinds.values())

    def take(self, run_id: RunId, fence: Fence) -> Served | None:
        """Raise the run's fence where the service keeps receipts.

        Raises:
            FencedError: A newer fence, or an equal version with another nonce, stands.
            UnavailableError: The service does not say, so the fence may not stand.
        """
        if not self._service.receipts:
            return None
        try:
            return receipts.take(self._site, run_id, fence, deadline_in(self._service.ask_ms))
        except (UnknownOutcomeError, PermissionDeniedError) as error:
            raise UnavailableError(f"the fence was not raised: {error.message}", run_id) from error

    def observe(self, scope: Mapping[str, tuple[str, ...]]) -> Observation:
        """Return the environment as `watch` shows it; without one, its identity alone.

        The fact `answer` is what was answered. Where the service keeps receipts, its
        journal is part of the instance, and the client that it knows is the account.

        Raises:
            ConfigError: The receipts of the service hold less than was declared.
            UnavailableError: It cannot be looked at.
        """
        return self._look(deadline_in(self._service.ask_ms))

    def look_up(self, run_id: RunId, key: Key, kind: str) -> LookUp:
        """Ask the service for a receipt; what is not said in so many words is unknown."""
        known = self._kinds.get(kind)
        if known is None:
            return unknown(f"{self.name} declares no kind {kind!r:.80}")
        deadline = deadline_in(known.spec.call_ms)
        return self._ask(Wanted(kind=known, run_id=run_id, key=key, deadline=deadline))

    def execute(self, operation: Operation) -> Receipt:
        """Send a request, once.

        Raises:
            ContractError: The kind is unknown or its arguments are out of contract.
            ConfigError: The receipts of the service hold less than was declared; nothing
                happened.
            FencedError: The service knows a newer lease.
            IdempotencyConflictError: The key holds another request, intent or run.
            PermissionDeniedError: It is out of scope, leads to an address that may not
                be called, or the service refuses access.
            StaleObservationError: The service compared `If-Match`, and it moved.
            RefusedError: The service says that nothing happened, or the state it is built
                on has no ETag to send.
            UnavailableError: No byte was sent, or the service puts it off.
            UnknownOutcomeError: It may have happened.
        """
        kind = self._kinds.get(operation.kind)
        if kind is None:
            raise ContractError(f"{self.name} declares no kind {operation.kind!r:.80}")
        arguments = kind.spec.normalise(operation.arguments)
        _check_scope(kind, operation, arguments)
        deadline = deadline_in(operation.timeout_ms)
        try:
            if not kind.spec.risk.writes:
                return self._read(kind, operation, deadline)
            return self._write(kind, operation, deadline)
        except CounterfoilError as error:
            raise type(error)(error.message, operation.run_id, operation.key, error.move) from error

    def forbid(self, run_id: RunId, key: Key, kind: str, fence: Fence) -> LookUp:
        """Have the service make the key impossible unless it is done.

        Raises:
            FencedError: The fence is old.
        """
        known = self._kinds.get(kind)
        if known is None or not known.spec.forbids:
            return unknown(f"{self.name} cannot forbid a key of {kind!r:.80}")
        deadline = deadline_in(known.spec.call_ms)
        wanted = Wanted(kind=known, run_id=run_id, key=key, deadline=deadline)
        try:
            place = self._place or self._described(deadline)
            return receipts.forbid(
                self._site, wanted, fence, place, lambda: self._look(deadline).state
            )
        except (ConfigError, UnavailableError, UnknownOutcomeError, PermissionDeniedError) as error:
            return unknown(error.message)

    def preview(self, kind: str, arguments: dict[str, Json]) -> str:
        """Return the request that would be sent, without its headers, for people.

        Raises:
            ContractError: The kind is unknown or its arguments are out of contract.
        """
        known = self._kinds.get(kind)
        if known is None:
            raise ContractError(f"{self.name} declares no kind {kind!r:.80}")
        given = known.spec.normalise(arguments)
        line = f"{known.endpoint.method} {address_of(known, given)}"
        body = given.get("body")
        if not has_body(known.endpoint) or body is None:
            return line
        return f"{line}\n\n{canonical(body).decode('utf-8')}"

    def close(self) -> None:
        """Let go of the client; a second time does nothing."""
        self._site.exchange.client.close()

    def _write(self, kind: Kind, operation: Operation, deadline: Deadline) -> Receipt:
        if kind.spec.forbids and self._place is None:
            self._described(deadline)  # what does not hold is refused before it is sent
        commits = receipts.HOLDING[kind.spec.level] if kind.spec.forbids else ()
        request = call_request(self._service, kind, operation, deadline, commits=commits)
        answer = self._site.exchange.send(request, deadline)
        is_recorded = meanings.RECEIPT in answer.headers if kind.spec.forbids else None
        meaning = meanings.meaning_of(kind.endpoint, answer, is_recorded=is_recorded)
        wanted = Wanted(kind=kind, run_id=operation.run_id, key=operation.key, deadline=deadline)
        if meaning is Meaning.IN_FLIGHT:
            return self._earlier(self._awaited(wanted), operation)
        if meaning is not Meaning.DONE:
            meanings.raise_for(kind.endpoint, answer, meaning)
        is_replay = meanings.is_replay(kind.endpoint, answer)
        if not kind.spec.forbids:
            return replace(self._shown(wanted, operation, answer), replayed=is_replay)
        if is_replay:
            return self._earlier(self._ask(wanted), operation)
        return self._recorded(wanted, operation, answer)

    def _shown(self, wanted: Wanted, operation: Operation, answer: Answer) -> Receipt:
        """Return the receipt that stands in the answer itself."""
        endpoint = wanted.kind.endpoint
        document = at(meanings.document_of(answer), endpoint.answer)
        poststate = self._poststate(operation, wanted.deadline)
        receipt = receipt_of(self._service, wanted, document, poststate)
        says = meanings.shown(endpoint.fields, document, "")
        if not receipt.id or lacks_marks(endpoint, says):
            raise UnknownOutcomeError(f"{endpoint.name} was answered without its receipt")
        _check_ours(receipt, operation)
        return replace(
            receipt,
            committed_at_ms=receipt.committed_at_ms or self._now_ms(),
            served=operation.served,
            statement=operation.statement,
        )

    def _recorded(self, wanted: Wanted, operation: Operation, answer: Answer) -> Receipt:
        """Return the receipt that the service says it has just recorded."""
        kind = wanted.kind
        committed = answer.headers.get("counterfoil-committed-at", "")
        if not (committed.isascii() and committed.isdigit() and len(committed) <= 15):
            raise UnknownOutcomeError(f"{kind.spec.name} was answered without a commit time")
        return Receipt(
            id=answer.headers[meanings.RECEIPT],
            adapter=self.name,
            kind=kind.spec.name,
            run_id=operation.run_id,
            key=operation.key,
            digest=operation.digest,
            level=receipts.level_shown(kind.spec, answer.headers.get(meanings.COMMITS, "")),
            poststate=self._poststate(operation, wanted.deadline),
            committed_at_ms=int(committed),
            served=operation.served,
            statement=operation.statement,
            result=bounded(meanings.document_of(answer)),
        )

    def _awaited(self, wanted: Wanted) -> LookUp:
        """Ask until the first call under the key is over; nothing is sent again."""
        answer = unknown("the first call under the key is still under way")
        pause = ASK_AGAIN_SECONDS
        while wanted.kind.spec.has_look_up and wanted.deadline.left() > pause:
            self._pause(pause)
            pause = min(2 * pause, ASK_AGAIN_SECONDS_MAX)
            answer = self._ask(wanted)
            if answer.answer in (Said.FOUND, Said.FOUND_OTHER):
                break
        return answer

    def _earlier(self, answer: LookUp, operation: Operation) -> Receipt:
        """Return the receipt of the effect that a repeated key has earned."""
        if answer.receipt is None:
            why = answer.reason or "the service shows no receipt of it"
            raise UnknownOutcomeError(f"an earlier call was made under the key: {why}")
        if answer.answer is Said.FOUND_OTHER:
            raise IdempotencyConflictError("the key holds the effect of another run")
        if not answer.receipt.id:
            raise UnknownOutcomeError("the service keeps an answer that proves nothing")
        _check_ours(answer.receipt, operation)
        return replace(answer.receipt, replayed=True)

    def _read(self, kind: Kind, operation: Operation, deadline: Deadline) -> Receipt:
        request = call_request(self._service, kind, operation, deadline)
        try:
            answer = self._site.exchange.send(request, deadline)
        except UnknownOutcomeError as error:
            raise UnavailableError(error.message) from error
        return Receipt(
            id="",
            adapter=self.name,
            kind=kind.spec.name,
            run_id=operation.run_id,
            key=Key(""),
            digest=operation.digest,
            level=kind.spec.level,
            poststate=self._poststate(operation, deadline),
            committed_at_ms=self._now_ms(),
            result=bounded(meanings.read_result(kind.endpoint, answer)),
        )

    def _ask(self, wanted: Wanted) -> LookUp:
        try:
            find = receipts.look_up if wanted.kind.spec.forbids else asked
            return find(self._site, wanted, lambda: self._look(wanted.deadline).state)
        except (ConfigError, UnavailableError, UnknownOutcomeError, PermissionDeniedError) as error:
            return unknown(error.message)

    def _look(self, deadline: Deadline) -> Observation:
        service, instance, account = self._service, self._instance, self._service.account
        try:
            if service.receipts:
                place = self._described(deadline)
                instance = f"{service.instance} {place.instance}".lstrip()
                account = place.client
            known = EnvironmentState(adapter=self.name, instance=instance, account=account)
            return watched(self._site, deadline, known)
        except (UnknownOutcomeError, PermissionDeniedError) as error:
            raise UnavailableError(f"{self.name} cannot be observed: {error.message}") from error

    def _described(self, deadline: Deadline) -> receipts.Place:
        """Return what the service says of its receipts, which hold what was declared."""
        try:
            place = receipts.described(self._site, deadline)
        except (UnknownOutcomeError, PermissionDeniedError) as error:
            raise UnavailableError(f"{self.name} cannot be observed: {error.message}") from error
        receipts.check_held(self._kinds.values(), place)
        self._place = place
        return place

    def _poststate(self, operation: Operation, deadline: Deadline) -> EnvironmentState:
        """Return the state after a call; unobservable when it cannot be seen any more."""
        if self._service.watch is not None:
            with suppress(ConfigError, UnavailableError):
                return self._look(deadline).state
        return replace(operation.prestate, version=0, fingerprint="")


def _check_scope(kind: Kind, operation: Operation, arguments: dict[str, Json]) -> None:
    for name, value in kind.spec.touches(arguments):
        entries = operation.scope.get(name, ())
        is_covered = value in entries
        if name == PATHS:
            is_covered = any(covers(entry, value) for entry in entries)
        if not is_covered:
            raise PermissionDeniedError(
                f"{value!r:.200} is outside {name} of the scope", operation.run_id, operation.key
            )


def _check_ours(receipt: Receipt, operation: Operation) -> None:
    for what, held, wanted in (
        ("run", receipt.run_id, operation.run_id),
        ("intent", receipt.digest or operation.digest, operation.digest),
    ):
        if held != wanted:
            raise IdempotencyConflictError(f"the key holds the effect of another {what}")
