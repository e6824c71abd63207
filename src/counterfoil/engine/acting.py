"""Calls of adapters, with every way they can end turned into a value or our own error.

An adapter is other people's code against other people's servers. What it raises on
purpose says that nothing happened; whatever else comes out of it means that nobody
knows, and unknown is never absent.
"""

import logging
from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from counterfoil.core.approval import statement_digest
from counterfoil.core.bounds import RESULT_BYTES_MAX
from counterfoil.core.canonical import decode, encode
from counterfoil.core.errors import (
    ConfigError,
    CounterfoilError,
    FencedError,
    FormatError,
    IdempotencyConflictError,
    IntegrityError,
    LeaseLostError,
    RefusedError,
    UnavailableError,
    UsageError,
)
from counterfoil.core.intent import EnvironmentState, KindSpec, Pending
from counterfoil.core.judge import Admitted
from counterfoil.core.receipt import Answer, Fence, LookUp, Receipt, Served, unknown
from counterfoil.core.task import Task
from counterfoil.core.words import IntentDigest, Json, Key, RunId
from counterfoil.engine.ledger import Ledger
from counterfoil.engine.parts import Parts
from counterfoil.ports import PREVIEW_CHARS_MAX, Adapter, Observation, Operation

log = logging.getLogger("counterfoil.engine")

RECEIPT_BYTES_MAX = 2 * RESULT_BYTES_MAX
"""A result at its bound, and names around it."""

LEASE_MARGIN_MS = 250
"""Time kept between the end of a call and the end of the lease."""


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """How a write call ended.

    Attributes:
        receipt: The effect is done.
        refusal: The adapter says that nothing happened and nothing will.
        conflict: The adapter says that the key holds another intent.
        is_unsent: The call never left.
        reason: Why the outcome is unknown, when it is neither of these.
    """

    receipt: Receipt | None = None
    refusal: CounterfoilError | None = None
    conflict: LookUp | None = None
    is_unsent: bool = False
    reason: str = ""


def adapter_of(parts: Parts, name: str) -> Adapter:
    """Return an adapter by name.

    Raises:
        ConfigError: It is not at hand.
    """
    adapter = parts.adapters.get(name)
    if adapter is None:
        raise ConfigError(f"adapter {name} is not at hand", move="name the app that declares it")
    return adapter


def fence_of(ledger: Ledger) -> Fence:
    """Return the token of the lease that the ledger holds."""
    return Fence(lease_version=ledger.head.lease_version, nonce=ledger.head.nonce)


def scope_of(task: Task, adapter: str) -> Mapping[str, tuple[str, ...]]:
    """Return the policy's lists for one adapter."""
    return task.policy.scope.get(adapter, {})


def ensure_time(ledger: Ledger, call_ms: int) -> None:
    """Make sure that a call cannot outlast the lease.

    Raises:
        LeaseLostError: The lease is lost, or its whole term is shorter than the call.
    """
    needed_ms = call_ms + LEASE_MARGIN_MS
    clock = ledger.parts.clock
    if ledger.lease.left_ms(clock.monotonic_ms()) >= needed_ms:
        return
    ledger.renew()
    left_ms = ledger.lease.left_ms(clock.monotonic_ms())
    if left_ms < needed_ms:
        raise LeaseLostError(
            f"{left_ms} ms are left on the lease, the call may take {call_ms} ms",
            ledger.run.run_id,
            move="set a longer lease or a shorter time limit for this kind",
        )


def _call_ms(parts: Parts, kind: str) -> int:
    """Return how long a call about a kind may take; 0 for one that is not declared any more."""
    spec = parts.kinds.get(kind)
    return 0 if spec is None else spec.call_ms


def execute(
    ledger: Ledger, task: Task, pending: Pending, spec: KindSpec, volatile: Mapping[str, Json]
) -> Ended:
    """Call the adapter for a pending write.

    Raises:
        LostRaceError: The lease is over, or the adapter has seen a newer one.
        IntegrityError: The adapter found its own records broken.
    """
    ensure_time(ledger, spec.call_ms)
    adapter = adapter_of(ledger.parts, spec.adapter)
    operation = Operation(
        run_id=ledger.run.run_id,
        kind=spec.name,
        arguments={**pending.intent.arguments, **volatile},
        key=pending.key,
        digest=pending.digest,
        fence=fence_of(ledger),
        served=Served(generation=ledger.head.generation, checkpoint=ledger.head.checkpoint),
        prestate=pending.prestate,
        scope=scope_of(task, spec.adapter),
        timeout_ms=spec.call_ms,
        statement=statement_digest(pending.approvals),
    )
    try:
        return Ended(receipt=_placed(adapter.execute(operation), pending))
    except (FencedError, IntegrityError):
        raise
    except IdempotencyConflictError as error:
        held = look_up(ledger, pending).receipt
        answer = LookUp(answer=Answer.FOUND_OTHER, receipt=held, reason=error.message)
        return Ended(conflict=answer)
    except (UsageError, RefusedError) as error:
        return Ended(refusal=_named(error, ledger, pending.key))
    except UnavailableError as error:
        return Ended(is_unsent=True, reason=error.message)
    except Exception as error:  # whatever else an adapter raises: the outcome is unknown
        log.warning("run %s: call ended without an answer: %s", ledger.run.run_id, _kind(error))
        return Ended(reason=f"the call ended with {_kind(error)}")


def _placed(receipt: Receipt, pending: Pending) -> Receipt:
    """Return the receipt as it can be kept.

    A state that cannot be observed gets a counted version. A receipt that could not be
    read again loses its id, so that it becomes a case and not a run that cannot go on.
    """
    try:
        decode(encode(receipt), Receipt, "receipt", bytes_max=RECEIPT_BYTES_MAX)
    except (FormatError, UsageError) as error:
        return _unreadable(pending, error.message)
    state = receipt.poststate
    if state.fingerprint:
        return receipt
    counted = replace(state, version=pending.prestate.version + 1)
    return replace(receipt, poststate=counted)


