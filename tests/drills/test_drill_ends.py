"""However a drill ends, no program and no file of it is left."""

import os
import pty
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from counterfoil.core.errors import ConfigError
from counterfoil.stores.sqlite import open_store
from tests.drills.conftest import COMMAND, Drill, Traces
from tests.support.sources import ROOT

SECONDS_MAX = 100
BUSY = 8
"""Programs of a drill at work: itself, premises, target, crew, workers, and servers."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_drill_that_is_ended_leaves_nothing(ending: signal.Signals, traces: Traces) -> None:
    words = ("--store", "postgresql", "--heads", "etcd", "--seconds", "600", "--json")
    with subprocess.Popen(
        [*COMMAND, *words], cwd=ROOT, env=traces.environment(), stderr=subprocess.DEVNULL
    ) as running:
        _await(lambda: len(traces.programs()) >= BUSY)
        running.send_signal(ending)
        running.wait(SECONDS_MAX)
        _await(lambda: not traces.programs())
    assert traces.files() == []


@pytest.mark.timeout(300)
def test_a_terminal_shows_how_far_it_is(traces: Traces) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*COMMAND, "--seconds", "2"],
        cwd=ROOT,
        env=traces.environment(),
        stdout=subprocess.PIPE,
        stderr=theirs,
    ) as running:
        os.close(theirs)
        shown = b""
        while b"runs ended" not in shown:
            shown += os.read(ours, 4_096)
        said, _ = running.communicate(timeout=SECONDS_MAX)
    os.close(ours)
    assert b"killing and pausing workers" in shown
    assert b"stale calls refused" in said


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("--store", "memory:"), id="memory is of one program"),
        pytest.param(("--heads", "etc"), id="neither a word nor a url"),
        pytest.param(("--sabotage", "everything"), id="no such sabotage"),
    ],
)
def test_a_drill_refuses(words: tuple[str, ...], drill: Callable[..., Drill]) -> None:
    refused = drill(*words)
    assert (refused.code, refused.error["name"]) == (ConfigError.exit_code, "ConfigError")


def test_a_drill_leaves_a_project_that_is_there_alone(
    tmp_path: Path, drill: Callable[..., Drill]
) -> None:
    file = tmp_path / "checkpoints.db"
    open_store(file, create=True).close()
    before = file.read_bytes()
    refused = drill("--store", f"sqlite:{file}")
    assert (refused.code, refused.error["name"]) == (ConfigError.exit_code, "ConfigError")
    assert "--store" in refused.error["message"]
    assert file.read_bytes() == before


def _await(holds: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + SECONDS_MAX
    while not holds():
        assert time.monotonic() < give_up_at, "it does not come to pass"
        time.sleep(0.05)
