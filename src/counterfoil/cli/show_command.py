"""`counterfoil show`: one run, all that stands open, and the next move."""

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from counterfoil.cli.case_view import case_json, show_case
from counterfoil.cli.options import JsonOption, ProjectOption, RunArgument, records, run_of
from counterfoil.cli.runs_command import is_held, lease_facts, lease_text
from counterfoil.cli.screen import (
    clock_time,
    duration,
    heading,
    moment,
    short_time,
    show_facts,
    show_json,
    show_table,
)
from counterfoil.core.intent import Pending
from counterfoil.core.run import Phase, Run, parked, standing_failure
from counterfoil.core.task import Budgets, Task
from counterfoil.core.words import Json
from counterfoil.engine.control import RunView
from counterfoil.engine.control import show as view_of
from counterfoil.engine.matters import is_waiting
from counterfoil.engine.recovery import check_binding
from counterfoil.keeper import load_task

SHORT_DIGEST = 16

TaskOption = Annotated[
    Path | None,
    typer.Option(
        "--task",
        metavar="FILE",
        help="The run's task, whose budgets are then shown: a run holds only its fingerprint.",
        show_default=False,
    ),
]


def show(
    run: RunArgument,
    task: TaskOption = None,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show one run: phase, lease, what it spent, what is pending, its case.

    Reads the head and the newest checkpoint, verified as recovery verifies them, and
    takes no lease. Ends with the next move.

    Example:  counterfoil show restock-42
    """
    with records(project) as keeper:
        view = view_of(keeper.parts, run_of(run))
        now_ms = keeper.parts.clock.now_ms()
    known = load_task(task) if task else None
    if known is not None:
        check_binding(view.header, known)
    if as_json:
        show_json(_json(view, known, now_ms))
        return
    show_facts(_facts(view, known, now_ms))
    _show_environments(view.run)
    if view.run.pending is not None:
        heading("Pending: durable, and not settled")
        show_facts(pending_facts(view.run.pending))
    if view.run.case is not None:
        show_case(view.run, view.run.case)
    heading(f"Next: {next_move(view, now_ms)}.")


def next_move(view: RunView, now_ms: int) -> str:
    """Return what a person may do with a run as it stands."""
    run = view.run
    if run.phase.has_ended:
        return "nothing, the run has ended"
    if run.phase is Phase.NEEDS_REVIEW:
        return (
            f"look at the case with `counterfoil review show {run.run_id}`, then decide; "
            f"`counterfoil abort {run.run_id} --reason TEXT` ends the run, and nothing is executed "
            "meanwhile"
        )
    if is_held(view.head, now_ms):
        return "wait, a worker holds the run; if it died on this machine, start its program again"
    if parked(run) is not None:
        return (
            f"mend what is named as parked, then `counterfoil unpark {run.run_id} --reason TEXT` "
            "gives it back to the workers"
        )
    if is_waiting(run) and run.pending is not None and not run.pending.sends:
        return (
            f"have it approved, see `counterfoil requests {run.run_id}`; then start the program "
            "again"
        )
    if run.pending is not None:
        return (
            "start the program again, or settle what is pending with "
            f"`counterfoil recover {run.run_id} --task FILE`"
        )
    return "start the program again, it goes on where it stopped"


def pending_facts(pending: Pending) -> list[tuple[str, object]]:
    """Return what people look at in a pending intent."""
    return [
        ("kind", pending.intent.kind),
        ("key", pending.key),
        ("level", pending.level.value),
        ("position", pending.position),
        *sending_facts(pending),
        ("intent", pending.digest),
    ]


def sending_facts(pending: Pending) -> list[tuple[str, object]]:
    """Return what is known of the calls of a pending intent."""
    if not pending.sends:
        return [("sends", "none, it waits for a person")]
    return [
        ("sends", f"{pending.sends}, at most"),
        ("first sent", f"{clock_time(pending.first_sent_at_ms)}, at the earliest"),
    ]


def pending_json(pending: Pending | None) -> Json:
    """Return a pending intent for programs."""
    if pending is None:
        return None
    return {
        "action_id": pending.action_id,
        "adapter": pending.intent.adapter,
        "kind": pending.intent.kind,
        "arguments": pending.intent.arguments,
        "risk": pending.intent.risk.value,
        "target": pending.intent.target,
        "key": pending.key,
        "digest": pending.digest,
        "level": pending.level.value,
        "position": pending.position,
        "sends": pending.sends,
        "first_sent_at": moment(pending.first_sent_at_ms),
        "last_sent_at": moment(pending.last_sent_at_ms),
    }


def _facts(view: RunView, task: Task | None, now_ms: int) -> list[tuple[str, object]]:
    run, head, budgets = view.run, view.head, task.budgets if task else None
    return [
        ("run", run.run_id),
        ("task", run.task_id),
        ("phase", run.phase.value),
        ("reason", run.reason or "none"),
        *_failure_facts(run),
        ("generation", head.generation),
        ("lease", lease_text(head, now_ms)),
        ("last commit", f"{short_time(view.header.written_at)} UTC"),
        ("proposals", _of(run.spent.proposals, budgets.proposals if budgets else None)),
        ("steps", _of(run.spent.steps, budgets.steps if budgets else None)),
        ("cost", f"{_of(run.spent.cost_micros, budgets.cost_micros if budgets else None)} micros"),
        ("time", _time_text(run, budgets)),
        ("positions", f"{run.cursor} settled"),
        ("effects", run.writes),
        ("trace", f"{run.trace_size} events, root {view.header.trace_root[:SHORT_DIGEST]}…"),
    ]


def _failure_facts(run: Run) -> list[tuple[str, object]]:
    failure = standing_failure(run)
    if failure is None:
        return []
    name = "parked" if failure.is_parked else "failed"
    times = "once" if failure.count == 1 else f"{failure.count} times in a row"
    return [(name, f"{failure.reason} ({times} at position {failure.cursor})")]


def _of(spent: int, budget: int | None) -> str:
    return str(spent) if not budget else f"{spent} of {budget}"


def _time_text(run: Run, budgets: Budgets | None) -> str:
    spent = duration(run.floor_ms - run.started_at_ms)
    limit = budgets.seconds if budgets else 0
    return f"{spent} of {duration(limit * 1000)}" if limit else spent


def _show_environments(run: Run) -> None:
    if not run.environments:
        return
    rows = [
        (state.adapter, state.instance, state.generation, state.version, state.account)
        for state in run.environments
    ]
    heading("Environments")
    show_table(("adapter", "instance", ">generation", ">version", "account"), rows)


def _json(view: RunView, task: Task | None, now_ms: int) -> dict[str, Json]:
    run, head = view.run, view.head
    return {
        "run": run.run_id,
        "task": run.task_id,
        "phase": run.phase.value,
        "reason": run.reason,
        "status": head.status,
        "generation": head.generation,
        "checkpoint": head.checkpoint,
        "lease": lease_facts(head, now_ms),
        "started_at": moment(run.started_at_ms),
        "written_at": view.header.written_at,
        "spent": {
            **msgspec.to_builtins(run.spent),
            "seconds": (run.floor_ms - run.started_at_ms) // 1000,
        },
        "budgets": msgspec.to_builtins(task.budgets) if task else None,
        "failure": msgspec.to_builtins(standing_failure(run)),
        "positions": run.cursor,
        "writes": run.writes,
        "trace": {"size": run.trace_size, "root": view.header.trace_root},
        "environments": msgspec.to_builtins(run.environments),
        "pending": pending_json(run.pending),
        "case": case_json(run, run.case) if run.case else None,
        "next": next_move(view, now_ms),
    }
