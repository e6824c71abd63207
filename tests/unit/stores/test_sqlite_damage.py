"""A damaged or missing database is a named error; its files stay, and nothing takes their place."""

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from counterfoil.core.errors import (
    ConfigError,
    FormatError,
    HeadMissingError,
    IntegrityError,
    RollbackError,
)
from counterfoil.core.words import RunId
from counterfoil.stores.sqlite import open_inbox
from counterfoil.stores.sqlite_log import FRAME, HEADER, has_lost_commits
from counterfoil.testing.store_bench import RUN, checkpoint, created, move
from tests.support.store_process import first_head, heads_at, store_at

GENERATIONS = 9
STORE, HEADS = Path("project/store.db"), Path("state/heads.db")
HEADS_PAGE_BYTES = 4_096


def walked(folder: Path) -> None:
    """Leave a run at generation 9, and its logs as a kill would leave them."""
    live = folder / "live"
    store, heads = store_at(live), heads_at(live)
    head = first_head(store, heads)
    for generation in range(1, GENERATIONS + 1):
        store.put([checkpoint(generation)])
        (head,) = heads.advance([move(head)])
    for part in ("project", "state"):
        shutil.copytree(live / part, folder / part)
    heads.close()
    store.close()
    shutil.rmtree(live)


def settled(folder: Path) -> None:
    """Leave the same run after every connection was closed in good order."""
    walked(folder)
    store_at(folder).close()
    heads_at(folder).close()


