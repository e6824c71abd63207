"""Disks that are full, or do not keep what they are told to keep, beneath runs.

What was acknowledged is there afterwards. A write that failed is never told as a success,
and no effect is repeated.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace

from counterfoil.core.codec import Checkpoint
from counterfoil.core.errors import CounterfoilError, UnavailableError, UnknownOutcomeError
from counterfoil.local.etcd import LocalEtcd
from counterfoil.local.postgres import LocalPostgres
from counterfoil.ports import CheckpointStore
from counterfoil.stores import postgres, sqlite
from counterfoil.testing.mortal import Fate
from counterfoil.testing.store_bench import RUN, checkpoint
from tests.support.meddling import Meddling, at_number, calls_of, staged, survives, where
from tests.support.pairs import Kind, Pair
from tests.support.sources import ROOT
from tests.support.workshop import ARRIVED, TEXTS, Workshop, fresh_workshop

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root mounts a disk, and traces a server"
)

SQLITE_BYTES, POSTGRES_BYTES = 8_000_000, 160_000_000
"""A little more than what is set up takes."""

BLOCKS_BYTES = (65_536, 512)
"""Large ones first, and then what is left."""

BIG_BYTES = 30_000
ROWS_MAX, ROWS_BEFORE = 4_000, 5
WORKERS_MAX = 2
SECONDS_MAX = 60
WRITES = ("store.put", "store.mark", "joint.commit", "heads.create", "heads.advance")


@dataclass(frozen=True, kw_only=True, slots=True)
class SmallDisk:
    """A file system of its own, on which space runs out."""

    path: Path

    def fill(self) -> None:
        """Take all the space that is left."""
        with (self.path / "ballast").open("ab", buffering=0) as ballast:
            for size in BLOCKS_BYTES:
                with suppress(OSError):
                    while ballast.write(bytes(size)):
                        pass

    def free(self) -> None:
        """Give the space back."""
        (self.path / "ballast").unlink(missing_ok=True)


@contextmanager
def small_disk(size_bytes: int) -> Generator[SmallDisk]:
    path = Path(tempfile.mkdtemp(prefix="counterfoil-disk-"))
    options = f"size={size_bytes},mode=755"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", path], check=True)
    try:
        yield SmallDisk(path=path)
    finally:
        subprocess.run(["umount", "--lazy", path], check=True)
        path.rmdir()


@dataclass(frozen=True, kw_only=True, slots=True)
class Lone:
    """Servers for a pair: a PostgreSQL of its own, or none at all."""

    server: LocalPostgres | None = None

    def databases(self) -> tuple[str, str]:
        assert self.server is not None
        return f"{self.server.url()}?pool=1", f"{self.server.url()}?pool=1"

    def etcd(self) -> LocalEtcd:
        raise NotImplementedError


Put = Callable[[Sequence[Checkpoint]], object]


def filled(disk: SmallDisk, put: Put) -> tuple[list[int], CounterfoilError]:
    """Put rows, the disk being full after a few; return which were acknowledged, and the end."""
    acknowledged: list[int] = []
    for number in range(ROWS_MAX):
        if number == ROWS_BEFORE:
            disk.fill()
        try:
            put([replace(checkpoint(number), state=os.urandom(BIG_BYTES))])
        except CounterfoilError as error:
            return acknowledged, error
        acknowledged.append(number)
    raise AssertionError("the disk is not full")


def kept(store: CheckpointStore) -> list[int]:
    return [row.generation for row in store.trace(RUN, -1, ROWS_MAX)]


# ---------------------------------------------------------------- SQLite


@pytest.mark.parametrize("row", [pytest.param("T25", id="T25 files, the disk is full")])
def test_runs_in_files_survive_a_full_disk_at_any_write(row: str, tmp_path: Path) -> None:
    with small_disk(SQLITE_BYTES) as disk:
        pair = Pair(Kind.FILES, disk.path, Lone())
        ends: list[CounterfoilError] = []
        for at in where(calls_of(pair), *WRITES):
            with staged(pair) as stage:
                ends += survives(pair, stage, Meddling(at_number(at, disk.fill)), disk.free)
        assert {type(end) for end in ends} <= {UnavailableError, UnknownOutcomeError}
        assert ends


@pytest.mark.parametrize("row", [pytest.param("T25", id="T25 a file, until the disk is full")])
def test_a_file_on_a_full_disk_keeps_what_it_acknowledged(row: str) -> None:
    with small_disk(SQLITE_BYTES) as disk:
        path = disk.path / "project" / "checkpoints.db"
        store = sqlite.open_store(path, create=True)
        acknowledged, error = filled(disk, store.put)
        assert isinstance(error, (UnavailableError, UnknownOutcomeError))
        store.close()
        disk.free()
        store = sqlite.open_store(path, create=False)
        assert kept(store)[: len(acknowledged)] == acknowledged
        store.put([checkpoint(ROWS_MAX)])
        assert kept(store)[-1] == ROWS_MAX
        store.close()


PLACES = {"checkpoints": "project/checkpoints.db", "heads": "state/heads.db"}


def worker(workshop: Workshop, *before: str) -> str:
    """Let a worker work in a process of its own; return what it says of its end."""
    flags = ["-O"] if sys.flags.optimize else []
    answer = subprocess.run(
        [*before, sys.executable, *flags, "-m", "tests.support.disk_worker", workshop.place],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


@pytest.mark.parametrize("name", PLACES)
def test_a_worker_whose_file_cannot_be_synced_says_so_and_repeats_nothing(
    name: str, tmp_path: Path
) -> None:
    words: list[str] = []
    for number in SYNCS:
        workshop = fresh_workshop(tmp_path, f"{number}")
        file = workshop.place / PLACES[name]
        strace = (
            "strace",
            "-f",
            "--seccomp-bpf",
            "-qq",
            "-o",
            os.devnull,
            "-P",
            f"{file}",
            "-P",
            f"{file}-wal",
        )
        fault = f"inject=fdatasync:error=EIO:when={number}+"
        words.append(worker(workshop, *strace, "-e", "trace=fdatasync", "-e", fault))
        assert any(worker(workshop) == "done" for _ in range(WORKERS_MAX))
        assert workshop.arrived() == ARRIVED
        assert workshop.texts() == TEXTS
    assert set(words) <= {"UnavailableError", "UnknownOutcomeError", "done"}
    assert "UnknownOutcomeError" in words


SYNCS = (1, 2, 4, 9)
"""From which sync of one file on every one fails."""

# ---------------------------------------------------------------- PostgreSQL


@contextmanager
def server_on(folder: Path) -> Generator[LocalPostgres]:
    before, tempfile.tempdir = tempfile.tempdir, str(folder)
    try:
        with LocalPostgres() as server:
            yield server
    finally:
        tempfile.tempdir = before


def mended(server: LocalPostgres, disk: SmallDisk) -> Callable[[], None]:
    """Return what gives a server space again, and starts it if it has stopped for want of it."""

    def mend() -> None:
        disk.free()
        server.restart()

    return mend


@pytest.mark.parametrize("row", [pytest.param("T25", id="T25 a server, the disk is full")])
def test_runs_on_a_server_survive_a_full_disk_at_any_write(row: str, tmp_path: Path) -> None:
    with small_disk(POSTGRES_BYTES) as disk, server_on(disk.path) as server:
        pair = Pair(Kind.JOINT, tmp_path, Lone(server=server))
        ends: list[CounterfoilError] = []
        for at in where(calls_of(pair), *WRITES):
            with staged(pair) as stage:
                fate = Meddling(at_number(at, disk.fill))
                ends += survives(pair, stage, fate, mended(server, disk))
        assert {type(end) for end in ends} <= {UnavailableError, UnknownOutcomeError}


@pytest.mark.parametrize("row", [pytest.param("T25", id="T25 a server, until the disk is full")])
def test_a_server_on_a_full_disk_keeps_what_it_acknowledged(row: str) -> None:
    with small_disk(POSTGRES_BYTES) as disk, server_on(disk.path) as server:
        store = postgres.open_store(server.url(), create=True)
        acknowledged, error = filled(disk, store.put)
        assert isinstance(error, (UnavailableError, UnknownOutcomeError))
        assert len(acknowledged) >= ROWS_BEFORE
        store.close()
        mended(server, disk)()
        store = postgres.open_store(server.url(), create=False)
        assert kept(store)[: len(acknowledged)] == acknowledged
        store.put([checkpoint(ROWS_MAX)])
        assert kept(store)[-1] == ROWS_MAX
        store.close()


@contextmanager
def failing_syncs(server: LocalPostgres, number: int) -> Generator[None]:
    """Let a sync of each process that the server starts fail, the one with this number."""
    tracer = subprocess.Popen(
        [
            *("strace", "-f", "-o", os.devnull, "-p", str(server.pid)),
            *("-e", "trace=fdatasync", "-e", f"inject=fdatasync:error=EIO:when={number}"),
        ],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert tracer.stderr is not None
        assert "attached" in tracer.stderr.readline()
        yield
    finally:
        tracer.terminate()
        tracer.communicate()


@pytest.mark.parametrize("number", [pytest.param(n, id=f"T25 sync {n} fails") for n in range(1, 7)])
def test_runs_on_a_server_survive_a_sync_that_fails(number: int, tmp_path: Path) -> None:
    with LocalPostgres() as server:
        pair = Pair(Kind.JOINT, tmp_path, Lone(server=server))
        with staged(pair) as stage, ExitStack() as fault:
            fault.enter_context(failing_syncs(server, number))

            def mend() -> None:
                fault.close()
                server.restart()

            errors = survives(pair, stage, Fate(), mend)
        assert {type(error) for error in errors} <= {UnavailableError, UnknownOutcomeError}
        assert "PANIC:  could not fdatasync file" in (server.folder / "log").read_text()
