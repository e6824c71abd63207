"""The benchmark of each pair of places runs; what it measures is for people to read."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.sources import ROOT

PAIRS = {
    "sqlite and sqlite",
    "postgresql, one database",
    "postgresql and another postgresql",
    "sqlite and postgresql",
    "postgresql and etcd",
    "sqlite and etcd",
}


@pytest.mark.timeout(400)
def test_each_pair_has_a_benchmark_that_runs(tmp_path: Path) -> None:
    answer = subprocess.run(
        [sys.executable, "-m", "benchmarks", "pairs", "--quick", "--json", "--folder", tmp_path],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    figures = json.loads(answer.stdout)["figures"]
    assert {figure["name"].partition(":")[0] for figure in figures[::2]} == PAIRS
    assert [figure["name"] for figure in figures if not figure["value"] > 0 < figure["raw"]] == []
