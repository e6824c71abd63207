"""Every row that is required has a test whose id names it.

Rows of the acceptance list appear as `acc-034` and `acc-A7`, field cases as `C08`,
threats as `T16`; each inside the brackets of a test id, as in `[acc-034 too late]`.
"""

import os
import re
import subprocess
import sys
from functools import cache

import pytest

from tests.support.sources import ROOT

ROWS = range(1, 104)
BEYOND = range(1, 24)
CASES = (1, 2, 4, 6, 7, 8, 10, 11, 13, 14, 16, 17, 18, 20, 21, 23, 24, 26, 28, 29, 35, 37, 38)
THREATS = range(1, 31)

REQUIRED = {
    "acceptance list": [*(f"acc-{row:03}" for row in ROWS), *(f"acc-A{row}" for row in BEYOND)],
    "field cases": [f"C{case:02}" for case in CASES],
    "threats": [f"T{threat}" for threat in THREATS],
}
COLLECTION_SECONDS_MAX = 100


@pytest.mark.parametrize("part", REQUIRED)
def test_every_required_row_has_a_test(part: str) -> None:
    named = "\n".join(_brackets())
    assert [row for row in REQUIRED[part] if not re.search(rf"(?<!\w){row}(?!\d)", named)] == []


@cache
def _brackets() -> tuple[str, ...]:
    """Return what stands in the brackets of every test id outside this folder."""
    answer = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "--ignore=tests/house"],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"},
        check=False,
        capture_output=True,
        text=True,
        timeout=COLLECTION_SECONDS_MAX,
    )
    assert answer.returncode == 0, answer.stdout[-4_000:] + answer.stderr[-4_000:]
    return tuple(re.findall(r"::[^\[\n]*\[(.*)\]$", answer.stdout, re.MULTILINE))
