"""`counterfoil drill`: the proof on one's own engines."""

import importlib
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer
from rich.live import Live
from rich.text import Text

from counterfoil.cli.options import JsonOption
from counterfoil.cli.screen import cell, console, heading, say, show_facts, show_json
from counterfoil.settings import LEASE_MS_MIN

if TYPE_CHECKING:
    from counterfoil.drill import Progress, Report

STORE = HEADS = "sqlite"
WORKERS, WORKERS_MAX = 4, 64
SECONDS, SECONDS_MAX = 20, 86_400
SEED = 1
LEASE_MS, LEASE_MS_MAX = 2_000, 60_000
"""Short, so that takeovers are many; a longer one is mostly waited for."""

EVENTS = {
    "claimed": "claims",
    "ended": "ends",
    "lost": "races lost",
    "failed": "failures of programs",
    "unavailable": "times unavailable",
}
"""What workers log of runs, as people say it."""


StoreOption = Annotated[
    str,
    typer.Option("--store", metavar="URL", help="Where checkpoints lie; or: sqlite, postgresql."),
]
HeadsOption = Annotated[
    str,
    typer.Option("--heads", metavar="URL", help="Where heads lie; or: sqlite, postgresql, etcd."),
]
WorkersOption = Annotated[
    int, typer.Option("--workers", min=1, max=WORKERS_MAX, metavar="N", help="Processes.")
]
SecondsOption = Annotated[
    int,
    typer.Option(
        "--seconds", min=1, max=SECONDS_MAX, metavar="S", help="How long workers are struck."
    ),
]
SeedOption = Annotated[
    int, typer.Option("--seed", min=0, metavar="X", help="The same seed draws the same faults.")
]
LeaseOption = Annotated[
    int,
    typer.Option(
        "--lease-ms", min=LEASE_MS_MIN, max=LEASE_MS_MAX, metavar="L", help="Term of a lease."
    ),
]
SabotageOption = Annotated[
    str | None,
    typer.Option(
        "--sabotage",
        metavar="WHAT",
        help="Break a promise of the target, to see it found: keys, fences, effects.",
        show_default=False,
    ),
]


def drill(
    *,
    store: StoreOption = STORE,
    heads: HeadsOption = HEADS,
    workers: WorkersOption = WORKERS,
    seconds: SecondsOption = SECONDS,
    seed: SeedOption = SEED,
    lease_ms: LeaseOption = LEASE_MS,
    sabotage: SabotageOption = None,
    as_json: JsonOption = False,
) -> None:
    """Kill and pause workers on your own engines, and count effects on their target.

    Workers claim runs that are submitted all the while. They are killed with SIGKILL and
    paused with SIGSTOP, at random moments and right before or after calls of a store, a
    register and a target. The target is a program of its own, which counts. In place of a
    URL the words sqlite, postgresql and etcd start a throwaway one. Needs no project.
    Exits with 0 only if each effect happened once and every run completed.

    Example:  counterfoil drill --store postgresql --heads etcd --seconds 60
    """
    # Only this command needs the drill, and loading it would slow every other one down.
    stage = importlib.import_module("counterfoil.drill")
    plan = stage.make_plan(
        store=store,
        heads=heads,
        workers=workers,
        seconds=seconds,
        seed=seed,
        lease_ms=lease_ms,
        sabotage=sabotage,
    )
    with _watched(as_json=as_json) as watch:
        report: Report = stage.run_drill(plan, watch)
    if as_json:
        show_json(report.as_json())
    else:
        _show(report)
    if (failure := report.failure()) is not None:
        raise failure


@contextmanager
def _watched(*, as_json: bool) -> Generator[Callable[["Progress"], None]]:
    """Give what shows a line of progress on a terminal, and nothing elsewhere."""
    screen = console(is_error=True)
    if as_json or not screen.is_terminal:
        yield _say_nothing
        return
    with Live(console=screen, refresh_per_second=2, transient=True) as live:
        yield lambda progress: live.update(_line(progress))


def _say_nothing(progress: "Progress") -> None:
    """Hear how far it is, and keep it."""


def _line(progress: "Progress") -> Text:
    return cell(
        f"{progress.seconds:5.0f} s  {progress.phase}: {progress.kills} kills, "
        f"{progress.pauses} pauses, {progress.takeovers} takeovers, "
        f"{progress.submitted - progress.open_runs} of {progress.submitted} runs ended"
    )


def _show(report: "Report") -> None:
    """Print what was found, for people."""
    heading("Counted on the target")
    show_facts(
        [
            ("steps", f"{report.steps} in {report.completed} completed runs, of {report.runs}"),
            ("effects", report.effects),
            ("duplicates", _marked(report.duplicates)),
            ("lost", _marked(report.lost)),
            ("stale calls refused", report.stale_calls_refused),
        ]
    )
    heading("Workers")
    events = ", ".join(f"{report.events.get(name, 0)} {words}" for name, words in EVENTS.items())
    show_facts(
        [
            ("places", f"checkpoints in {report.store}, heads in {report.heads}"),
            ("kills", f"{report.kills}, of {report.workers} workers in {report.seconds} s"),
            ("pauses", f"{report.pauses} longer than a lease, {report.short_pauses} shorter"),
            ("takeovers", report.takeovers),
            ("stale commits refused", report.stale_commits_refused),
            ("events", events),
        ]
    )
    heading("Takeover, from the death or pause of a holder to the next claim")
    show_facts(
        [
            ("slowest", _ms(report.slowest_takeover_ms)),
            ("slowest after a kill", _ms(report.slowest_after_kill_ms)),
            ("in the middle", _ms(report.median_takeover_ms)),
            ("lease", _ms(report.lease_ms)),
        ]
    )
    if report.alarms:
        heading("Alarms: what no kill and no pause explains", "bold red")
        for alarm in report.alarms:
            say(alarm)
    heading("Again")
    say(report.command)
    say("")
    if report.failure() is None:
        say(f"Held: {report.steps} effects, each once, through {report.kills} kills.", "bold green")


def _marked(count: int) -> Text:
    return cell(count, "bold red" if count else "bold green")


def _ms(length: int | None) -> str:
    return "there was none" if length is None else f"{length} ms"
