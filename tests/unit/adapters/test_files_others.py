"""What other programs write is never overwritten, and is kept wherever it comes from."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from counterfoil.core.canonical import digest
from counterfoil.core.errors import (
    PermissionDeniedError,
    StaleObservationError,
    UnknownOutcomeError,
)
from counterfoil.core.receipt import Answer
from counterfoil.core.words import Key
from tests.support.disks import Death, SharedDisk
from tests.support.files_scene import (
    EVERYTHING,
    KEY,
    OTHER_RUN,
    Files,
    Scene,
    answer,
    do,
    operation,
    raised,
)

MOVE_OVER = {
    "kind": "move",
    "source": "a",
    "target": "b",
    "expected_target": digest(b"2"),
}


@pytest.mark.parametrize(
    "variant",
    [
        pytest.param("another run", id="[C18 another run]"),
        pytest.param("edited", id="[C18 b edited by a person]"),
        pytest.param("deleted", id="[C18 c deleted]"),
    ],
)
def test_a_change_built_on_older_content_is_refused(variant: str, swift_path: Path) -> None:
    scene = Scene(swift_path, {"f": "v0"})
    adapter = scene.open()
    stale = operation(adapter, "write", path="f", content="v1")
    match variant:
        case "another run":
            do(adapter, "write", run_id=OTHER_RUN, key=Key("k2"), path="f", content="v2")
        case "edited":
            scene.put("f", "v2")
        case _:
            (scene.root / "f").unlink()
    with pytest.raises(StaleObservationError):
        adapter.execute(stale)
    assert scene.files == ({} if variant == "deleted" else {"f": "v2"})
    assert answer(adapter).answer is Answer.ABSENT
    adapter.close()


@pytest.mark.parametrize(
    ("was_seen", "matched"),
    [
        pytest.param(False, "content", id="[C18 d nobody looked in between]"),
        pytest.param(True, None, id="[C18 d somebody looked in between]"),
    ],
)
def test_content_that_was_changed_back_is_enough_while_nobody_saw_another(
    was_seen: bool, matched: str | None, swift_path: Path
) -> None:
    scene = Scene(swift_path, {"f": "v0"})
    adapter = scene.open()
    asked = operation(adapter, "write", path="f", content="v1")
    scene.replace("f", "v2")
    if was_seen:
        adapter.observe(EVERYTHING)
    scene.replace("f", "v0")
    if was_seen:
        with pytest.raises(StaleObservationError):
            adapter.execute(asked)
    else:
        assert adapter.execute(asked).result["matched"] == matched
    adapter.close()


class Meeting(NamedTuple):
    """The files, our call, what another program does right before it, and what is to stay."""

    files: Files
    call: Mapping[str, str]
    act: Callable[[Scene], object]
    left: Files


MEETINGS = {
    "created before us": Meeting(
        {},
        {"kind": "write", "path": "b", "content": "ours"},
        lambda scene: scene.put("b", "theirs"),
        {"b": "theirs"},
    ),
    "edited in place before us": Meeting(
        {"b": "1"},
        {"kind": "write", "path": "b", "content": "ours"},
        lambda scene: scene.put("b", "theirs"),
        {"b": "theirs"},
    ),
    "edited in place to content of the same size": Meeting(
        {"b": "1"},
        {"kind": "write", "path": "b", "content": "ours"},
        lambda scene: scene.put("b", "2"),
        {"b": "2"},
    ),
    "replaced before us": Meeting(
        {"b": "1"},
        {"kind": "write", "path": "b", "content": "ours"},
        lambda scene: scene.replace("b", "theirs"),
        {"b": "theirs"},
    ),
    "deleted before us": Meeting(
        {"b": "1"},
        {"kind": "write", "path": "b", "content": "ours"},
        lambda scene: (scene.root / "b").unlink(),
        {},
    ),
    "replaced before we delete it": Meeting(
        {"b": "1"},
        {"kind": "delete", "path": "b"},
        lambda scene: scene.replace("b", "theirs"),
        {"b": "theirs"},
    ),
    "edited before we delete it": Meeting(
        {"b": "1"},
        {"kind": "delete", "path": "b"},
        lambda scene: scene.put("b", "theirs"),
        {"b": "theirs"},
    ),
    "the target of a move is taken": Meeting(
        {"a": "1"},
        {"kind": "move", "source": "a", "target": "b"},
        lambda scene: scene.put("b", "theirs"),
        {"a": "1", "b": "theirs"},
    ),
    "the source of a move is edited": Meeting(
        {"a": "1"},
        {"kind": "move", "source": "a", "target": "b"},
        lambda scene: scene.put("a", "theirs"),
        {"a": "theirs"},
    ),
    "the file to be moved over is edited": Meeting(
        {"a": "1", "b": "2"},
        MOVE_OVER,
        lambda scene: scene.put("b", "theirs"),
        {"a": "1", "b": "theirs"},
    ),
    "the file to be moved over is replaced": Meeting(
        {"a": "1", "b": "2"},
        MOVE_OVER,
        lambda scene: scene.replace("b", "theirs"),
        {"a": "1", "b": "theirs"},
    ),
    "the source of a move over is edited": Meeting(
        {"a": "1", "b": "2"},
        MOVE_OVER,
        lambda scene: scene.put("a", "theirs"),
        {"a": "theirs", "b": "2"},
    ),
}


@pytest.mark.parametrize("name", MEETINGS)
@pytest.mark.parametrize("dies", [False, True], ids=["", "and we die right after the rename"])
def test_a_newer_edit_stays_where_it_is(name: str, dies: bool, swift_path: Path) -> None:
    files, call, act, left = MEETINGS[name]
    scene = Scene(swift_path, files)

    class Disk(SharedDisk):
        def step(self, method: str, moment: str, arguments: tuple[object, ...]) -> None:
            if dies and (method, moment) == ("rename", "after") and self.left < 0:
                raise Death
            super().step(method, moment, arguments)

    # The last moment at which another program can come: the kernel's own rename is next.
    disk = Disk("rename", "before", lambda: act(scene))
    disk.left = 99
    adapter = scene.open(disk)
    asked = operation(adapter, **call)
    disk.left = 1
    outcome = raised(lambda: adapter.execute(asked))
    assert isinstance(outcome, Death if dies else StaleObservationError) or (
        dies and isinstance(outcome, StaleObservationError)
    )
    adapter.close()
    again = scene.open()
    assert answer(again).answer is Answer.ABSENT
    assert scene.files == left
    with pytest.raises(StaleObservationError):
        again.execute(asked)
    assert scene.files == left
    again.close()


@pytest.mark.parametrize(
    ("nth", "moment"),
    [
        pytest.param(1, "after", id="after the exchange"),
        pytest.param(2, "before", id="before it is given back"),
        pytest.param(2, "after", id="after it was given back"),
    ],
)
def test_the_newest_of_two_edits_stays(nth: int, moment: str, swift_path: Path) -> None:
    scene = Scene(swift_path, {"b": "1"})

    class Disk(SharedDisk):
        renames = -99

        def step(self, method: str, at: str, arguments: tuple[object, ...]) -> None:
            if method != "rename":
                return
            self.renames += at == "before"
            if (self.renames, at) == (1, "before"):
                scene.replace("b", "theirs")
            if (self.renames, at) == (nth, moment):
                scene.replace("b", "theirs, once more")

    disk = Disk("", "", lambda: None)
    adapter = scene.open(disk)
    asked = operation(adapter, "write", path="b", content="ours")
    disk.renames = 0
    with pytest.raises(StaleObservationError):
        adapter.execute(asked)
    assert scene.visible == {"b": "theirs, once more"}
    assert "ours" not in scene.files.values()
    adapter.close()


def test_programs_that_come_between_without_end_are_not_fought(swift_path: Path) -> None:
    scene = Scene(swift_path, {"b": "1"})

    class Disk(SharedDisk):
        is_busy = False
        edits = 0

        def step(self, method: str, at: str, arguments: tuple[object, ...]) -> None:
            if self.is_busy and (method, at) == ("rename", "before"):
                self.edits += 1
                scene.replace("b", f"edit {self.edits}")

    disk = Disk("", "", lambda: None)
    adapter = scene.open(disk)
    asked = operation(adapter, "write", path="b", content="ours")
    disk.is_busy = True
    with pytest.raises(UnknownOutcomeError):
        adapter.execute(asked)
    disk.is_busy = False
    assert answer(adapter).answer is Answer.ABSENT
    assert scene.files["b"].startswith("edit")
    adapter.close()


def test_an_edit_that_finds_no_place_any_more_is_kept_aside(swift_path: Path) -> None:
    scene = Scene(swift_path, {"b": "1"})

    def twice() -> None:
        scene.replace("b", "theirs")
        disk.wanted, disk.left = ("rename", "after"), 1
        disk.act = lambda: scene.put("b", "theirs, once more")

    disk = SharedDisk("rename", "before", twice, nth=99)
    adapter = scene.open(disk)
    asked = operation(adapter, "delete", path="b")
    disk.left = 1
    with pytest.raises(StaleObservationError):
        adapter.execute(asked)
    assert scene.files == {"b": "theirs, once more", ".counterfoil-kept-0": "theirs"}
    assert list(adapter.observe(EVERYTHING).facts) == ["b"]
    with pytest.raises(PermissionDeniedError, match="made impossible"):
        adapter.execute(asked)
    adapter.close()


@pytest.mark.parametrize(
    ("files", "call"),
    [
        pytest.param({"a": "1"}, {"kind": "move", "source": "a", "target": "b"}, id="a move"),
        pytest.param({"a": "1", "b": "2"}, MOVE_OVER, id="a move over another file"),
    ],
)
def test_a_change_that_others_undid_in_the_dark_is_never_made_again(
    files: Files, call: dict[str, str], swift_path: Path
) -> None:
    scene = Scene(swift_path, files)

    def die() -> None:
        raise Death

    disk = SharedDisk("rename", "after", die, nth=99)
    adapter = scene.open(disk)
    asked = operation(adapter, **call)
    disk.left = 1
    assert isinstance(raised(lambda: adapter.execute(asked)), Death)
    adapter.close()
    for name in ("a", "b"):
        (scene.root / name).unlink(missing_ok=True)
    again = scene.open()
    assert answer(again).answer is Answer.ABSENT
    with pytest.raises(PermissionDeniedError, match="made impossible"):
        again.execute(asked)
    assert scene.files == {}
    again.close()


def test_another_file_under_the_same_number_is_not_taken_for_ours(tmp_path: Path) -> None:
    # On the disk itself: many file systems give a freed number to the very next file.
    scene = Scene(tmp_path, {"a": "1"})

    def die() -> None:
        raise Death

    disk = SharedDisk("rename", "before", die, nth=99)
    adapter = scene.open(disk)
    asked = operation(adapter, "move", source="a", target="b")
    disk.left = 1
    assert isinstance(raised(lambda: adapter.execute(asked)), Death)
    adapter.close()
    (scene.root / "a").unlink()
    scene.put("b", "theirs")
    again = scene.open()
    assert answer(again).answer is Answer.ABSENT
    assert scene.files == {"b": "theirs"}
    again.close()


def test_a_file_that_others_deleted_in_the_dark_is_not_created_again(swift_path: Path) -> None:
    scene = Scene(swift_path)

    def die() -> None:
        raise Death

    disk = SharedDisk("rename", "after", die, nth=99)
    adapter = scene.open(disk)
    asked = operation(adapter, "write", path="b", content="ours")
    disk.left = 1
    assert isinstance(raised(lambda: adapter.execute(asked)), Death)
    adapter.close()
    (scene.root / "b").unlink()
    again = scene.open()
    assert answer(again).answer is Answer.FOUND
    assert again.execute(asked).replayed
    assert scene.files == {}
    again.close()


def test_an_effect_that_others_changed_in_the_dark_is_found(swift_path: Path) -> None:
    scene = Scene(swift_path, {"b": "1"})

    def die() -> None:
        raise Death

    disk = SharedDisk("rename", "after", die, nth=99)
    adapter = scene.open(disk)
    asked = operation(adapter, "write", path="b", content="ours")
    disk.left = 1
    assert isinstance(raised(lambda: adapter.execute(asked)), Death)
    adapter.close()
    scene.replace("b", "theirs")
    again = scene.open()
    receipt = answer(again).receipt
    assert receipt is not None
    observed = again.observe(EVERYTHING).state
    assert (receipt.poststate.version, observed.version) == (1, 2)
    assert scene.files == {"b": "theirs"}
    again.close()


def test_a_file_that_keeps_changing_is_not_waited_for(swift_path: Path) -> None:
    scene = Scene(swift_path, {"b": "1"})

    class RestlessDisk(SharedDisk):
        def read(self, descriptor: int) -> bytes:
            os.utime(scene.root / "b", ns=(0, self.left))
            self.left += 1_000
            return super().read(descriptor)

    adapter = scene.open(RestlessDisk("", "", lambda: None))
    error = raised(lambda: adapter.observe(EVERYTHING))
    assert "keeps changing" in str(error)
    adapter.close()


def test_a_key_names_one_effect(swift_path: Path) -> None:
    scene = Scene(swift_path, {"b": "1"})
    adapter = scene.open()
    do(adapter, "write", path="b", content="2")
    scene.put("b", "theirs")
    answered = adapter.execute(operation(adapter, "write", path="b", content="2", key=KEY))
    assert (answered.replayed, scene.files) == (True, {"b": "theirs"})
    adapter.close()