def _unreadable(pending: Pending, why: str) -> Receipt:
    return Receipt(
        id="",
        adapter=pending.intent.adapter,
        kind=pending.intent.kind,
        run_id=RunId(""),
        key=Key(""),
        digest=IntentDigest(""),
        level=pending.level,
        poststate=pending.prestate,
        committed_at_ms=0,
        result={"unreadable": why},
    )


def _placed_answer(answer: LookUp, pending: Pending) -> LookUp:
    if answer.receipt is None:
        return answer
    return replace(answer, receipt=_placed(answer.receipt, pending))


def _named(error: CounterfoilError, ledger: Ledger, key: Key) -> CounterfoilError:
    return type(error)(error.message, ledger.run.run_id, key, error.move)


def _kind(error: Exception) -> str:
    return type(error).__name__


def perform(ledger: Ledger, task: Task, admitted: Admitted) -> Receipt:
    """Call the adapter for an admitted read or verification.

    Raises:
        CounterfoilError: What the adapter said; anything else it raised becomes
            `UnavailableError`, since a read changes nothing.
    """
    spec = admitted.spec
    ensure_time(ledger, spec.call_ms)
    operation = Operation(
        run_id=ledger.run.run_id,
        kind=spec.name,
        arguments={**admitted.intent.arguments, **admitted.volatile},
        key=Key(""),
        digest=admitted.digest,
        fence=fence_of(ledger),
        served=None,
        prestate=admitted.prestate,
        scope=scope_of(task, spec.adapter),
        timeout_ms=spec.call_ms,
    )
    try:
        return adapter_of(ledger.parts, spec.adapter).execute(operation)
    except CounterfoilError as error:
        raise _named(error, ledger, Key("")) from error
    except Exception as error:  # a read changes nothing: whatever it raises is a failed read
        raise UnavailableError(
            f"{spec.name} ended with {_kind(error)}: {error!s:.200}", ledger.run.run_id
        ) from error


def look_up(ledger: Ledger, pending: Pending) -> LookUp:
    """Ask the adapter by key; every failure to answer is `unknown`.

    Raises:
        LostRaceError: The lease is over.
        IntegrityError: The adapter found its own records broken.
    """
    ensure_time(ledger, _call_ms(ledger.parts, pending.intent.kind))
    adapter = adapter_of(ledger.parts, pending.intent.adapter)
    try:
        answer = adapter.look_up(ledger.run.run_id, pending.key, pending.intent.kind)
        return _placed_answer(answer, pending)
    except IntegrityError:
        raise
    except Exception as error:  # an answer that did not come says nothing: unknown
        return unknown(f"the look-up ended with {_kind(error)}")


def forbid(ledger: Ledger, pending: Pending) -> LookUp:
    """Have the adapter make the key impossible; a failure to answer is `unknown`.

    Raises:
        LostRaceError: The lease is over, or the adapter has seen a newer one.
        IntegrityError: The adapter found its own records broken.
    """
    ensure_time(ledger, _call_ms(ledger.parts, pending.intent.kind))
    adapter = adapter_of(ledger.parts, pending.intent.adapter)
    try:
        fence = fence_of(ledger)
        answer = adapter.forbid(ledger.run.run_id, pending.key, pending.intent.kind, fence)
        return _placed_answer(answer, pending)
    except (FencedError, IntegrityError):
        raise
    except Exception as error:  # an answer that did not come says nothing: unknown
        return unknown(f"forbidding the key ended with {_kind(error)}")


def preview(parts: Parts, adapter: str, kind: str, arguments: dict[str, Json]) -> str:
    """Return what a write would change, for people; empty where it cannot be shown."""
    shows = getattr(parts.adapters.get(adapter), "preview", None)
    if shows is None:
        return ""
    try:
        return str(shows(kind, arguments))[:PREVIEW_CHARS_MAX]
    except CounterfoilError as error:
        return f"no preview: {error.message}"


def take(ledger: Ledger, name: str) -> Served | None:
    """Raise the fence at one adapter, and return what it served last.

    Raises:
        FencedError: It has seen a newer lease.
        UnavailableError: It did not answer, so the fence may not stand.
        LeaseLostError: The lease is over.
    """
    adapter = adapter_of(ledger.parts, name)
    ensure_time(ledger, 0)  # a fence that comes late is refused, or bars nobody
    try:
        return adapter.take(ledger.run.run_id, fence_of(ledger))
    except CounterfoilError:
        raise
    except Exception as error:  # no answer, whatever the reason
        raise UnavailableError(
            f"{name} did not take the fence: {_kind(error)}", ledger.run.run_id
        ) from error


def observe(parts: Parts, task: Task, name: str) -> Observation:
    """Look at one environment.

    Raises:
        UnavailableError: It cannot be looked at.
        CounterfoilError: What the adapter said.
    """
    try:
        seen = adapter_of(parts, name).observe(scope_of(task, name))
    except CounterfoilError:
        raise
    except Exception as error:  # no observation, whatever the reason
        raise UnavailableError(f"{name} cannot be observed: {_kind(error)}") from error
    return seen


def merged(recorded: EnvironmentState | None, seen: EnvironmentState) -> EnvironmentState:
    """Return what was seen; an unobservable state keeps the version that the run counts."""
    if seen.fingerprint or recorded is None:
        return seen
    if (recorded.instance, recorded.account) != (seen.instance, seen.account):
        return seen
    return recorded
