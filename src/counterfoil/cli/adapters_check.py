"""`counterfoil adapters check`: what an adapter claims, and what it shows."""

import logging
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, redirect_stdout
from typing import Annotated

import typer
from rich.live import Live
from rich.padding import Padding

from counterfoil.cli.modules import MOVE, named_object, told
from counterfoil.cli.options import JsonOption
from counterfoil.cli.patience import patience
from counterfoil.cli.screen import cell, console, heading, say, show, show_facts, show_json
from counterfoil.core.errors import ConfigError, CounterfoilError, RefusedError
from counterfoil.testing.adapter_bench import AdapterBench
from counterfoil.testing.expect import ConformanceError
from counterfoil.testing.trial import SECOND_DEATHS, Outcome, Verdict, try_adapter
from counterfoil.testing.trial_claim import Untried

BenchArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODULE:BENCH",
        help="A function that returns an AdapterBench over a fresh target of your adapter.",
    ),
]
DeathsOption = Annotated[
    float,
    typer.Option(
        "--second-deaths",
        min=0.0,
        max=1.0,
        metavar="SHARE",
        help="Share of the instants of each recovery to die at again.",
    ),
]


def check(
    bench: BenchArgument,
    *,
    second_deaths: DeathsOption = SECOND_DEATHS,
    as_json: JsonOption = False,
) -> None:
    """Hold an adapter to what it claims, on its own target.

    BENCH is a function of yours, in a module of the present folder or an installed one. It
    makes a fresh target (a scratch database, a test account) and returns an AdapterBench:
    how to open your adapter on it, how to write, and how to count effects on the target.

    1. Each clause of the level that the adapter declares is tried, on a target of its own.

    2. A run is killed at every instant between two of its calls, and so are some of its recoveries.

    3. Processes that make a call of the run are killed with SIGKILL inside it.

    The level that is shown is the strongest one that all this bears out. What the bench
    cannot try is listed, with what it must offer. Exits with 0 only if everything was tried
    and held, and with 3 otherwise. A whole bench is in docs/how-to/test-an-adapter.md.

    Example:  counterfoil adapters check shop_bench:fresh
    """
    verdict = _tried(bench, second_deaths, as_json=as_json)
    if as_json:
        show_json(_facts(verdict))
    else:
        _show(verdict)
    if (refusal := _refusal(verdict)) is not None:
        raise refusal


def _tried(bench: str, second_deaths: float, *, as_json: bool) -> Verdict:
    """Return what a trial came to.

    Raises:
        ConfigError: It is no bench, or its own lines raise something.
        RefusedError: Something of it does not end.
    """
    with (
        patience(as_json=as_json) as wait_for,
        _watched(as_json=as_json) as show_line,
        redirect_stdout(sys.stderr),  # facts alone go to standard output
        _in_a_sentence(bench),
    ):

        def tell(what: str, within_s: float) -> None:
            wait_for(what, within_s)
            show_line(what)

        return try_adapter(_maker_of(bench), second_deaths=second_deaths, tell=tell)


def _maker_of(bench: str) -> Callable[[], AdapterBench]:
    made = named_object(bench, "bench")
    if not callable(made):
        raise ConfigError(f"{bench:.100} is no function that returns a bench", move=MOVE)

    def fresh() -> AdapterBench:
        found = made()
        if not isinstance(found, AdapterBench):
            raise ConfigError(f"{bench:.100} returns no AdapterBench", move=MOVE)
        return found

    return fresh


@contextmanager
def _in_a_sentence(bench: str) -> Generator[None]:
    """Turn what a stranger's lines raise into a sentence."""
    try:
        yield
    except ConformanceError as error:
        misfit = f"{bench:.100} does not fit its adapter; not so: {error}"
        raise ConfigError(misfit, move=MOVE) from error
    except CounterfoilError:
        raise
    except (Exception, SystemExit) as error:  # they may raise anything
        raise ConfigError(f"{bench:.100} raises {told(error)}", move=MOVE) from error


