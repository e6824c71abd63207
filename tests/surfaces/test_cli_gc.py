"""`counterfoil gc`: finished runs are archived, and their room is given back."""

import json
from pathlib import Path

import pytest

from counterfoil.compose import Space
from counterfoil.core.errors import (
    CounterfoilError,
    TerminalError,
    UnavailableError,
    UnknownOutcomeError,
)
from counterfoil.engine.collecting import Round
from counterfoil.local.etcd import LocalEtcd
from counterfoil.local.postgres import LocalPostgres
from counterfoil.settings import FILE_NAME
from tests.support.commands import RUN, TASK, Project, copied, put_back
from tests.support.postgres import execute, fresh_database
from tests.support.server_projects import PAIRS, ServerProject, write_project
from tests.support.server_projects import RUN as FILLED

pytest_plugins = ["tests.support.postgres", "tests.support.server_projects"]

NOW = ("gc", "--finished-before", "0d")
STEPS = 40


def end(project: Project, run_id: str = RUN, *, steps: int = STEPS) -> None:
    """Make a run of many steps that has ended."""
    with project.opened(run_id) as run:
        for number in range(steps):
            run.do("box.put", item=f"{number}")
        run.cancel()


def size_of(project: Project) -> int:
    """Return what the store takes on disk, its log included."""
    return sum(path.stat().st_size for path in project.store.parent.glob("checkpoints.db*"))


def test_the_file_shrinks_and_everything_is_told_as_before(project: Project) -> None:
    for number in range(4):
        end(project, f"run-{number}")
    told = [project.facts("trace", "run-2"), project.facts("show", "run-2")]
    proof = project.call("prove", "run-2", "7").stdout
    before = size_of(project)
    facts = project.facts(*NOW)
    assert [each["outcome"] for each in facts["runs"]] == ["archived"] * 4
    assert all(each["checkpoints"] >= STEPS for each in facts["runs"])
    assert all(each["archive_bytes"] * 8 < each["bytes"] for each in facts["runs"])
    assert size_of(project) * 4 < before
    assert facts["space"]["given_back"] * 4 > before * 3
    assert [project.facts("trace", "run-2"), project.facts("show", "run-2")] == told
    assert project.call("prove", "run-2", "7").stdout == proof
    assert project.facts("verify", "run-2")["archived_at"] != ""
    assert project.facts(*NOW)["runs"] == []


def test_a_worker_that_is_at_work_goes_on_while_the_file_is_written_anew(project: Project) -> None:
    end(project, "old")
    with project.opened("live") as run:
        run.do("box.put", item="before")
        assert project.facts(*NOW)["space"]["given_back"] > 0
        run.do("box.put", item="after")
        assert run.state.writes == 2
    assert project.call("verify", "live").exit_code == 0
    assert project.call("verify", "old").exit_code == 0


def test_a_proof_of_an_archived_run_is_checked_without_its_store(
    project: Project, tmp_path: Path
) -> None:
    end(project)
    project.facts(*NOW)
    proof = tmp_path / "proof.json"
    proof.write_text(project.call("prove", RUN, "3").stdout, encoding="utf-8")
    project.store.unlink()
    answer = project.started("check-proof", str(proof), "--json")
    facts = json.loads(answer.stdout)
    assert (facts["event"], facts["signature_checked"], answer.returncode) == (3, True, 0)


def test_the_id_of_an_archived_run_is_refused_as_before(project: Project) -> None:
    end(project)
    with project.opened() as run, pytest.raises(TerminalError) as before:
        run.settle()
    refused = project.call("abort", RUN, "--reason", "because")
    project.facts(*NOW)
    with project.opened() as run, pytest.raises(TerminalError) as after:
        run.settle()
    assert str(after.value) == str(before.value)
    again = project.call("abort", RUN, "--reason", "because")
    assert (again.exit_code, again.stderr) == (refused.exit_code, refused.stderr) != (0, "")
    with project.keeper() as keeper:
        for number in range(2):
            with keeper.run(TASK, RUN) as run:
                assert run.do("box.put", item="0") == {"at": "0"}, number


def test_a_case_is_shown_from_the_archive(project: Project) -> None:
    project.freeze()
    project.call("abort", RUN, "--reason", "enough")
    shown = ("review", "show", RUN, "--event", "2")
    before = project.facts(*shown)
    project.facts(*NOW)
    assert project.facts(*shown) == before


