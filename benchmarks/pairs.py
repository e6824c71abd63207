"""Write steps on each pair of places: one run, and sixteen at once, beside raw commits."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from benchmarks.figures import Figure, median
from benchmarks.places import PAIRS, SQLITE, Commit, RawPair, Servers, keeper_on, name_of, set_up
from benchmarks.places import servers as started
from benchmarks.stage import TASK, do_steps, scratch
from benchmarks.step import Times, interleaved
from counterfoil import Session

RUNS = 16
STEPS_PER_BLOCK = 10
ROUNDS = 200
ROUNDS_QUICK = 20
SECONDS_MAX = 20.0
SECONDS_MAX_QUICK = 4.0


def measure(folder: Path, *, is_quick: bool) -> list[Figure]:
    """Return steps per second on each pair, each beside the raw commits of its own rounds."""
    figures: list[Figure] = []
    with started() as servers, scratch(folder) as home:
        for number, pair in enumerate(PAIRS):
            place = home / f"pair-{number}"
            figures += _measure(pair, place, servers, is_quick=is_quick)
    return figures


def _measure(
    pair: tuple[str, str], place: Path, servers: Servers, *, is_quick: bool
) -> list[Figure]:
    place.mkdir()
    project = set_up(place, *servers.urls(pair, place))
    with ExitStack() as stack:
        raw = RawPair(pair, place, servers)
        stack.callback(raw.close)
        keeper = stack.enter_context(keeper_on(project))
        pool = stack.enter_context(ThreadPoolExecutor(max_workers=RUNS))
        runs = [stack.enter_context(keeper.run(TASK, f"run-{n}")) for n in range(RUNS)]
        # SQLite has one writer at a time: others would wait for its lock and add nothing.
        writers = 1 if SQLITE in pair else RUNS
        commits = [raw.commits(number) for number in range(writers)]
        blocks: dict[str, Callable[[], None]] = {
            "one": lambda: do_steps(runs[0], STEPS_PER_BLOCK),
            "raw one": lambda: _repeat(commits[0], STEPS_PER_BLOCK),
            "all": lambda: _together(pool, runs),
            "raw all": lambda: _together_raw(pool, commits),
        }
        for block in blocks.values():
            block()
        times = interleaved(
            blocks,
            ROUNDS_QUICK if is_quick else ROUNDS,
            seconds_max=SECONDS_MAX_QUICK if is_quick else SECONDS_MAX,
        )
    raw_name = f"raw commits, {writers} at once" if writers > 1 else "raw commits, one at a time"
    return [
        _figure(f"{name_of(pair)}: one run", times["one"], times["raw one"], 1, "raw commits"),
        _figure(f"  {RUNS} runs at once", times["all"], times["raw all"], RUNS, raw_name),
    ]


def _repeat(commit: Commit, count: int) -> None:
    for _ in range(count):
        commit()


def _together(pool: ThreadPoolExecutor, runs: Sequence[Session]) -> None:
    list(pool.map(lambda run: do_steps(run, STEPS_PER_BLOCK), runs))


def _together_raw(pool: ThreadPoolExecutor, commits: Sequence[Commit]) -> None:
    """Make as many commits as all runs make steps, whoever makes them."""
    each = RUNS * STEPS_PER_BLOCK // len(commits)
    list(pool.map(lambda commit: _repeat(commit, each), commits))


def _figure(name: str, ours: Times, raw: Times, runs: int, raw_name: str) -> Figure:
    steps = runs * STEPS_PER_BLOCK
    return Figure(
        name=name,
        unit="/s",
        value=steps / median(ours.wall_s),
        raw=steps / median(raw.wall_s),
        raw_name=raw_name,
        ratio=median(theirs / own for own, theirs in zip(ours.wall_s, raw.wall_s, strict=True)),
    )
