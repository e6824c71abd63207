"""What an operator may do without the program: list, show, abort, unpark.

No path here writes a run but `abort` and `unpark`, and these take the lease first, as
every worker does. Reading takes no lease.
"""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from msgspec.structs import replace

from counterfoil.core import codec
from counterfoil.core.errors import InvariantError, TerminalError, UsageError
from counterfoil.core.inputs import Aborted, Rules, Stumbled, Unparked
from counterfoil.core.intent import Pending
from counterfoil.core.machine import apply
from counterfoil.core.receipt import Answer, Receipt
from counterfoil.core.run import Failure, Run, parked
from counterfoil.core.task import Task
from counterfoil.core.words import RunId, free_text
from counterfoil.engine import acting
from counterfoil.engine.freshness import check_freshness
from counterfoil.engine.ledger import Ledger
from counterfoil.engine.parts import Parts
from counterfoil.engine.recovery import known_head, load_checkpoint, take_lease
from counterfoil.ports import Head

RUNS_PAGE = 200
"""Runs read from the register at once."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunView:
    """A run as its head and newest checkpoint have it."""

    head: Head
    header: codec.Header
    run: Run


def list_heads(parts: Parts, after: str = "", limit: int = RUNS_PAGE) -> tuple[Head, ...]:
    """Return the heads of runs in order of their id, from after `after`."""
    return parts.heads.heads(after, limit)


def show(parts: Parts, run_id: RunId) -> RunView:
    """Return one run, verified as recovery verifies it, without taking its lease.

    Raises:
        UnknownRunError: There is no such run.
        IntegrityError: What the store holds cannot be believed.
    """
    head = known_head(parts, run_id)
    found = load_checkpoint(parts, head)
    return RunView(head=head, header=found.header, run=found.run)


def abort(parts: Parts, run_id: RunId, *, actor: str, reason: str, wait_ms: int = 0) -> Run:
    """End a run, whatever stands open, and seal what is known of a pending intent.

    Where the adapter is at hand its fence is raised first. Then it is told to make the
    key impossible, if it can, or else asked by key, so that the trace says whether the
    effect happened, and a call that is late finds its way barred where that can be.

    Args:
        parts: The engine.
        run_id: The run.
        actor: Who aborts.
        reason: Why, for people; at most 4,096 printable characters.
        wait_ms: How long to wait for a worker that holds the run.

    Raises:
        UnknownRunError: There is no such run.
        TerminalError: It has ended.
        LeaseLostError: A worker holds it.
    """
    free_text(reason, "reason")
    with _taken(parts, run_id, wait_ms) as ledger:
        finding, receipt = _last_words(ledger, ledger.run.pending)
        given = Aborted(actor=actor, reason=reason, finding=finding, receipt=receipt)
        ledger.commit(apply(ledger.run, given, _rules(ledger)))
        return ledger.run


def park(parts: Parts, run_id: RunId, *, reason: str) -> Failure:
    """Leave a run to a person, on record, without opening it to its program.

    Args:
        parts: The engine.
        run_id: The run.
        reason: Why workers cannot go on with it, one sentence.

    Raises:
        UnknownRunError: There is no such run.
        TerminalError, FrozenError: It has ended, or a case is open.
        LeaseLostError: A worker holds it.
    """
    with _taken(parts, run_id, 0) as ledger:
        given = Stumbled(reason=reason, tries_max=1)
        ledger.commit(apply(ledger.run, given, _rules(ledger)))
        failure = parked(ledger.run)
    if failure is None:
        raise InvariantError("a failure was not kept", run_id)
    return failure


def unpark(parts: Parts, run_id: RunId, *, actor: str, reason: str, wait_ms: int = 0) -> Failure:
    """Give a parked run back to the workers, on record.

    Args:
        parts: The engine.
        run_id: The run.
        actor: Who does it.
        reason: What was mended, for people; at most 4,096 printable characters.
        wait_ms: How long to wait for a worker that holds the run.

    Returns:
        Why it was parked.

    Raises:
        UnknownRunError: There is no such run.
        UsageError: It is not parked.
        TerminalError, FrozenError: It has ended, or a case is open.
        LeaseLostError: A worker holds it.
    """
    free_text(reason, "reason")
    with _taken(parts, run_id, wait_ms) as ledger:
        failure = parked(ledger.run)
        if failure is None:
            raise UsageError("the run is not parked", run_id)
        given = Unparked(actor=actor, reason=reason)
        ledger.commit(apply(ledger.run, given, _rules(ledger)))
        return failure


@contextmanager
def _taken(parts: Parts, run_id: RunId, wait_ms: int) -> Generator[Ledger]:
    """Hold a run without its task, as every worker holds one, and give it back."""
    head = known_head(parts, run_id)
    if head.status == "terminal":
        raise TerminalError("the run has ended", run_id)
    held, lease = take_lease(parts, head, wait_ms=wait_ms)
    try:
        found = load_checkpoint(parts, held)
        check_freshness(parts, held)
        ledger = Ledger(
            parts=parts, head=held, run=found.run, header=found.header, task=None, lease=lease
        )
        ledger.mark()
        yield ledger
        held = ledger.head
    finally:
        parts.heads.release(held)


def _rules(ledger: Ledger) -> Rules:
    parts, task = ledger.parts, Task(id=ledger.run.task_id)
    return Rules(task=task, kinds=parts.kinds, now_ms=parts.clock.now_ms())


def _last_words(ledger: Ledger, pending: Pending | None) -> tuple[str, Receipt | None]:
    """Return what the adapter says of the pending key, once a late call is barred if it can be."""
    if pending is None:
        return "", None
    name = pending.intent.adapter
    if name not in ledger.parts.adapters:
        return f"adapter {name} was not at hand: the effect may have happened", None
    acting.take(ledger, name)
    spec = ledger.parts.kinds.get(pending.intent.kind)
    forbids = spec is not None and spec.forbids
    answer = acting.forbid(ledger, pending) if forbids else acting.look_up(ledger, pending)
    match answer.answer:
        case Answer.FOUND | Answer.FOUND_OTHER:
            return "the target holds a receipt under the key", answer.receipt
        case Answer.ABSENT if forbids:
            return "the target holds no receipt under the key, and will never take it", None
        case Answer.ABSENT:
            return "the target holds no receipt under the key", None
        case Answer.UNKNOWN:
            return f"the target could not say: {answer.reason}", None


def without_lease(head: Head) -> Head:
    """Return a head as people should see it: the nonce is the holder's own."""
    return replace(head, nonce="")
