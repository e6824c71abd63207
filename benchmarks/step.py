"""One write step on two SQLite files, against the raw commits that it needs."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import apsw

from benchmarks.figures import Figure, median, quiet, target
from benchmarks.raw import RawFiles
from benchmarks.stage import RUN_ID, TASK, do_steps, keeper_in, scratch

ROUNDS = 600
ROUNDS_QUICK = 100
STEPS_PER_BLOCK = 5
WARM_UP = 100

SECONDS_MAX = 25.0
SECONDS_MAX_QUICK = 4.0
"""A slow disk gets fewer rounds, not more time."""

COMMITS_MERGED = 1
"""Pairs of durable writes in a step whose receipt rides with the next intent."""

COMMITS_APART = 2
"""The same, where intent and receipt are committed apart."""

RATIO_MIN = 0.6


@dataclass(frozen=True, kw_only=True, slots=True)
class Times:
    """Seconds of each block, by the clock and by the processor."""

    wall_s: list[float]
    cpu_s: list[float]


def measure(folder: Path, *, is_quick: bool) -> list[Figure]:
    """Return the rates of steps, each against the raw rate of its own round."""
    rounds = ROUNDS_QUICK if is_quick else ROUNDS
    with ExitStack() as stack:
        home = stack.enter_context(scratch(folder))
        blocks: dict[str, Callable[[], None]] = {}
        for name, merges in (("merged", True), ("apart", False)):
            (home / name).mkdir()
            keeper = stack.enter_context(keeper_in(home / name, merges=merges))
            run = stack.enter_context(keeper.run(TASK, RUN_ID))
            do_steps(run, WARM_UP)
            blocks[name] = lambda run=run: do_steps(run, STEPS_PER_BLOCK)
        raws: list[RawFiles] = []
        for name, commits in (("merged", COMMITS_MERGED), ("apart", COMMITS_APART)):
            (home / f"raw-{name}").mkdir()
            raw = RawFiles(home / f"raw-{name}", row_bytes=row_bytes(home / name))
            stack.callback(raw.close)
            raws.append(raw)
            count = STEPS_PER_BLOCK * commits
            raw.commit_some(WARM_UP)
            blocks[f"raw-{name}"] = lambda raw=raw, count=count: raw.commit_some(count)
        seconds_max = SECONDS_MAX_QUICK if is_quick else SECONDS_MAX
        times = interleaved(blocks, rounds, seconds_max=seconds_max)
    return [
        *_figures("write step, receipt rides", times["merged"], times["raw-merged"], 2),
        *_figures("write step, receipt apart", times["apart"], times["raw-apart"], 4),
    ]


def interleaved(
    blocks: dict[str, Callable[[], None]], rounds: int, *, seconds_max: float = SECONDS_MAX
) -> dict[str, Times]:
    """Time each block once a round, so that what slows the machine slows them all."""
    times = {name: Times(wall_s=[], cpu_s=[]) for name in blocks}
    ends_at = time.perf_counter() + seconds_max
    for turn in range(rounds):
        if turn and time.perf_counter() > ends_at:
            break
        names = list(blocks)
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            began, cpu_began = time.perf_counter(), time.process_time()
            blocks[name]()
            times[name].wall_s.append(time.perf_counter() - began)
            times[name].cpu_s.append(time.process_time() - cpu_began)
    return times


def row_bytes(folder: Path) -> int:
    """Return the size of the newest checkpoint: envelope, events, names and state."""
    (path,) = folder.rglob("checkpoints.db")
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    row = connection.execute(
        "SELECT length(envelope) + length(events) + length(settles) + length(state) "
        "FROM checkpoint JOIN state ON checkpoint = number ORDER BY number DESC LIMIT 1"
    ).fetchone()
    connection.close()
    if row is None:
        raise LookupError(f"{path} holds no checkpoint")
    return int(row[0])


def _figures(name: str, ours: Times, raw: Times, writes: int) -> list[Figure]:
    pairs = zip(ours.wall_s, raw.wall_s, strict=True)
    ratio = median(theirs / own for own, theirs in pairs)
    commits = f"{writes} raw commits to the same two files"
    return [
        Figure(
            name=name,
            unit="/s",
            value=STEPS_PER_BLOCK / median(ours.wall_s),
            raw=STEPS_PER_BLOCK / median(raw.wall_s),
            raw_name=commits,
            ratio=ratio,
            **target(ratio, ">=", RATIO_MIN, "of raw"),
        ),
        Figure(
            name="  its quietest tenth",
            unit="/s",
            value=STEPS_PER_BLOCK / quiet(ours.wall_s),
            raw=STEPS_PER_BLOCK / quiet(raw.wall_s),
            raw_name="the quietest tenth of those",
            ratio=quiet(raw.wall_s) / quiet(ours.wall_s),
        ),
        Figure(
            name="  processor time",
            unit="µs",
            value=median(ours.cpu_s) / STEPS_PER_BLOCK * 1e6,
            raw=median(raw.cpu_s) / STEPS_PER_BLOCK * 1e6,
            raw_name=commits,
        ),
    ]
