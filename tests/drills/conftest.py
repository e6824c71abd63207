"""Drills as a person starts them, with a mark by which all that they leave can be found."""

import json
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.sources import ROOT

SECONDS_MAX = 400
MARK = "COUNTERFOIL_DRILL_MARK"
COMMAND = (sys.executable, "-c", "from counterfoil.cli import main; main()", "drill")


@dataclass(frozen=True, kw_only=True, slots=True)
class Drill:
    """How a drill ended.

    Attributes:
        code: Exit code.
        report: What it printed; empty where it printed nothing.
        error: The error that it printed; empty where there was none.
    """

    code: int
    report: dict[str, Any]
    error: dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Traces:
    """All that a drill may leave on this machine.

    Attributes:
        folder: Where its temporary files are.
        mark: In the environment of each of its programs.
    """

    folder: Path
    mark: str

    def environment(self) -> dict[str, str]:
        return {**os.environ, "TMPDIR": str(self.folder), MARK: self.mark}

    def programs(self) -> list[str]:
        """Return the command lines of programs that are alive."""
        found: list[str] = []
        for place in Path("/proc").glob("[0-9]*"):
            try:
                is_marked = f"{MARK}={self.mark}".encode() in (place / "environ").read_bytes()
                words = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if is_marked:
                found.append(words)
        return found

    def files(self) -> list[str]:
        return [path.name for path in self.folder.iterdir()]


@pytest.fixture
def traces() -> Iterator[Traces]:
    # Not below pytest's own folder: a server that runs as another user must get through.
    with tempfile.TemporaryDirectory(prefix="counterfoil-test-") as name:
        Path(name).chmod(0o755)
        yield Traces(folder=Path(name), mark=secrets.token_hex(8))


@pytest.fixture
def drill(traces: Traces) -> Callable[..., Drill]:
    """Run a drill to its end; it must leave nothing."""

    def run(*words: str) -> Drill:
        answer = subprocess.run(
            [*COMMAND, "--json", *words],
            cwd=ROOT,
            env=traces.environment(),
            check=False,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
        )
        assert (traces.programs(), traces.files()) == ([], [])
        error = json.loads(answer.stderr)["error"] if answer.stderr else {}
        return Drill(
            code=answer.returncode,
            report=json.loads(answer.stdout) if answer.stdout else {},
            error=error,
        )

    return run
