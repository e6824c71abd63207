"""A disk that is full or broken gives a clear error, and never half a change."""

import errno
from pathlib import Path
from typing import Any

import pytest

from counterfoil.adapters.files.disk import NOREPLACE
from counterfoil.core.errors import (
    ConfigError,
    ContractError,
    FormatError,
    PermissionDeniedError,
    UnavailableError,
    UnknownOutcomeError,
)
from counterfoil.core.receipt import Answer
from tests.support.disks import CHANGING, FailingDisk, LackingDisk, SteppingDisk
from tests.support.files_scene import (
    CHANGES,
    EVERYTHING,
    FENCE,
    RUN,
    Scene,
    answer,
    change,
    do,
    expect_one_end,
    operation,
    raised,
)

CALLS_MAX = 12
"""More calls of one method than any change makes."""


class RecordingDisk(SteppingDisk):
    """Fails the syncs of one kind of object until told otherwise, and lists what is created."""

    def __init__(self) -> None:
        self.created: list[str] = []
        self.fails_after: str | None = None

    def step(self, method: str, moment: str, arguments: tuple[Any, ...]) -> None:
        if (method, moment) == ("create_file", "after"):
            self.created.append(arguments[1])
        if (method, moment) == (self.fails_after, "after"):
            self.fails_after = "armed"
        elif (method, moment, self.fails_after) == ("sync", "before", "armed"):
            self.fails_after = None
            raise OSError(errno.EIO, "I/O error")


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC], ids=errno.errorcode.get)
@pytest.mark.parametrize("method", CHANGING)
@pytest.mark.parametrize("name", [pytest.param(name, id=f"[T25 {name}]") for name in CHANGES])
def test_a_call_that_fails_leaves_the_change_done_or_not(
    name: str, method: str, number: int, swift_path: Path
) -> None:
    for nth in range(1, CALLS_MAX):
        (place := swift_path / str(nth)).mkdir()
        scene = Scene(place, CHANGES[name][0])
        disk = FailingDisk(method, CALLS_MAX, number)
        adapter = scene.open(disk)
        asked = change(adapter, name)
        adapter.take(RUN, FENCE)
        disk.left = nth
        outcome = raised(lambda adapter=adapter, asked=asked: adapter.execute(asked))
        if isinstance(outcome, UnavailableError):
            assert scene.visible == CHANGES[name][0]
            assert answer(adapter).answer is Answer.ABSENT
        else:
            assert outcome is None or isinstance(outcome, UnknownOutcomeError)
        adapter.close()
        expect_one_end(scene, name, asked)
        if not disk.has_failed:
            return
    pytest.fail(f"more than {CALLS_MAX} calls of {method}")


def test_a_failed_sync_of_the_content_is_given_up_and_written_anew(
    swift_path: Path,
) -> None:
    scene = Scene(swift_path, {"a": "1"})
    disk = RecordingDisk()
    adapter = scene.open(disk)
    asked = operation(adapter, "write", path="a", content="2")
    disk.created.clear()
    disk.fails_after = "write"
    with pytest.raises(UnavailableError):
        adapter.execute(asked)
    assert scene.files == {"a": "1"}
    adapter.execute(asked)
    assert (len(disk.created), scene.files) == (2, {"a": "2"})
    adapter.close()


@pytest.mark.parametrize("name", [pytest.param(name, id=f"[C17 {name}]") for name in CHANGES])
def test_a_failed_sync_of_the_folder_is_never_retried_into_a_success(
    name: str, swift_path: Path
) -> None:
    scene = Scene(swift_path, CHANGES[name][0])
    disk = RecordingDisk()
    adapter = scene.open(disk)
    asked = change(adapter, name)
    disk.fails_after = "rename"
    with pytest.raises(UnknownOutcomeError):
        adapter.execute(asked)
    assert answer(adapter).answer is Answer.ABSENT
    assert scene.visible == CHANGES[name][0]
    assert not adapter.execute(asked).replayed
    assert scene.files == CHANGES[name][2]
    adapter.close()


