"""No link and no other spelling leads out of the root, or to a second object."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from counterfoil.core.errors import (
    CounterfoilError,
    PermissionDeniedError,
    RefusedError,
    StaleObservationError,
)
from counterfoil.core.receipt import Answer
from counterfoil.core.words import Key
from tests.support.disks import Death, FoldingDisk, SharedDisk
from tests.support.files_scene import (
    EVERYTHING,
    Scene,
    answer,
    do,
    operation,
    raised,
    read,
)

NOTES = "docs/notes.md"


def _link(scene: Scene, outside: Path) -> None:
    (scene.root / NOTES).unlink(missing_ok=True)
    (scene.root / NOTES).symlink_to(outside / "notes.md")


def _link_parent(scene: Scene, outside: Path) -> None:
    (scene.root / "docs").rename(scene.root / "docs-before")
    (scene.root / "docs").symlink_to(outside)


def _move_parent_out(scene: Scene, outside: Path) -> None:
    (scene.root / "docs").rename(outside / "docs")
    (scene.root / "docs").symlink_to(outside / "docs")


def _dangle(scene: Scene, outside: Path) -> None:
    (scene.root / NOTES).unlink(missing_ok=True)
    (scene.root / NOTES).symlink_to(outside / "nothing.md")


def _link_hard(scene: Scene, outside: Path) -> None:
    (scene.root / NOTES).unlink(missing_ok=True)
    (scene.root / NOTES).hardlink_to(outside / "notes.md")


SWAPS = [
    pytest.param(_link, id="[C20 a the file becomes a link]"),
    pytest.param(_link_parent, id="[C20 b its folder becomes a link]"),
    pytest.param(_move_parent_out, id="[C20 b its folder is moved out]"),
    pytest.param(_dangle, id="[C20 c a dangling link]"),
    pytest.param(_link_hard, id="[C20 d a hard link]"),
]
CALLS = [
    pytest.param({"kind": "write", "path": NOTES, "content": "ours"}, id="write"),
    pytest.param({"kind": "delete", "path": NOTES}, id="delete"),
    pytest.param({"kind": "move", "source": NOTES, "target": "here.md"}, id="move"),
]


@pytest.fixture
def outside(swift_path: Path) -> Path:
    folder = swift_path / "outside"
    folder.mkdir()
    (folder / "notes.md").write_text("original")
    return folder


def contents(outside: Path) -> dict[str, str]:
    return {
        path.relative_to(outside).as_posix(): path.read_text()
        for path in outside.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("swap", SWAPS)
@pytest.mark.parametrize("call", CALLS)
def test_a_swap_before_the_call_is_refused(
    call: dict[str, str], swap: Callable[[Scene, Path], None], outside: Path, swift_path: Path
) -> None:
    scene = Scene(swift_path, {NOTES: "original"})
    adapter = scene.open()
    asked = operation(adapter, **call)
    swap(scene, outside)
    before = contents(outside)
    with pytest.raises(RefusedError):
        adapter.execute(asked)
    assert contents(outside) == before
    assert answer(adapter).answer is Answer.ABSENT
    adapter.close()


@pytest.mark.parametrize("swap", SWAPS)
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    "moment",
    [("create_file", "after"), ("sync", "after"), ("rename", "after")],
    ids=["before the content", "before the rename", "after the rename"],
)
def test_a_swap_during_the_call_reaches_nothing_outside(
    moment: tuple[str, str],
    call: dict[str, str],
    swap: Callable[[Scene, Path], None],
    outside: Path,
    swift_path: Path,
) -> None:
    scene = Scene(swift_path, {NOTES: "original"})
    disk = SharedDisk(*moment, lambda: swap(scene, outside), nth=99)
    adapter = scene.open(disk)
    asked = operation(adapter, **call)
    disk.left = 1
    outcome = raised(lambda: adapter.execute(asked))
    assert outcome is None or isinstance(outcome, CounterfoilError)
    assert contents(outside)["notes.md"] == "original"
    assert "nothing.md" not in contents(outside)
    adapter.close()


@pytest.mark.parametrize("swap", SWAPS)
@pytest.mark.parametrize("call", CALLS)
def test_a_swap_before_recovery_reaches_nothing_outside(
    call: dict[str, str], swap: Callable[[Scene, Path], None], outside: Path, swift_path: Path
) -> None:
    scene = Scene(swift_path, {NOTES: "original"})

    def die() -> None:
        raise Death

    disk = SharedDisk("rename", "before", die, nth=99)
    adapter = scene.open(disk)
    asked = operation(adapter, **call)
    disk.left = 1
    assert isinstance(raised(lambda: adapter.execute(asked)), Death)
    adapter.close()
    swap(scene, outside)
    before = contents(outside)
    again = scene.open()
    assert answer(again).answer is Answer.ABSENT
    with pytest.raises(RefusedError):
        again.execute(asked)
    assert contents(outside) == before
    again.close()


def test_a_read_follows_no_link(outside: Path, swift_path: Path) -> None:
    scene = Scene(swift_path, {"a": "1"})
    (scene.root / "link").symlink_to(outside / "notes.md")
    (scene.root / "folder").symlink_to(outside)
    adapter = scene.open()
    for path in ("link", "folder/notes.md", "folder"):
        with pytest.raises(PermissionDeniedError):
            read(adapter, path)
    adapter.close()


def test_a_link_is_observed_as_itself(outside: Path, swift_path: Path) -> None:
    scene = Scene(swift_path, {"a": "1"})
    (scene.root / "folder").symlink_to(outside)
    adapter = scene.open()
    before = adapter.observe(EVERYTHING)
    (outside / "notes.md").write_text("changed")
    assert adapter.observe(EVERYTHING) == before
    (scene.root / "folder").unlink()
    (scene.root / "folder").symlink_to(outside / "elsewhere")
    after = adapter.observe(EVERYTHING)
    assert sorted(after.facts) == ["a", "folder"]
    assert (before.state.version, after.state.version) == (0, 1)
    adapter.close()


@pytest.mark.parametrize("name", ["fifo", "folder"])
def test_only_regular_files_are_addressed(name: str, swift_path: Path) -> None:
    scene = Scene(swift_path, {"a": "1"})
    os.mkfifo(scene.root / "fifo")
    (scene.root / "folder").mkdir()
    adapter = scene.open()
    for call in (
        {"kind": "read", "key": Key(""), "path": name},
        {"kind": "write", "path": name, "content": "x"},
        {"kind": "delete", "path": name},
        {"kind": "move", "source": "a", "target": name},
        {"kind": "write", "path": "a/b", "content": "x"},
    ):
        with pytest.raises(PermissionDeniedError):
            do(adapter, **call)
    adapter.close()


@pytest.mark.parametrize(
    ("name", "other"),
    [
        pytest.param("notes.md", "Notes.md", id="[C20 e case]"),
        pytest.param("caf\u00e9", "cafe\u0301", id="[C20 e form]"),
        pytest.param("docs/a", "Docs/a", id="[C20 e the case of a folder]"),
    ],
)
@pytest.mark.parametrize("kind", ["write", "delete", "move"])
def test_another_spelling_of_an_object_is_a_conflict(
    kind: str, name: str, other: str, swift_path: Path
) -> None:
    scene = Scene(swift_path)
    adapter = scene.open(FoldingDisk())
    first = do(adapter, "write", path=name, content="ours")
    calls = {
        "write": {"path": other, "content": "theirs"},
        "delete": {"path": other},
        "move": {"source": other, "target": "elsewhere"},
    }
    with pytest.raises(StaleObservationError, match="another spelling"):
        do(adapter, kind, key=Key("key-2"), **calls[kind])
    status = (scene.root / name).stat()
    assert (first.result["dev"], first.result["inode"]) == (status.st_dev, status.st_ino)
    assert scene.files == {name: "ours"}
    adapter.close()


def test_a_scope_finds_an_object_only_as_it_is_spelt(swift_path: Path) -> None:
    scene = Scene(swift_path, {"notes.md": "1"})
    adapter = scene.open(FoldingDisk())
    assert list(adapter.observe({"paths": ("notes.md",)}).facts) == ["notes.md"]
    assert list(adapter.observe({"paths": ("Notes.md",)}).facts) == []
    adapter.close()


def test_two_forms_of_a_name_are_two_files_where_the_disk_says_so(swift_path: Path) -> None:
    scene = Scene(swift_path)
    adapter = scene.open()
    do(adapter, "write", path="caf\u00e9", content="1")
    do(adapter, "write", key=Key("key-2"), path="cafe\u0301", content="2")
    assert scene.files == {"caf\u00e9": "1", "cafe\u0301": "2"}
    adapter.close()
