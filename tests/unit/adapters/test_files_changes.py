"""What a call does to files, what its receipt says, and what it is refused for."""

import os
import stat
from pathlib import Path

import pytest

from counterfoil.core.bounds import RESULT_BYTES_MAX
from counterfoil.core.canonical import digest
from counterfoil.core.errors import (
    FencedError,
    IdempotencyConflictError,
    PermissionDeniedError,
    StaleObservationError,
    UnavailableError,
)
from counterfoil.core.receipt import Answer, Fence
from counterfoil.core.words import Json, Key
from tests.support.files_scene import (
    CHANGES,
    EVERYTHING,
    FENCE,
    KEY,
    NOW_MS,
    OTHER_RUN,
    RUN,
    Scene,
    answer,
    change,
    do,
    operation,
    read,
    served,
)

ABSENT = "absent"
ONE = digest(b"1")
TWO = digest(b"2")


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_leaves_the_files_as_it_says(name: str, tmp_path: Path) -> None:
    before, _, after = CHANGES[name]
    scene = Scene(tmp_path, before)
    adapter = scene.open(account="clerk")
    receipt = adapter.execute(change(adapter, name, statement="s"))
    assert scene.files == after
    assert (receipt.run_id, receipt.key, receipt.served) == (RUN, KEY, served(1))
    assert (receipt.committed_at_ms, receipt.statement, receipt.replayed) == (NOW_MS, "s", False)
    assert (receipt.poststate.version, receipt.poststate.account) == (1, "clerk")
    assert receipt.poststate == adapter.observe(EVERYTHING).state
    assert answer(adapter).receipt == receipt
    adapter.close()


def test_the_receipt_names_the_real_object(tmp_path: Path) -> None:
    scene = Scene(tmp_path, {"a": "1"})
    adapter = scene.open()
    results = [
        do(adapter, "write", key=Key("k1"), path="b", content="2").result,
        do(adapter, "write", key=Key("k2"), path="a", content="2").result,
    ]
    for result, created, matched in zip(results, (True, False), (ABSENT, "object"), strict=True):
        status = (scene.root / result["path"]).stat()
        assert (result["dev"], result["inode"]) == (status.st_dev, status.st_ino)
        assert (result["sha256"], result["size"]) == (TWO, 1)
        assert (result["created"], result["matched"]) == (created, matched)
    adapter.close()


@pytest.mark.parametrize(
    "call",
    [
        {"kind": "write", "path": "a", "content": "2", "expected": ABSENT},
        {"kind": "write", "path": "a", "content": "2", "expected": TWO},
        {"kind": "write", "path": "c", "content": "2", "expected": TWO},
        {"kind": "delete", "path": "a", "expected": TWO},
        {"kind": "delete", "path": "c"},
        {"kind": "move", "source": "c", "target": "d"},
        {"kind": "move", "source": "a", "target": "b"},
        {"kind": "move", "source": "a", "target": "b", "expected_target": ONE},
        {"kind": "move", "source": "a", "target": "d", "expected_target": ONE},
    ],
    ids=str,
)
def test_a_file_that_is_not_as_expected_is_left_alone(call: dict[str, str], tmp_path: Path) -> None:
    scene = Scene(tmp_path, {"a": "1", "b": "2"})
    adapter = scene.open()
    with pytest.raises(StaleObservationError):
        do(adapter, **call)
    assert scene.files == {"a": "1", "b": "2"}
    adapter.close()


@pytest.mark.parametrize(
    "call",
    [
        {"kind": "write", "path": "a", "content": "2", "expected": ONE},
        {"kind": "write", "path": "c", "content": "2", "expected": ABSENT},
        {"kind": "delete", "path": "a", "expected": ONE},
        {"kind": "move", "source": "a", "target": "b", "expected_target": TWO},
        {"kind": "move", "source": "a", "target": "c", "expected_target": ABSENT},
    ],
    ids=str,
)
def test_a_file_that_is_as_expected_is_changed(call: dict[str, str], tmp_path: Path) -> None:
    scene = Scene(tmp_path, {"a": "1", "b": "2"})
    adapter = scene.open()
    do(adapter, **call)
    assert scene.files != {"a": "1", "b": "2"}
    adapter.close()


