"""Which finished runs are old enough to be archived, and what becomes of each.

A run that has not ended, has an open case or a pending intent, or for which a statement
waits, is not touched. One that cannot be believed is left as it is, and hides no other.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from counterfoil.core.errors import IntegrityError
from counterfoil.core.words import RunId
from counterfoil.engine.archiving import Note, archive_run, drop_archived
from counterfoil.engine.control import RUNS_PAGE, RunView, list_heads, show
from counterfoil.engine.filing import TERMINAL
from counterfoil.engine.parts import Parts
from counterfoil.ports import Head

PAGE = 256
"""Checkpoints weighed at once."""

RUNS_MAX = 1_000
"""Runs that one call archives: minutes, and the next call goes on where it ended."""

HEADS_MAX = 100_000
"""Heads that one call goes through, most of which are too young or archived: as long."""


class Outcome(StrEnum):
    """What became of a finished run."""

    ARCHIVED = "archived"
    DUE = "due"
    KEPT = "kept"
    REFUSED = "refused"


@dataclass(frozen=True, kw_only=True, slots=True)
class Collected:
    """What became of one finished run that is old enough.

    Attributes:
        run_id: The run.
        outcome: Due where nothing was to be changed; kept where something still waits;
            refused where it cannot be believed.
        finished_at_ms: When it ended, UTC; 0 where it cannot be believed.
        checkpoints: How many checkpoints went, or would go.
        size_bytes: What they held.
        archive_bytes: What stands for them; 0 where that is not made.
        reason: Why it is kept or refused; empty otherwise.
    """

    run_id: RunId
    outcome: Outcome
    finished_at_ms: int = 0
    checkpoints: int = 0
    size_bytes: int = 0
    archive_bytes: int = 0
    reason: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Round:
    """What one call did.

    Attributes:
        runs: The runs that were old enough, in order of their id.
        after: Where the next call goes on; empty where none is left.
    """

    runs: tuple[Collected, ...]
    after: str = ""


def collect(
    parts: Parts,
    *,
    age_ms: int,
    after: str = "",
    runs_max: int = RUNS_MAX,
    is_dry: bool = False,
    note: Callable[[RunId], Note] | None = None,
) -> Round:
    """Archive finished runs in order of their id, and return what became of each.

    Work is bounded: at most `HEADS_MAX` heads are gone through, in pages, and checkpoints
    are dropped a few at a time. Safe beside workers, and beside another call: both come to
    the same end.

    Args:
        parts: The engine; its adapters are not touched.
        age_ms: How long a run must have ended; at least 0.
        after: Begin after this run id.
        runs_max: Most runs that are old enough and looked into; at least 1.
        is_dry: Whether to change nothing.
        note: Gives, for a run, what is told of its progress.

    Raises:
        UnavailableError, UnknownOutcomeError: Call again; nothing is lost.
    """
    before_ms = parts.clock.now_ms() - age_ms
    runs: list[Collected] = []
    for count, head in enumerate(_heads(parts, after), start=1):
        if head.status == TERMINAL and _has_more(parts, head):
            each = _collected(parts, head.run_id, before_ms, is_dry=is_dry, note=note)
            runs += [each] if each else []
        if len(runs) == runs_max or count == HEADS_MAX:
            return Round(runs=tuple(runs), after=head.run_id)
    return Round(runs=tuple(runs))


def _heads(parts: Parts, after: str) -> Iterator[Head]:
    while page := list_heads(parts, after, RUNS_PAGE):
        yield from page
        after = page[-1].run_id


def _collected(
    parts: Parts,
    run_id: RunId,
    before_ms: int,
    *,
    is_dry: bool,
    note: Callable[[RunId], Note] | None,
) -> Collected | None:
    """Archive one run, and return what became of it; None where it ended too late."""
    try:
        view = show(parts, run_id)
        if view.run.floor_ms > before_ms:
            return None
        return _judged(parts, view, is_dry=is_dry, note=note(run_id) if note else None)
    except IntegrityError as error:
        reason = f"{type(error).__name__}: {error.message}"
        return Collected(run_id=run_id, outcome=Outcome.REFUSED, reason=reason)


def _has_more(parts: Parts, head: Head) -> bool:
    """Return whether the store has more of a run than its last checkpoint."""
    rows = parts.store.trace(head.run_id, -1, 1)
    return not rows or rows[0].generation < head.generation


def _judged(parts: Parts, view: RunView, *, is_dry: bool, note: Note | None) -> Collected:
    run, run_id = view.run, view.head.run_id
    reason = _reason_to_keep(parts, view)
    found = Collected(
        run_id=run_id, outcome=Outcome.KEPT, finished_at_ms=run.floor_ms, reason=reason
    )
    if reason:
        return found
    checkpoints, size_bytes = _weighed(parts, view.head)
    if is_dry:
        archive_bytes, outcome = 0, Outcome.DUE
    else:
        archive_bytes, outcome = archive_run(parts, view, note), Outcome.ARCHIVED
        drop_archived(parts, view)
    return Collected(
        run_id=run_id,
        outcome=outcome,
        finished_at_ms=run.floor_ms,
        checkpoints=checkpoints,
        size_bytes=size_bytes,
        archive_bytes=archive_bytes,
    )


def _reason_to_keep(parts: Parts, view: RunView) -> str:
    run = view.run
    if not run.phase.has_ended:
        return f"its head says that it has ended, and its state that it is {run.phase.value}"
    if run.case is not None or run.pending is not None:
        return "a case or an intent is open"
    if parts.inbox is not None and parts.inbox.pending(run.run_id, 1):
        return "a statement for it waits in the inbox"
    return ""


def _weighed(parts: Parts, head: Head) -> tuple[int, int]:
    """Return how many checkpoints lie below a head, or beside it, and their bytes."""
    after, count, size_bytes = -1, 0, 0
    while rows := parts.store.trace(head.run_id, after, PAGE):
        for row in rows:
            if row.generation > head.generation:
                return count, size_bytes
            if row.digest != head.checkpoint:
                count += 1
                size_bytes += len(row.envelope) + len(row.events) + len(row.state)
        after = rows[-1].generation
    return count, size_bytes
