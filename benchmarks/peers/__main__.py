"""`python -m benchmarks.peers`: measure all sides by turns, and write what came out."""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import apsw
import msgspec
import psycopg

from benchmarks.peers import environments
from benchmarks.peers.alone import LIVING, SEAL, WAITING, busy_worker, idle_worker, seal_of_a_step
from benchmarks.peers.chart import chart
from benchmarks.peers.duplicates import count_duplicates
from benchmarks.peers.machine import machine, versions
from benchmarks.peers.program import ProgramError
from benchmarks.peers.results import (
    FOLDER,
    FORMAT,
    Duplicates,
    Missing,
    Results,
    ResultsError,
    stem_of,
    write,
    write_text,
)
from benchmarks.peers.scenarios import flat_run, large_results, long_run, many_runs, one_run
from benchmarks.peers.servers import ServerError
from benchmarks.peers.sides import SIDES, Side, sides_named
from benchmarks.peers.stage import Stage
from benchmarks.peers.table import report
from benchmarks.stage import SCRATCH
from counterfoil import CounterfoilError

Scenario = Callable[[Stage, Sequence[Side]], None]

SCENARIOS: dict[str, Scenario] = {
    "one": one_run,
    "many": many_runs,
    "long": long_run,
    "flat": flat_run,
    "reference": large_results,
    WAITING: idle_worker,
    LIVING: busy_worker,
    SEAL: seal_of_a_step,
}
DUPLICATES = "duplicates"
FAILURES = (CounterfoilError, ServerError, ProgramError, OSError, psycopg.Error, apsw.Error)


def main(words: list[str]) -> int:
    """Measure what was asked for; 2 if it cannot be asked for like that."""
    asked = _parsed(words)
    began = time.perf_counter()
    taken = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    try:
        sides = sides_named(asked.sides)
        wanted = _scenarios_named(asked.only)
        write_text(asked.results / ".can-be-written", "")
        (asked.results / ".can-be-written").unlink()
        home = _home(asked.folder)
    except (LookupError, ResultsError) as error:
        print(f"benchmarks.peers: {error.args[0]}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(dir=home, prefix="peers-", ignore_cleanup_errors=True) as name:
        folder = Path(name).resolve()
        folder.chmod(0o755)  # PostgreSQL runs as another user
        results = _taken(folder, sides, wanted, taken, is_quick=asked.quick)
    results = _finished(results, began)
    path = write(results, asked.results)
    stem = stem_of(results)
    write_text(path.with_suffix(".md"), report(results, stem))
    write_text(path.with_suffix(".svg"), chart(results))
    print(report(results, stem))
    print(f"{results.seconds:.0f} s; written to {path}, .md and .svg", file=sys.stderr)
    return 0


def _parsed(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("sides", nargs="*", help="sides, or `ours`, `peer`, `raw`; all by default")
    parser.add_argument("--quick", action="store_true", help="small numbers, to see that it runs")
    parser.add_argument(
        "--only", action="append", default=[], help=f"of {', '.join((*SCENARIOS, DUPLICATES))}"
    )
    parser.add_argument("--folder", type=Path, default=SCRATCH, help="a folder on the disk to use")
    parser.add_argument("--results", type=Path, default=FOLDER, help="where results are written")
    return parser.parse_args(words)


def _scenarios_named(names: list[str]) -> list[str]:
    known = (*SCENARIOS, DUPLICATES)
    unknown = sorted(set(names) - set(known))
    if unknown:
        raise LookupError(
            f"no scenario is named {', '.join(unknown)}; there are {', '.join(known)}"
        )
    return [name for name in known if not names or name in names]


def _home(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError as error:
        raise LookupError(f"{folder} cannot be written to: {error.strerror}") from error


def _taken(
    home: Path, sides: Sequence[Side], wanted: list[str], taken: str, *, is_quick: bool
) -> Results:
    stage = Stage(home=home, pythons={}, is_quick=is_quick, say=_say)
    ready: list[Side] = []
    for side in sides:
        try:
            stage.pythons[side.name] = environments.install(side)
        except environments.InstallError as error:
            stage.skip("install", side, error)
        else:
            ready.append(side)
    stage.load["start"] = round(os.getloadavg()[0], 2)
    rows: list[Duplicates] = []
    for name in wanted:
        try:
            if name == DUPLICATES:
                rows = count_duplicates(stage, ready)
            else:
                SCENARIOS[name](stage, ready)
        except FAILURES as error:  # the other scenarios still count
            _say(f"{name}: {error}")
            stage.missing.append(Missing(scenario=name, side="all that were left", why=str(error)))
    stage.load["end"] = round(os.getloadavg()[0], 2)
    return Results(
        format=FORMAT,
        taken=taken,
        seconds=0,
        is_quick=is_quick,
        machine=machine(home),
        versions=versions(),
        titles={side.name: side.title for side in SIDES},
        load=stage.load,
        measures=tuple(stage.measures),
        missing=tuple(stage.missing),
        duplicates=tuple(rows),
    )


def _finished(results: Results, began: float) -> Results:
    return msgspec.structs.replace(results, seconds=round(time.perf_counter() - began, 1))


def _say(text: str) -> None:
    print(f"{datetime.now(UTC):%H:%M:%S} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
