"""`verify` finds whatever a thief of the disk did, and says it by name."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.commands import RUN, Project, copied, put_back


def verified(project: Project) -> tuple[int, str]:
    """Return the exit code of `verify`, and the name of the error."""
    answer = project.call("verify", RUN)
    return answer.exit_code, answer.stderr.partition(":")[0]


def test_a_run_that_nobody_touched_is_whole(project: Project) -> None:
    project.make()
    facts = project.facts("verify", RUN)
    assert (facts["verified"], facts["checkpoints"], facts["events"]) == (True, 5, 5)


@pytest.mark.parametrize(
    ("statement", "name"),
    [
        pytest.param(
            "UPDATE checkpoint SET events = "
            "CAST(substr(events, 1, 20) || '!' || substr(events, 22) AS BLOB) "
            "WHERE generation = 2",
            "FormatError",
            id="T1 a byte of an event",
        ),
        pytest.param(
            "UPDATE checkpoint SET envelope = "
            "CAST(substr(envelope, 1, 90) || '!' || substr(envelope, 92) AS BLOB) "
            "WHERE generation = 2",
            "FormatError",
            id="T1 a byte of a header",
        ),
        pytest.param(
            "UPDATE checkpoint SET events = (SELECT events FROM checkpoint WHERE generation = 4) "
            "WHERE generation = 2",
            "FormatError",
            id="T3 the events of another checkpoint",
        ),
        pytest.param(
            "DELETE FROM checkpoint WHERE generation = 2", "RollbackError", id="T4 a row deleted"
        ),
        pytest.param(
            "DELETE FROM checkpoint WHERE generation = 4",
            "RollbackError",
            id="T4 the row that the head names deleted",
        ),
        pytest.param("DELETE FROM checkpoint", "RollbackError", id="T4 the store emptied"),
        pytest.param(
            "UPDATE state SET state = (SELECT state FROM state ORDER BY checkpoint LIMIT 1)",
            "FormatError",
            id="T2 the state of another generation",
        ),
    ],
)
def test_a_changed_store_is_refused_by_name(project: Project, statement: str, name: str) -> None:
    project.make()
    project.change_store(statement)
    assert verified(project) == (4, name)


def older_store(project: Project, folder: Path) -> None:
    before = copied(project.store.parent)
    project.make(items=("a", "b", "c"))
    put_back(project.store.parent, before)


def older_heads(project: Project, folder: Path) -> None:
    before = copied(project.heads.parent)
    project.make(items=("a", "b", "c"))
    put_back(project.heads.parent, before)


def older_copy_of_the_project(project: Project, folder: Path) -> None:
    """A copy meets the heads of the original, which went on meanwhile."""
    copy = folder / "copy"
    shutil.copytree(project.folder, copy)
    project.make(items=("a", "b", "c"))
    project.folder = copy


def head_of_another_run(project: Project, folder: Path) -> None:
    project.make("run-2", items=("a",))
    project.change_heads(
        "UPDATE head SET (generation, checkpoint) = "
        "(SELECT generation, checkpoint FROM head WHERE run_id = 'run-2') WHERE run_id = ?",
        RUN,
    )


def no_head(project: Project, folder: Path) -> None:
    project.change_heads("DELETE FROM head WHERE run_id = ?", RUN)


def another_register(project: Project, folder: Path) -> None:
    project.change_heads("UPDATE register SET incarnation = 'another'")


@pytest.mark.parametrize(
    ("theft", "name"),
    [
        pytest.param(older_store, "RollbackError", id="T4 an older copy of the store"),
        pytest.param(older_copy_of_the_project, "RollbackError", id="T4 a copied project"),
        pytest.param(older_heads, "RollbackError", id="T5 older heads beside a newer store"),
        pytest.param(head_of_another_run, "RollbackError", id="T5 the head of another run"),
        pytest.param(no_head, "HeadMissingError", id="T5 the head deleted"),
        pytest.param(another_register, "RollbackError", id="T5 another register"),
    ],
)
def test_time_turned_back_is_refused_by_name(
    project: Project, tmp_path: Path, theft: Callable[[Project, Path], None], name: str
) -> None:
    project.make(items=("a",))
    theft(project, tmp_path)
    assert verified(project) == (4, name)


@pytest.mark.parametrize("_row", [pytest.param(None, id="T24 T4")])
def test_without_assertions_it_is_refused_the_same(project: Project, _row: None) -> None:
    project.make()
    project.change_store("DELETE FROM checkpoint")
    project.environment["PYTHONOPTIMIZE"] = "1"
    answer = project.started("verify", RUN)
    assert (answer.returncode, answer.stderr.partition(":")[0]) == (4, "RollbackError")
