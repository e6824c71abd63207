"""The acceptance list runs under `python -O` too, and there a failed claim still fails.

Python drops `assert` under `-O`, but pytest rewrites it into `if` and `raise` in test
modules, in `conftest.py`, and in what `tests/conftest.py` registers.
"""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.sources import ROOT, python_files

CLAIMS = """
import sys
import pytest
from tests.support.claims import claim_nonsense

@pytest.mark.parametrize("optimized", [pytest.param(1, id="acc-000")])
def test_the_interpreter_is_optimized(optimized):
    assert sys.flags.optimize == optimized

@pytest.mark.parametrize("wrong", [pytest.param(2, id="acc-000")])
def test_a_wrong_claim(wrong):
    assert wrong == 1

@pytest.mark.parametrize("wrong", [pytest.param(2, id="acc-000")])
def test_a_wrong_claim_in_shared_code(wrong):
    claim_nonsense(wrong)
"""
SHARED = """
def claim_nonsense(wrong):
    assert wrong == 1
"""


@pytest.mark.parametrize("count", ["0", "2"], ids=["in one process", "in test processes"])
def test_a_wrong_claim_fails_in_an_optimized_run(count: str, tmp_path: Path) -> None:
    answer = subprocess.run(
        [sys.executable, "-O", "-m", "pytest", "-n", count, "-k", "acc-"],
        cwd=_project(tmp_path),
        env=os.environ | {"PYTHONOPTIMIZE": "1"},
        check=False,
        capture_output=True,
        text=True,
    )
    assert (answer.returncode, "2 failed, 1 passed" in answer.stdout) == (1, True), answer.stdout


def test_assertions_live_only_where_pytest_rewrites_them() -> None:
    assert [
        source.at(node.lineno, "assert would vanish under python -O; move it to tests/support")
        for source in python_files("tests")
        if not source.path.name.startswith("test_")
        if source.path.name != "conftest.py"
        if not source.path.is_relative_to(ROOT / "tests" / "support")
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Assert)
    ] == []


def _project(folder: Path) -> Path:
    """Lay out a project with our settings, whose tests claim what is not so."""
    (folder / "tests" / "support").mkdir(parents=True)
    shutil.copy(ROOT / "pyproject.toml", folder)
    shutil.copy(ROOT / "tests" / "conftest.py", folder / "tests")
    (folder / "tests" / "support" / "claims.py").write_text(SHARED, encoding="utf-8")
    (folder / "tests" / "test_claims.py").write_text(CLAIMS, encoding="utf-8")
    return folder
