"""`counterfoil doctor`: whether this machine and project keep what is promised."""

import typer

from counterfoil.cli.checks import Report, report
from counterfoil.cli.lines import Line, State
from counterfoil.cli.options import JsonOption, ProjectOption, no_project, placed
from counterfoil.cli.protection import Answer, Protection
from counterfoil.cli.screen import cell, heading, show_json, show_table
from counterfoil.compose import is_set_up
from counterfoil.core.errors import IntegrityError, UnavailableError, UsageError
from counterfoil.engine.clock import SystemClock

STYLES = {State.OK: "green", State.WARN: "yellow", State.FAIL: "bold red"}
ANSWERS = {Answer.YES: "green", Answer.PARTLY: "yellow", Answer.NO: "bold red"}


def doctor(project: ProjectOption = None, as_json: JsonOption = False) -> None:
    """Check keys, modes, stores, servers, clocks and disks; say what the stores protect from.

    Each line is ok, warn or fail, and says how to mend it. Exits with 4 when something
    that was written is missing or damaged, with 2 when a setting, key, mode or place
    must be corrected, with 7 when a server cannot be reached, and with 0 otherwise,
    warnings included.

    Example:  counterfoil doctor
    """
    settings, places = placed(project)
    if not is_set_up(places):
        raise no_project(places.project)
    found = report(places, settings, SystemClock())
    failures = [line for line in found.lines if line.state is State.FAIL]
    if as_json:
        checks = [_facts(line) for line in found.lines]
        cases = [_case(each) for each in found.protections]
        show_json(
            {
                "project": str(places.project),
                "ok": not failures,
                "checks": checks,
                "protects": cases,
            }
        )
    else:
        _show(found, len(failures))
    if failures:
        raise typer.Exit(_exit_code({line.exit_code for line in failures}))


def _exit_code(codes: set[int]) -> int:
    """Return what tells most: stop, before correct, before try again."""
    if IntegrityError.exit_code in codes:
        return IntegrityError.exit_code
    if codes == {UnavailableError.exit_code}:
        return UnavailableError.exit_code
    return UsageError.exit_code


def _show(found: Report, failures: int) -> None:
    rows: list[tuple[object, ...]] = []
    for line in found.lines:
        rows.append((cell(line.state.value, STYLES[line.state]), line.name, line.found))
        if line.mend:
            rows.append(("", "", cell(f"mend: {line.mend}", "bold")))
    show_table(("", "check", "found"), rows)
    heading("What this pair of places protects from")
    show_table(
        ("", "case", "what happens"),
        [
            (cell(each.answer.value, ANSWERS[each.answer]), each.title, each.why)
            for each in found.protections
        ],
    )
    warnings = sum(line.state is State.WARN for line in found.lines)
    if failures:
        heading(f"{failures} of {len(found.lines)} checks fail.", "bold red")
    else:
        heading(f"All is well, with {warnings} to read." if warnings else "All is well.", "green")


def _case(case: Protection) -> dict[str, str]:
    return {"hazard": case.hazard, "protected": case.answer.value, "why": case.why}


def _facts(line: Line) -> dict[str, str]:
    return {
        "check": line.name,
        "state": line.state.value,
        "found": line.found,
        "mend": line.mend,
    }
