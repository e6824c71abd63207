"""What results say: receipts, observations, refusals. Whatever a server says is data.

Absent is only what it says in so many words: a place for a receipt that is there and
empty. A receipt is an object that holds all that was declared of it. Everything else is
unknown, an error that a tool reports too, unless it was declared to be final.
"""

from dataclasses import dataclass

from msgspec.structs import replace

from counterfoil.adapters.mcp.declare import Ask, Fields, Http, Server, Tool, Watch
from counterfoil.adapters.mcp.listing import Listing, pinned
from counterfoil.adapters.mcp.pointer import fits, is_empty_at
from counterfoil.adapters.mcp.site import Result
from counterfoil.core.canonical import bounded, canonical, digest, storable
from counterfoil.core.errors import (
    IdempotencyConflictError,
    RefusedError,
    UnavailableError,
    UnknownOutcomeError,
)
from counterfoil.core.intent import EnvironmentState, KindSpec
from counterfoil.core.receipt import ABSENT, LookUp, Receipt, found, unknown
from counterfoil.core.receipt import Answer as Said
from counterfoil.core.words import IntentDigest, Json, Key, Level, RunId
from counterfoil.pointers import at, moment_at, text_at
from counterfoil.ports import Observation, Operation

QUOTED_CHARS_MAX = 200
"""Of the words of a tool, so much stands in an error."""

KEY, INTENT, RUN, FENCE = (
    "counterfoil/key",
    "counterfoil/intent",
    "counterfoil/run",
    "counterfoil/fence",
)
"""Names under which a call carries its evidence in `_meta`."""


def meta_of(operation: Operation) -> dict[str, Json]:
    """Return what a write carries beside its arguments."""
    fence = operation.fence
    return {
        KEY: operation.key,
        INTENT: operation.digest,
        RUN: operation.run_id,
        FENCE: {"lease_version": fence.lease_version, "nonce": fence.nonce},
    }


def arguments_of(tool: Tool, operation: Operation) -> dict[str, Json]:
    """Return the arguments of a call, with its marks."""
    texts = {"key": operation.key, "run": operation.run_id, "digest": operation.digest}
    marks = {name: texts[mark] for name, mark in (tool.marks or {}).items()}
    return {**operation.arguments, **marks}


def base_of(server: Server) -> str:
    """Return the identity of a server, whatever it says of its tools."""
    address = server.reach.url if isinstance(server.reach, Http) else f"mcp:{server.name}"
    return server.instance or address


def unseen(server: Server, listing: Listing) -> EnvironmentState:
    """Return the state of an environment of which the identity alone is known."""
    return EnvironmentState(
        adapter=server.name, instance=pinned(base_of(server), listing), account=server.account
    )


def observed(server: Server, watch: Watch, listing: Listing, document: Json) -> Observation:
    """Return the environment as its watch shows it; the fact `answer` is what it showed.

    Raises:
        UnavailableError: It does not show what it should.
    """
    value = at(document, watch.version)
    is_number = isinstance(value, int) and not isinstance(value, bool)
    version = value if is_number else moment_at(document, watch.version)
    shown = text_at(document, watch.fingerprint) if watch.fingerprint else _digest(document)
    account = text_at(document, watch.account) if watch.account else server.account
    if (not is_number and not version) or not shown or (watch.account and not account):
        raise UnavailableError(f"{watch.tool} shows no version, no fingerprint or no account")
    state = replace(
        unseen(server, listing), version=version, fingerprint=_short(shown), account=account
    )
    return Observation(state=state, facts={"answer": bounded(document)})


def receipt_of(
    spec: KindSpec, fields: Fields, document: Json, poststate: EnvironmentState, key: Key
) -> Receipt:
    """Return the receipt of an effect, with what the server shows of it."""
    return Receipt(
        id=text_at(document, fields.id) if fields.id else key,
        adapter=spec.adapter,
        kind=spec.name,
        run_id=RunId(text_at(document, fields.run)),
        key=key,
        digest=IntentDigest(text_at(document, fields.digest)),
        level=spec.level,
        poststate=poststate,
        committed_at_ms=moment_at(document, fields.committed_at),
        result=bounded(document),
    )


