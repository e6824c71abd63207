"""`counterfoil doctor`: whether this machine and project keep what is promised."""

import typer

from counterfoil.cli.checks import Line, State, all_lines
from counterfoil.cli.options import JsonOption, ProjectOption, no_project, placed
from counterfoil.cli.screen import cell, heading, show_json, show_table
from counterfoil.compose import is_set_up
from counterfoil.core.errors import IntegrityError, UsageError
from counterfoil.engine.clock import SystemClock

STYLES = {State.OK: "green", State.WARN: "yellow", State.FAIL: "bold red"}


def doctor(project: ProjectOption = None, as_json: JsonOption = False) -> None:
    """Check keys, modes, pragmas, independence of heads, clock, disk and SQLite.

    Each line is ok, warn or fail, and says how to mend it. Exits with 4 when something
    that was written is missing or damaged, with 2 when a setting, key, mode or place
    must be corrected, and with 0 otherwise, warnings included.

    Example:  counterfoil doctor
    """
    _, places = placed(project)
    if not is_set_up(places):
        raise no_project(places.project)
    lines = list(all_lines(places, SystemClock()))
    failures = [line for line in lines if line.state is State.FAIL]
    if as_json:
        checks = [_facts(line) for line in lines]
        show_json({"project": str(places.project), "ok": not failures, "checks": checks})
    else:
        _show(lines, len(failures))
    if failures:
        codes = {line.exit_code for line in failures}
        is_integrity = IntegrityError.exit_code in codes
        raise typer.Exit(IntegrityError.exit_code if is_integrity else UsageError.exit_code)


def _show(lines: list[Line], failures: int) -> None:
    rows: list[tuple[object, ...]] = []
    for line in lines:
        rows.append((cell(line.state.value, STYLES[line.state]), line.name, line.found))
        if line.mend:
            rows.append(("", "", cell(f"mend: {line.mend}", "bold")))
    show_table(("", "check", "found"), rows)
    warnings = sum(line.state is State.WARN for line in lines)
    if failures:
        heading(f"{failures} of {len(lines)} checks fail.", "bold red")
    else:
        heading(f"All is well, with {warnings} to read." if warnings else "All is well.", "green")


def _facts(line: Line) -> dict[str, str]:
    return {
        "check": line.name,
        "state": line.state.value,
        "found": line.found,
        "mend": line.mend,
    }
