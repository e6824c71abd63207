"""Real workers, killed by SIGKILL before each call of a port and each move of a session."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.support.mcp_desk import shared
from tests.support.sources import ROOT

SHARED_MEMORY = Path("/dev/shm")
SECONDS_MAX = 300
TOLD = ("deduplicating-stdio", "queryable-http", "blind-stdio")
"""Each is struck at every third boundary, and all three of them at every one."""


@pytest.fixture(scope="module")
def reports(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    desk = shared(request.session, tmp_path_factory)
    where = SHARED_MEMORY if SHARED_MEMORY.is_dir() else tmp_path_factory.mktemp("stories")
    flags = ["-O"] if sys.flags.optimize else []
    with tempfile.TemporaryDirectory(prefix="counterfoil-", dir=where) as folder:
        arguments = [str(desk.port), desk.path, desk.place, folder, *TOLD]
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


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("told", "is_person_needed"),
    [
        pytest.param(TOLD[0], False, id="deduplicating over stdio"),
        pytest.param(TOLD[1], True, id="queryable over http, without a bound"),
        pytest.param(TOLD[2], True, id="blind, with no key and nothing to ask"),
    ],
)
def test_a_worker_killed_at_any_boundary_writes_nothing_twice(
    told: str, is_person_needed: bool, reports: Any
) -> None:
    report = reports[told]
    assert report["faults"] == []
    assert report["kills"] == len(report["calls"][TOLD.index(told) :: len(TOLD)])
    assert {"adapter.execute", "wire.leaves", "wire.answered"} <= {*report["calls"]}
    assert bool(report["reviews"]) == is_person_needed
