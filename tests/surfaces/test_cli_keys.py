"""Keys on the command line: never given there, never shown, and rotated with care."""

import json
import secrets
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.commands import RUN, Project

HEX = secrets.token_hex(32)
BASE64 = "q83vEjRWeJCrze8SNFZ4kKvN7xI0VniQq83vEjRWeJA="


def active(project: Project) -> str:
    """Return the id of the key that signs."""
    listed = project.facts("keys", "list")["keys"]
    return next(row["id"] for row in listed if row["status"] == "active")


def test_a_rotated_key_signs_and_the_former_one_opens(project: Project) -> None:
    project.make()
    former = active(project)
    rotated = project.facts("keys", "rotate")["key"]["id"]
    project.make(items=("a", "b", "c"))
    assert project.facts("verify", RUN)["keys"] == [former, rotated]


def test_a_retired_key_opens_nothing(project: Project) -> None:
    project.make()
    former = active(project)
    project.facts("keys", "rotate")
    project.make("run-2")
    assert project.facts("keys", "retire", former)["key"]["status"] == "retired"
    answer = project.call("verify", RUN)
    assert (answer.exit_code, answer.stderr.partition(":")[0]) == (4, "SignatureError")
    assert project.facts("verify", "run-2")["verified"]


def test_the_active_key_cannot_be_retired(project: Project) -> None:
    answer = project.call("keys", "retire", active(project))
    assert (answer.exit_code, "rotate before" in answer.stderr) == (2, True)


def test_an_added_key_signs_only_when_it_is_rotated_to(project: Project) -> None:
    former = active(project)
    added = project.facts("keys", "add")["key"]["id"]
    assert active(project) == former
    project.facts("keys", "rotate", "--to", added)
    assert active(project) == added


def test_the_list_shows_no_key(project: Project) -> None:
    stored = json.loads(project.keys.read_bytes())["keys"][0]["secret"]
    shown = project.call("keys", "list").output + project.call("keys", "list", "--json").output
    assert stored not in shown


def test_keys_from_a_variable_are_changed_by_their_owner_alone(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOX_KEY", HEX)
    with (project.folder / "counterfoil.toml").open("a", encoding="utf-8") as file:
        file.write('[keys]\nsource = "env:BOX_KEY"\n')
    assert project.facts("keys", "list")["source"] == "env"
    answer = project.call("keys", "rotate")
    assert (answer.exit_code, "BOX_KEY" in answer.stderr, HEX in answer.output) == (2, True, False)


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["keys", "add", HEX], id="T23 add, hexadecimal"),
        pytest.param(["keys", "add", BASE64], id="T23 add, base64"),
        pytest.param(["keys", "add", HEX, HEX], id="T23 add, two"),
        pytest.param(["keys", "add", f"--key={HEX}"], id="T23 add, as an option"),
        pytest.param(["keys", "add", "--key", HEX], id="T23 add, after an option"),
        pytest.param(["keys", "rotate", HEX], id="T23 rotate"),
        pytest.param(["keys", "rotate", "--to", HEX], id="T23 rotate to"),
        pytest.param(["keys", "retire", HEX], id="T23 retire"),
        pytest.param(["keys", HEX], id="T23 as a command"),
        pytest.param(["keys", "list", HEX], id="T23 list"),
        pytest.param([HEX], id="T23 as the first word"),
    ],
)
@pytest.mark.parametrize("as_json", [False, True])
def test_a_key_on_the_command_line_is_refused_and_never_repeated(
    project: Project, words: list[str], as_json: bool
) -> None:
    before = project.keys.read_bytes()
    answer = project.call(*words, *(["--json"] if as_json else []))
    assert (answer.exit_code, answer.stdout, project.keys.read_bytes()) == (2, "", before)
    assert [key for key in (HEX, BASE64) if key in answer.stderr] == []


@pytest.mark.parametrize("_row", [pytest.param(None, id="T23 add")])
def test_a_refused_key_is_answered_with_the_mend(project: Project, _row: None) -> None:
    answer = project.started("keys", "add", HEX)
    assert (answer.returncode, "keys.source in counterfoil.toml" in answer.stderr) == (2, True)


@pytest.mark.parametrize("_row", [pytest.param(None, id="T23 a key in the settings")])
def test_a_key_in_the_settings_is_refused_and_never_repeated(project: Project, _row: None) -> None:
    with (project.folder / "counterfoil.toml").open("a", encoding="utf-8") as file:
        file.write(f'[keys]\nsource = "env:{HEX}"\n')
    answer = project.started("runs")
    assert (answer.returncode, HEX in answer.stderr, answer.stdout) == (2, False, "")


def key_file(project: Project) -> Path:
    return project.keys


def key_folder(project: Project) -> Path:
    return project.keys.parent


def heads_file(project: Project) -> Path:
    return project.heads


def heads_folder(project: Project) -> Path:
    return project.heads.parent


def store_file(project: Project) -> Path:
    return project.store


def store_folder(project: Project) -> Path:
    return project.store.parent


@pytest.mark.parametrize(
    ("place", "mode", "mend"),
    [
        pytest.param(key_file, 0o644, "chmod 600", id="T23 key file that others may read"),
        pytest.param(key_file, 0o660, "chmod 600", id="T23 key file that a group may write"),
        pytest.param(key_folder, 0o777, "chmod 700", id="T23 folder of keys that others may write"),
        pytest.param(heads_file, 0o644, "chmod 600", id="T23 heads that others may read"),
        pytest.param(
            heads_folder, 0o777, "chmod go-w", id="T23 state folder that others may write"
        ),
        pytest.param(store_file, 0o666, "chmod 600", id="T23 checkpoints that others may write"),
        pytest.param(store_folder, 0o770, "chmod go-w", id="T23 project folder of a group"),
    ],
)
def test_a_loose_mode_is_refused_with_the_mend(
    project: Project, place: Callable[[Project], Path], mode: int, mend: str
) -> None:
    project.make()
    place(project).chmod(mode)
    answer = project.call("verify", RUN)
    assert (answer.exit_code, answer.stderr.startswith("ConfigError: ")) == (2, True)
    assert f"run `{mend} " in answer.stderr
