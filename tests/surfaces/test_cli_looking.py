"""What a person sees of projects and runs."""

import json
import subprocess
from pathlib import Path

import pytest

import counterfoil
from tests.support.commands import COMMAND, RUN, SECONDS_MAX, Project, put_back


def files_below(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_init_says_where_everything_lies(project: Project, tmp_path: Path) -> None:
    folder = tmp_path / "fresh"
    folder.mkdir()
    answer = project.call("init", str(folder), "--json")
    facts = json.loads(answer.stdout)
    assert facts["made"] == ["settings", "checkpoints", "heads", "keys"]
    assert all(Path(facts[name]).is_file() for name in facts["made"])


def test_init_twice_changes_nothing(project: Project, tmp_path: Path) -> None:
    before = files_below(tmp_path)
    answer = project.call("init", str(project.folder))
    assert ("nothing changed" in answer.stdout, files_below(tmp_path)) == (True, before)


def test_init_makes_no_key_where_runs_have_lost_theirs(project: Project) -> None:
    project.make()
    project.keys.unlink()
    answer = project.call("init", str(project.folder))
    assert (answer.exit_code, project.keys.exists()) == (2, False)
    assert "bring the key file back" in answer.stderr


def test_a_project_without_runs_says_so(project: Project) -> None:
    assert project.call("runs").stdout == "There are no runs yet.\n"


def test_all_runs_are_listed_page_after_page(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("counterfoil.cli.runs_command.RUNS_PAGE", 2)
    names = [f"run-{number}" for number in range(5)]
    for name in names:
        project.make(name, items=())
    assert [run["run"] for run in project.facts("runs")["runs"]] == names


def test_a_run_whose_checkpoint_is_gone_is_still_listed(project: Project) -> None:
    project.make()
    project.change_store("UPDATE checkpoint SET envelope = x'00'")
    (run,) = project.facts("runs")["runs"]
    assert (run["run"], run["readable"]) == (RUN, False)


def test_a_held_run_names_its_holder_and_never_the_nonce(project: Project) -> None:
    with project.opened() as run:
        nonce = run._ledger.head.nonce
        answer = project.call("show", RUN, "--json")
    lease = json.loads(answer.stdout)["lease"]
    assert (lease["held"], nonce in answer.stdout) == (True, False)


def test_show_has_the_names_that_programs_rely_on(project: Project) -> None:
    project.make()
    assert set(project.facts("show", RUN)) == {
        *("run", "task", "phase", "reason", "status", "generation", "checkpoint", "lease"),
        *("started_at", "written_at", "spent", "budgets", "positions", "writes", "trace"),
        *("environments", "pending", "case", "failure", "next"),
    }


def test_show_says_what_is_pending_and_how_to_go_on(project: Project) -> None:
    project.leave_pending()
    facts = project.facts("show", RUN)
    assert (facts["pending"]["kind"], facts["pending"]["sends"]) == ("box.put", 1)
    assert "counterfoil recover" in facts["next"]


def test_show_prints_an_open_case_and_how_to_decide_it(project: Project) -> None:
    project.freeze()
    shown = project.call("show", RUN).stdout
    wanted = ("outcome_unknown", "finding", "Next: look at", "counterfoil review show")
    assert [words for words in wanted if words not in shown] == []


def test_show_puts_budgets_beside_what_is_spent(project: Project) -> None:
    assert project.program("r", "put") == 0
    shown = project.call("show", "r", "--task", str(project.folder / "restock.toml")).stdout
    assert "1 of 50" in shown


def test_show_refuses_the_budgets_of_another_task(project: Project, tmp_path: Path) -> None:
    project.make()
    task = tmp_path / "other.json"
    task.write_text('{"id": "other"}', encoding="utf-8")
    answer = project.call("show", RUN, "--task", str(task))
    assert (answer.exit_code, "BindingError" in answer.stderr) == (4, True)


def test_trace_numbers_every_event(project: Project) -> None:
    project.make()
    events = project.facts("trace", RUN)["events"]
    assert [event["index"] for event in events] == list(range(len(events)))
    assert [event["outcome"] for event in events] == [
        *("opened", "pending", "executed", "pending", "executed")
    ]


def test_trace_prints_a_row_for_each_event(project: Project) -> None:
    project.make()
    shown = project.call("trace", RUN).stdout
    assert (shown.count("pending"), shown.count("executed")) == (2, 2)


def test_following_a_run_ends_when_the_run_does(project: Project) -> None:
    project.make()
    project.call("abort", RUN, "--reason", "enough")
    answer = project.call("trace", RUN, "--follow", "--json")
    outcomes = [json.loads(line)["outcome"] for line in answer.stdout.splitlines()]
    assert (answer.exit_code, outcomes[-1]) == (0, "aborted")


def test_following_shows_what_is_committed_meanwhile(project: Project) -> None:
    with project.opened() as run:
        follower = subprocess.Popen(
            [COMMAND, "trace", RUN, "--follow", "--json"],
            cwd=project.folder,
            env=project.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert follower.stdout is not None
        seen = [json.loads(follower.stdout.readline())["outcome"]]
        run.do("box.put", item="a")
        run.flush()
        seen += [json.loads(follower.stdout.readline())["outcome"] for _ in range(2)]
        follower.send_signal(2)
        rest, trouble = follower.communicate(timeout=SECONDS_MAX)
    assert seen == ["opened", "pending", "executed"]
    assert (follower.returncode, rest, trouble) == (130, "", "")


def test_an_older_copy_of_nothing_is_no_project(project: Project, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    put_back(empty, {})
    answer = project.call("runs", "--project", str(empty))
    assert (answer.exit_code, "counterfoil init" in answer.stderr) == (2, True)
    assert list(empty.iterdir()) == []


def test_the_version_is_that_of_the_package(project: Project) -> None:
    assert project.call("--version").stdout == f"counterfoil {counterfoil.__version__}\n"


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(words, id=words or "root")
        for words in (
            *("init", "demo", "runs", "show", "trace", "verify", "recover", "abort", "prove"),
            *("check-proof", "doctor", "keys", "keys list", "keys add", "keys rotate"),
            "keys retire",
        )
    ],
)
def test_help_teaches_by_an_example(project: Project, words: str) -> None:
    answer = project.call(*words.split(), "--help")
    assert (answer.exit_code, f"Example:  counterfoil {words}" in answer.stdout) == (0, True)


def test_called_bare_it_prints_its_help_and_fails(project: Project) -> None:
    answer = project.call()
    assert (answer.exit_code, "Commands" in answer.stdout) == (2, True)
