"""`counterfoil recover` and `abort`: what an operator does to a run without its program."""

import getpass
from pathlib import Path
from typing import Annotated

import typer

from counterfoil.cli.case_view import case_json, receipt_facts, receipt_json, show_case
from counterfoil.cli.options import (
    AppOption,
    JsonOption,
    ProjectOption,
    RunArgument,
    WaitOption,
    placed,
    run_of,
    targets,
    targets_or_records,
)
from counterfoil.cli.screen import heading, say, show_facts, show_json
from counterfoil.cli.show_command import pending_facts, pending_json
from counterfoil.core.errors import ContractError, FrozenError, RefusedError
from counterfoil.core.intent import Pending
from counterfoil.core.receipt import Receipt
from counterfoil.core.run import Run
from counterfoil.core.task import Task
from counterfoil.core.words import RunId, identifier
from counterfoil.engine import control
from counterfoil.engine.parts import Parts
from counterfoil.engine.recovery import known_head, load_checkpoint
from counterfoil.engine.session import Session
from counterfoil.keeper import Keeper, load_task

NOTHING_PENDING = "nothing_pending"
GIVEN_UP = "given_up"
IN_REVIEW = "needs_review"
WAITS = "waits_for_approval"


def recover(
    run: RunArgument,
    *,
    task: Annotated[
        Path, typer.Option("--task", metavar="FILE", help="The run's task, as TOML or JSON.")
    ],
    app: AppOption = None,
    wait_ms: WaitOption = 0,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Settle what a killed worker left pending, and nothing else.

    Opens the run under its task, asks the target by key what became of the call, and
    makes the answer durable: a receipt is adopted, an absent effect is executed where
    the level allows it. A run that needs a person prints its case and exits with 3.

    Example:  counterfoil recover restock-42 --task restock.toml --app restock
    """
    name = run_of(run)
    given = load_task(task)
    has_app = bool(placed(project)[0].app if app is None else app)
    with targets(project, app) as keeper:
        known_head(keeper.parts, name)  # opening a run that does not exist would create it
        with _opened(keeper, given, name, wait_ms, has_app=has_app) as session:
            before = session.state.pending
            outcome, receipt, refusal = _settled(session)
            after = session.state
    _show_recovered(before, after, outcome, receipt, as_json=as_json)
    if refusal is not None:
        raise refusal


def _opened(keeper: Keeper, task: Task, run_id: RunId, wait_ms: int, *, has_app: bool) -> Session:
    try:
        return keeper.run(task, run_id, wait_ms=wait_ms)
    except ContractError as error:
        if has_app:
            raise
        move = "name the module that declares the effects with --app, or as app in counterfoil.toml"
        raise ContractError(error.message, run_id, move=move) from error


def _settled(session: Session) -> tuple[str, Receipt | None, RefusedError | None]:
    """Return how the pending intent ended, with its receipt or its refusal."""
    if session.state.phase.has_ended:
        return NOTHING_PENDING, None, None
    try:
        settlement = session.settle()
    except FrozenError as error:
        return IN_REVIEW, None, error
    except RefusedError as error:
        waits = session.request is not None
        return (WAITS if waits else GIVEN_UP), None, error
    if settlement is None:
        return NOTHING_PENDING, None, None
    return settlement.outcome.value, settlement.receipt, None


def _show_recovered(
    before: Pending | None, run: Run, outcome: str, receipt: Receipt | None, *, as_json: bool
) -> None:
    if as_json:
        show_json(
            {
                "run": run.run_id,
                "phase": run.phase.value,
                "reason": run.reason,
                "outcome": outcome,
                "found": pending_json(before),
                "receipt": receipt_json(receipt),
                "pending": pending_json(run.pending),
                "case": case_json(run, run.case) if run.case else None,
            }
        )
        return
    if before is None:
        say("Nothing was pending.")
    else:
        say("Found pending", "bold")
        show_facts(pending_facts(before))
    if receipt is not None:
        heading(f"Settled: {outcome}", "bold green")
        show_facts(receipt_facts(receipt))
    if run.case is not None:
        show_case(run, run.case)
    stop = f" ({run.reason})" if run.reason else ""
    heading(f"The run is {run.phase.value}{stop}.")


def abort(
    run: RunArgument,
    *,
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="Why, for those who read the trace.")
    ],
    actor: Annotated[
        str | None,
        typer.Option(
            "--actor",
            metavar="NAME",
            help="Who aborts; by default your user name.",
            show_default=False,
        ),
    ] = None,
    app: AppOption = None,
    wait_ms: WaitOption = 0,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """End a run for good, whatever stands open.

    Takes the lease, as every worker does. Where the target of a pending intent is at
    hand (--app), it is asked by key first, so that the trace says whether the effect
    happened; nothing is executed or undone. Needs no task and no budget.

    Example:  counterfoil abort restock-42 --reason "ordered by telephone"
    """
    name = run_of(run)
    who = identifier(getpass.getuser() if actor is None else actor, "--actor")
    with targets_or_records(project, app) as keeper:
        ended = control.abort(keeper.parts, name, actor=who, reason=reason, wait_ms=wait_ms)
        recorded = _last_reason(keeper.parts, name)
    if as_json:
        show_json(
            {
                "run": name,
                "phase": ended.phase.value,
                "reason": ended.reason,
                "actor": who,
                "recorded": recorded,
                "writes": ended.writes,
            }
        )
        return
    say(f"Run {name} has ended: {ended.phase.value}, {ended.reason}.")
    say(f"Recorded: {recorded}")


def _last_reason(parts: Parts, run_id: RunId) -> str:
    """Return what the trace says last: who aborted, why, and what the target answered."""
    head = parts.heads.read(run_id)
    events = load_checkpoint(parts, head).events if head is not None else ()
    return events[-1].reason if events else ""