def test_the_settings_say_how_old_a_run_must_be(project: Project) -> None:
    end(project)
    assert "--finished-before" in project.call("gc").stderr
    settings = project.folder / FILE_NAME
    text = settings.read_text(encoding="utf-8")
    for term, runs in (("90d", 0), ("0s", 1)):
        settings.write_text(f'{text}\n[retention]\nfinished_before = "{term}"\n', encoding="utf-8")
        assert len(project.facts("gc", "--dry-run")["runs"]) == runs


@pytest.mark.parametrize("term", ["90", "d", "-1d", "90 days", "36526d", "\u0661d", ""])
def test_what_is_no_term_is_refused(project: Project, term: str) -> None:
    answer = project.call("gc", f"--finished-before={term}")
    assert (answer.exit_code, "--finished-before" in answer.stderr) == (2, True)
    settings = project.folder / FILE_NAME
    text = settings.read_text(encoding="utf-8")
    settings.write_text(f'{text}\n[retention]\nfinished_before = "{term}"\n', encoding="utf-8")
    answer = project.call("gc")
    assert (answer.exit_code, "retention.finished_before" in answer.stderr) == (2, True)


def test_a_dry_run_shows_runs_and_bytes_and_changes_no_byte(project: Project) -> None:
    end(project)
    project.call("runs")  # whoever opens last empties the log
    before = copied(project.store.parent)
    shown = project.call(*NOW, "--dry-run").stdout
    (facts,) = project.facts(*NOW, "--dry-run")["runs"]
    assert (facts["outcome"], facts["archive_bytes"]) == ("due", 0)
    assert all(str(word) in shown for word in (RUN, "due", facts["bytes"], facts["checkpoints"]))
    after = copied(project.store.parent)
    assert after["checkpoints.db"] == before["checkpoints.db"]


def test_a_call_does_so_much_and_says_where_to_go_on(project: Project) -> None:
    for name in "abc":
        end(project, name, steps=2)
    first = project.facts(*NOW, "--limit", "2")
    assert ([each["run"] for each in first["runs"]], first["after"]) == (["a", "b"], "b")
    rest = project.facts(*NOW, "--limit", "2", "--after", first["after"])
    assert ([each["run"] for each in rest["runs"]], rest["after"]) == (["c"], "")
    shown = project.call(*NOW, "--limit", "2")
    assert (shown.exit_code, "--after" in shown.stdout) == (0, False)


def test_a_run_that_cannot_be_believed_is_left_and_the_others_are_done(project: Project) -> None:
    end(project, "bad")
    end(project, "good")
    project.change_store(
        "UPDATE checkpoint SET events = CAST('[]' AS BLOB) WHERE generation = 3 "
        "AND run = (SELECT number FROM run WHERE run_id = 'bad')"
    )
    answer = project.call(*NOW, "--json")
    outcomes = {each["run"]: each["outcome"] for each in json.loads(answer.stdout)["runs"]}
    assert outcomes == {"bad": "refused", "good": "archived"}
    error = json.loads(answer.stderr)["error"]
    assert (answer.exit_code, error["family"], error["run"]) == (4, "IntegrityError", "bad")


def test_an_archive_that_is_gone_is_an_alarm(project: Project) -> None:
    end(project)
    project.facts(*NOW)
    project.change_store("DELETE FROM archive WHERE name = 'seal'")
    for command in (("verify", RUN), ("trace", RUN), ("prove", RUN, "2")):
        answer = project.call(*command, "--json")
        assert (answer.exit_code, json.loads(answer.stderr)["error"]["name"]) == (
            4,
            "RollbackError",
        )


def test_a_byte_that_was_changed_in_an_archive_is_found(project: Project) -> None:
    end(project)
    project.facts(*NOW)
    project.change_store(
        "UPDATE archive SET content = CAST(content || x'00' AS BLOB) WHERE name <> 'seal'"
    )
    answer = project.call("verify", RUN, "--json")
    assert (answer.exit_code, json.loads(answer.stderr)["error"]["name"]) == (4, "FormatError")


def test_an_older_copy_of_the_store_is_whole_and_archived_again(project: Project) -> None:
    end(project)
    project.call("runs")
    older, folder = copied(project.store.parent), project.store.parent
    events = project.facts("trace", RUN)
    project.facts(*NOW)
    put_back(folder, older)
    assert project.facts("verify", RUN)["archived_at"] == ""
    assert [each["outcome"] for each in project.facts(*NOW)["runs"]] == ["archived"]
    assert project.facts("trace", RUN) == events


