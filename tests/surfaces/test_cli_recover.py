"""`recover` settles what a killed worker left, and `abort` ends a run, without its program."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import RUN, Project


def recovered(project: Project, *words: str) -> subprocess.CompletedProcess[str]:
    return project.started(
        "recover", RUN, "--task", "restock.toml", "--app", "restock", "--json", *words
    )


def in_the_box(project: Project) -> int:
    """Return how many effects the target holds."""
    return len(list((project.folder / "box").glob("*")))


@pytest.mark.parametrize(
    ("dies", "outcome"),
    [
        pytest.param("before", "executed", id="the call had not left"),
        pytest.param("after", "reconciled", id="the call had happened"),
    ],
)
def test_a_killed_call_is_settled_once(project: Project, dies: str, outcome: str) -> None:
    project.program(RUN, "put", dies=dies)
    answer = recovered(project)
    facts: Any = json.loads(answer.stdout)
    assert (answer.returncode, facts["outcome"], facts["phase"]) == (0, outcome, "running")
    assert (facts["found"]["kind"], facts["receipt"]["kind"]) == ("box.put", "box.put")
    assert (in_the_box(project), facts["pending"]) == (1, None)


def test_recovering_twice_finds_nothing_pending(project: Project) -> None:
    project.program(RUN, "put", dies="after")
    recovered(project)
    answer = recovered(project)
    assert (answer.returncode, json.loads(answer.stdout)["outcome"]) == (0, "nothing_pending")


def test_the_program_goes_on_after_a_recovery(project: Project) -> None:
    project.program(RUN, "put", dies="after")
    recovered(project)
    project.program(RUN, "put")
    assert in_the_box(project) == 1


def test_a_call_that_nobody_can_ask_about_prints_its_case(project: Project) -> None:
    project.program(RUN, "mail", dies="mail")
    answer = recovered(project)
    facts: Any = json.loads(answer.stdout)
    assert (answer.returncode, facts["phase"]) == (3, "needs_review")
    assert (facts["case"]["reason"], facts["outcome"]) == ("outcome_unknown", "needs_review")
    assert json.loads(answer.stderr)["error"]["name"] == "FrozenError"


def test_a_frozen_run_prints_its_case_again(project: Project) -> None:
    project.program(RUN, "mail", dies="mail")
    recovered(project)
    answer = project.started("recover", RUN, "--task", "restock.toml", "--app", "restock")
    assert (answer.returncode, "Case: a person must decide" in answer.stdout) == (3, True)
    assert "Traceback" not in answer.stderr


def test_recovering_creates_no_run(project: Project) -> None:
    answer = recovered(project)
    assert (answer.returncode, json.loads(answer.stderr)["error"]["name"]) == (2, "UnknownRunError")
    assert project.facts("runs") == {"runs": []}


def test_a_run_is_recovered_under_its_own_task_alone(project: Project) -> None:
    project.program(RUN, "put", dies="after")
    task = project.folder / "restock.toml"
    task.write_text(task.read_text(encoding="utf-8").replace("50", "60"), encoding="utf-8")
    answer = recovered(project)
    assert (answer.returncode, json.loads(answer.stderr)["error"]["name"]) == (4, "BindingError")


def test_a_task_without_its_effects_is_refused(project: Project) -> None:
    project.program(RUN, "put", dies="after")
    answer = project.started("recover", RUN, "--task", "restock.toml")
    assert (answer.returncode, "--app" in answer.stderr) == (2, True)


def test_the_settings_may_name_the_app(project: Project) -> None:
    project.program(RUN, "put", dies="after")
    file = project.folder / "counterfoil.toml"
    file.write_text('app = "restock"\n' + file.read_text(encoding="utf-8"), encoding="utf-8")
    answer = project.started("recover", RUN, "--task", "restock.toml")
    assert (answer.returncode, "Settled: reconciled" in answer.stdout) == (0, True)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("raise ImportError('gone')", id="an import that fails"),
        pytest.param("import nothing_of_this_name", id="an import of nothing"),
        pytest.param("def (", id="a module that is no Python"),
    ],
)
def test_an_app_that_cannot_be_loaded_is_the_callers_mistake(project: Project, text: str) -> None:
    project.make()
    (project.folder / "broken.py").write_text(text, encoding="utf-8")
    answer = project.started("abort", RUN, "--reason", "x", "--app", "broken")
    assert (answer.returncode, answer.stderr.partition(":")[0]) == (2, "ConfigError")
    assert "Traceback" not in answer.stderr


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        pytest.param(["--app", "restock"], "the target holds a receipt", id="asked"),
        pytest.param([], "was not at hand", id="not at hand"),
    ],
)
def test_an_abort_records_what_the_target_says(
    project: Project, words: list[str], answer: str
) -> None:
    project.program(RUN, "put", dies="after")
    ended = project.started("abort", RUN, "--reason", "enough", "--actor", "me", "--json", *words)
    facts: Any = json.loads(ended.stdout)
    assert (ended.returncode, facts["phase"], facts["actor"]) == (0, "failed", "me")
    assert (facts["recorded"].startswith("me: enough"), answer in facts["recorded"]) == (True, True)
    assert in_the_box(project) == 1


def test_a_frozen_run_can_be_aborted(project: Project) -> None:
    project.freeze()
    assert project.facts("abort", RUN, "--reason", "mailed by hand")["phase"] == "failed"
    assert project.facts("show", RUN)["status"] == "terminal"


def test_a_folder_that_is_gone_does_not_keep_a_run_from_being_aborted(project: Project) -> None:
    project.make()
    with (project.folder / "counterfoil.toml").open("a", encoding="utf-8") as file:
        file.write('[adapters.files]\nroot = "gone"\n')
    assert project.facts("abort", RUN, "--reason", "enough")["phase"] == "failed"


def test_the_demo_keeps_its_hands_off_a_folder_in_use(project: Project, tmp_path: Path) -> None:
    answer = project.call("demo", "--keep", str(project.folder))
    assert (answer.exit_code, answer.stderr.partition(":")[0]) == (2, "ConfigError")
