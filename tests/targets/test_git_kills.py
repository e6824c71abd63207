"""Real processes, killed around each git command and within git, leave one effect or none."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import msgspec
import pytest

from counterfoil.core.errors import UnavailableError
from counterfoil.core.receipt import Answer
from counterfoil.ports import Operation
from tests.support.git_scene import (
    IMPATIENT,
    LOCAL,
    SCOPE,
    Scene,
    branch,
    commit,
    expect_one_end,
    in_memory,
    operation,
    push,
    tag,
)
from tests.support.sources import ROOT

KILLED = -9

CALLS_OF = {"git.commit": commit, "git.branch": branch, "git.tag": tag, "git.push": push}

CHANGES = ("update-index", "commit-tree", "mktag", "update-ref", "push")
OTHERS = ("version", "config", "cat-file", "for-each-ref", "ls-tree", "ls-remote", "read-tree")
OTHERS += ("merge-base", "write-tree", "hash-object")
"""They read, or leave another object that nothing names, as one of `CHANGES` does too."""

PLACES = ("write 2", "write 3", "write 4", "write 5", "write 6", "write 8", "rename 1")
PLACES += ("write 9", "rename 2", "rename 3", "write 10")
"""Calls of the kernel by their number, each after another change: locks are there, have
their content, all are taken, and become the desk, the reflog, the ref and the receipt."""

UNPROVED = ("write 2", "write 4")
"""Where the lock of the desk or the ref is there without its content."""

MOVED = ("rename 3", "write 10")

REFUSED = 3


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
    scope = SCOPE if kind == "git.push" else LOCAL
    call = operation(scene.open(), kind, CALLS_OF[kind](scene), scope=scope)
    (folder / "call").write_bytes(msgspec.msgpack.encode(call))
    return scene, call


def _changes(kind: str, worker: Worker, folder: Path) -> list[int]:
    """Return the numbers of those git commands of a call that change anything."""
    scene, _ = _scene(folder, kind)
    assert worker.work(scene, "whole") == 0
    commands = (scene.place / "commands").read_text().split()
    assert set(commands) <= {*CHANGES, *OTHERS}
    return [number for number, command in enumerate(commands) if command in CHANGES]


@pytest.mark.parametrize("kind", CALLS_OF)
def test_a_worker_killed_behind_any_change_that_git_makes_leaves_one_effect_or_none(
    kind: str, worker: Worker, quick: Path
) -> None:
    ends: list[Answer] = []
    changes = _changes(kind, worker, quick / "whole")
    for at in (changes[0] - 1, *changes):
        scene, call = _scene(quick / f"{at}", kind)
        assert worker.work(scene, "after", at) == KILLED
        ends.append(expect_one_end(scene, call, is_at_remote=kind == "git.push"))
        shutil.rmtree(scene.place)
    assert ends == [Answer.ABSENT] * len(changes) + [Answer.FOUND]


def _with_killed_git(scene: Scene, place: str) -> None:
    """Put a git beside the scene that dies as it enters a call of the kernel."""
    program = scene.place / "git"
    call, number = place.split()
    inject = f"-e trace={call} -e inject={call}:signal=SIGKILL:when={number}"
    program.write_text(f'#!/bin/sh\nexec strace -f -qq -o /dev/null {inject} git "$@"\n')
    program.chmod(0o755)


@pytest.mark.parametrize(
    ("how", "kind", "places"),
    [
        pytest.param("within", "git.commit", PLACES[::2], id="C23 a c git alone, a commit"),
        pytest.param("both", "git.commit", PLACES[1::2], id="C23 a c git and worker, a commit"),
        pytest.param("within", "git.tag", PLACES[2::7], id="C23 a c git alone, a tag"),
        pytest.param("both", "git.branch", PLACES[7:10], id="C23 a c git and worker, a branch"),
    ],
)
def test_a_git_killed_within_its_transaction_leaves_one_effect_or_none(
    how: str, kind: str, places: tuple[str, ...], worker: Worker, quick: Path
) -> None:
    for place in places:
        scene, call = _scene(quick / place.replace(" ", "-"), kind)
        _with_killed_git(scene, place)
        is_moved = place in MOVED
        assert worker.work(scene, how) == (KILLED if how == "both" else 0 if is_moved else REFUSED)
        unproved = [place] if place in UNPROVED else []
        for lock, _ in zip(_unproved(scene), unproved, strict=True):
            _expect_left_alone(scene, call, lock)
            lock.unlink()
        assert expect_one_end(scene, call) is (Answer.FOUND if is_moved else Answer.ABSENT)
        assert not (scene.root / f".git/{call.arguments['ref']}.lock").exists()
        shutil.rmtree(scene.place)


def _unproved(scene: Scene) -> list[Path]:
    """Return locks of a git that was killed before it wrote into them what it wanted."""
    locks = (scene.root / ".git/refs").rglob("*.lock")
    return [lock for lock in locks if not lock.read_bytes() and "receipts" not in lock.parts]


def _expect_left_alone(scene: Scene, call: Operation, lock: Path) -> None:
    """Hold the adapter to reporting a lock that it cannot prove to be its own."""
    adapter = scene.open(environment=IMPATIENT)
    with pytest.raises(UnavailableError, match=rf"{lock.name} is \d+ s old and belongs to"):
        adapter.execute(call)
    assert lock.exists()