def test_a_file_mostly_in_use_is_written_anew_only_when_that_is_asked_for(
    project: Project,
) -> None:
    for number in range(4):
        with project.opened(f"live-{number}") as run:
            for item in range(STEPS):
                run.do("box.put", item=f"{item}")
    end(project, "old", steps=10)
    space = project.facts(*NOW)["space"]
    assert (space["given_back"], space["spare"] > 0) == (0, True)
    asked = project.facts(*NOW, "--compact")["space"]
    assert (asked["given_back"], asked["spare"]) == (space["spare"], 0)
    again = project.facts(*NOW, "--compact")["space"]
    assert (again["given_back"], again["bytes"]) == (0, asked["bytes"])


def test_a_large_file_is_written_anew_only_when_that_is_asked_for(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("counterfoil.backends.REWRITTEN_BYTES_MAX", 1_000)
    end(project)
    answer = project.call(*NOW)
    assert "fills it before it grows" in answer.stdout
    before = size_of(project)
    assert project.facts(*NOW, "--compact")["space"]["given_back"] > before // 2
    assert size_of(project) < before // 2


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(UnavailableError("the file was locked"), id="another writes"),
        pytest.param(UnknownOutcomeError("the disk is full"), id="there is no room to write it"),
    ],
)
def test_what_was_archived_is_told_though_the_room_was_not_given_back(
    project: Project, monkeypatch: pytest.MonkeyPatch, error: CounterfoilError
) -> None:
    def fails(*_: object, **__: object) -> Space:
        raise error

    end(project)
    monkeypatch.setattr("counterfoil.cli.gc_command.give_space_back", fails)
    facts = project.facts(*NOW)
    assert [each["outcome"] for each in facts["runs"]] == ["archived"]
    assert facts["space"]["note"] == f"the room was not given back: {error.message}"


def test_who_meets_an_unknown_end_is_told_to_call_again(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> Round:
        raise UnknownOutcomeError("the disk is full")

    monkeypatch.setattr("counterfoil.cli.gc_command.collect", fails)
    answer = project.call(*NOW)
    assert (answer.exit_code, "; call gc again" in answer.stderr) == (6, True)


def test_half_a_character_is_no_run_to_go_on_from(project: Project) -> None:
    answer = project.started(*NOW, "--after", "\udcff", "--json")
    error = json.loads(answer.stderr)["error"]
    assert (answer.returncode, error["name"], "--after" in error["message"]) == (
        2,
        "ContractError",
        True,
    )


@pytest.mark.parametrize("pair", PAIRS)
def test_runs_of_every_pair_are_archived(
    pair: str,
    project: Project,
    tmp_path: Path,
    postgres: LocalPostgres,
    lone_etcd: LocalEtcd,
) -> None:
    store, heads = PAIRS[pair](postgres, lone_etcd, f"gc-{tmp_path.name}")
    filling: ServerProject = write_project(tmp_path / "filling", store=store, heads=heads)
    assert filling.init() == 0
    assert filling.work().returncode == 0
    assert filling.call("abort", FILLED, "--reason", "enough").exit_code == 0
    looks = (("trace", FILLED), ("show", FILLED), ("runs",))
    told = [filling.facts(*words) for words in looks]
    (made,) = filling.facts(*NOW)["runs"]
    assert (made["outcome"], made["checkpoints"] >= 5) == ("archived", True)
    assert [filling.facts(*words) for words in looks] == told
    assert filling.facts("verify", FILLED)["archived_at"] != ""
    arrivals = filling.arrivals()
    assert filling.work().returncode == 0
    assert (filling.arrivals(), filling.facts(*NOW)["runs"]) == (arrivals, [])


def test_a_workers_role_archives_nothing_and_loses_nothing(
    tmp_path: Path, postgres: LocalPostgres
) -> None:
    owner = fresh_database(postgres)
    name = owner.rpartition("/")[2]
    execute(owner, f"CREATE ROLE worker_{name} LOGIN PASSWORD '{postgres.password}'")
    filling = write_project(tmp_path / "filling", store=owner, heads=owner)
    granted = filling.call("init", str(filling.folder), "--worker", f"worker_{name}")
    assert granted.exit_code == 0
    assert filling.work().returncode == 0
    filling.facts("abort", FILLED, "--reason", "enough")
    told = filling.facts("trace", FILLED)
    settings = filling.folder / FILE_NAME
    text = settings.read_text(encoding="utf-8")
    worker = postgres.url(name, user=f"worker_{name}")
    settings.write_text(text.replace(owner, worker), encoding="utf-8")
    assert filling.error(*NOW) == (2, "ConfigError")
    assert (filling.facts("verify", FILLED)["archived_at"], filling.facts("trace", FILLED)) == (
        "",
        told,
    )
