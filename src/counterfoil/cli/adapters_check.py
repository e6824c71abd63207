"""`counterfoil adapters check`: what an adapter claims, and what it shows."""

import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.live import Live

from counterfoil.cli.modules import named_object
from counterfoil.cli.options import JsonOption
from counterfoil.cli.screen import cell, console, heading, say, show_facts, show_json
from counterfoil.core.errors import ConfigError, RefusedError
from counterfoil.testing.adapter_bench import AdapterBench
from counterfoil.testing.trial import SECOND_DEATHS, Verdict, try_adapter

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

    Each clause of its level gets a fresh target. Then a run of two effects is killed at every
    instant between two of its calls, and so are some of its recoveries; effects are counted
    on the target by the bench. Exits with 0 only if the level that is shown is the one that
    is claimed and each clause holds. What a bench is, says docs/how-to/test-an-adapter.md.

    Example:  counterfoil adapters check shop_bench:fresh
    """
    made = named_object(bench, "bench")
    if not callable(made):
        raise ConfigError(f"{bench:.100} is no function that returns a bench")

    def fresh() -> AdapterBench:
        found = made()
        if not isinstance(found, AdapterBench):
            raise ConfigError(f"{bench:.100} returns no AdapterBench")
        return found

    with _watched(as_json=as_json) as tell:
        verdict = try_adapter(fresh, second_deaths=second_deaths, tell=tell)
    if as_json:
        show_json(_facts(verdict))
    else:
        _show(verdict)
    if not verdict.holds:
        shown = verdict.shown.value if verdict.shown else "no level"
        raise RefusedError(
            f"{verdict.kind} claims {verdict.claimed.value} and shows {shown}",
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
        "holds": verdict.holds,
        "clauses": [
            {"clause": finding.sentence, "kept": not finding.problem, "problem": finding.problem}
            for finding in verdict.findings
        ],
        "untested": list(verdict.untested),
        "crashes": verdict.crashes,
        "double_crashes": verdict.double_crashes,
        "reviews": verdict.reviews,
        "crash_problem": verdict.crash_problem,
    }


def _show(verdict: Verdict) -> None:
    broken = [finding for finding in verdict.findings if finding.problem]
    kept = len(verdict.findings) - len(broken)
    show_facts(
        [
            ("kind", f"{verdict.kind} of adapter {verdict.adapter}"),
            ("level claimed", verdict.claimed.value),
            ("level shown", _shown(verdict)),
            ("clauses", f"{kept} of {len(verdict.findings)} kept"),
            ("crashes", _crashes(verdict)),
        ]
    )
    if broken:
        heading("Not kept", "bold red")
        show_facts([(finding.sentence, finding.problem) for finding in broken])
    if verdict.crash_problem:
        heading("Found by the crash drill", "bold red")
        say(verdict.crash_problem)
    if verdict.untested:
        heading("Not tested: the bench cannot disturb, lose an answer or cut off")
        for sentence in verdict.untested:
            say(sentence)
    if verdict.holds:
        say("")
        say(f"Held: {verdict.kind} is {verdict.claimed.value}.", "bold green")


def _shown(verdict: Verdict) -> object:
    if verdict.shown is None:
        return cell("none", "bold red")
    return cell(
        verdict.shown.value, "bold green" if verdict.shown is verdict.claimed else "bold red"
    )


def _crashes(verdict: Verdict) -> str:
    asked = f", a person is asked after {verdict.reviews}" if verdict.reviews else ""
    return f"{verdict.crashes}, and {verdict.double_crashes} of a recovery{asked}"
