"""Every example runs in an empty folder and prints what it says it prints."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.sources import ROOT

EXAMPLES = sorted((ROOT / "examples").glob("[0-9][0-9]_*.py"))
OUTPUT = "# output:\n"
SECONDS_MAX = 60
"""An example teaches one thing; one that takes longer teaches patience."""


def test_examples_are_numbered_without_a_gap() -> None:
    numbers = [int(path.name[:2]) for path in EXAMPLES]
    assert numbers == list(range(1, len(EXAMPLES) + 1)) != []


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_prints_what_it_says(path: Path, tmp_path: Path) -> None:
    answer = subprocess.run(
        [sys.executable, "-W", "error", str(path)],
        cwd=_made(tmp_path / "project"),
        env=_environment(tmp_path),
        check=False,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )
    assert (answer.returncode, answer.stderr, answer.stdout) == (0, "", _promised(path))


def _promised(path: Path) -> str:
    """Return the comment lines after `# output:` at the end of the file, without their marks."""
    _, mark, block = path.read_text(encoding="utf-8").rpartition(OUTPUT)
    assert mark, f"{path.name} does not end with a block that starts with {OUTPUT.strip()!r}"
    lines = block.splitlines()
    assert all(line == "#" or line.startswith("# ") for line in lines)
    return "".join(f"{line[2:]}\n" for line in lines)


def _environment(home: Path) -> dict[str, str]:
    """Return the environment of a person who has just logged in for the first time."""
    return {
        "HOME": str(_made(home)),
        "LANG": "C.UTF-8",
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), "/usr/bin", "/bin"]),
        "XDG_CACHE_HOME": str(_made(home / "cache")),
        "XDG_CONFIG_HOME": str(_made(home / "config")),
        "XDG_DATA_HOME": str(_made(home / "data")),
        "XDG_RUNTIME_DIR": str(_made(home / "runtime")),
        "XDG_STATE_HOME": str(_made(home / "state")),
    }


def _made(folder: Path) -> Path:
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder
