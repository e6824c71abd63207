"""The command reference names every command and every option, and no other."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import typer

from counterfoil.cli import app
from tests.support.sources import ROOT

REFERENCE = ROOT / "docs" / "reference" / "cli.md"
GIVEN_BY_THE_FRAMEWORK = {"--help", "--install-completion", "--show-completion"}
HEADING = re.compile(r"^#+ .*?`(counterfoil[^`]*)`.*$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Command:
    """One command as a person types it, with the options that it takes itself."""

    words: str
    options: frozenset[str]
    is_group: bool


def test_every_command_has_a_heading() -> None:
    headings = _sections()
    assert [
        command.words
        for command in _commands()
        if not command.is_group and command.words not in headings
    ] == []


def test_every_heading_is_a_command() -> None:
    known = {command.words for command in _commands()}
    assert [words for words in _sections() if words not in known] == []


def test_every_option_stands_in_the_section_of_its_command() -> None:
    sections = _sections()
    text = REFERENCE.read_text(encoding="utf-8")
    assert [
        f"{command.words} {option}"
        for command in _commands()
        for option in sorted(command.options)
        if not re.search(rf"(?<![\w-]){option}(?![\w-])", sections.get(command.words, text))
    ] == []


def _sections() -> dict[str, str]:
    """Return the text under each heading that shows a command, such as `counterfoil keys add`.

    Arguments may follow in the heading: they are in capitals, in brackets, or start with a dash.
    """
    text = REFERENCE.read_text(encoding="utf-8")
    found = list(HEADING.finditer(text))
    ends = [*(match.start() for match in found[1:]), len(text)]
    return {
        re.match(r"counterfoil(?: [a-z][a-z-]*)*", match[1])[0]: text[match.end() : end]
        for match, end in zip(found, ends, strict=True)
    }


def _commands() -> Iterator[Command]:
    waiting: list[tuple[str, Any]] = [("counterfoil", typer.main.get_command(app))]
    while waiting:
        words, command = waiting.pop(0)
        members = getattr(command, "commands", {})
        options = (
            option
            for parameter in command.params
            if parameter.param_type_name == "option" and not parameter.hidden
            for option in (*parameter.opts, *parameter.secondary_opts)
        )
        yield Command(
            words=words,
            options=frozenset(options) - GIVEN_BY_THE_FRAMEWORK,
            is_group=bool(members),
        )
        waiting += [
            (f"{words} {name}", member) for name, member in members.items() if not member.hidden
        ]
