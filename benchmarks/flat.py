"""A long run: whether its last steps cost what the first did, in time, disk and memory."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypedDict

from benchmarks.figures import Figure, median, quiet, target
from benchmarks.holder import BLOCK, EARLY, Held, Written, hold_run, write_run
from benchmarks.stage import files_in, scratch

STEPS = 10_000
STEPS_QUICK = 1_000
WINDOW = 1_000
WINDOW_QUICK = 250
OPENINGS = 7
OPENINGS_QUICK = 3

RATE_MIN = 0.95
STEP_BYTES_MAX = 4 * 1024
OPEN_MS_MAX = 20
GROWTH_MIB_MAX = 5
MIB = 1024 * 1024


def measure(folder: Path, *, is_quick: bool) -> list[Figure]:
    """Return what 10,000 steps of one run did to rate, disk, opening and memory."""
    steps = STEPS_QUICK if is_quick else STEPS
    window = WINDOW_QUICK if is_quick else WINDOW
    openings = OPENINGS_QUICK if is_quick else OPENINGS
    with scratch(folder) as home:
        long, short = home / "long", home / "short"
        long.mkdir()
        short.mkdir()
        written = write_run(long, steps, window)
        write_run(short, EARLY, 0)
        disk_bytes = sum(path.stat().st_size for path in files_in(long) if "raw" not in path.name)
        raw_bytes = sum(path.stat().st_size for path in files_in(long) if "raw" in path.name)
        raw_pairs = 2 * window
        pairs = [(hold_run(long), hold_run(short)) for _ in range(openings)]
    return [
        *_rates(written, steps, window),
        _disk(disk_bytes / steps, raw_bytes / raw_pairs, steps),
        *_held([pair[0] for pair in pairs], [pair[1] for pair in pairs], steps),
        _grown(written, steps),
    ]


class Windows(TypedDict):
    """Which blocks are compared, and what the early ones are called."""

    early: slice
    late: slice
    beside: str


def _rates(written: Written, steps: int, window: int) -> list[Figure]:
    """Compare medians of blocks, so that a pause of the machine counts once."""
    count = window // BLOCK
    early, late = slice(0, count), slice(-1 - count, -1)  # the last block is a short one
    name, beside = f"rate, last {window} of {steps}", f"the first {window} steps"
    windows: Windows = {"early": early, "late": late, "beside": beside}
    ours = _rate(name, middle=median, times_s=written.ours_s, **windows)
    drift = _rate(
        "  raw commits at the same times", middle=median, times_s=written.raw_s, **windows
    )
    calm = _rate("  the quietest tenth", middle=quiet, times_s=written.ours_s, **windows)
    ratio = (ours.ratio or 0) / (drift.ratio or 1)
    cpu_first, cpu_last = median(written.cpu_s[early]), median(written.cpu_s[late])
    return [
        replace(ours, **target(ours.ratio or 0, ">=", RATE_MIN, "of first")),
        drift,
        Figure(
            name="  the rate, less that drift",
            unit="",
            value=ratio,
            ratio=ratio,
            **target(ratio, ">=", RATE_MIN, "of first"),
        ),
        calm,
        Figure(
            name="  processor time per step, then",
            unit="µs",
            value=cpu_last / BLOCK * 1e6,
            raw=cpu_first / BLOCK * 1e6,
            raw_name=beside,
            ratio=cpu_first / cpu_last,
        ),
    ]


def _rate(
    name: str,
    *,
    middle: Callable[[list[float]], float],
    times_s: list[float],
    early: slice,
    late: slice,
    beside: str,
) -> Figure:
    first, last = middle(times_s[early]), middle(times_s[late])
    return Figure(
        name=name,
        unit="/s",
        value=BLOCK / last,
        raw=BLOCK / first,
        raw_name=beside,
        ratio=first / last,
    )


def _disk(step_bytes: float, raw_bytes: float, steps: int) -> Figure:
    return Figure(
        name=f"disk per step, {steps} steps",
        unit="B",
        value=step_bytes,
        raw=raw_bytes,
        raw_name="raw rows that are never pruned",
        ratio=raw_bytes / step_bytes,
        **target(step_bytes, "<=", STEP_BYTES_MAX, "B"),
    )


def _held(long: list[Held], short: list[Held], steps: int) -> list[Figure]:
    opened_ms = median(held.opened_s for held in long) * 1e3
    short_ms = median(held.opened_s for held in short) * 1e3
    memory = median(held.resident_bytes for held in long) / MIB
    short_memory = median(held.resident_bytes for held in short) / MIB
    more = memory - short_memory
    return [
        Figure(
            name=f"open a run of {steps} steps",
            unit="ms",
            value=opened_ms,
            raw=short_ms,
            raw_name=f"open a run of {EARLY} steps",
            ratio=short_ms / opened_ms,
            **target(opened_ms, "<=", OPEN_MS_MAX, "ms"),
        ),
        Figure(
            name=f"memory, holding {steps} steps",
            unit="MiB",
            value=memory,
            raw=short_memory,
            raw_name=f"holding {EARLY} steps",
            ratio=short_memory / memory,
            **target(more, "<=", GROWTH_MIB_MAX, "MiB more"),
        ),
    ]


def _grown(written: Written, steps: int) -> Figure:
    grown = written.grown_bytes / MIB
    return Figure(
        name=f"  grown while writing {steps} steps",
        unit="MiB",
        value=grown,
        **target(grown, "<=", GROWTH_MIB_MAX, "MiB"),
    )