def test_a_replaced_file_keeps_its_mode_and_owner(tmp_path: Path) -> None:
    scene = Scene(tmp_path, {"a": "1"})
    (scene.root / "a").chmod(0o4751)
    if os.geteuid() == 0:
        os.chown(scene.root / "a", 12, 34)
    before = (scene.root / "a").stat()
    adapter = scene.open()
    do(adapter, "write", path="a", content="2")
    after = (scene.root / "a").stat()
    assert stat.S_IMODE(after.st_mode) == 0o751
    assert (after.st_uid, after.st_gid) == (before.st_uid, before.st_gid)
    adapter.close()


def test_a_new_file_has_the_mode_that_the_umask_allows(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    adapter = scene.open()
    mask = os.umask(0o027)
    try:
        do(adapter, "write", path="d/a", content="2")
    finally:
        os.umask(mask)
    assert stat.S_IMODE((scene.root / "d/a").stat().st_mode) == 0o640
    assert stat.S_IMODE((scene.root / "d").stat().st_mode) == 0o750
    adapter.close()


@pytest.mark.parametrize(
    ("raw", "encoding", "content"),
    [
        pytest.param(b"one\r\ntwo\r\n", "text", "one\r\ntwo\r\n", id="line endings are kept"),
        pytest.param(b"\xef\xbb\xbfa", "text", "\ufeffa", id="a byte order mark is kept"),
        pytest.param(b"\xff\xfe", "text", b"\xff\xfe", id="no UTF-8 is bytes"),
        pytest.param(b"a", "bytes", b"a", id="bytes where they are asked for"),
        pytest.param(b"", "text", "", id="nothing"),
        pytest.param(b"a\x00b", "text", "a\x00b", id="NUL"),
    ],
)
def test_what_is_read_is_what_is_there(
    raw: bytes, encoding: str, content: Json, tmp_path: Path
) -> None:
    scene = Scene(tmp_path, {"a": raw})
    adapter = scene.open()
    result = read(adapter, "a", encoding=encoding)
    assert result == {
        "path": "a",
        "sha256": digest(raw),
        "size": len(raw),
        "content": content,
    }
    adapter.close()


def test_a_file_that_is_not_there_reads_as_absent(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    adapter = scene.open()
    for path in ("a", "b/c"):
        result = read(adapter, path)
        assert result == {"path": path, "sha256": ABSENT, "size": 0, "content": None}
    adapter.close()


@pytest.mark.parametrize(
    ("raw", "is_whole"),
    [
        pytest.param(b"a" * (RESULT_BYTES_MAX - 200), True, id="fits"),
        pytest.param(b"a" * RESULT_BYTES_MAX, False, id="does not fit"),
        pytest.param(b"\x00" * (RESULT_BYTES_MAX // 2), False, id="does not fit as JSON"),
        pytest.param(b"\xff" * (RESULT_BYTES_MAX * 7 // 8), False, id="does not fit as base64"),
        pytest.param(b"a" * 5_000_000, False, id="is long"),
    ],
)
def test_content_is_whole_or_named_by_its_digest(
    raw: bytes, is_whole: bool, tmp_path: Path
) -> None:
    scene = Scene(tmp_path, {"a": raw})
    adapter = scene.open()
    result = read(adapter, "a")
    assert ("content" in result, "reference" in result) == (is_whole, not is_whole)
    assert (result["sha256"], result["size"]) == (digest(raw), len(raw))
    adapter.close()


def test_a_read_records_what_others_changed(tmp_path: Path) -> None:
    scene = Scene(tmp_path, {"a": "1"})
    adapter = scene.open()
    asked = operation(adapter, "read", key=Key(""), path="a")
    scene.put("a", "22")
    receipt = adapter.execute(asked)
    assert (receipt.result["content"], receipt.poststate.version) == ("22", 1)
    assert receipt.poststate == adapter.observe(EVERYTHING).state
    assert (receipt.id, receipt.key) == ("", "")
    adapter.close()


def test_another_intent_under_a_key_is_a_conflict(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    adapter = scene.open()
    do(adapter, "write", path="a", content="1")
    with pytest.raises(IdempotencyConflictError):
        do(adapter, "write", path="a", content="2")
    assert scene.files == {"a": "1"}
    adapter.close()


@pytest.mark.parametrize("row", [pytest.param("", id="[acc-A23 T18]")])
def test_the_key_of_another_run_is_a_conflict(row: str, tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    adapter = scene.open()
    do(adapter, "write", path="a", content="1")
    for content in ("1", "2"):
        with pytest.raises(IdempotencyConflictError, match="another run"):
            do(adapter, "write", run_id=OTHER_RUN, path="a", content=content)
    found = answer(adapter, run_id=OTHER_RUN)
    assert found.answer is Answer.FOUND_OTHER
    assert found.receipt is not None
    assert (found.receipt.run_id, scene.files) == (RUN, {"a": "1"})
    adapter.close()


def test_a_replay_serves_the_newer_checkpoint(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    adapter = scene.open()
    do(adapter, "write", path="a", content="1", generation=3)
    do(adapter, "write", path="a", content="1", generation=5)
    do(adapter, "write", path="a", content="1", generation=4)
    newer = Fence(lease_version=2, nonce="second")
    assert adapter.take(RUN, newer) == served(5)
    adapter.close()


def test_a_refused_call_serves_nothing(tmp_path: Path) -> None:
    scene = Scene(tmp_path, {"a": "1"})
    adapter = scene.open()
    adapter.take(RUN, FENCE)
    with pytest.raises(StaleObservationError):
        do(adapter, "write", path="a", content="2", expected=TWO)
    assert adapter.take(RUN, FENCE) is None
    adapter.close()


def test_an_older_lease_reads_nothing(tmp_path: Path) -> None:
    scene = Scene(tmp_path, {"a": "1"})
    adapter = scene.open()
    adapter.take(RUN, Fence(lease_version=2, nonce="second"))
    with pytest.raises(FencedError):
        read(adapter, "a")
    adapter.close()


@pytest.mark.parametrize("name", CHANGES)
def test_a_forbidden_change_leaves_everything_as_it_is(name: str, tmp_path: Path) -> None:
    scene = Scene(tmp_path, CHANGES[name][0])
    adapter = scene.open()
    asked = change(adapter, name)
    assert adapter.forbid(RUN, KEY, asked.kind, FENCE).answer is Answer.ABSENT
    with pytest.raises(PermissionDeniedError, match="made impossible"):
        adapter.execute(asked)
    assert scene.files == CHANGES[name][0]
    adapter.close()


def test_a_worker_that_keeps_the_lock_is_waited_for_only_so_long(tmp_path: Path) -> None:
    scene = Scene(tmp_path, {"a": "1"})
    adapter, pauses = scene.open(), []
    other = scene.open(pause=pauses.append)
    asked = operation(other, "write", path="a", content="2")
    with adapter._turn():
        with pytest.raises(UnavailableError, match="busy"):
            other.execute(asked)
        assert answer(other).answer is Answer.UNKNOWN
    assert sum(pauses) == pytest.approx(8.0)
    assert other.execute(asked).poststate.version == 1
    adapter.close()
    other.close()


def test_the_lock_is_taken_as_soon_as_it_is_free(tmp_path: Path) -> None:
    scene = Scene(tmp_path, {"a": "1"})
    adapter = scene.open()
    turn = adapter._turn()
    other = scene.open(pause=lambda _: turn.__exit__(None, None, None))
    asked = operation(other, "write", path="a", content="2")
    turn.__enter__()
    assert other.execute(asked).result["sha256"] == TWO
    adapter.close()
    other.close()


def test_another_folder_at_the_path_of_the_root_is_not_written(tmp_path: Path) -> None:
    scene = Scene(tmp_path, {"a": "1"})
    adapter = scene.open()
    asked = operation(adapter, "write", path="a", content="2")
    scene.root.rename(tmp_path / "elsewhere")
    scene.root.mkdir()
    with pytest.raises(UnavailableError, match="another folder"):
        adapter.execute(asked)
    assert (scene.files, (tmp_path / "elsewhere/a").read_text()) == ({}, "1")
    adapter.close()
