"""Real processes, killed around each git command and within git, leave one effect or none."""

import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import msgspec
import pytest

from counterfoil.core.errors import UnavailableError
from counterfoil.core.receipt import Answer
from counterfoil.ports import Operation
from tests.support.git_scene import (
    LOCAL,
    WORK,
    Scene,
    commit,
    expect_one_end,
    in_memory,
    operation,
    push,
)
from tests.support.sources import ROOT

KILLED = -9
COMMANDS_MAX = 100
PLACES_MAX = 60

CALLS = "write,fsync,rename,unlink"
"""Calls of the kernel between which a lock is there, has its content, or becomes a ref."""


class Worker:
    """A warm process that forks for each call; see `tests.support.git_worker`."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def work(self, scene: Scene, how: str, at: int = 0) -> int:
        """Make the call of a scene, and return how the process ended."""
        stdin = _stream(self._process.stdin)
        stdin.write(f"{scene.place} {how} {at}\n")
        stdin.flush()
        return int(_stream(self._process.stdout).readline())


def _stream(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    command = (sys.executable, "-m", "tests.support.git_worker")
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield Worker(process)
        _stream(process.stdin).close()


@pytest.fixture
def quick() -> Iterator[Path]:
    with in_memory() as folder:
        yield folder


def _scene(folder: Path, kind: str) -> tuple[Scene, Operation]:
    """Return a fresh scene in a folder, with its call beside it."""
    folder.mkdir()
    scene = Scene(folder)
    adapter = scene.open()
    if kind == "git.push":
        call = operation(adapter, kind, push(scene))
    else:
        call = operation(adapter, kind, commit(scene), scope=LOCAL)
    (folder / "call").write_bytes(msgspec.msgpack.encode(call))
    return scene, call


@pytest.mark.parametrize("kind", ["git.commit", "git.push"])
def test_a_worker_killed_between_any_two_git_commands_leaves_one_effect_or_none(
    kind: str, worker: Worker, quick: Path
) -> None:
    ends: Counter[Answer] = Counter()
    moments = [("before", at) for at in range(COMMANDS_MAX)]
    for how, at in moments:
        scene, call = _scene(quick / f"{how} {at}".replace(" ", "-"), kind)
        ended = worker.work(scene, how, at)
        if how == "before" and ended != KILLED:
            assert ended == 0
            del moments[moments.index((how, at)) + 1 :]
            moments.append(("after", at - 1))
        else:
            assert ended == KILLED
            ends[expect_one_end(scene, call, is_at_remote=kind == "git.push")] += 1
        shutil.rmtree(scene.place)
    assert ends[Answer.ABSENT] > 5
    assert ends[Answer.FOUND] >= 1


def _with_killed_git(scene: Scene, at: int) -> None:
    """Put a git beside the scene that dies at its n-th call of `CALLS`."""
    program = scene.place / "git"
    inject = f"-e trace={CALLS} -e inject={CALLS}:signal=SIGKILL:when={at}"
    program.write_text(f'#!/bin/sh\nexec strace -f -qq -o /dev/null {inject} git "$@"\n')
    program.chmod(0o755)


@pytest.mark.parametrize(
    "how",
    [
        pytest.param("within", id="C23 a c git alone"),
        pytest.param("both", id="C23 a c git and its worker"),
    ],
)
def test_a_git_killed_within_its_transaction_leaves_one_effect_or_none(
    how: str, worker: Worker, quick: Path
) -> None:
    ends: Counter[str] = Counter()
    for at in range(1, PLACES_MAX):
        scene, call = _scene(quick / str(at), "git.commit")
        _with_killed_git(scene, at)
        ended = worker.work(scene, how)
        if how == "both" and ended == 0:
            break
        is_whole = ended == 0 and not (scene.root / ".git/counterfoil/aside").exists()
        if is_whole and not _own_locks(scene):
            break
        ends[str(ended)] += 1
        for lock in _unproved(scene):
            ends["unproved"] += 1
            _expect_left_alone(scene, call, lock)
            lock.unlink()
        expect_one_end(scene, call)
        assert not (scene.root / f".git/{WORK}.lock").exists()
        shutil.rmtree(scene.place)
    assert sum(ends.values()) > 8
    assert ends["unproved"] == 2


def _own_locks(scene: Scene) -> list[Path]:
    return list((scene.root / ".git/refs/counterfoil").rglob("*.lock"))


def _unproved(scene: Scene) -> list[Path]:
    """Return locks of a git that was killed before it wrote into them what it wanted."""
    locks = (scene.root / ".git/refs").rglob("*.lock")
    return [lock for lock in locks if not lock.read_bytes() and "receipts" not in lock.parts]


def _expect_left_alone(scene: Scene, call: Operation, lock: Path) -> None:
    """Hold the adapter to reporting a lock that it cannot prove to be its own."""
    adapter = scene.open()
    with pytest.raises(UnavailableError, match=rf"{lock.name} is \d+ s old and belongs to"):
        adapter.execute(call)
    assert lock.exists()
