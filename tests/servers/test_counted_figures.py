"""What a write step costs that no disk and no neighbour changes, so that it can be counted.

Each figure is held to what the figures of speed promise; time is measured elsewhere.
"""

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from counterfoil.local.postgres import LocalPostgres
from counterfoil.stores.postgres import open_heads, open_joint, open_store
from tests.support.counted import STEPS, Durability, Noted, parts_on, two_files, work, work_between
from tests.support.crowds import PATIENCE_S, Caller
from tests.support.postgres import LossyProxy, execute, fresh_database
from tests.support.sources import ROOT

pytest_plugins = ["tests.support.postgres"]

SESSIONS = 64
FEW, MORE = 5, 20
"""Steps of two groups of runs: what the second writes more is what steps write."""

LOGS_MOVED = 0.1
"""Syncs per step of SQLite, which moves a log into its file every thousand pages."""

LONGER = 200
"""More steps of one run: what the server syncs for its own sake is lost among them."""

OTHERS = 0.1
"""Syncs per step, of the server itself and of pruning."""


@contextmanager
def one_database(url: str) -> Generator[tuple[Any, Any, Any]]:
    """Give store, register and what commits to both of one database."""
    with ExitStack() as stack:
        for port in (ports := (open_store(url, create=True), open_heads(url, create=True))):
            stack.callback(port.close)
        joint = open_joint(url)
        stack.callback(joint.close)
        yield (*ports, joint)


# ---------------------------------------------------------------- durable writes


@pytest.mark.parametrize(("durability", "writes"), [("merged", 2), ("strict", 4)])
def test_a_step_on_two_files_is_a_write_to_each_per_commit(
    tmp_path: Path, durability: Durability, writes: int
) -> None:
    log = tmp_path / "calls"
    traced = ("-e", "trace=fsync,fdatasync,getppid")
    subprocess.run(
        [
            *("strace", "-f", "--seccomp-bpf", "-qq", "-o", log, *traced),
            *(sys.executable, "-m", "tests.support.counted", tmp_path / "place", durability),
        ],
        cwd=ROOT,
        check=True,
        timeout=PATIENCE_S,
    )
    calls = [line.split()[1].partition("(")[0] for line in log.read_text().splitlines()]
    begin, end = (place for place, call in enumerate(calls) if call == "getppid")
    assert writes <= (end - begin - 1) / STEPS <= writes + LOGS_MOVED


@pytest.mark.parametrize(("durability", "writes"), [("merged", 1), ("strict", 2)])
def test_a_step_on_one_database_is_one_write_per_commit(
    postgres: LocalPostgres, durability: Durability, writes: int
) -> None:
    few, more = (syncs(postgres, durability, 1, steps) for steps in (FEW, FEW + LONGER))
    assert (more - few) / LONGER == pytest.approx(writes, abs=OTHERS)


def test_a_step_of_many_sessions_is_a_tenth_of_a_write(postgres: LocalPostgres) -> None:
    few, more = (syncs(postgres, "merged", SESSIONS, steps) for steps in (FEW, MORE))
    assert (more - few) / (SESSIONS * (MORE - FEW)) <= 0.1


def syncs(server: LocalPostgres, durability: Durability, sessions: int, steps: int) -> int:
    """Return how often the server syncs its log for runs that are made at once."""
    url = fresh_database(server)
    with one_database(url) as ports:
        before = _synced(server)
        parts = parts_on(durability, *ports)
        runs = [f"run-{number}" for number in range(sessions)]
        callers = [Caller(partial(work, parts, run, steps)) for run in runs]
        assert [caller.end().error for caller in callers] == [None] * sessions
    _until_told(url)
    return _synced(server) - before


def _synced(server: LocalPostgres) -> int:
    ((count,),) = execute(server.url(), "SELECT wal_sync FROM pg_stat_wal")
    return int(count)


def _until_told(url: str) -> None:
    """Wait until the connections of a database are gone: each tells its count when it ends."""
    query = (
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    while execute(url, query) != [(0,)]:
        time.sleep(0.02)


# ---------------------------------------------------------------- round trips and reads

PRUNE_TRIPS = 5
"""Of a transaction with bounds, once in `PRUNE_EVERY` commits."""


@pytest.mark.parametrize(("durability", "commits"), [("merged", 1), ("strict", 2)])
def test_a_commit_to_one_database_is_one_round_trip_and_nothing_is_read(
    postgres: LocalPostgres, durability: Durability, commits: int
) -> None:
    calls: list[str] = []
    seen: list[int] = []
    url = fresh_database(postgres)
    with LossyProxy(postgres.port) as proxy, one_database(proxy.through(url)) as ports:
        parts = parts_on(durability, *(Noted(port, calls) for port in ports))

        def begin() -> None:
            calls.clear()
            seen.append(proxy.requests)

        def end() -> None:
            seen.append(proxy.requests)
            seen.append(len(calls))

        work_between(parts, begin, end)
    begun, ended, count = seen
    assert Counter(calls[:count]) == {"commit": STEPS * commits, "prune": commits}
    assert ended - begun == (STEPS + PRUNE_TRIPS) * commits


@pytest.mark.parametrize(("durability", "commits"), [("merged", 1), ("strict", 2)])
def test_a_commit_to_two_files_is_a_put_and_a_move_and_nothing_is_read(
    tmp_path: Path, durability: Durability, commits: int
) -> None:
    calls: list[str] = []
    seen: list[str] = []
    with two_files(tmp_path) as ports:
        parts = parts_on(durability, *(Noted(port, calls) for port in ports))
        work_between(parts, calls.clear, lambda: seen.extend(calls))
    each = STEPS * commits
    assert Counter(seen) == {"put": each, "advance": each, "prune": commits}
