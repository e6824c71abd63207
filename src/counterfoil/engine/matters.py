"""What waits for a person: requests and cases of all runs, read without a lease.

One run that cannot be believed hides no other: it is named apart.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from counterfoil.core.approval import Approval, Request, liveness_problem, open_approval
from counterfoil.core.authority import pending_request
from counterfoil.core.canonical import digest
from counterfoil.core.errors import IntegrityError, UnknownRunError
from counterfoil.core.review import Case
from counterfoil.core.run import Phase, Run
from counterfoil.core.trace import Event, Outcome
from counterfoil.core.words import Digest, RunId
from counterfoil.engine import audit
from counterfoil.engine.control import RUNS_PAGE, RunView, list_heads, show
from counterfoil.engine.parts import Parts

ACTIVE, FROZEN = "active", "frozen"
_ENDS = (Outcome.RESOLVED, Outcome.ABORTED)


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """Runs in which something waits, and runs that cannot be read."""

    views: tuple[RunView, ...]
    unreadable: tuple[RunId, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class BoundApproval:
    """An approval that a request has, and whether it still counts.

    Attributes:
        approval: What was signed.
        digest: Digest of its envelope, as a revocation names it.
        problem: Why it lets nothing happen now; empty when it counts.
        is_bound: Whether a worker has taken it; otherwise it lies in the inbox.
    """

    approval: Approval
    digest: Digest
    problem: str
    is_bound: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class CaseRecord:
    """One case of a run, as its trace has it.

    Attributes:
        case: What was captured.
        opened_index: Place of the event that opened it.
        closed_index: Place of the event that closed it; -1 while it is open.
        end: The event that closed it.
    """

    case: Case
    opened_index: int
    closed_index: int = -1
    end: Event | None = None


def requests(parts: Parts) -> Found:
    """Return the runs whose pending action waits for approvals."""
    return _found(parts, (ACTIVE, FROZEN), is_waiting)


def open_cases(parts: Parts) -> Found:
    """Return the runs that a reviewer must decide on."""
    return _found(parts, (FROZEN,), lambda run: run.case is not None)


def is_waiting(run: Run) -> bool:
    """Return whether an action of the run needs approvals and is not settled."""
    pending = run.pending
    return run.phase is Phase.RUNNING and pending is not None and pending.approvals_required > 0


def request_in(view: RunView) -> Request:
    """Return what a person is asked in a run.

    Raises:
        ApprovalError: Nothing waits for an approval.
    """
    return pending_request(view.run)


def case_in(view: RunView) -> Case:
    """Return the open case of a run.

    Raises:
        UnknownRunError: None is open.
    """
    if view.run.case is None:
        raise UnknownRunError(
            "no case is open", view.run.run_id, move="see `counterfoil review list`"
        )
    return view.run.case


def approvals_of(parts: Parts, view: RunView) -> tuple[BoundApproval, ...]:
    """Return the approvals of the waiting action, bound ones and those in the inbox."""
    request = request_in(view)
    pending = view.run.pending
    bound = tuple(text.encode("utf-8") for text in pending.approvals) if pending else ()
    waiting = parts.inbox.pending(request.run, RUNS_PAGE) if parts.inbox else ()
    now_ms = max(parts.clock.now_ms(), view.run.floor_ms)
    rows: list[BoundApproval] = []
    for envelope in (*bound, *waiting):
        try:
            approval, signer = open_approval(envelope, parts.roots)
        except IntegrityError:
            continue
        if approval.challenge != request.challenge or approval.verdict != "approve":
            continue
        problem = liveness_problem(approval, signer, request, now_ms=now_ms)
        rows.append(
            BoundApproval(
                approval=approval,
                digest=digest(envelope),
                problem=problem,
                is_bound=envelope in bound,
            )
        )
    return tuple(rows)


def cases_of(parts: Parts, run_id: RunId) -> tuple[CaseRecord, ...]:
    """Return every case of a run, oldest first, from its verified trace.

    A case that was captured anew stands there once for each capture; the later one
    closes the earlier one.

    Raises:
        UnknownRunError: The register has no such run.
        IntegrityError: The run cannot be believed.
    """
    records: list[CaseRecord] = []
    for index, event in audit.events(parts, run_id):
        if event.outcome in _ENDS:
            _close(records, index, event)
        elif event.case is not None:
            _close(records, index, event)
            records.append(CaseRecord(case=event.case, opened_index=index))
    return tuple(records)


def _close(records: list[CaseRecord], index: int, event: Event) -> None:
    if records and records[-1].end is None:
        last = records[-1]
        records[-1] = CaseRecord(
            case=last.case, opened_index=last.opened_index, closed_index=index, end=event
        )


def all_runs(parts: Parts) -> Iterator[RunId]:
    """Yield the id of every run that the register knows."""
    for head in _heads(parts):
        yield head[0]


def _heads(parts: Parts) -> Iterator[tuple[RunId, str]]:
    after = ""
    while page := list_heads(parts, after, RUNS_PAGE):
        for head in page:
            yield head.run_id, head.status
        after = page[-1].run_id


def _found(parts: Parts, statuses: tuple[str, ...], is_wanted: Callable[[Run], bool]) -> Found:
    views: list[RunView] = []
    unreadable: list[RunId] = []
    for run_id, standing in _heads(parts):
        if standing not in statuses:
            continue
        try:
            view = show(parts, run_id)
        except IntegrityError:
            unreadable.append(run_id)
            continue
        if is_wanted(view.run):
            views.append(view)
    return Found(views=tuple(views), unreadable=tuple(unreadable))