def flaw_of(fields: Fields, shown: Json, key: Key) -> str:
    """Return what keeps a value from being the receipt of a key; empty when nothing does."""
    if not isinstance(shown, dict) or not shown:
        return "no receipt"
    for name in Fields.__annotations__:
        pointer: str = getattr(fields, name)
        held = moment_at(shown, pointer) if name == "committed_at" else text_at(shown, pointer)
        if pointer and not held:
            return f"a receipt that holds no {name}"
    if fields.key and text_at(shown, fields.key) != key:
        return "the receipt of another key"
    return ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """A look-up: with what it is asked, of which kind, and for whose key."""

    asked: Ask
    tool: Tool
    spec: KindSpec
    run_id: RunId
    key: Key

    @property
    def arguments(self) -> dict[str, Json]:
        """The arguments of the look-up, with its marks."""
        texts = {"key": self.key, "run": self.run_id}
        marks = {name: texts[mark] for name, mark in self.asked.marks.items()}
        return {**(self.asked.arguments or {}), **marks}


def looked_up(question: Question, document: Json, state: EnvironmentState) -> LookUp:
    """Return what the answer to a look-up says of a key."""
    asked, tool, spec = question.asked, question.tool, question.spec
    run_id, key = question.run_id, question.key
    if is_empty_at(document, asked.receipt, is_missing_empty=asked.is_missing_absent):
        return ABSENT
    shown = at(document, asked.receipt)
    if flaw := flaw_of(tool.fields, shown, key):
        return unknown(f"the look-up shows {flaw}")
    receipt = receipt_of(spec, tool.fields, shown, state, key)
    if not tool.fields.run:
        receipt = replace(receipt, run_id=run_id)
    if receipt.run_id != run_id:
        return LookUp(answer=Said.FOUND_OTHER, receipt=receipt)
    return found(receipt)


def done(
    tool: Tool, spec: KindSpec, result: Result, poststate: EnvironmentState, operation: Operation
) -> Receipt:
    """Return the receipt that stands in the answer to the call itself.

    Raises:
        IdempotencyConflictError: It is of another run, or of another intent.
        UnknownOutcomeError: It is not there, or is of another key.
    """
    shown, fields = result.shown, tool.fields
    if tool.answer or fields != Fields():
        shown = at(result.document, tool.answer)
        if flaw := flaw_of(fields, shown, operation.key):
            raise UnknownOutcomeError(f"{tool.name} was answered with {flaw}")
    receipt = receipt_of(spec, fields, shown, poststate, operation.key)
    for what, held, wanted in (
        ("run", receipt.run_id or operation.run_id, operation.run_id),
        ("intent", receipt.digest or operation.digest, operation.digest),
    ):
        if held != wanted:
            raise IdempotencyConflictError(f"the key holds the effect of another {what}")
    return replace(
        receipt,
        run_id=operation.run_id,
        served=operation.served,
        statement=operation.statement,
        replayed=tool.replayed is not None and fits(tool.replayed, result.document),
    )


def read(
    tool: Tool, spec: KindSpec, result: Result, poststate: EnvironmentState, operation: Operation
) -> Receipt:
    """Return what a read or a verification gave; what is not structured passes nothing."""
    given = result.shown
    if tool.passes is not None:
        given = {"passed": fits(tool.passes, result.document), "answer": given}
    return Receipt(
        id="",
        adapter=spec.adapter,
        kind=spec.name,
        run_id=operation.run_id,
        key=Key(""),
        digest=operation.digest,
        level=spec.level,
        poststate=poststate,
        committed_at_ms=0,
        result=bounded(given),
    )


def refuse_error(tool: Tool, spec: KindSpec, texts: Json) -> None:
    """Raise what follows from an error that a tool reports of itself.

    Raises:
        RefusedError: It was a read, or was declared to be final.
        UnknownOutcomeError: It may have happened.
    """
    said = " ".join(text_at(block, "/text") for block in texts)
    if tool.is_error_final or not spec.risk.writes:
        raise RefusedError(
            f"{tool.name} is refused by its tool, which says {said[:QUOTED_CHARS_MAX]!r}"
        )
    raise UnknownOutcomeError(
        f"{tool.name} ended with an error of its tool, which does not say what happened"
    )


def refuse_conflict(tool: Tool, document: Json) -> None:
    """Raise that a key holds another call, where the server says so.

    Raises:
        IdempotencyConflictError: It says so.
    """
    if tool.conflict is not None and fits(tool.conflict, document):
        raise IdempotencyConflictError("the server holds another call under the key")


def is_askable(spec: KindSpec) -> bool:
    """Return whether a look-up can say anything at all."""
    return spec.risk.writes and spec.level is not Level.BLIND


def _digest(document: Json) -> str:
    return digest(canonical(storable(document)))


def _short(text: str) -> str:
    return text if len(text) <= QUOTED_CHARS_MAX and text.isprintable() else _digest(text)
