"""Arguments are data: nothing that a planner writes becomes an option, a word or code."""

from pathlib import Path
from typing import Any

import pytest

from counterfoil.adapters.shell import Command, open_shell
from counterfoil.core.errors import (
    ConfigError,
    ContractError,
    PermissionDeniedError,
    StaleObservationError,
)
from counterfoil.core.words import Json, Key
from tests.support.shell_bench import NOTE, NOW_MS, Yard, do, operation, scope_of

ECHO = Command(
    name="echo", stages=(("printf", "%s|", "--", "{text}", "x{text}"),), patterns={"text": "(?s).*"}
)
LIST = Command(
    name="list", stages=(("printf", "%s|", "{words...}"),), patterns={"words": "[a-z-]+"}
)
WORD = Command(name="word", stages=(("printf", "%s|", "{text}"),), patterns={"text": "(?s).*"})
LONG = Command(name="long", stages=(("printf", "%s|", "--of={text}"),), patterns={"text": ".*"})

SEPARATORS = {
    "a separator": "a; touch hacked",
    "a substitution": "$(touch hacked) `touch hacked`",
    "quotes": "'\"'; touch hacked; '\"",
    "a newline": "a\ntouch hacked\n",
    "a glob": "* ~ {a,b} ?",
    "a redirection": "a > hacked && touch hacked | touch hacked",
    "an option behind the end of options": "--version",
    "a variable": "$PATH ${IFS} %s \\n",
    "unicode": "\u202e\u00e4\u2028 \ufeff\U0001f600",
    "nothing": "",
}


def yard_of(place: Path, *commands: Command) -> Yard:
    return Yard(place, commands)


@pytest.mark.parametrize(
    "text", [pytest.param(text, id=f"T28 {name}") for name, text in SEPARATORS.items()]
)
def test_a_value_is_one_word_whatever_it_holds(text: str, tmp_path: Path) -> None:
    yard = yard_of(tmp_path, ECHO)
    before = sorted(path.name for path in yard.root.iterdir())
    receipt = do(yard.open(), yard.scope, "echo", text=text)
    assert receipt.result["stdout"] == f"--|{text}|x{text}|"
    assert sorted(path.name for path in yard.root.iterdir()) == before
    yard.close()


def test_a_list_is_as_many_words_as_it_has_values(tmp_path: Path) -> None:
    yard = yard_of(tmp_path, LIST)
    adapter = yard.open()
    assert do(adapter, yard.scope, "list", words=["a", "b"]).result["stdout"] == "a|b|"
    assert do(adapter, yard.scope, "list", key=Key("2"), words=[]).result["stdout"] == "|"
    yard.close()


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        pytest.param(WORD, {"text": "--version"}, id="T28 a value that looks like an option"),
        pytest.param(WORD, {"text": "-"}, id="T28 a dash"),
        pytest.param(LIST, {"words": ["a", "-rf"]}, id="T28 an option in a list"),
        pytest.param(LIST, {"words": "abc"}, id="text in place of a list"),
        pytest.param(LIST, {"words": ["a"] * 1_001}, id="a list that is too long"),
        pytest.param(LIST, {"words": ["a", "b c"]}, id="a value of a list beside its pattern"),
        pytest.param(WORD, {"text": "a\0b"}, id="T14 T28 a NUL"),
        pytest.param(WORD, {"text": "\ud800"}, id="half a character"),
        pytest.param(WORD, {"text": "a" * 65_537}, id="a value that is too long"),
        pytest.param(NOTE, {"text": "a\n"}, id="T28 a newline at the end"),
        pytest.param(NOTE, {"text": "a\nb"}, id="T28 a newline inside"),
        pytest.param(NOTE, {"text": "a; id"}, id="a separator beside the pattern"),
        pytest.param(NOTE, {"text": "\u0661"}, id="a digit of another script"),
        pytest.param(NOTE, {"text": "a", "folder": ".."}, id="T14 a folder above"),
        pytest.param(NOTE, {"text": "a", "folder": "/"}, id="T14 a folder from the top"),
        pytest.param(NOTE, {"text": "a", "folder": "a/../.."}, id="T14 a folder on the way up"),
        pytest.param(NOTE, {"text": "a", "folder": "a\0"}, id="T14 a folder with a NUL"),
        pytest.param(NOTE, {"text": "a", "argv": [["id"]]}, id="words of its own"),
        pytest.param(NOTE, {"text": "a", "environment": {}}, id="an argument nobody takes"),
    ],
)
def test_arguments_out_of_contract_are_refused_by_name(
    command: Command, arguments: dict[str, Json], tmp_path: Path
) -> None:
    yard = yard_of(tmp_path, command)
    (spec,) = yard.open().kinds
    with pytest.raises(ContractError, match=r"text|words|folder|argv|environment|option"):
        spec.normalise(arguments)
    yard.close()


def test_an_option_may_hold_a_value_that_looks_like_one(tmp_path: Path) -> None:
    yard = yard_of(tmp_path, LONG)
    (spec,) = yard.open().kinds
    assert spec.normalise({"text": "-x"})["argv"][0][1:] == ["%s|", "--of=-x"]
    yard.close()


