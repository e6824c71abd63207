"""How a case is put before a reviewer: the pending intent and the receipt, side by side."""

from collections.abc import Callable

from rich.text import Text

from counterfoil.cli.request_view import argument_text
from counterfoil.cli.screen import cell, clock_time, heading, show_facts, show_table
from counterfoil.cli.show_command import sending_facts
from counterfoil.core.intent import EnvironmentState, Pending
from counterfoil.core.receipt import Receipt, differences, missing_fields
from counterfoil.core.review import Case, CaseReason
from counterfoil.core.words import RunId

NONE = "(none)"
MARK = "≠"

ADVICE = {
    CaseReason.INTENT_CONFLICT: "replan (a new key, planned anew) or abort",
    CaseReason.OUTCOME_UNKNOWN: (
        "confirm_done with the business id, confirm_absent (one more call under the same key), "
        "replan or abort"
    ),
    CaseReason.ENVIRONMENT_DRIFT: "replan (on the state as it is) or abort",
    CaseReason.LATE_COMMIT: "replan or abort",
    CaseReason.INCOMPLETE_RECEIPT: "replan or abort",
}

Side = tuple[str, str, str, str]
"""A mark, a field, what was pending or recorded, and what was observed."""


def show_review(run_id: RunId, task: str, case: Case) -> None:
    """Print a case as a reviewer judges it."""
    heading(f"Case: run {run_id} is frozen, {case.reason.value}", "bold yellow")
    show_facts(
        [
            ("task", task),
            ("finding", case.finding),
            ("captured", clock_time(case.opened_at_ms)),
            ("receipt", case.receipt_digest or NONE),
        ]
    )
    if case.pending is not None:
        heading("The pending intent")
        show_facts(_pending_facts(case.pending))
    rows = sides(run_id, case)
    if rows:
        heading(f"Side by side ({MARK} marks what differs)")
        show_table(
            ("", "field", "pending or recorded", "observed"),
            [_styled(row) for row in rows],
        )
    heading(f"A reviewer may decide: {ADVICE[case.reason]}.", "")


def sides(run_id: RunId, case: Case) -> list[Side]:
    """Return every field that has two sides, with a mark where they differ."""
    rows: list[Side] = []
    if case.pending is not None:
        rows += _of_receipt(run_id, case.pending, case.receipt)
    if case.recorded is not None:
        rows += _of_state(case.recorded, case.observed)
    return rows


def _pending_facts(pending: Pending) -> list[tuple[str, object]]:
    intent = pending.intent
    return [
        ("kind", f"{intent.kind}, {intent.risk.value}, position {pending.position}"),
        ("target", f"{intent.adapter} {intent.target}, level {pending.level.value}"),
        *((f"  {name}", argument_text(value)) for name, value in intent.arguments.items()),
        *sending_facts(pending),
        ("approvals", len(pending.approvals) if pending.approvals_required else "none needed"),
    ]


_RECEIPT: tuple[tuple[str, Callable[[Pending], str], Callable[[Receipt], str]], ...] = (
    ("adapter", lambda p: p.intent.adapter, lambda r: r.adapter),
    ("kind", lambda p: p.intent.kind, lambda r: r.kind),
    ("key", lambda p: p.key, lambda r: r.key),
    ("digest", lambda p: p.digest, lambda r: r.digest),
    ("level", lambda p: p.level.value, lambda r: r.level.value),
    ("instance", lambda p: p.intent.target, lambda r: r.poststate.instance),
)


def _of_receipt(run_id: RunId, pending: Pending, receipt: Receipt | None) -> list[Side]:
    if receipt is None:
        return [(MARK, "receipt", "expected", NONE)]
    differing = {*differences(pending, run_id, receipt), *missing_fields(receipt)}
    rows: list[Side] = [
        (MARK if name in differing else "", f"receipt.{name}", ours(pending), theirs(receipt))
        for name, ours, theirs in _RECEIPT
    ]
    rows.insert(2, (_mark(run_id, receipt.run_id), "receipt.run", run_id, receipt.run_id))
    known = {*(name for name, _, _ in _RECEIPT), "run_id"}
    rows += [(MARK, f"receipt.{name}", NONE, NONE) for name in sorted(differing - known)]
    committed = clock_time(receipt.committed_at_ms)
    rows.append(("", "receipt.committed", "", committed))
    rows.append(("", "receipt.id", "", receipt.id or NONE))
    return rows


def _of_state(recorded: EnvironmentState, observed: EnvironmentState | None) -> list[Side]:
    if observed is None:
        return [(MARK, f"{recorded.adapter}.state", "as recorded", "cannot be observed")]
    pairs = [
        (name, str(getattr(recorded, name)), str(getattr(observed, name)))
        for name in recorded.__struct_fields__
        if name != "adapter"
    ]
    return [
        (_mark(ours, theirs), f"{recorded.adapter}.{name}", ours or NONE, theirs or NONE)
        for name, ours, theirs in pairs
    ]


def _mark(ours: str, theirs: str) -> str:
    return "" if ours == theirs else MARK


def _styled(row: Side) -> tuple[Text, ...]:
    style = "bold red" if row[0] else ""
    return tuple(cell(value, style) for value in row)
