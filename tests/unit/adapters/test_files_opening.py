"""An environment is one very folder with one journal, and both are private and whole."""

import shutil
from pathlib import Path

import pytest

from counterfoil.adapters.files import open_files
from counterfoil.core.errors import ConfigError, StaleObservationError
from counterfoil.core.receipt import Answer
from tests.support.files_scene import EVERYTHING, NOW_MS, Scene, answer, do, operation


def instance(scene: Scene) -> str:
    adapter = scene.open()
    state = adapter.observe(EVERYTHING).state
    adapter.close()
    return state.instance


def test_the_instance_stays_while_the_folder_does(tmp_path: Path) -> None:
    scene = Scene(tmp_path, {"a": "1"})
    assert instance(scene) == instance(scene)


def test_a_folder_made_anew_is_another_instance(tmp_path: Path) -> None:
    scene = Scene(tmp_path, {"a": "1"})
    adapter = scene.open()
    receipt = do(adapter, "write", path="a", content="2")
    adapter.close()
    before = instance(scene)
    shutil.rmtree(scene.root)
    scene.root.mkdir()
    scene.put("a", "2")
    assert instance(scene) != before
    again = scene.open()
    assert answer(again).receipt == receipt
    again.close()


def test_a_copy_with_its_journal_is_another_instance(tmp_path: Path) -> None:
    scene = Scene(tmp_path, {"a": "1"})
    before = instance(scene)
    copy = tmp_path / "copy"
    shutil.copytree(scene.root, copy / "root")
    shutil.copytree(scene.journal, copy / scene.journal.name)
    adapter = open_files(copy / "root", now_ms=lambda: NOW_MS)
    assert adapter.observe(EVERYTHING).state.instance != before
    adapter.close()


def test_a_call_for_another_instance_is_refused(tmp_path: Path) -> None:
    scene = Scene(tmp_path, {"a": "1"})
    adapter = scene.open()
    asked = operation(adapter, "write", path="a", content="2")
    adapter.close()
    shutil.rmtree(scene.root)
    scene.root.mkdir()
    scene.put("a", "1")
    again = scene.open()
    again.observe(EVERYTHING)
    with pytest.raises(StaleObservationError):
        again.execute(asked)
    assert scene.files == {"a": "1"}
    again.close()


def test_the_account_is_part_of_the_state(tmp_path: Path) -> None:
    scene = Scene(tmp_path, {"a": "1"})
    adapter = scene.open(account="clerk")
    asked = operation(adapter, "write", path="a", content="2")
    other = scene.open(account="chief")
    with pytest.raises(StaleObservationError):
        other.execute(asked)
    adapter.close()
    other.close()


def test_journal_and_lock_are_private(tmp_path: Path) -> None:
    scene = Scene(tmp_path, {"a": "1"})
    adapter = scene.open()
    do(adapter, "write", path="a", content="2")
    modes = {path.name: path.stat().st_mode & 0o777 for path in scene.journal.iterdir()}
    assert set(modes.values()) == {0o600}
    assert {"journal.db", "lock"} <= set(modes)
    assert scene.journal.stat().st_mode & 0o777 == 0o700
    adapter.close()


@pytest.mark.parametrize("name", [".", "journal.db"])
def test_a_journal_that_others_can_reach_is_refused_with_the_mend(
    name: str, tmp_path: Path
) -> None:
    scene = Scene(tmp_path)
    scene.open().close()
    (scene.journal / name).chmod(0o755)
    with pytest.raises(ConfigError, match="chmod"):
        scene.open()


def test_a_root_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for root in (tmp_path / "missing", tmp_path / "file", Path("/")):
        with pytest.raises(ConfigError):
            open_files(root, now_ms=lambda: NOW_MS)


@pytest.mark.parametrize("inside", [".", "a", "a/b/../c"])
def test_a_journal_inside_the_root_is_refused(inside: str, tmp_path: Path) -> None:
    scene = Scene(tmp_path, {"a/x": "1"})
    with pytest.raises(ConfigError, match="inside the root"):
        scene.open(journal=scene.root / inside)


def test_a_newer_journal_is_refused(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    adapter = scene.open()
    adapter._site.db.pragma("user_version", 2)
    adapter.close()
    with pytest.raises(ConfigError, match="another program or version"):
        scene.open()


def test_a_root_is_the_folder_that_a_link_leads_to(tmp_path: Path) -> None:
    scene = Scene(tmp_path, {"a": "1"})
    (tmp_path / "link").symlink_to(scene.root)
    adapter = open_files(tmp_path / "link", now_ms=lambda: NOW_MS)
    do(adapter, "write", path="a", content="2")
    adapter.close()
    again = scene.open()
    assert answer(again).answer is Answer.FOUND
    again.close()


def test_a_journal_is_found_over_a_linked_folder(tmp_path: Path) -> None:
    scene = Scene(tmp_path, {"a": "1"})
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    adapter = scene.open(journal=tmp_path / "link" / "journal")
    do(adapter, "write", path="a", content="2")
    adapter.close()
    assert (tmp_path / "elsewhere/journal/journal.db").exists()


def test_closing_twice_closes_nothing_that_another_has_opened(tmp_path: Path) -> None:
    scene = Scene(tmp_path, {"a": "1"})
    first = scene.open()
    first.close()
    second = scene.open()
    first.close()
    assert second.observe(EVERYTHING).state.version == 0
    second.close()