def _refusal(verdict: Verdict) -> RefusedError | None:
    """Return the error that the command ends with, if there is one."""
    match verdict.outcome:
        case Outcome.HELD:
            return None
        case Outcome.PARTLY_TRIED:
            count = len(verdict.untried)
            return RefusedError(
                f"{verdict.kind} is {verdict.claimed} as far as it was tried,"
                f" and {count} promise{'s were' if count > 1 else ' was'} not",
                move="give the bench what is named",
            )
        case Outcome.NOT_HELD if verdict.shown is verdict.claimed:
            return RefusedError(
                f"{verdict.kind} does not keep what an adapter of any level must",
                move="mend what is named",
            )
        case Outcome.NOT_HELD:
            shown = verdict.shown.value if verdict.shown else "no level"
            return RefusedError(
                f"{verdict.kind} claims {verdict.claimed} and shows {shown}",
                move="mend what is named, or declare the level that is shown",
            )


@contextmanager
def _watched(*, as_json: bool) -> Generator[Callable[[str], None]]:
    """Give what shows a line of progress on a terminal; runs on trial say nothing."""
    log, screen = logging.getLogger("counterfoil"), console(is_error=True)
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        if as_json or not screen.is_terminal:
            yield lambda _: None
            return
        with Live(console=screen, refresh_per_second=4, transient=True) as live:
            yield lambda what: live.update(cell(what))
    finally:
        log.setLevel(level)


def _facts(verdict: Verdict) -> dict[str, object]:
    return {
        "adapter": verdict.adapter,
        "kind": verdict.kind,
        "claimed": verdict.claimed.value,
        "shown": verdict.shown.value if verdict.shown else None,
        "outcome": verdict.outcome.value,
        "clauses": [
            {"clause": finding.sentence, "kept": not finding.problem, "problem": finding.problem}
            for finding in verdict.findings
        ],
        "untried": [
            {"clause": each.sentence, "why": each.why, "offer": each.offer}
            for each in verdict.untried
        ],
        "crashes": verdict.drill.tally.crashes,
        "double_crashes": verdict.drill.tally.double_crashes,
        "kills": verdict.drill.kills.kills,
        "kills_inside": verdict.drill.kills.inside,
        "reviews": verdict.drill.reviews,
        "crash_problem": verdict.drill.problem,
    }


def _show(verdict: Verdict) -> None:
    broken = [finding for finding in verdict.findings if finding.problem]
    kept = len(verdict.findings) - len(broken)
    tally, kills = verdict.drill.tally, verdict.drill.kills
    show_facts(
        [
            ("kind", f"{verdict.kind} of adapter {verdict.adapter}"),
            ("level claimed", verdict.claimed.value),
            ("level shown", _shown(verdict)),
            ("clauses", f"{kept} of {len(verdict.findings)} kept"),
            ("deaths between calls", f"{tally.crashes}, and {tally.double_crashes} of a recovery"),
            (
                "deaths inside a call",
                f"{kills.inside} of {kills.kills} kills" if kills.kills else "none",
            ),
            ("a person is asked", f"after {verdict.drill.reviews or 'none'} of them"),
        ]
    )
    if broken:
        heading("Not kept", "bold red")
        for finding in broken:
            _show_pair(finding.sentence, finding.problem)
    if verdict.drill.problem:
        heading("Found by the crash drill", "bold red")
        say(verdict.drill.problem)
    if verdict.untried:
        heading("Not tried", "bold yellow")
        _show_untried(verdict.untried)
    if verdict.outcome is Outcome.HELD:
        say("")
        say(f"Held: {verdict.kind} is {verdict.claimed.value}.", "bold green")


def _show_untried(untried: tuple[Untried, ...]) -> None:
    """Print what was not tried, together where one thing is in the way."""
    together: dict[tuple[str, str], list[str]] = {}
    for each in untried:
        together.setdefault((each.why, each.offer), []).append(each.sentence)
    for (why, offer), sentences in together.items():
        _show_pair("; ".join(sentences), f"{why}; give it {offer}")


def _show_pair(sentence: str, beneath: str) -> None:
    """Print a sentence, and what belongs to it beneath."""
    say(f"* {sentence}")
    show(Padding(cell(beneath), (0, 0, 0, 2)))


def _shown(verdict: Verdict) -> object:
    match verdict.outcome:
        case Outcome.HELD:
            return cell(verdict.claimed.value, "bold green")
        case Outcome.PARTLY_TRIED:
            return cell(f"{verdict.claimed.value}, as far as it was tried", "bold yellow")
        case Outcome.NOT_HELD:
            return cell(verdict.shown.value if verdict.shown else "none", "bold red")
