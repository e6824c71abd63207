"""One MCP server as the engine sees it: tools as kinds, and receipts by asking.

A tool is called once per call. Whatever goes wrong after its first byte was sent is
unknown, and the server is asked. The tools must be those that the intent was built on,
and those that were there when the adapter was opened.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress

from msgspec.structs import replace

from counterfoil.adapters.mcp import receipts
from counterfoil.adapters.mcp.declare import Server
from counterfoil.adapters.mcp.kinds import TOOLS, Kind, kinds_of
from counterfoil.adapters.mcp.listing import Listing, pinned
from counterfoil.adapters.mcp.loop import Loop
from counterfoil.adapters.mcp.site import Site, Visit
from counterfoil.core.canonical import canonical
from counterfoil.core.errors import (
    ContractError,
    CounterfoilError,
    PermissionDeniedError,
    RefusedError,
    StaleObservationError,
    UnavailableError,
    UnknownOutcomeError,
)
from counterfoil.core.intent import EnvironmentState, KindSpec
from counterfoil.core.receipt import Fence, LookUp, Receipt, Served, unknown
from counterfoil.core.words import Json, Key, RunId
from counterfoil.ports import Observation, Operation

OBSERVE_MS = 10_000
"""Longest look at an environment, and longest opening."""

CLOSE_SECONDS = 10.0
"""Longest end of all sessions; each server has one second to end by itself."""


class McpAdapter:
    """Tools of one server, each kind as it was declared.

    Args:
        server: The declaration.
        site: The server.
        loop: Where everything asynchronous happens; `close` ends it.
        listing: The tools as they were at the opening.
        now_ms: Clock for receipts of servers that name no time, UTC.
    """

    def __init__(
        self,
        server: Server,
        site: Site,
        loop: Loop,
        listing: Listing,
        *,
        now_ms: Callable[[], int],
    ) -> None:
        self._server = server
        self._site = site
        self._loop = loop
        self._listing = listing
        self._now_ms = now_ms
        self._kinds = kinds_of(server, listing)

    @property
    def name(self) -> str:
        """Name in intents, scopes and settings."""
        return self._server.name

    @property
    def kinds(self) -> tuple[KindSpec, ...]:
        """What was declared, with risks as high as the server says."""
        return tuple(kind.spec for kind in self._kinds.values())

    def take(self, run_id: RunId, fence: Fence) -> Served | None:
        """Keep nothing: no server of MCP knows of fences."""
        return None

    def observe(self, scope: Mapping[str, tuple[str, ...]]) -> Observation:
        """Return the environment as `watch` shows it; without one, its identity alone.

        What the server says of its tools is part of the identity.

        Raises:
            UnavailableError: It cannot be looked at.
        """
        return self._loop.run(self._observed(), OBSERVE_MS / 1000)

    def look_up(self, run_id: RunId, key: Key, kind: str) -> LookUp:
        """Ask the server for a receipt; what is not said in so many words is unknown."""
        known = self._kinds.get(kind)
        if known is None or known.tool.look_up is None or not receipts.is_askable(known.spec):
            return unknown(f"{kind!r:.80} of {self.name} has no look-up")
        try:
            return self._loop.run(self._looked_up(known, run_id, key), known.spec.call_ms / 1000)
        except (UnavailableError, UnknownOutcomeError, RefusedError) as error:
            return unknown(error.message)

    def execute(self, operation: Operation) -> Receipt:
        """Call a tool, once.

        Raises:
            ContractError: The kind is unknown or its arguments are out of contract.
            IdempotencyConflictError: The key holds another intent, or another run's.
            PermissionDeniedError: It is out of scope, the server refuses access, or the
                tools are no longer those that the adapter was opened with.
            StaleObservationError: The tools are not those that the intent was built on.
            RefusedError: The tool, or the server, says that nothing happened.
            UnavailableError: No byte of the call was sent.
            UnknownOutcomeError: It may have happened.
        """
        kind = self._kinds.get(operation.kind)
        if kind is None:
            raise ContractError(f"{self.name} declares no kind {operation.kind!r:.80}")
        given = replace(operation, arguments=kind.spec.normalise(operation.arguments))
        if kind.tool.tool not in operation.scope.get(TOOLS, ()):
            raise PermissionDeniedError(
                f"{kind.tool.tool!r:.80} is outside {TOOLS} of the scope",
                operation.run_id,
                operation.key,
            )
        executed = self._written if kind.spec.risk.writes else self._read
        try:
            return self._loop.run(executed(kind, given), given.timeout_ms / 1000)
        except CounterfoilError as error:
            raise type(error)(error.message, operation.run_id, operation.key, error.move) from error

    def forbid(self, run_id: RunId, key: Key, kind: str, fence: Fence) -> LookUp:
        """Say that no key can be made impossible."""
        return unknown(f"{self.name} cannot forbid a key of {kind!r:.80}")

    def preview(self, kind: str, arguments: dict[str, Json]) -> str:
        """Return the call that would be made, without what the adapter puts in, for people.

        Raises:
            ContractError: The kind is unknown or its arguments are out of contract.
        """
        known = self._kinds.get(kind)
        if known is None:
            raise ContractError(f"{self.name} declares no kind {kind!r:.80}")
        given = canonical(known.spec.normalise(arguments)).decode("utf-8")
        return f"{known.tool.tool} of {self._server.name}\n\n{given}"

    def close(self) -> None:
        """End the session, the server that was started for it, and the thread."""
        self._loop.close(self._site.close(), CLOSE_SECONDS)

    async def _observed(self) -> Observation:
        async with self._site.visit(OBSERVE_MS) as visit:
            return await self._seen(visit)

    async def _seen(self, visit: Visit) -> Observation:
        watch = self._server.watch
        if watch is None:
            return Observation(state=receipts.unseen(self._server, visit.listing))
        document = await _asked(visit, watch.tool, watch.arguments or {})
        return receipts.observed(self._server, watch, visit.listing, document)

    async def _poststate(self, visit: Visit) -> EnvironmentState:
        """Return the state after a call; unobservable when it cannot be seen any more."""
        with suppress(UnavailableError):
            return (await self._seen(visit)).state
        return receipts.unseen(self._server, visit.listing)

    async def _looked_up(self, kind: Kind, run_id: RunId, key: Key) -> LookUp:
        asked = kind.tool.look_up
        if asked is None:
            return unknown(f"{kind.spec.name} has no look-up")
        async with self._site.visit(kind.spec.call_ms) as visit:
            if visit.listing.pin != self._listing.pin:
                return unknown(f"the tools of {self.name} changed since it was opened")
            question = receipts.Question(
                asked=asked, tool=kind.tool, spec=kind.spec, run_id=run_id, key=key
            )
            document = await _asked(visit, asked.tool, question.arguments)
            return receipts.looked_up(question, document, await self._poststate(visit))

    async def _written(self, kind: Kind, operation: Operation) -> Receipt:
        tool = kind.tool
        async with self._site.visit(operation.timeout_ms) as visit:
            self._check_tools(visit.listing, operation)
            result = await visit.call(
                tool.tool,
                receipts.arguments_of(tool, operation),
                receipts.meta_of(operation),
                tool.refused_codes,
            )
            receipts.refuse_conflict(tool, result.document)
            if result.is_error:
                receipts.refuse_error(tool, kind.spec, result.texts)
            poststate = await self._poststate(visit)
        receipt = receipts.done(tool, kind.spec, result, poststate, operation)
        return replace(receipt, committed_at_ms=receipt.committed_at_ms or self._now_ms())

    async def _read(self, kind: Kind, operation: Operation) -> Receipt:
        tool = kind.tool
        async with self._site.visit(operation.timeout_ms) as visit:
            self._check_tools(visit.listing, operation)
            try:
                result = await visit.call(tool.tool, operation.arguments)
            except UnknownOutcomeError as error:
                raise UnavailableError(error.message) from error
            if result.is_error:
                receipts.refuse_error(tool, kind.spec, result.texts)
            poststate = await self._poststate(visit)
        receipt = receipts.read(tool, kind.spec, result, poststate, operation)
        return replace(receipt, committed_at_ms=self._now_ms())

    def _check_tools(self, listing: Listing, operation: Operation) -> None:
        if pinned(receipts.base_of(self._server), listing) != operation.prestate.instance:
            raise StaleObservationError(f"the tools of {self.name} are not those that were seen")
        if listing.pin != self._listing.pin:
            raise PermissionDeniedError(
                f"the tools of {self.name} changed since it was opened",
                move="have a person look at the tools, and open the server again",
            )


async def _asked(visit: Visit, tool: str, arguments: Mapping[str, Json]) -> Json:
    """Return the structured content of a read tool.

    Raises:
        UnavailableError: There is none.
    """
    try:
        result = await visit.call(tool, arguments)
    except (UnknownOutcomeError, RefusedError) as error:
        raise UnavailableError(f"{tool!r:.80} did not answer: {error.message}") from error
    if result.is_error or result.document is None:
        raise UnavailableError(f"{tool!r:.80} answered without structured content")
    return result.document


async def opened(server: Server, site: Site, loop: Loop, now_ms: Callable[[], int]) -> McpAdapter:
    """Return an adapter over the tools as they are.

    Raises:
        ConfigError: The server has no such tools.
        UnavailableError: The server does not answer.
    """
    async with site.visit(OBSERVE_MS) as visit:
        return McpAdapter(server, site, loop, visit.listing, now_ms=now_ms)
