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
from tests.support.mcp_bench import HTTP, STDIO, Desk, running
from tests.support.sources import ROOT

SHARED_MEMORY = Path("/dev/shm")
SECONDS_MAX = 300


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("level", "way"),
    [
        pytest.param(Level.DEDUPLICATING, STDIO, id="deduplicating over stdio"),
        pytest.param(Level.QUERYABLE, HTTP, id="queryable over http, without a bound"),
    ],
)
def test_a_worker_killed_at_any_boundary_writes_nothing_twice(
    level: Level, way: str, tmp_path: Path
) -> None:
    where = SHARED_MEMORY if SHARED_MEMORY.is_dir() else tmp_path
    with (
        tempfile.TemporaryDirectory(prefix="counterfoil-", dir=where) as folder,
        running(Path(folder)) as desk,
    ):
        report = _killed(level, way, desk, folder)
    assert report["faults"] == []
    assert report["kills"] > 40
    assert {"adapter.execute", "wire.leaves", "wire.answered"} <= {*report["calls"]}
    assert bool(report["reviews"]) == (level is Level.QUERYABLE)


def _killed(level: Level, way: str, desk: Desk, folder: str) -> Any:
    flags = ["-O"] if sys.flags.optimize else []
    arguments = [str(level), way, str(desk.port), desk.path, desk.place, folder]
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
