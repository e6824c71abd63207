"""Two processes on one file: each waits its turn, and no update is lost."""

import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from counterfoil.core.errors import UnavailableError, UsageError
from counterfoil.stores import sqlite_driver
from counterfoil.testing.store_bench import RUN, checkpoint, move
from tests.support.sources import ROOT
from tests.support.store_process import first_head, heads_at, store_at

WINS = 40
SECONDS_MAX = 60
SHORT_WAIT_MS = 20


@contextmanager
def another(*words: object) -> Generator["subprocess.Popen[str]"]:
    """Run another process until it says that it is ready; it must end by itself."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.support.store_process", *map(str, words)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        yield child
        child.communicate("\n", timeout=SECONDS_MAX)
        assert child.returncode == 0


@pytest.mark.parametrize("row", [pytest.param("C16", id="C16 b")])
def test_two_processes_that_read_then_write_lose_no_update(row: str, tmp_path: Path) -> None:
    store, heads = store_at(tmp_path), heads_at(tmp_path)
    first_head(store, heads)
    store.close()
    with another("contend", tmp_path, WINS) as one, another("contend", tmp_path, WINS) as two:
        for child in (one, two):
            assert child.stdin is not None
            child.stdin.write("\n")
            child.stdin.flush()
    head = heads.read(RUN)
    heads.close()
    assert head is not None
    assert head.generation == 2 * WINS


@pytest.mark.parametrize("row", [pytest.param("C16", id="C16 b")])
def test_a_lock_that_stands_too_long_is_unavailable_and_nothing_happened(
    row: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_driver, "BUSY_WAIT_MS", SHORT_WAIT_MS)
    store, heads = store_at(tmp_path), heads_at(tmp_path)
    head = first_head(store, heads)
    for name in ("project/store.db", "state/heads.db"):
        with another("hold", tmp_path, name):
            if name.endswith("heads.db"):
                with pytest.raises(UnavailableError, match="locked by another process"):
                    heads.advance([move(head)])
                assert heads.read(RUN) == head
            else:
                with pytest.raises(UnavailableError, match="locked by another process"):
                    store.put([checkpoint(1)])
                assert store.get(RUN, checkpoint(1).digest) is None
    store.put([checkpoint(1)])
    (moved,) = heads.advance([move(head)])
    heads.close()
    store.close()
    assert moved.generation == 1


@pytest.mark.parametrize("row", [pytest.param("C16", id="C16 b")])
def test_a_file_that_cannot_be_settled_is_unavailable_until_it_can(
    row: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_driver, "BUSY_WAIT_MS", SHORT_WAIT_MS)
    other, store = store_at(tmp_path), store_at(tmp_path)
    store.put([checkpoint(0)])
    store._database._is_unsettled = True
    store._database._drop_as_it_is()
    with another("hold", tmp_path, "project/store.db"):
        for _ in range(2):
            with pytest.raises(UnavailableError, match="locked by another process"):
                store.get(RUN, checkpoint(0).digest)
    assert store.get(RUN, checkpoint(0).digest) == checkpoint(0)
    assert (tmp_path / "project" / "store.db-wal").stat().st_size == 0
    store.put([checkpoint(1)])
    store.close()
    other.close()


def test_a_connection_is_not_used_after_a_fork(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    store._database._process_id -= 1
    with pytest.raises(UsageError, match="before a fork"):
        store.get(RUN, checkpoint(0).digest)
    store.close()


@pytest.mark.parametrize("row", [pytest.param("C16", id="C16 b")])
def test_a_lock_that_is_let_go_in_time_is_waited_for(row: str, tmp_path: Path) -> None:
    store = store_at(tmp_path)
    with another("hold", tmp_path, "project/store.db") as child:
        assert child.stdin is not None
        child.stdin.write("\n")
        child.stdin.flush()
        store.put([checkpoint(0)])
    assert store.get(RUN, checkpoint(0).digest) == checkpoint(0)
    store.close()


def test_a_reader_does_not_wait_for_a_writer(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    store.put([checkpoint(0)])
    with another("hold", tmp_path, "project/store.db"):
        assert store.get(RUN, checkpoint(0).digest) == checkpoint(0)
    store.close()
