"""Real workers, killed by SIGKILL before each call and each move on the wire; orders counted."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.support.http_bench import ASGI, STDLIB, running
from tests.support.sources import ROOT

SHARED_MEMORY = Path("/dev/shm")
SECONDS_MAX = 300
OF_AN_ORDER = {"adapter.execute", "wire.connect_tcp", "wire.write", "wire.read", "store.put"}
"""What a worker does from the moment that it may order to the receipt on record."""


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("variant", "module"),
    [
        pytest.param("deduplicating", STDLIB, id="deduplicating"),
        pytest.param("never asked", STDLIB, id="deduplicating, never asked"),
        pytest.param("transactional", ASGI, id="transactional"),
        pytest.param("queryable", STDLIB, id="queryable without a bound"),
    ],
)
def test_a_worker_killed_at_any_boundary_orders_nothing_twice(
    variant: str, module: str, tmp_path: Path
) -> None:
    where = SHARED_MEMORY if SHARED_MEMORY.is_dir() else tmp_path
    with (
        tempfile.TemporaryDirectory(prefix="counterfoil-", dir=where) as folder,
        running(module, Path(folder)) as shop,
    ):
        report = _killed(variant, shop.port, shop.place, folder)
    assert report["faults"] == []
    assert {*report["killed_before"]} >= OF_AN_ORDER
    assert bool(report["reviews"]) == (variant == "queryable")


def _killed(variant: str, port: int, place: str, folder: str) -> Any:
    flags = ["-O"] if sys.flags.optimize else []
    arguments = [variant, str(port), place, folder]
    answer = subprocess.run(
        [sys.executable, *flags, "-W", "error", "-m", "tests.support.http_worker", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        check=False,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )
    assert answer.returncode == 0, answer.stdout[-2_000:] + answer.stderr[-4_000:]
    return json.loads(answer.stdout)