def test_what_is_approved_is_the_words_that_run(tmp_path: Path) -> None:
    yard = yard_of(tmp_path, NOTE)
    adapter = yard.open()
    (spec,) = adapter.kinds
    argv = spec.normalise({"text": "hello"})["argv"]
    assert argv == [["/usr/bin/sh", "-c", 'echo "$1" >> effects.log', "sh", "hello"]]
    assert "'hello'" in adapter.preview("shell.note", {"text": "hello"})
    yard.close()


def test_a_command_that_was_changed_since_it_was_proposed_does_not_run(tmp_path: Path) -> None:
    yard = yard_of(tmp_path, NOTE)
    asked = operation(yard.open(), yard.scope, "note", text="old")
    yard.commands = (
        Command(name="note", stages=(("rm", "-r", "--", "{text}"),), patterns=NOTE.patterns),
    )
    with pytest.raises(ContractError, match="argv"):
        yard.open().execute(asked)
    assert yard.effects == []
    yard.close()


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"stages": (("sh", "-c", "cat {code}"),)}, id="a value as code"),
        pytest.param({"stages": (("{code}",),)}, id="the program"),
        pytest.param({"stages": ((),)}, id="no program"),
        pytest.param({"stages": ()}, id="no stage"),
        pytest.param(
            {"stages": (("no such program", "{code}"),)}, id="a program that is not there"
        ),
        pytest.param({"stages": (("cat", "a{code...}"),)}, id="a list inside a word"),
        pytest.param({"stages": (("cat", "{code}", "{code...}"),)}, id="a value and a list"),
        pytest.param({"stages": (("cat", "{other}"),)}, id="a value without a pattern"),
        pytest.param({"patterns": {"code": "["}}, id="a pattern that is none"),
        pytest.param({"patterns": {"code": "a", "b": "b"}}, id="a pattern without a value"),
        pytest.param({"name": "Two words"}, id="a name that is none"),
        pytest.param({"timeout_ms": 0}, id="no time"),
        pytest.param({"umask": 0o1000}, id="a mask that is none"),
        pytest.param({"accepted": (256,)}, id="an exit code that is none"),
        pytest.param({"environment": {"A=B": "c"}}, id="a variable that is none"),
        pytest.param({"environment": {"A": "\0"}}, id="a variable with a NUL"),
    ],
)
def test_a_command_that_lets_more_through_than_it_says_is_refused(
    options: dict[str, Any], tmp_path: Path
) -> None:
    whole = {"name": "one", "stages": (("cat", "{code}"),), "patterns": {"code": ".*"}, **options}
    with pytest.raises(ConfigError, match="command"):
        open_shell(tmp_path, [Command(**whole)], now_ms=lambda: NOW_MS)


def test_a_shell_string_runs_where_it_is_allowed(tmp_path: Path) -> None:
    command = Command(
        name="script",
        stages=(("bash", "-o", "pipefail", "-c", "{code}"),),
        patterns={"code": "(?s).+"},
        takes_script=True,
    )
    yard = yard_of(tmp_path, command)
    receipt = do(yard.open(), yard.scope, "script", code="false | echo $((1 + 1)) >> effects.log")
    assert (receipt.result["stages"], yard.effects) == ([{"code": 1}], ["2"])
    yard.close()


@pytest.mark.parametrize(
    ("scope", "folder"),
    [
        pytest.param(scope_of([]), ".", id="a command that the task may not give"),
        pytest.param(scope_of([NOTE], "inner/"), ".", id="the root, where a folder is allowed"),
        pytest.param(scope_of([NOTE], "inner/"), "innermost", id="T14 a folder whose name goes on"),
        pytest.param({"commands": ("note",)}, ".", id="no folder at all"),
    ],
)
def test_what_is_out_of_scope_does_not_run(
    scope: dict[str, tuple[str, ...]], folder: str, tmp_path: Path
) -> None:
    yard = yard_of(tmp_path, NOTE)
    (yard.root / "innermost").mkdir()
    adapter = yard.open()
    with pytest.raises(PermissionDeniedError, match="scope"):
        adapter.execute(operation(adapter, scope, "note", text="a", folder=folder))
    assert yard.effects == []
    yard.close()


def test_a_command_runs_in_the_folder_that_is_named(tmp_path: Path) -> None:
    yard = yard_of(tmp_path, NOTE)
    (yard.root / "inner").mkdir()
    scope = scope_of([NOTE], "inner/")
    do(yard.open(), scope, "note", text="a", folder="inner")
    assert (yard.root / "inner" / "effects.log").read_text() == "a\n"
    yard.close()


def test_a_folder_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    yard = yard_of(tmp_path / "yard", NOTE)
    (yard.root / "inner").symlink_to(tmp_path)
    adapter = yard.open()
    with pytest.raises(PermissionDeniedError, match="link"):
        adapter.execute(operation(adapter, yard.scope, "note", text="a", folder="inner"))
    assert not (tmp_path / "effects.log").exists()
    yard.close()


def test_a_folder_that_is_gone_is_another_state(tmp_path: Path) -> None:
    yard = yard_of(tmp_path, NOTE)
    adapter = yard.open()
    with pytest.raises(StaleObservationError, match="not there"):
        adapter.execute(operation(adapter, yard.scope, "note", text="a", folder="gone"))
    yard.close()
