"""Real workers, killed by SIGKILL before each call of a port and each move of a session."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from counterfoil.core.words import Level
from tests.support.mcp_bench import HTTP, STDIO, Desk
from tests.support.mcp_desk import shared
from tests.support.sources import ROOT

SHARED_MEMORY = Path("/dev/shm")
SECONDS_MAX = 300
STRIDE = 3
"""Each level is struck at every third boundary, and all three of them at every one."""


@pytest.fixture(scope="module")
def desk(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Desk:
    return shared(request.session, tmp_path_factory)


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("level", "way", "first"),
    [
        pytest.param(Level.DEDUPLICATING, STDIO, 0, id="deduplicating over stdio"),
        pytest.param(Level.QUERYABLE, HTTP, 1, id="queryable over http, without a bound"),
        pytest.param(Level.BLIND, STDIO, 2, id="blind, with no key and nothing to ask"),
    ],
)
def test_a_worker_killed_at_any_boundary_writes_nothing_twice(
    level: Level, way: str, first: int, desk: Desk, tmp_path: Path
) -> None:
    where = SHARED_MEMORY if SHARED_MEMORY.is_dir() else tmp_path
    with tempfile.TemporaryDirectory(prefix="counterfoil-", dir=where) as folder:
        report = _killed(level, way, first, desk, folder)
    assert report["faults"] == []
    assert report["kills"] == len(report["calls"][first::STRIDE])
    assert {"adapter.execute", "wire.leaves", "wire.answered"} <= {*report["calls"]}
    assert bool(report["reviews"]) == (level is not Level.DEDUPLICATING)


def _killed(level: Level, way: str, first: int, desk: Desk, folder: str) -> Any:
    flags = ["-O"] if sys.flags.optimize else []
    strikes = [str(first), str(STRIDE)]
    arguments = [str(level), way, str(desk.port), desk.path, desk.place, folder, *strikes]
    answer = subprocess.run(
        [sys.executable, *flags, "-W", "error", "-m", "tests.support.mcp_worker", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        check=False,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )
    assert answer.returncode == 0, answer.stdout[-2_000:] + answer.stderr[-4_000:]
    return json.loads(answer.stdout)
