"""The kinds of action that allowed commands are, and what is promised of each."""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from counterfoil.adapters.shell.command import (
    PATH,
    Command,
    check_command,
    checked,
    patience_ms,
    words_of,
)
from counterfoil.core.canonical import normalise
from counterfoil.core.errors import ConfigError, ContractError
from counterfoil.core.intent import KindSpec
from counterfoil.core.task import PATHS, canonical_path
from counterfoil.core.words import Json, Level

NAME = "shell"
"""Name of the adapter."""

COMMANDS = "commands"
"""Scope list of the commands that a task may give."""

FOLDER = "folder"
ARGV = "argv"
ROOT = "."

MARGIN_MS = 12_000
"""What a call takes besides the wait: the lock twice, and a start."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Allowed:
    """A command with its programs found, and the kind that it is."""

    command: Command
    spec: KindSpec


def allowed(commands: tuple[Command, ...]) -> Mapping[str, Allowed]:
    """Return what the adapter declares, by kind.

    Raises:
        ConfigError: A command cannot be run as it stands, or two have one name.
    """
    found: dict[str, Allowed] = {}
    for command in commands:
        check_command(command)
        kind = f"{NAME}.{command.name}"
        if kind in found:
            raise ConfigError(f"command {command.name} is allowed twice")
        placed = replace(command, stages=tuple(_placed(command, words) for words in command.stages))
        found[kind] = Allowed(command=placed, spec=_spec(kind, placed))
    return found


def _placed(command: Command, words: tuple[str, ...]) -> tuple[str, ...]:
    program = words[0]
    path = shutil.which(program, path=command.environment.get("PATH", PATH))
    if path is None or not path.startswith("/"):
        raise ConfigError(f"command {command.name}: there is no program {program!r:.200}")
    return (path, *words[1:])


def _spec(kind: str, command: Command) -> KindSpec:
    """Return the declaration of a command.

    A start is once per key, and absence is certain as soon as the lock is held. But the
    effect of a command and the record of its end are two acts, so nothing here is more
    than `queryable`, unless running twice is declared to be as good as once.
    """
    return KindSpec(
        name=kind,
        adapter=NAME,
        risk=command.risk,
        level=Level.DEDUPLICATING if command.is_repeatable else Level.QUERYABLE,
        permission=kind,
        normalise=_normaliser(kind, command),
        touches=lambda arguments: ((COMMANDS, command.name), (PATHS, touched(arguments[FOLDER]))),
        call_ms=patience_ms(command) + MARGIN_MS,
        in_flight_ms=0,
        linearizable=True,
        fences=True,
        forbids=True,
        cost_micros=command.cost_micros,
    )


def touched(folder: str) -> str:
    """Return a working folder as scope entries name folders."""
    return folder if folder == ROOT else f"{folder}/"


def _normaliser(kind: str, command: Command) -> Callable[[dict[str, Json]], dict[str, Json]]:
    def whole(arguments: dict[str, Json]) -> dict[str, Json]:
        """Return the values, the folder, and the words that follow from them."""
        given = {name: normalise(value, f"arguments.{name}") for name, value in arguments.items()}
        values = checked(command, given, kind)
        folder = given.get(FOLDER, ROOT)
        if folder != ROOT:
            canonical_path(folder, f"arguments.{FOLDER}")
        argv = words_of(command, values)
        if given.get(ARGV, argv) != argv:
            raise ContractError(
                f"arguments.{ARGV} is not what {kind} stands for",
                move="leave it out; if the command was changed since, propose it again",
            )
        return {**values, FOLDER: folder, ARGV: argv}

    return whole
