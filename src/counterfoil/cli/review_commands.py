"""`counterfoil review`: what reviewers see and decide when a run is frozen."""

from pathlib import Path
from typing import Annotated

import typer

from counterfoil.cli.case_view import case_json
from counterfoil.cli.group import show_help_when_bare
from counterfoil.cli.options import JsonOption, ProjectOption, RunArgument, records, run_of
from counterfoil.cli.people import (
    EXPIRES,
    EvidenceOption,
    ExpiresOption,
    KeyOption,
    NoteOption,
    YesOption,
    consent,
    key_for,
    name_in,
    term_ms,
    written,
)
from counterfoil.cli.request_commands import GOES_ON
from counterfoil.cli.review_view import show_review, sides
from counterfoil.cli.screen import clock_time, moment, say, short_time, show_json, show_table
from counterfoil.core.errors import IntegrityError, UnknownRunError
from counterfoil.core.review import Verdict, decision_for
from counterfoil.core.trust import Role
from counterfoil.core.words import Json, RunId, free_text
from counterfoil.engine import matters
from counterfoil.engine.control import show as view_of
from counterfoil.engine.door import submit
from counterfoil.engine.dossier import case_file
from counterfoil.engine.matters import CaseRecord
from counterfoil.engine.parts import Parts
from counterfoil.keys.signing import sign_decision

review = typer.Typer(
    name="review",
    invoke_without_command=True,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)

Row = tuple[RunId, CaseRecord]


@review.callback()
def root(context: typer.Context) -> None:
    """Look at frozen runs, and decide what becomes of them.

    A run freezes when what is found does not fit what is recorded. It proposes and
    executes nothing until a reviewer has signed a decision, or an operator aborts it.

    Example:  counterfoil review list
    """
    show_help_when_bare(context)