@pytest.mark.parametrize(
    ("number", "error"),
    [
        pytest.param(errno.ENOSPC, UnavailableError, id="[C17 T25 no space is left]"),
        pytest.param(errno.EROFS, UnavailableError, id="[T25 read-only]"),
        pytest.param(errno.EDQUOT, UnavailableError, id="a quota is used up"),
        pytest.param(errno.EACCES, PermissionDeniedError, id="access is refused"),
        pytest.param(errno.EPERM, PermissionDeniedError, id="the file is immutable"),
        pytest.param(errno.EXDEV, ContractError, id="two file systems"),
        pytest.param(errno.ENAMETOOLONG, ContractError, id="the name is too long"),
    ],
)
@pytest.mark.parametrize("method", ["create_file", "write", "rename"])
def test_the_error_says_what_may_be_done(
    method: str, number: int, error: type[Exception], swift_path: Path
) -> None:
    scene = Scene(swift_path, {"a": "1"})
    disk = FailingDisk(method, CALLS_MAX, number)
    adapter = scene.open(disk)
    asked = operation(adapter, "write", path="a", content="2")
    disk.left = 1
    with pytest.raises(error):
        adapter.execute(asked)
    assert scene.files == {"a": "1"}
    adapter.close()


def test_what_cannot_be_settled_is_unknown_and_not_absent(swift_path: Path) -> None:
    scene = Scene(swift_path, {"a": "1"})
    disk = FailingDisk("sync", CALLS_MAX, errno.EIO)
    adapter = scene.open(disk)
    asked = operation(adapter, "write", path="a", content="2")
    disk.method, disk.left = "rename", 1
    with pytest.raises(UnknownOutcomeError):
        adapter.execute(asked)
    disk.method, disk.left = "unlink", 1
    assert answer(adapter).answer is Answer.UNKNOWN
    assert answer(adapter).answer is Answer.ABSENT
    adapter.close()


def test_a_file_system_that_cannot_exchange_names_is_refused(swift_path: Path) -> None:
    scene = Scene(swift_path)
    with pytest.raises(ConfigError, match="cannot exchange two names"):
        scene.open(LackingDisk())
    with pytest.raises(ConfigError, match="cannot exchange two names"):
        scene.open(LackingDisk(NOREPLACE))
    assert scene.files == {}


def test_a_damaged_journal_is_an_integrity_error(swift_path: Path) -> None:
    scene = Scene(swift_path, {"a": "1"})
    adapter = scene.open()
    adapter.observe(EVERYTHING)
    adapter.close()
    database = scene.journal / "journal.db"
    database.write_bytes(b"not a database".ljust(database.stat().st_size, b"!"))
    with pytest.raises(FormatError, match="damaged"):
        scene.open()


def test_a_journal_that_cannot_be_written_stops_a_change_before_it(swift_path: Path) -> None:
    scene = Scene(swift_path, {"a": "1"})
    adapter = scene.open()
    asked = operation(adapter, "write", path="a", content="2")
    adapter._site.db.pragma("query_only", 1)
    with pytest.raises(UnavailableError, match="READONLY"):
        adapter.execute(asked)
    assert scene.files == {"a": "1"}
    adapter._site.db.pragma("query_only", 0)
    adapter.execute(asked)
    assert scene.files == {"a": "2"}
    adapter.close()


def test_a_full_journal_after_the_rename_is_an_unknown_outcome(swift_path: Path) -> None:
    scene = Scene(swift_path, {"a": "1"})

    class FillingDisk(SteppingDisk):
        def step(self, method: str, moment: str, arguments: tuple[Any, ...]) -> None:
            if (method, moment) == ("rename", "after") and not arguments[3].startswith(".c"):
                adapter._site.db.pragma("query_only", 1)

    adapter = scene.open(FillingDisk())
    asked = operation(adapter, "write", path="a", content="2")
    with pytest.raises(UnknownOutcomeError):
        adapter.execute(asked)
    assert answer(adapter).answer is Answer.UNKNOWN
    adapter._site.db.pragma("query_only", 0)
    assert answer(adapter).answer is Answer.FOUND
    assert scene.files == {"a": "2"}
    adapter.close()


def test_nothing_is_left_open_when_opening_fails(swift_path: Path) -> None:
    scene = Scene(swift_path)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        with pytest.raises(ConfigError):
            scene.open(LackingDisk())
    adapter = scene.open()
    do(adapter, "write", path="x/y", content="1")
    adapter.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