def contents(folder: Path) -> dict[str, bytes]:
    """Return every file but the shared memory, which is made anew at each opening."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".db-shm")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def flip(path: Path, *, at: int, length: int = 64) -> None:
    data = bytearray(path.read_bytes())
    for index in range(at, min(at + length, len(data))):
        data[index] ^= 0xFF
    path.write_bytes(data)


def flip_header(path: Path) -> None:
    flip(path, at=0, length=16)


def flip_schema(path: Path) -> None:
    flip(path, at=100, length=900)


def garble(path: Path) -> None:
    path.write_bytes(b"this is no database, but long enough to be one\n" * 200)


def cut_in_half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def cut_to_a_few_bytes(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:50])


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(flip_header, id="C16 the first bytes flipped"),
        pytest.param(flip_schema, id="C16 the tables of contents flipped"),
        pytest.param(garble, id="C16 other bytes in its place"),
        pytest.param(cut_in_half, id="C16 cut in half"),
        pytest.param(cut_to_a_few_bytes, id="C16 cut to a few bytes"),
        pytest.param(empty, id="C16 emptied"),
    ],
)
@pytest.mark.parametrize(
    ("name", "open_one"),
    [pytest.param(STORE, store_at, id="store"), pytest.param(HEADS, heads_at, id="heads")],
)
def test_a_damaged_database_is_refused_and_stays_as_it_is(
    name: Path, open_one: Callable[[Path], object], spoil: Callable[[Path], None], tmp_path: Path
) -> None:
    settled(tmp_path)
    spoil(tmp_path / name)
    before = contents(tmp_path)
    for _ in range(2):
        with pytest.raises((IntegrityError, ConfigError)) as caught:
            read_everything(open_one(tmp_path))
    assert isinstance(caught.value, IntegrityError)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("row", [pytest.param("C16", id="C16")])
def test_a_register_is_checked_whole_when_it_opens(row: str, tmp_path: Path) -> None:
    heads = heads_at(tmp_path)
    for number in range(200):
        created(heads, RunId(f"run {number:03}"))
    heads.close()
    pages = (tmp_path / HEADS).stat().st_size // HEADS_PAGE_BYTES
    flip(tmp_path / HEADS, at=(pages - 2) * HEADS_PAGE_BYTES)
    before = contents(tmp_path)
    with pytest.raises(FormatError, match="is damaged"):
        heads_at(tmp_path)
    assert contents(tmp_path) == before


def read_everything(opened: object) -> None:
    """Read every row, so that damage that opening does not meet is met."""
    try:
        opened.trace(RUN, -1, 99) if hasattr(opened, "trace") else opened.read(RUN)
    finally:
        opened.close()


@pytest.mark.parametrize("row", [pytest.param("C16", id="C16")])
def test_an_emptied_database_does_not_cost_its_log(row: str, tmp_path: Path) -> None:
    walked(tmp_path)
    for name, open_one in ((STORE, store_at), (HEADS, heads_at)):
        empty(tmp_path / name)
        log = (tmp_path / f"{name}-wal").read_bytes()
        with pytest.raises(FormatError, match="is empty"):
            open_one(tmp_path)
        assert (tmp_path / f"{name}-wal").read_bytes() == log != b""


@pytest.mark.parametrize("row", [pytest.param("C16", id="C16")])
def test_a_register_that_is_gone_is_not_created_over_its_log(row: str, tmp_path: Path) -> None:
    walked(tmp_path)
    (tmp_path / HEADS).unlink()
    (tmp_path / STORE).unlink()
    before = contents(tmp_path)
    for _ in range(2):
        with pytest.raises(HeadMissingError):
            heads_at(tmp_path)
        with pytest.raises(RollbackError):
            store_at(tmp_path)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("row", [pytest.param("C16", id="C16")])
def test_a_register_that_is_gone_without_trace_is_created_only_when_asked(
    row: str, tmp_path: Path
) -> None:
    settled(tmp_path)
    shutil.rmtree(tmp_path / "state")
    with pytest.raises(HeadMissingError):
        heads_at(tmp_path, create=False)
    assert not (tmp_path / "state").exists()
    heads = heads_at(tmp_path)
    assert heads.read(RUN) is None
    heads.close()


def test_an_inbox_that_is_not_there_is_a_wrong_setting(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no inbox"):
        open_inbox(tmp_path / "inbox.db", create=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("row", [pytest.param("C16", id="C16")])
def test_a_log_that_is_gone_after_a_kill_is_seen(row: str, tmp_path: Path) -> None:
    walked(tmp_path)
    for name, open_one in ((STORE, store_at), (HEADS, heads_at)):
        (tmp_path / f"{name}-wal").unlink()
        before = contents(tmp_path)
        for _ in range(2):
            with pytest.raises(FormatError, match="is gone, and with it the newest commits"):
                open_one(tmp_path)
        assert contents(tmp_path) == before


def test_a_log_that_another_program_took_in_good_order_is_not_missed(tmp_path: Path) -> None:
    settled(tmp_path)
    for name in (STORE, HEADS):
        with closing(sqlite3.connect(tmp_path / name)) as connection:
            connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
        assert not (tmp_path / f"{name}-wal").exists()
    assert_complete(tmp_path)


def test_a_database_copied_without_its_log_opens(tmp_path: Path) -> None:
    settled(tmp_path)
    for name in (STORE, HEADS):
        copy = tmp_path / "copy" / name
        copy.parent.mkdir(parents=True, mode=0o700)
        shutil.copy(tmp_path / name, copy)
    (tmp_path / "copy").chmod(0o700)
    assert_complete(tmp_path / "copy")


def test_a_guard_stands_from_opening_to_closing(tmp_path: Path) -> None:
    guard = tmp_path / "state" / "heads.db-open"
    first = heads_at(tmp_path)
    store = store_at(tmp_path)
    head = first_head(store, first)
    second = heads_at(tmp_path)
    second.close()
    assert guard.exists()
    guard.unlink()
    first.advance([move(head)])
    assert guard.exists()
    first.close()
    store.close()
    assert not guard.exists()


@pytest.mark.parametrize("row", [pytest.param("C16", id="C16")])
def test_shared_memory_that_is_gone_loses_nothing(row: str, tmp_path: Path) -> None:
    walked(tmp_path)
    for name in (STORE, HEADS):
        (tmp_path / f"{name}-shm").unlink(missing_ok=True)
    assert_complete(tmp_path)


@pytest.mark.parametrize("row", [pytest.param("C16", id="C16")])
def test_what_a_kill_leaves_is_complete(row: str, tmp_path: Path) -> None:
    walked(tmp_path)
    assert_complete(tmp_path)


def assert_complete(folder: Path) -> None:
    store, heads = store_at(folder), heads_at(folder)
    head = heads.read(RUN)
    rows = store.trace(RUN, -1, 99)
    heads.close()
    store.close()
    assert head is not None
    assert (head.generation, len(rows)) == (GENERATIONS, GENERATIONS + 1)


@pytest.mark.parametrize(
    "at",
    [
        pytest.param(4, id="C16 in the header"),
        pytest.param(16, id="C16 in the salts of the header"),
        pytest.param(HEADER.size + 8, id="C16 in the first frame"),
        pytest.param(HEADER.size + 3 * (FRAME.size + HEADS_PAGE_BYTES) + 99, id="C16 in a page"),
    ],
)
def test_a_log_with_flipped_bytes_is_refused_and_stays_as_it_is(at: int, tmp_path: Path) -> None:
    walked(tmp_path)
    flip(tmp_path / f"{HEADS}-wal", at=at, length=4)
    before = contents(tmp_path)
    for _ in range(2):
        with pytest.raises(FormatError, match="damaged, and commits are lost"):
            heads_at(tmp_path)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("row", [pytest.param("T25", id="T25")])
def test_a_log_cut_anywhere_opens_at_one_of_its_commits(row: str, tmp_path: Path) -> None:
    walked(tmp_path)
    log = (tmp_path / f"{HEADS}-wal").read_bytes()
    step = (FRAME.size + HEADS_PAGE_BYTES) // 2
    reached = []
    for length in (0, 16, *range(HEADER.size, len(log), step), len(log)):
        copy = tmp_path / str(length)
        shutil.copytree(tmp_path / "state", copy / "state")
        (copy / f"{HEADS}-wal").write_bytes(log[:length])
        (copy / f"{HEADS}-shm").unlink(missing_ok=True)
        heads = heads_at(copy)
        head = heads.read(RUN)
        reached.append(-1 if head is None else head.generation)
        heads.close()
    assert reached == sorted(reached)
    assert set(reached) == set(range(-1, GENERATIONS + 1))


@pytest.mark.parametrize("row", [pytest.param("T25", id="T25")])
def test_a_torn_last_commit_is_dropped(row: str, tmp_path: Path) -> None:
    walked(tmp_path)
    log = tmp_path / f"{HEADS}-wal"
    flip(log, at=log.stat().st_size - HEADS_PAGE_BYTES, length=8)
    heads = heads_at(tmp_path)
    head = heads.read(RUN)
    heads.close()
    assert head is not None
    assert head.generation == GENERATIONS - 1


def test_what_an_older_round_left_in_a_log_is_no_damage(tmp_path: Path) -> None:
    heads = heads_at(tmp_path)
    head = first_head(store_at(tmp_path), heads)
    for _ in range(20):
        (head,) = heads.advance([move(head)])
    heads._database._live().wal_checkpoint(mode=1)
    (head,) = heads.advance([move(head)])
    log = (tmp_path / f"{HEADS}-wal").read_bytes()
    frames = (len(log) - HEADER.size) // (FRAME.size + HEADS_PAGE_BYTES)
    believed = heads._database._live().wal_checkpoint(mode=-1)[0]
    heads.close()
    assert frames > believed
    assert not has_lost_commits(log, page_bytes=HEADS_PAGE_BYTES, believed=believed)


def grown(folder: Path, name: str, pages: int) -> bytes:
    """Return the log of a copy of a database to which one commit of so many pages was added."""
    copy = folder / name
    shutil.copytree(folder / "base", copy)
    with closing(sqlite3.connect(copy / "file.db", isolation_level=None)) as connection:
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute("INSERT INTO part VALUES (zeroblob(?))", (pages * HEADS_PAGE_BYTES,))
        return (copy / "file.db-wal").read_bytes()


@pytest.mark.parametrize("pages", [(40, 4), (40, 20, 3), (3, 40)])
def test_commits_torn_in_a_row_at_the_same_place_are_no_damage(
    pages: tuple[int, ...], tmp_path: Path
) -> None:
    live = tmp_path / "live"
    live.mkdir()
    with closing(sqlite3.connect(live / "file.db", isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE part (bytes BLOB)")
        connection.execute("INSERT INTO part VALUES (zeroblob(9))")
        shutil.copytree(live, tmp_path / "base")
    base = (tmp_path / "base" / "file.db-wal").read_bytes()
    believed = (len(base) - HEADER.size) // (FRAME.size + HEADS_PAGE_BYTES)
    log = b""
    for number, size in enumerate(pages):  # each begins where the one before did
        later = grown(tmp_path, str(number), size)
        assert later.startswith(base)
        log = later + log[len(later) :]
    assert not has_lost_commits(log, page_bytes=HEADS_PAGE_BYTES, believed=believed)


@pytest.mark.parametrize("log", [b"", b"\x00" * 40, b"\x00" * 5_000])
def test_a_log_without_frames_has_lost_nothing(log: bytes) -> None:
    assert not has_lost_commits(log, page_bytes=HEADS_PAGE_BYTES, believed=0)


@pytest.mark.parametrize(
    "replace_it",
    [
        pytest.param(lambda path: path.unlink(), id="C16 deleted"),
        pytest.param(lambda path: path.rename(path.with_name("aside.db")), id="C16 moved"),
        pytest.param(
            lambda path: (path.unlink(), shutil.copy(path.parent / "copy", path)),
            id="C16 replaced by a copy",
        ),
        pytest.param(
            lambda path: path.with_name(path.name + "-wal").unlink(), id="C16 its log deleted"
        ),
    ],
)
def test_a_file_that_lost_its_name_is_not_written_to(
    replace_it: Callable[[Path], object], tmp_path: Path
) -> None:
    heads = heads_at(tmp_path)
    head = first_head(store := store_at(tmp_path), heads)
    shutil.copy(tmp_path / HEADS, tmp_path / "state" / "copy")
    replace_it(tmp_path / HEADS)
    with pytest.raises(FormatError, match="was replaced while it was open"):
        heads.advance([move(head)])
    heads.close()
    store.close()
