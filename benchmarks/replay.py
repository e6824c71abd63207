"""A program that is started again: what each settled step costs until it gets to new work."""

from pathlib import Path

from benchmarks.figures import Figure, median
from benchmarks.raw import RawFiles
from benchmarks.stage import RUN_ID, TASK, do_steps, keeper_in, scratch
from benchmarks.step import interleaved, row_bytes

STEPS = 2_000
STEPS_QUICK = 400
BLOCK = 100


def measure(folder: Path, *, is_quick: bool) -> list[Figure]:
    """Return microseconds per replayed step, against reading its row and nothing else."""
    steps = STEPS_QUICK if is_quick else STEPS
    with scratch(folder) as home:
        with keeper_in(home) as keeper, keeper.run(TASK, RUN_ID) as run:
            do_steps(run, steps)
        raw = RawFiles(home / "raw", row_bytes=row_bytes(home / "project"))
        raw.commit_some(BLOCK)
        with keeper_in(home) as keeper, keeper.run(TASK, RUN_ID) as run:
            times = interleaved(
                {"ours": lambda: do_steps(run, BLOCK), "raw": lambda: _read(raw)},
                steps // BLOCK,
            )
        raw.close()
    ours, limit = times["ours"].wall_s, times["raw"].wall_s
    return [
        Figure(
            name=f"replay, of {steps} settled steps",
            unit="µs",
            value=median(ours) / BLOCK * 1e6,
            raw=median(limit) / BLOCK * 1e6,
            raw_name="read one row",
            ratio=median(theirs / own for own, theirs in zip(ours, limit, strict=True)),
        )
    ]


def _read(raw: RawFiles) -> None:
    for number in range(1, BLOCK + 1):
        raw.read(number)
