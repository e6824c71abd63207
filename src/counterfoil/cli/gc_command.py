"""`counterfoil gc`: archive finished runs, and give their room back."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from counterfoil.cli.options import JsonOption, ProjectOption, placed, records
from counterfoil.cli.screen import (
    cell,
    clock_time,
    console,
    moment,
    printable,
    say,
    show_json,
    show_table,
)
from counterfoil.compose import Settings, Space, give_space_back
from counterfoil.core.errors import (
    IntegrityError,
    UnavailableError,
    UnknownOutcomeError,
    UsageError,
)
from counterfoil.core.words import Json, RunId, identifier
from counterfoil.engine.archiving import Note
from counterfoil.engine.collecting import RUNS_MAX, Outcome, Round, collect
from counterfoil.terms import term_ms

AGE_DAYS_MAX = 36_525
"""A century: longer is a slip of the finger."""

REPEAT = "call gc again, which loses nothing; if the disk is full, make room before"

STYLES = {Outcome.ARCHIVED: "green", Outcome.KEPT: "yellow", Outcome.REFUSED: "red"}

Notes = Callable[[RunId], Note]


FinishedOption = Annotated[
    str | None,
    typer.Option(
        "--finished-before",
        metavar="TERM",
        help="How long a run must have ended: 30min, 12h, 90d; by default "
        "`retention.finished_before` of counterfoil.toml.",
        show_default=False,
    ),
]
DryOption = Annotated[
    bool, typer.Option("--dry-run", help="Show what would go, and change nothing.")
]
LimitOption = Annotated[
    int, typer.Option("--limit", min=1, metavar="N", help="Most runs of one call.")
]
AfterOption = Annotated[
    str,
    typer.Option("--after", metavar="RUN", help="Begin after this run, where a call ended."),
]
CompactOption = Annotated[
    bool,
    typer.Option(
        "--compact",
        help="Rewrite a SQLite file, however large it is and however little of it is free; stop "
        "the workers before.",
    ),
]


def gc(
    *,
    finished_before: FinishedOption = None,
    dry_run: DryOption = False,
    limit: LimitOption = RUNS_MAX,
    after: AfterOption = "",
    compact: CompactOption = False,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Archive runs that have ended long ago, and give their room back.

    Of each run the last checkpoint stays, with its head; the others are replaced by one
    signed archive that holds every event. `verify`, `trace`, `prove` and `show` answer
    from it as before, its id stays used, and its keys stay answered. A run that has not
    ended, or for which a statement waits, is not touched.

    Safe beside workers, and to be called again after any death. Exits with 4 if a run
    cannot be believed; that run is left as it is, and the others are done.

    Example:  counterfoil gc --finished-before 90d --dry-run
    """
    settings, places = placed(project)
    age_ms = _age_ms(finished_before, settings)
    following = identifier(after, "--after") if after else ""
    with records(project) as keeper, _progress() as note, _to_be_repeated():
        done = collect(
            keeper.parts,
            age_ms=age_ms,
            after=following,
            runs_max=limit,
            is_dry=dry_run,
            note=note,
        )
    space = Space() if dry_run else _given_back(lambda: give_space_back(places, is_whole=compact))
    if as_json:
        show_json(_json(done, space))
    else:
        _show(done, space, is_dry=dry_run)
    refused = [each for each in done.runs if each.outcome is Outcome.REFUSED]
    if refused:
        raise IntegrityError(
            f"{len(refused)} runs cannot be believed and were left: {refused[0].reason}",
            refused[0].run_id,
        )


def _age_ms(given: str | None, settings: Settings) -> int:
    if given is not None:
        return term_ms(given, name="--finished-before", most_days=AGE_DAYS_MAX, error=UsageError)
    name = "retention.finished_before"
    if not settings.retention.finished_before:
        raise UsageError(
            f"nothing says how long a run must have ended: {name} is not set",
            move="pass --finished-before 90d, or set it in counterfoil.toml",
        )
    return term_ms(settings.retention.finished_before, name=name, most_days=AGE_DAYS_MAX)


@contextmanager
def _to_be_repeated() -> Generator[None]:
    """Say of a write whose end is unknown that this one may be repeated."""
    try:
        yield
    except UnknownOutcomeError as error:
        raise UnknownOutcomeError(error.message, error.run_id, move=REPEAT) from error


def _given_back(give_back: Callable[[], Space]) -> Space:
    """Give room back; that this failed is no failure of what was archived."""
    try:
        return give_back()
    except (UnavailableError, UnknownOutcomeError) as error:
        return Space(note=f"the room was not given back: {error.message}")


@contextmanager
def _progress() -> Generator[Notes | None]:
    """Draw a bar for each run on standard error while somebody looks."""
    screen = console(is_error=True)
    if not screen.is_terminal:
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=screen, transient=True) as bar:
        job = bar.add_task("", total=None)

        def note(run_id: RunId) -> Note:
            name = printable(run_id)[:40].replace("[", "(")
            bar.reset(job, description=name, total=None)
            return lambda done, total: bar.update(job, completed=done, total=total)

        yield note


def _show(done: Round, space: Space, *, is_dry: bool) -> None:
    rows = [
        (
            each.run_id,
            clock_time(each.finished_at_ms) if each.finished_at_ms else "",
            cell(each.outcome.value, STYLES.get(each.outcome, "")),
            each.checkpoints,
            each.size_bytes,
            each.archive_bytes,
            each.reason,
        )
        for each in done.runs
    ]
    if rows:
        show_table(
            ("run", "ended", "outcome", ">checkpoints", ">bytes", ">archive", "reason"), rows
        )
    archived = [each for each in done.runs if each.outcome in (Outcome.ARCHIVED, Outcome.DUE)]
    size_bytes = sum(each.size_bytes for each in archived)
    verb = "would be archived" if is_dry else "archived"
    if archived:
        say(f"{len(archived)} runs {verb}; their checkpoints held {size_bytes} bytes.")
    else:
        say("No run that can be archived has ended that long ago.")
    if space.given_back_bytes:
        say(f"The file system got {space.given_back_bytes} bytes back.")
    elif space.spare_bytes:
        say(f"The store keeps {space.spare_bytes} bytes of room, and fills it before it grows.")
    if space.note:
        say(f"{space.note}.")
    if done.after:
        say(f"There may be more: go on with --after {printable(done.after)}", "yellow")


def _json(done: Round, space: Space) -> dict[str, Json]:
    return {
        "runs": [
            {
                "run": each.run_id,
                "outcome": each.outcome.value,
                "ended_at": moment(each.finished_at_ms),
                "checkpoints": each.checkpoints,
                "bytes": each.size_bytes,
                "archive_bytes": each.archive_bytes,
                "reason": each.reason,
            }
            for each in done.runs
        ],
        "space": {
            "bytes": space.size_bytes,
            "given_back": space.given_back_bytes,
            "spare": space.spare_bytes,
            "note": space.note,
        },
        "after": done.after,
    }
