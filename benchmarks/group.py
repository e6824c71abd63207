"""Many runs of one process at once: writes put together, writes apart, and the raw limit."""

import secrets
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.figures import Figure, median, target
from benchmarks.raw import RawFiles
from benchmarks.stage import TASK, Ledger, do_steps, effects_of, scratch
from benchmarks.step import Times, interleaved, row_bytes
from counterfoil.compose import wire
from counterfoil.core.codec import Checkpoint
from counterfoil.engine.clock import SystemClock
from counterfoil.engine.grouping import shared
from counterfoil.engine.session import Session
from counterfoil.keeper import Keeper
from counterfoil.keys import keyring_of
from counterfoil.settings import Settings
from counterfoil.stores.sqlite import SqliteStore, open_heads, open_store

RUNS = 64
STEPS_PER_BLOCK = 5
"""Steps of each run in one block: long enough that the ends of a block weigh little."""

WARM_UP = 5
ROUNDS = 60
ROUNDS_QUICK = 8
SECONDS_MAX = 60.0
SECONDS_MAX_QUICK = 10.0

GAIN_MIN = 1.0
"""Writes put together must never be slower than the same writes apart."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fleet:
    """Sessions of one process, each worked on by a thread of its own.

    Attributes:
        step: Makes the same number of steps in every run.
        batches: Rows of each durable write to the store, so far.
    """

    step: Callable[[int], None]
    batches: list[int]


class _Counting:
    """Counts the rows of each put of a store."""

    def __init__(self, inner: SqliteStore, batches: list[int]) -> None:
        self._put = inner.put
        self._batches = batches
        for name in ("get", "find", "trace", "mark", "marked", "prune", "runs", "close"):
            setattr(self, name, getattr(inner, name))

    def put(self, batch: Sequence[Checkpoint]) -> None:
        self._batches.append(len(batch))
        self._put(batch)


class RawGroup(RawFiles):
    """Two SQLite files, to which rows of many runs are written in one transaction each."""

    def fill(self) -> None:
        """Make a head for every run."""
        self._heads.execute("DELETE FROM head")
        heads = [(number, 0, self._head) for number in range(RUNS)]
        self._heads.executemany("INSERT INTO head VALUES (?, ?, ?)", heads)

    def commit_together(self, count: int) -> None:
        """Make `count` pairs of durable writes: a row and a head of every run in each."""
        rows = [(self._row,)] * RUNS
        heads = [(self._head, number) for number in range(RUNS)]
        for _ in range(count):
            with self._store:
                self._store.executemany("INSERT INTO row (content) VALUES (?)", rows)
            with self._heads:
                self._heads.executemany(
                    "UPDATE head SET number = number + 1, content = ? WHERE one = ?", heads
                )


def measure(folder: Path, *, is_quick: bool) -> list[Figure]:
    """Return the rates of all runs together, each against the others' of its own round."""
    with ExitStack() as stack:
        home = stack.enter_context(scratch(folder))
        fleets = {
            name: stack.enter_context(fleet_in(home / name, is_grouped=name == "grouped"))
            for name in ("grouped", "apart")
        }
        for fleet in fleets.values():
            fleet.step(WARM_UP)
            fleet.batches.clear()
        raw = RawGroup(home, row_bytes=row_bytes(home / "apart"))
        stack.callback(raw.close)
        raw.fill()
        raw.commit_together(WARM_UP)
        times = interleaved(
            {
                "grouped": lambda: fleets["grouped"].step(STEPS_PER_BLOCK),
                "apart": lambda: fleets["apart"].step(STEPS_PER_BLOCK),
                "raw": lambda: raw.commit_together(STEPS_PER_BLOCK),
            },
            ROUNDS_QUICK if is_quick else ROUNDS,
            seconds_max=SECONDS_MAX_QUICK if is_quick else SECONDS_MAX,
        )
        return _figures(times, fleets["grouped"].batches)


@contextmanager
def fleet_in(folder: Path, *, is_grouped: bool) -> Iterator[Fleet]:
    """Hold a session of every run, over files of their own, and a thread for each."""
    clock, batches = SystemClock(), list[int]()
    with ExitStack() as stack:
        files = open_store(folder / "project" / "checkpoints.db", create=True)
        stack.callback(files.close)
        heads = open_heads(
            folder / "user" / "heads.db",
            create=True,
            now_ms=clock.now_ms,
            incarnation=lambda: secrets.token_hex(16),
        )
        stack.callback(heads.close)
        store = _Counting(files, batches)
        adapters = effects_of(Ledger()).adapters(clock.now_ms)
        keyring = keyring_of(secrets.token_bytes(32))
        parts = wire(Settings(), keyring, files, heads, adapters, clock=clock, owner="bench")
        ports = shared(store, heads) if is_grouped else (store, heads, None)
        parts = replace(parts, store=ports[0], heads=ports[1], joint=ports[2])
        keeper = Keeper(parts)
        runs: list[Session] = [
            stack.enter_context(keeper.run(TASK, f"run-{number}")) for number in range(RUNS)
        ]
        pool = stack.enter_context(ThreadPoolExecutor(max_workers=RUNS))

        def step(count: int) -> None:
            list(pool.map(lambda run: do_steps(run, count), runs))

        yield Fleet(step=step, batches=batches)


def _figures(times: dict[str, Times], batches: list[int]) -> list[Figure]:
    ours, apart, raw = (times[name].wall_s for name in ("grouped", "apart", "raw"))
    steps = RUNS * STEPS_PER_BLOCK
    gain = median(other / own for own, other in zip(ours, apart, strict=True))
    ratio = median(limit / own for own, limit in zip(ours, raw, strict=True))
    return [
        Figure(
            name=f"{RUNS} runs at once, writes together",
            unit="/s",
            value=steps / median(ours),
            raw=steps / median(apart),
            raw_name="the same runs, each write by itself",
            ratio=gain,
            **target(gain, ">=", GAIN_MIN, "of apart"),
        ),
        Figure(
            name="  against the disk alone",
            unit="/s",
            value=steps / median(ours),
            raw=steps / median(raw),
            raw_name=f"raw commits of {RUNS} rows to the same two files",
            ratio=ratio,
        ),
        Figure(
            name="  rows in one durable write",
            unit="",
            value=sum(batches) / len(batches),
            raw=float(RUNS),
            raw_name="all that can meet",
        ),
        Figure(
            name="  processor time per step",
            unit="µs",
            value=median(times["grouped"].cpu_s) / steps * 1e6,
            raw=median(times["apart"].cpu_s) / steps * 1e6,
            raw_name="the same runs, each write by itself",
        ),
    ]
