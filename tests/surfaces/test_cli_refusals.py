"""How commands fail: one sentence, the exit code of the family, and a safe terminal."""

import json
import os
import pty
import subprocess
from pathlib import Path

import pytest

from tests.support.commands import COMMAND, ESCAPE, RUN, SECONDS_MAX, Project

NASTY = f"{ESCAPE}[2J{ESCAPE}]0;owned\x07[bold red]x[/] \u202eevil\x7f"


@pytest.mark.parametrize("command", ["show", "trace", "verify"])
def test_an_unknown_run_is_the_callers_mistake(project: Project, command: str) -> None:
    answer = project.started(command, "nobody")
    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr == (
        "UnknownRunError: the register has no such run (run nobody); "
        "check the run id with `counterfoil runs`\n"
    )


def test_an_error_as_json_names_family_and_next_move(project: Project) -> None:
    answer = project.started("show", "nobody", "--json")
    assert (answer.returncode, answer.stdout) == (2, "")
    assert json.loads(answer.stderr)["error"] == {
        "family": "UsageError",
        "name": "UnknownRunError",
        "message": "the register has no such run",
        "run": "nobody",
        "key": "",
        "next": "check the run id with `counterfoil runs`",
        "exit_code": 2,
    }


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["nonsense"], id="a command that does not exist"),
        pytest.param(["show"], id="an argument that is missing"),
        pytest.param(["runs", "--nonsense"], id="an option that does not exist"),
        pytest.param(["prove", RUN, "minus"], id="an argument of another type"),
        pytest.param(["show", RUN, "more"], id="an argument too many"),
    ],
)
def test_a_wrong_command_line_is_one_sentence(project: Project, words: list[str]) -> None:
    answer = project.started(*words)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr.startswith("UsageError: ")
    assert (answer.stderr.count("\n"), "--help`" in answer.stderr) == (1, True)


def test_a_wrong_command_line_is_an_object_with_json(project: Project) -> None:
    answer = project.started("runs", "--nonsense", "--json")
    assert json.loads(answer.stderr)["error"]["name"] == "UsageError"


def test_a_run_that_is_held_exits_with_5(project: Project) -> None:
    with project.opened():
        answer = project.started("abort", RUN, "--reason", "enough")
    assert (answer.returncode, "LeaseLostError" in answer.stderr) == (5, True)


def test_a_run_that_has_ended_exits_with_3(project: Project) -> None:
    project.make()
    project.call("abort", RUN, "--reason", "enough")
    answer = project.started("abort", RUN, "--reason", "again")
    assert (answer.returncode, "TerminalError" in answer.stderr) == (3, True)


def test_a_missing_store_exits_with_4_and_no_traceback(project: Project) -> None:
    project.make()
    project.store.unlink()
    answer = project.started("runs")
    assert (answer.returncode, answer.stdout) == (4, "")
    assert ("RollbackError" in answer.stderr, "Traceback" in answer.stderr) == (True, False)


@pytest.mark.parametrize("as_json", [False, True])
def test_no_output_into_a_pipe_is_coloured(project: Project, as_json: bool) -> None:
    project.freeze()
    project.environment["FORCE_COLOR"] = "1"
    for command in (["runs"], ["show", RUN], ["trace", RUN], ["verify", RUN], ["doctor"]):
        answer = project.started(*command, *(["--json"] if as_json else []))
        assert ESCAPE not in answer.stdout + answer.stderr


@pytest.mark.parametrize(("no_color", "is_coloured"), [("", True), ("1", False)])
def test_a_terminal_has_colours_unless_it_says_no(
    project: Project, no_color: str, is_coloured: bool
) -> None:
    project.make()
    environment = project.environment | {"TERM": "xterm-256color", "NO_COLOR": no_color}
    shown = on_a_terminal(["verify", RUN], project.folder, environment)
    assert ("is whole" in shown, f"{ESCAPE}[32m" in shown) == (True, is_coloured)


def on_a_terminal(words: list[str], folder: Path, environment: dict[str, str]) -> str:
    """Return what a command prints on a terminal."""
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "rb", buffering=0) as screen:
        child = subprocess.Popen(
            [COMMAND, *words], cwd=folder, env=environment, stdout=theirs, stderr=theirs
        )
        os.close(theirs)
        shown = b""
        try:
            while part := screen.read(65_536):
                shown += part
        except OSError:  # a terminal that nobody writes to any more ends so
            pass
        child.wait(timeout=SECONDS_MAX)
    return shown.decode()


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["runs"], id="T16 a list"),
        pytest.param(["show", RUN], id="T16 a run"),
        pytest.param(["abort", RUN, "--reason", "x"], id="T16 an error"),
    ],
)
def test_text_that_a_thief_wrote_cannot_steer_the_terminal(
    project: Project, words: list[str]
) -> None:
    project.make()
    project.change_heads("UPDATE head SET owner = ?, nonce = 'n', expires_at_ms = ?", NASTY, 2**52)
    environment = project.environment | {"TERM": "xterm-256color", "NO_COLOR": "1"}
    shown = on_a_terminal(words, project.folder, environment)
    assert [char for char in (ESCAPE, "\x07", "\u202e", "\x7f") if char in shown] == []


@pytest.mark.parametrize("_row", [pytest.param(None, id="T16 as json")])
def test_text_that_a_thief_wrote_is_escaped_in_json(project: Project, _row: None) -> None:
    project.make()
    project.change_heads("UPDATE head SET owner = ?, expires_at_ms = ?", NASTY, 2**52)
    answer = project.started("runs", "--json")
    assert json.loads(answer.stdout)["runs"][0]["lease"]["holder"] == NASTY
    assert answer.stdout.replace("\n", "").isprintable()


@pytest.mark.parametrize("_row", [pytest.param(None, id="T16 markup")])
def test_markup_in_text_is_shown_as_it_is(project: Project, _row: None) -> None:
    name, reason = "[red]run[/red]", "[link=file:///etc]:boom: [/nothing]"
    project.make(name)
    project.call("abort", name, "--reason", reason, "--actor", "[b]me")
    listed, traced = project.call("runs").stdout, project.call("trace", name).stdout
    assert (name in listed, f"[b]me: {reason}" in traced) == (True, True)


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["show", NASTY], id="T16 a run id"),
        pytest.param(["abort", RUN, "--reason", NASTY], id="T16 a reason"),
        pytest.param(["abort", RUN, "--reason", "x", "--actor", NASTY], id="T16 an actor"),
        pytest.param(["runs", "--project", NASTY], id="T16 a folder"),
        pytest.param(["runs", f"--{NASTY}"], id="T16 an option"),
        pytest.param([NASTY], id="T16 a command"),
        pytest.param(["check-proof", NASTY], id="T16 a file"),
        pytest.param(["gc", "--finished-before", "0d", "--after", NASTY], id="T16 where to go on"),
        pytest.param(["show", "x" * 100_000], id="T16 a very long run id"),
    ],
)
def test_nasty_words_are_refused_and_not_echoed_raw(project: Project, words: list[str]) -> None:
    project.make()
    answer = project.started(*words)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr.removesuffix("\n").isprintable()
    assert len(answer.stderr) < 2_000
