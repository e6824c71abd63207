"""What the trace already knows: the recorded outcome of a position or a key.

A row counts only if it is genuine and on the chain of the head. A worker that lost a
race may have left a row of its own, but nobody ever built on it: a row below the head
is on the chain exactly when a genuine row names it as its predecessor.
"""

from counterfoil.core import codec
from counterfoil.core.canonical import encode
from counterfoil.core.codec import Checkpoint, Header
from counterfoil.core.errors import (
    ContractError,
    IdempotencyConflictError,
    IntegrityError,
    RollbackError,
)
from counterfoil.core.intent import Intent, intent_digest
from counterfoil.core.judge import form_intent
from counterfoil.core.run import Run, environment_of
from counterfoil.core.trace import Event, position_name, settles
from counterfoil.core.words import IntentDigest, Json
from counterfoil.engine.filing import Answers, find_archive
from counterfoil.engine.ledger import Ledger
from counterfoil.ports import FOUND_MAX

OTHER_PROGRAM = "start the program that the run was started with, or abort the run"

INTENT_BEFORE_RECEIPT_MAX = 16
"""Generations between an intent and its receipt: the intent, and every resending."""


def recorded_event(ledger: Ledger, name: str) -> Event | None:
    """Return the event that settled a key or position (`position_name`), or None.

    Raises:
        IntegrityError: The row that the index names cannot be believed.
    """
    staged = ledger.staged_event(name)
    if staged is not None:
        return staged
    for row in ledger.parts.store.find(ledger.head.run_id, name):
        header = _on_chain(ledger, row)
        if header is None:
            continue
        for event in codec.open_events(row, header):
            if settles(event, name):
                return event
    answers = _answers(ledger)
    return answers.event(name) if answers else None


def settled_event(ledger: Ledger, position: int) -> Event:
    """Return the event that settled a position below the cursor.

    Raises:
        RollbackError: The store does not hold it.
    """
    event = recorded_event(ledger, position_name(position))
    if event is None:
        raise RollbackError(f"the store lacks the event of position {position}", ledger.run.run_id)
    return event


def recorded_intent(ledger: Ledger, event: Event) -> Intent | None:
    """Return the intent behind a settled event, for people: it stands shortly before."""
    for row in ledger.parts.store.find(ledger.head.run_id, event.key) if event.key else ():
        after = max(-1, row.generation - INTENT_BEFORE_RECEIPT_MAX)
        for near in ledger.parts.store.trace(
            ledger.head.run_id, after, 2 * INTENT_BEFORE_RECEIPT_MAX
        ):
            header = _on_chain(ledger, near)
            if header is None:
                continue
            for other in codec.open_events(near, header):
                if other.intent is not None and other.key == event.key:
                    return other.intent
    answers = _answers(ledger)
    earlier = answers.intent_event(event.key) if answers else None
    return earlier.intent if earlier else None


def _answers(ledger: Ledger) -> Answers | None:
    """Return what the archive of a finished run knows, if it was collected."""
    if ledger.archived is None:
        archive = find_archive(ledger.parts, ledger.head)
        if archive is not None:
            ledger.archived = Answers(parts=ledger.parts, archive=archive)
    return ledger.archived


def _on_chain(ledger: Ledger, row: Checkpoint) -> Header | None:
    """Return the header of a row on the head's chain; None for leftovers."""
    head = ledger.head
    if row.generation > head.generation:
        return None
    header = codec.open_header(row, ledger.parts.seals.verifiers)
    if row.generation == head.generation:
        return header if row.digest == head.checkpoint else None
    following = ledger.parts.store.trace(head.run_id, row.generation, FOUND_MAX)
    for successor in following:
        if successor.generation != row.generation + 1:
            break
        try:
            named = codec.open_header(successor, ledger.parts.seals.verifiers).previous
        except IntegrityError:
            continue
        if named == row.digest:
            return header
    return None


def digest_of(ledger: Ledger, kind: str, arguments: dict[str, Json]) -> IntentDigest:
    """Return the digest of the intent that a call of a program stands for.

    Raises:
        ContractError: No adapter declares the kind, or the arguments do not fit it.
    """
    spec = ledger.parts.kinds.get(kind)
    if spec is None:
        raise ContractError(f"no adapter declares kind {kind!r:.80}", ledger.run.run_id)
    env = environment_of(ledger.run, spec.adapter)
    intent, _ = form_intent(spec, arguments, env.instance if env else "")
    return intent_digest(intent)


def check_same(ledger: Ledger, event: Event, wanted: IntentDigest, what: str) -> None:
    """Refuse a program whose call is not what was recorded.

    Raises:
        IdempotencyConflictError: Shows both.
    """
    if event.digest == wanted:
        return
    intent = recorded_intent(ledger, event)
    recorded = _shown(intent) if intent else event.kind
    raise IdempotencyConflictError(
        f"position {event.position} is settled as {recorded} ({event.digest}), "
        f"the program says {what} ({wanted})",
        ledger.run.run_id,
        event.key,
        move=OTHER_PROGRAM,
    )


def refuse_other_pending(run: Run, wanted: IntentDigest | None, what: str) -> None:
    """Refuse a program that comes to a pending action with another one.

    Raises:
        IdempotencyConflictError: Shows both; nothing is raised when nothing is pending.
    """
    pending = run.pending
    if pending is not None:
        raise IdempotencyConflictError(
            f"the record holds pending {_shown(pending.intent)} ({pending.digest}), "
            f"the program says {what} ({wanted or 'no intent'})",
            run.run_id,
            pending.key,
            move=OTHER_PROGRAM,
        )


def _shown(intent: Intent) -> str:
    return f"{intent.kind} {encode(intent.arguments).decode('utf-8'):.300}"
