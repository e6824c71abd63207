"""A real process, killed at each boundary of a change, leaves all of it or nothing."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import apsw
import msgspec
import pytest

from counterfoil.core.receipt import Answer
from counterfoil.local.postgres import LocalPostgres
from counterfoil.ports import Operation
from tests.support.sources import ROOT
from tests.support.sql_bench import Place, postgres_place, sqlite_place
from tests.support.sql_scene import (
    FENCE,
    NEWER,
    PAYMENT,
    RUN,
    asked,
    expect_one_end,
    paid,
    wait_for_open_call,
)

pytest_plugins = ["tests.support.postgres"]

DURABLE = "fsync,fdatasync,pwrite64,ftruncate,unlink"
"""Calls between which something of a file becomes visible or durable."""

MESSAGES = "sendto,recvfrom"
"""Calls between which a server hears something, or says it."""

OPENING_STRIDE = 7
KILLED = -9
SECONDS_MAX = 30
IN_MEMORY = Path("/dev/shm")


class Worker:
    """A warm process that forks for each change; see `tests.support.sql_worker`."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self.child = ""

    def work(self, folder: Path, *options: str) -> int:
        """Make the change of a folder under strace, and return how the process ended."""
        self.child = self._ask(str(folder))
        command = ("strace", "-f", "-p", self.child, *options)
        with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as tracer:
            assert "attached" in _stream(tracer.stderr).readline()
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


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    command = (sys.executable, "-m", "tests.support.sql_worker")
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield Worker(process)
        _stream(process.stdin).close()