@review.command("list")
def list_cases(
    closed: Annotated[
        bool, typer.Option("--closed", help="Closed cases too; reads the trace of every run.")
    ] = False,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the cases that wait for a decision.

    Example:  counterfoil review list --closed
    """
    with records(project) as keeper:
        if closed:
            rows, unreadable = _all(keeper.parts)
        else:
            found = matters.open_cases(keeper.parts)
            rows = [
                (v.run.run_id, CaseRecord(case=matters.case_in(v), opened_index=-1))
                for v in found.views
            ]
            unreadable = list(found.unreadable)
    if as_json:
        show_json({"cases": [_facts(row) for row in rows], "unreadable": unreadable})
        return
    if rows:
        columns = ("run", "reason", "finding", "captured (UTC)", "stands")
        show_table(columns, [_cells(row) for row in rows])
    else:
        say("No case is open." if not closed else "There was never a case.")
    for run_id in unreadable:
        say(f"Run {run_id} cannot be read: see `counterfoil verify`.", "red")


def _all(parts: Parts) -> tuple[list[Row], list[RunId]]:
    rows: list[Row] = []
    unreadable: list[RunId] = []
    for run_id in matters.all_runs(parts):
        try:
            rows += [(run_id, record) for record in matters.cases_of(parts, run_id)]
        except IntegrityError:
            unreadable.append(run_id)
    return rows, unreadable


@review.command("show")
def show(
    run: RunArgument,
    event: Annotated[
        int | None,
        typer.Option(
            "--event",
            metavar="N",
            help="A closed case, by the index of the event that opened it.",
            show_default=False,
        ),
    ] = None,
    export: Annotated[
        Path | None,
        typer.Option(
            "--export",
            metavar="FILE",
            help="Write the case to a file, with proofs, to be signed or kept elsewhere.",
            show_default=False,
        ),
    ] = None,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Put the pending intent and what was observed side by side, differences marked.

    Example:  counterfoil review show restock-42 --export case.json
    """
    name = run_of(run)
    with records(project) as keeper:
        view = view_of(keeper.parts, name)
        record = _record(matters.cases_of(keeper.parts, name), name, event)
        if export is not None:
            written(export, case_file(keeper.parts, view, record))
    if as_json:
        rows: list[Json] = [
            {"differs": bool(mark), "field": field, "pending": ours, "observed": theirs}
            for mark, field, ours, theirs in sides(name, record.case)
        ]
        shown = {**_facts((name, record)), "case": case_json(view.run, record.case), "sides": rows}
        show_json({**shown, "export": str(export) if export else None})
        return
    show_review(name, view.run.task_id, record.case)
    if record.end is not None:
        say(f"Closed: {_end_text(record)}")
    if export is not None:
        say(f"Written to {export}. Sign it with `counterfoil sign {export} --key FILE`.")


def _record(records_: tuple[CaseRecord, ...], run_id: RunId, event: int | None) -> CaseRecord:
    for record in reversed(records_):
        if (record.end is None) if event is None else (record.opened_index == event):
            return record
    known = ", ".join(str(record.opened_index) for record in records_) or "none"
    raise UnknownRunError(
        "no case is open" if event is None else f"no case was opened by event {event}",
        run_id,
        move=f"pass --event with one of: {known}",
    )


@review.command("decide")
def decide(
    run: RunArgument,
    *,
    verdict: Annotated[Verdict, typer.Option("--verdict", help="What becomes of the matter.")],
    key: KeyOption,
    evidence: EvidenceOption = "",
    expires: ExpiresOption = EXPIRES,
    note: NoteOption = "",
    yes: YesOption = False,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Sign a decision on the open case of a run.

    replan gives the old key up for good and has the planner plan anew; abort ends the
    run; confirm_done settles an unknown outcome on your word; confirm_absent allows one
    more call under the same key. Before it is applied the target is looked at again: if
    the matter changed, the decision is refused and the case captured anew.

    Example:  counterfoil review decide restock-42 --verdict replan --key rita.pem
    """
    term = term_ms(expires)
    note, evidence = free_text(note, "--note"), free_text(evidence, "--evidence")
    with records(project) as keeper:
        parts = keeper.parts
        view = view_of(parts, run_of(run))
        case = matters.case_in(view)
        signs = key_for(key, Role.REVIEWER)
        signer = name_in(parts.roots, Role.REVIEWER, signs)
        if not as_json:
            show_review(view.run.run_id, view.run.task_id, case)
        consent(f"Decide {verdict.value} as {signer}?", is_given=yes)
        now_ms = max(parts.clock.now_ms(), view.run.floor_ms)
        decision = decision_for(
            case,
            run_id=view.run.run_id,
            task=view.run.task_id,
            verdict=verdict,
            signer=signer,
            evidence=evidence,
            issued_at_ms=now_ms,
            expires_at_ms=now_ms + term,
            note=note,
        )
        kept = submit(parts, sign_decision(decision, signs))
    if as_json:
        facts = {"run": kept.run_id, "statement": kept.what, "signer": kept.signer}
        show_json({**facts, "expires_at": moment(now_ms + term)})
        return
    say(f"{signer} signed: {kept.what}. It counts until {clock_time(now_ms + term)}. {GOES_ON}")


def _cells(row: Row) -> tuple[object, ...]:
    run_id, record = row
    captured = short_time(moment(record.case.opened_at_ms))
    stands = "open" if record.end is None else f"closed: {_end_text(record)}"
    return (run_id, record.case.reason.value, record.case.finding, captured, stands)


def _end_text(record: CaseRecord) -> str:
    end = record.end
    if end is None:
        return ""
    by = f" by {end.signer}" if end.signer else ""
    return f"{end.outcome.value}{by}, {end.reason}"


def _facts(row: Row) -> dict[str, Json]:
    run_id, record = row
    end = record.end
    return {
        "run": run_id,
        "reason": record.case.reason.value,
        "finding": record.case.finding,
        "captured_at": moment(record.case.opened_at_ms),
        "open": end is None,
        "opened_event": record.opened_index if record.opened_index >= 0 else None,
        "closed_event": record.closed_index if end is not None else None,
        "outcome": end.outcome.value if end else "",
        "signer": end.signer if end else "",
        "decision": end.reason if end else "",
    }
