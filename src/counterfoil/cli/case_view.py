"""How an open case is shown: the finding, the receipt, and what differs."""

import msgspec

from counterfoil.cli.screen import clock_time, heading, moment, show_facts, show_table
from counterfoil.core.intent import EnvironmentState, Pending
from counterfoil.core.receipt import Receipt, differences, missing_fields
from counterfoil.core.review import Case
from counterfoil.core.run import Run
from counterfoil.core.words import Json

ABSENT = "(none)"

Difference = tuple[str, str, str]
"""A field, what was recorded, and what was found."""


def show_case(run: Run, case: Case) -> None:
    """Print an open case."""
    heading("Case: a person must decide", "bold yellow")
    show_facts(
        [
            ("case", case.reason.value),
            ("finding", case.finding),
            ("opened", clock_time(case.opened_at_ms)),
        ]
    )
    if case.receipt is not None:
        heading("Receipt that was found")
        show_facts([*receipt_facts(case.receipt), ("fingerprint", case.receipt_digest)])
    rows = found_differences(run, case)
    if rows:
        heading("What differs")
        show_table(("field", "recorded", "found"), rows)


def receipt_facts(receipt: Receipt) -> list[tuple[str, object]]:
    """Return what people look at in a receipt."""
    return [
        ("receipt", receipt.id or ABSENT),
        ("kind", receipt.kind),
        ("key", receipt.key),
        ("level", receipt.level.value),
        ("intent", receipt.digest or ABSENT),
        ("committed", clock_time(receipt.committed_at_ms)),
    ]


def receipt_json(receipt: Receipt | None) -> Json:
    """Return a receipt for programs."""
    if receipt is None:
        return None
    fields = msgspec.to_builtins(receipt)
    return {**fields, "committed_at": moment(receipt.committed_at_ms)}


def case_json(run: Run, case: Case) -> dict[str, Json]:
    """Return an open case for programs; its challenge is for a signed decision alone."""
    return {
        "reason": case.reason.value,
        "finding": case.finding,
        "opened_at": moment(case.opened_at_ms),
        "receipt": receipt_json(case.receipt),
        "receipt_digest": case.receipt_digest,
        "recorded": msgspec.to_builtins(case.recorded),
        "observed": msgspec.to_builtins(case.observed),
        "differences": [
            {"field": field, "recorded": recorded, "found": found}
            for field, recorded, found in found_differences(run, case)
        ],
    }


def found_differences(run: Run, case: Case) -> list[Difference]:
    """Return in what the world is not as the checkpoint has it."""
    rows: list[Difference] = []
    if case.receipt is not None and case.pending is not None:
        rows += _of_receipt(run, case.pending, case.receipt)
    if case.recorded is not None:
        rows += _of_environment(case.recorded, case.observed)
    return rows


def _of_receipt(run: Run, pending: Pending, receipt: Receipt) -> list[Difference]:
    ours: dict[str, str] = {
        "adapter": pending.intent.adapter,
        "kind": pending.intent.kind,
        "run_id": run.run_id,
        "key": pending.key,
        "digest": pending.digest,
        "level": pending.level.value,
        "environment": pending.intent.adapter,
        "instance": pending.intent.target,
    }
    theirs: dict[str, str] = {
        "adapter": receipt.adapter,
        "kind": receipt.kind,
        "run_id": receipt.run_id,
        "key": receipt.key,
        "digest": receipt.digest,
        "level": receipt.level.value,
        "environment": receipt.poststate.adapter,
        "instance": receipt.poststate.instance,
    }
    rows = [
        (f"receipt.{name}", ours[name], theirs[name] or ABSENT)
        for name in differences(pending, run.run_id, receipt)
    ]
    named = {row[0] for row in rows}
    rows += [
        (f"receipt.{name}", ours.get(name, ABSENT), ABSENT)
        for name in missing_fields(receipt)
        if f"receipt.{name}" not in named
    ]
    return rows


def _of_environment(
    recorded: EnvironmentState, observed: EnvironmentState | None
) -> list[Difference]:
    if observed is None:
        return [(f"{recorded.adapter}.state", "as recorded", "cannot be observed")]
    return [
        (f"{recorded.adapter}.{name}", str(ours) or ABSENT, str(theirs) or ABSENT)
        for name in recorded.__struct_fields__
        if (ours := getattr(recorded, name)) != (theirs := getattr(observed, name))
    ]