@pytest.fixture
def quick(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory, where a sync costs nothing; on the disk if there is none."""
    if not os.access(IN_MEMORY, os.W_OK):
        yield tmp_path
        return
    folder = tempfile.mkdtemp(prefix="counterfoil-", dir=IN_MEMORY)
    yield Path(folder)
    shutil.rmtree(folder)


def prepared(place: Place, folder: Path, *, timeout_ms: int = 20_000) -> Operation:
    """Leave a call for a worker in a folder, under a lease that was taken."""
    folder.mkdir(parents=True, exist_ok=True)
    adapter = place.adapter()
    adapter.take(RUN, FENCE)
    sent = asked(adapter, *PAYMENT, timeout_ms=timeout_ms)
    adapter.close()
    (folder / "call").write_bytes(msgspec.msgpack.encode(sent))
    (folder / "target").write_text(str(place.target), encoding="utf-8")
    return sent


def numbered(log: str) -> list[tuple[str, int]]:
    """Return each call of a whole run, as its name and its number among its like."""
    counted: Counter[str] = Counter()
    found: list[tuple[str, int]] = []
    for line in log.splitlines():
        if called := re.search(r"^(?:\d+\s+)?(\w+)\(", line):
            counted[called[1]] += 1
            found.append((called[1], counted[called[1]]))
    return found


def told_apart(boundaries: list[tuple[str, int]], log: list[str]) -> list[tuple[str, int]]:
    """Leave out instants at which a server has heard the same as at another one.

    Right before an answer is read the server has heard all that was sent, and right before
    the next message it has heard no more. Of what comes before the change, some stand for
    all: nothing but reads is under way.
    """
    begins = max(number for number, line in enumerate(log) if "sendto" in line and "BEGIN" in line)
    commits = next(number for number, line in enumerate(log) if "COMMIT\\0" in line)
    opening = boundaries[:begins:OPENING_STRIDE]
    answers = [each for each in boundaries[begins:commits] if each[0] == "recvfrom"]
    return [*opening, boundaries[begins], *answers, *boundaries[commits:]]


@contextmanager
def file_of(folder: Path, mode: str) -> Iterator[Place]:
    place = sqlite_place(folder)
    db = apsw.Connection(str(folder / "target.db"))
    assert db.pragma("journal_mode", mode) == mode
    db.close()
    try:
        yield place
    finally:
        place.close()


def whole(worker: Worker, place: Place, folder: Path, calls: str) -> list[tuple[str, int]]:
    """Let a worker make its change unharmed, and return the calls of it."""
    prepared(place, folder)
    log = folder / "log"
    assert worker.work(folder, "-e", f"trace={calls}", "-o", str(log)) == 0
    assert paid(place) == (1, 1)
    return numbered(log.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "mode", [pytest.param(mode, id=f"C26 {mode}") for mode in ("wal", "delete")]
)
def test_a_kill_at_any_write_to_a_file_leaves_all_or_nothing(
    mode: str, worker: Worker, quick: Path
) -> None:
    with file_of(quick / "whole", mode) as place:
        boundaries = whole(worker, place, quick / "whole", DURABLE)
    ends = set[Answer]()
    for call, nth in boundaries:
        folder = quick / f"{call}-{nth}"
        with file_of(folder, mode) as place:
            sent = prepared(place, folder)
            inject = f"inject={call}:signal=SIGKILL:when={nth}"
            options = ("-e", f"trace={call}", "-e", inject, "-o", "/dev/null")
            assert worker.work(folder, *options) == KILLED
            ends.add(expect_one_end(place, sent))
    assert ends == {Answer.ABSENT, Answer.FOUND}


@pytest.mark.parametrize("error", [pytest.param(e, id=f"T25 {e}") for e in ("EIO", "ENOSPC")])
@pytest.mark.parametrize("call", ["pwrite64", "fdatasync"])
def test_a_write_to_a_file_that_fails_leaves_all_or_nothing(
    call: str, error: str, worker: Worker, quick: Path
) -> None:
    with file_of(quick / "whole", "delete") as place:
        boundaries = whole(worker, place, quick / "whole", DURABLE)
    failures = 0
    for name, nth in boundaries:
        if name != call:
            continue
        folder = quick / f"{call}-{nth}"
        with file_of(folder, "delete") as place:
            sent = prepared(place, folder)
            inject = f"inject={call}:error={error}:when={nth}"
            worker.work(folder, "-e", f"trace={call}", "-e", inject, "-o", "/dev/null")
            expect_one_end(place, sent)
        failures += 1
    assert failures > 0


@pytest.mark.timeout(120)
def test_a_kill_at_any_message_to_a_server_leaves_all_or_nothing(
    worker: Worker, postgres: LocalPostgres, quick: Path
) -> None:
    place = postgres_place(postgres)
    boundaries = whole(worker, place, quick / "whole", MESSAGES)
    log = (quick / "whole" / "log").read_text(encoding="utf-8").splitlines()
    place.close()
    ends = set[Answer]()
    for call, nth in told_apart(boundaries, log):
        folder = quick / f"{call}-{nth}"
        place = postgres_place(postgres)
        sent = prepared(place, folder)
        inject = f"inject={call}:signal=SIGKILL:when={nth}"
        options = ("-e", f"trace={call}", "-e", inject, "-o", "/dev/null")
        assert worker.work(folder, *options) == KILLED
        ends.add(expect_one_end(place, sent))
        place.close()
    assert ends == {Answer.ABSENT, Answer.FOUND}


@pytest.mark.parametrize("row", [pytest.param("C06", id="C06 a, C11, on a server")])
def test_a_worker_that_is_stopped_before_its_commit_cannot_make_it_afterwards(
    row: str, worker: Worker, postgres: LocalPostgres, quick: Path
) -> None:
    """Its transaction ends by the server's clock; then its successor acts, and it wakes up."""
    first = postgres_place(postgres)
    log = quick / "whole" / "log"
    whole(worker, first, quick / "whole", "sendto")
    first.close()
    (commit,) = [
        number
        for number, line in enumerate(log.read_text(encoding="utf-8").splitlines(), start=1)
        if "COMMIT" in line
    ]
    place = postgres_place(postgres)
    prepared(place, quick, timeout_ms=1_500)
    inject = f"inject=sendto:signal=SIGSTOP:when={commit - 1}"
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(
            worker.work, quick, "-e", "trace=sendto", "-e", inject, "-o", "/dev/null"
        )
        wait_for_open_call(str(place.target))
        successor = place.adapter()
        successor.take(RUN, NEWER)
        assert not successor.execute(asked(successor, *PAYMENT, fence=NEWER)).replayed
        os.kill(int(worker.child), signal.SIGCONT)
        assert late.result() == 1
    assert paid(place) == (1, 1)
    place.close()
