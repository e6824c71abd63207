"""Programs that fork workers, started with a folder of their own."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.sources import ROOT

SHARED_MEMORY = Path("/dev/shm")
SECONDS_MAX = 300
Start = Callable[..., Any]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Return what runs a module on a task, in a fresh folder, and returns what it reports.

    The folder is in memory where there is such a place: a killed process loses nothing
    that it wrote.
    """
    where = SHARED_MEMORY if SHARED_MEMORY.is_dir() else tmp_path

    def run(module: str, task: str, *rest: str) -> Any:
        flags = ["-O"] if sys.flags.optimize else []
        with tempfile.TemporaryDirectory(prefix="counterfoil-", dir=where) as folder:
            answer = subprocess.run(
                [sys.executable, *flags, "-W", "error", "-m", module, task, folder, *rest],
                cwd=ROOT,
                env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
                check=False,
                capture_output=True,
                text=True,
                timeout=SECONDS_MAX,
            )
        assert answer.returncode == 0, answer.stdout[-2_000:] + answer.stderr[-4_000:]
        return json.loads(answer.stdout)

    return run
