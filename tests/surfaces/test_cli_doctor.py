"""`doctor` says what is wrong with a machine and a project, and how to mend it."""

import json
import shutil
from typing import Any

import pytest

from tests.support.commands import Project


def checks(project: Project) -> tuple[int, dict[str, Any]]:
    """Return the exit code, and the first line of each check."""
    answer = project.call("doctor", "--json")
    lines: dict[str, Any] = {}
    for line in json.loads(answer.stdout)["checks"]:
        lines.setdefault(line["check"], line)
    return answer.exit_code, lines


def test_a_sound_project_passes(project: Project) -> None:
    code, lines = checks(project)
    assert (code, [line for line in lines.values() if line["state"] == "fail"]) == (0, [])
    assert set(lines) == {"sqlite", "keys", "checkpoints", "heads", "clock", "independence", "disk"}


def test_pragmas_are_shown_as_read_back(project: Project) -> None:
    _, lines = checks(project)
    for name in ("checkpoints", "heads"):
        assert "journal_mode wal, synchronous 2" in lines[name]["found"]


def test_a_table_is_printed_for_people(project: Project) -> None:
    answer = project.call("doctor")
    assert (answer.exit_code, "All is well" in answer.stdout) == (0, True)


def test_heads_beside_checkpoints_are_warned_of(project: Project) -> None:
    file = project.folder / "counterfoil.toml"
    with file.open("a", encoding="utf-8") as opened:
        opened.write('[heads]\nurl = "sqlite:.counterfoil/heads.db"\n')
    assert project.call("init", str(project.folder)).exit_code == 0
    code, lines = checks(project)
    assert (code, lines["independence"]["state"]) == (0, "warn")
    assert "turns back both" in lines["independence"]["found"]


def test_a_clock_behind_the_register_is_warned_of(project: Project) -> None:
    project.change_heads("UPDATE register SET floor_ms = floor_ms + 1 + 999999999")
    project.change_heads("UPDATE register SET floor_ms = max(floor_ms, ?)", 2**52)
    code, lines = checks(project)
    assert (code, lines["clock"]["state"], bool(lines["clock"]["mend"])) == (0, "warn", True)


@pytest.mark.parametrize("_row", [pytest.param(None, id="T23 a loose key file")])
def test_one_failure_hides_no_other(project: Project, _row: None) -> None:
    project.keys.chmod(0o644)
    project.heads.chmod(0o644)
    code, lines = checks(project)
    assert (code, lines["keys"]["state"], lines["heads"]["state"]) == (2, "fail", "fail")
    assert "chmod 600" in lines["keys"]["mend"]
    assert lines["checkpoints"]["state"] == "ok"


def test_a_missing_store_exits_with_4(project: Project) -> None:
    project.make()
    project.store.unlink()
    code, lines = checks(project)
    assert (code, lines["checkpoints"]["found"].partition(":")[0]) == (4, "RollbackError")


def test_a_missing_folder_is_not_taken_for_another_disk(project: Project) -> None:
    _, before = checks(project)
    shutil.rmtree(project.store.parent)
    _, after = checks(project)
    assert after["independence"] == before["independence"]


def test_doctor_makes_nothing_where_nothing_is(project: Project) -> None:
    empty = project.folder / "empty"
    empty.mkdir()
    (empty / "counterfoil.toml").touch()
    answer = project.call("doctor", "--project", str(empty))
    assert (answer.exit_code, [path.name for path in empty.iterdir()]) == (2, ["counterfoil.toml"])
