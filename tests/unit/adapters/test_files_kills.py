"""A real process, killed at each durable boundary, leaves the change done or not."""

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

import msgspec
import pytest

from counterfoil.core.receipt import Answer
from counterfoil.ports import Operation
from tests.support.files_scene import CHANGES, FENCE, RUN, Scene, change, expect_one_end
from tests.support.sources import ROOT

BOUNDARIES = "fsync,fdatasync,renameat2,linkat,unlinkat,mkdirat,pwrite64,ftruncate"
"""Calls between which something becomes visible or durable."""

KILLED = -9
SECONDS_MAX = 20


class Worker:
    """A warm process that forks for each change; see `tests.support.files_worker`."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def work(self, place: Path, *options: str) -> int:
        """Make the change of a folder under strace, and return how the process ended."""
        child = self._ask(str(place))
        command = ("strace", "-f", "-p", child, *options)
        with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as tracer:
            line = _stream(tracer.stderr).readline()
            assert "attached" in line
            ended = int(self._ask("go"))
            tracer.communicate(timeout=SECONDS_MAX)
        return ended

    def _ask(self, line: str) -> str:
        stdin = _stream(self._process.stdin)
        stdin.write(f"{line}\n")
        stdin.flush()
        return _stream(self._process.stdout).readline().strip()


def _stream(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


@contextmanager
def started() -> Iterator[Worker]:
    command = (sys.executable, "-m", "tests.support.files_worker")
    with ExitStack() as stack:
        process = stack.enter_context(
            subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        )
        yield Worker(process)
        _stream(process.stdin).close()


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with started() as warm:
        yield warm


def scene_of(place: Path, name: str) -> tuple[Scene, Operation]:
    """Return a scene on which a worker was started, and the call it is to make."""
    place.mkdir()
    scene = Scene(place, CHANGES[name][0])
    adapter = scene.open()
    adapter.take(RUN, FENCE)
    asked = change(adapter, name)
    adapter.close()
    (place / "call").write_bytes(msgspec.msgpack.encode(asked))
    return scene, asked


def boundaries(worker: Worker, place: Path, name: str) -> list[tuple[str, int]]:
    """Return each call of a whole run, as its name and its number among its like."""
    scene, _ = scene_of(place, name)
    log = place / "log"
    assert worker.work(place, "-e", f"trace={BOUNDARIES}", "-o", str(log)) == 0
    assert scene.files == CHANGES[name][2]
    counted: Counter[str] = Counter()
    found: list[tuple[str, int]] = []
    for line in log.read_text().splitlines():
        if called := re.search(r"^(?:\d+\s+)?(\w+)\(", line):
            counted[called[1]] += 1
            found.append((called[1], counted[called[1]]))
    return found


@pytest.mark.parametrize("name", [pytest.param(name, id=f"[C17 T25 {name}]") for name in CHANGES])
def test_a_kill_at_any_boundary_leaves_the_change_done_or_not(
    name: str, worker: Worker, swift_path: Path
) -> None:
    ends = []
    for call, nth in boundaries(worker, swift_path / "whole", name):
        place = swift_path / f"{call}-{nth}"
        scene, asked = scene_of(place, name)
        inject = f"inject={call}:signal=SIGKILL:when={nth}"
        assert worker.work(place, "-e", f"trace={call}", "-e", inject, "-o", "/dev/null") == KILLED
        ends.append(expect_one_end(scene, name, asked))
    assert set(ends) == {Answer.ABSENT, Answer.FOUND}


@pytest.mark.parametrize("error", ["EIO", "ENOSPC"])
@pytest.mark.parametrize(
    "call", [pytest.param(call, id=f"[C17 T25 {call}]") for call in ("fsync", "fdatasync")]
)
@pytest.mark.parametrize("name", ["create", "replace"])
def test_a_failed_sync_leaves_the_change_done_or_not(
    name: str, call: str, error: str, worker: Worker, swift_path: Path
) -> None:
    failures = 0
    for asked_call, nth in boundaries(worker, swift_path / "whole", name):
        if asked_call != call:
            continue
        place = swift_path / f"{call}-{nth}"
        scene, asked = scene_of(place, name)
        inject = f"inject={call}:error={error}:when={nth}"
        worker.work(place, "-e", f"trace={call}", "-e", inject, "-o", "/dev/null")
        expect_one_end(scene, name, asked)
        failures += 1
    assert failures > 0
