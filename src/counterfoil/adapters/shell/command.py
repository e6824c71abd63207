"""Commands that an operator allows: their words, and what values may stand in them.

A value is one word, or part of one, and never read by a shell: it goes to the program as
it is. What a program itself makes of a word is the operator's to know, so each value
must match a pattern as a whole, and may not look like an option where it could be one.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

from counterfoil.adapters.shell.kernel import KILL_MS
from counterfoil.adapters.shell.lint import PLACE, has_open_code
from counterfoil.core.bounds import INTEGER_MAX
from counterfoil.core.errors import ConfigError, ContractError
from counterfoil.core.words import Json, Risk, identifier

STAGES_MAX = 16
"""Programs of one pipeline."""

WORDS_MAX = 1_000
"""Words of one stage, and values of one list."""

VALUE_BYTES_MAX = 64 * 1024
"""One value: the kernel takes half as much again in one word, four times what is usual."""

PATH = "/usr/local/bin:/usr/bin:/bin"
"""Where programs are looked for, and what commands get unless they say otherwise."""

RESERVED = ("argv", "folder")
"""Names of arguments that are the adapter's own."""

_NAME = re.compile(r"[a-z][a-z0-9_-]*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OPTION_END = "--"


@dataclass(frozen=True, kw_only=True, slots=True)
class Command:
    """A command that runs may give, as the kind `shell.NAME`.

    Attributes:
        name: Lower-case letters, digits, "_" and "-".
        stages: Programs joined by pipes, each as its words. The first word is the
            program, a path or a name to be found on `PATH`. `{name}` in another word
            stands for a value; a word `{name...}` for a list of values, each one word.
        patterns: For each value, a regular expression that it must match as a whole;
            its classes of characters mean ASCII.
        risk: What it may do; reads and verifications take no key.
        is_repeatable: Whether running it twice is as good as once, even if the first
            time was cut short. Otherwise a start whose end is unknown goes to a person.
        takes_script: Whether a value may be code for a shell or another interpreter, or
            choose what a program of the list in `lint` runs.
        accepted: Exit codes that count as success.
        timeout_ms: How long it may run, before it and all that it started is stopped.
        grace_ms: Time between the request to end and SIGKILL.
        wait_ms: How long a call waits for its end; one that runs longer is asked for
            again by key. Reads and verifications are always waited for.
        output_bytes_max: How much is kept of its output, and of its errors.
        environment: All its variables besides PATH and LANG; never shown or recorded.
        umask: Permissions that it takes from the files it makes.
        cost_micros: Declared cost of one execution.
    """

    name: str
    stages: tuple[tuple[str, ...], ...]
    patterns: Mapping[str, str] = field(default_factory=dict[str, str])
    risk: Risk = Risk.IRREVERSIBLE_WRITE
    is_repeatable: bool = False
    takes_script: bool = False
    accepted: tuple[int, ...] = (0,)
    timeout_ms: int = 10_000
    grace_ms: int = 2_000
    wait_ms: int = 15_000
    output_bytes_max: int = 1024 * 1024
    environment: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    umask: int = 0o077
    cost_micros: int = 0


def patience_ms(command: Command) -> int:
    """Return how long a call waits for the end of a command, in milliseconds."""
    if command.risk.writes:
        return command.wait_ms
    return command.timeout_ms + command.grace_ms + KILL_MS


def check_command(command: Command) -> None:
    """Refuse a command that could not be run, or would let more through than it says.

    Raises:
        ConfigError: Names the command and what is wrong with it.
    """
    if not _NAME.fullmatch(command.name):
        raise ConfigError(f"command {command.name!r:.80} is no name for a command")
    identifier(command.name, "the name of a command")
    _check_limits(command)
    if not 1 <= len(command.stages) <= STAGES_MAX:
        raise _wrong(command, f"has {len(command.stages)} stages, not 1 to {STAGES_MAX}")
    used: dict[str, bool] = {}
    for words in command.stages:
        _check_stage(command, words, is_fed=bool(used))
        for word in words:
            for name, dots in PLACE.findall(word):
                if used.setdefault(name, bool(dots)) != bool(dots):
                    raise _wrong(command, f"has {name} both as a value and as a list")
                if dots and PLACE.fullmatch(word) is None:
                    raise _wrong(command, f"has the list {name} inside another word")
    for name in sorted(set(used) ^ set(command.patterns)):
        raise _wrong(command, f"has a value or a pattern {name} without the other")
    for name, pattern in command.patterns.items():
        if name in RESERVED:
            raise _wrong(command, f"has a value {name}, which is the adapter's own")
        try:
            re.compile(pattern, re.ASCII)
        except re.error as error:
            raise _wrong(command, f"has a pattern of {name} that is none: {error}") from error


def _check_limits(command: Command) -> None:
    if command.risk is Risk.CONTROL:
        raise _wrong(command, "has a risk that is the runtime's own")
    bounds = {
        "timeout_ms": (command.timeout_ms, 1, INTEGER_MAX),
        "grace_ms": (command.grace_ms, 0, INTEGER_MAX),
        "wait_ms": (command.wait_ms, 0, INTEGER_MAX),
        "output_bytes_max": (command.output_bytes_max, 0, INTEGER_MAX),
        "umask": (command.umask, 0, 0o777),
    }
    for name, (value, least, most) in bounds.items():
        if not least <= value <= most:
            raise _wrong(command, f"has {name} {value}, not {least} to {most}")
    for code in command.accepted:
        if not 0 <= code <= 255:
            raise _wrong(command, f"accepts the exit code {code}, not 0 to 255")
    for variable, text in command.environment.items():
        if not _VARIABLE.fullmatch(variable) or "\0" in text:
            raise _wrong(command, f"has a variable {variable!r:.80} that cannot be passed on")


def _check_stage(command: Command, words: tuple[str, ...], *, is_fed: bool) -> None:
    if not words or not words[0] or len(words) > WORDS_MAX:
        raise _wrong(command, f"has a stage of no program, or of more than {WORDS_MAX} words")
    if any("\0" in word for word in words):
        raise _wrong(command, "has a NUL in a word")
    if PLACE.search(words[0]):
        raise _wrong(command, "lets a value choose the program")
    if not command.takes_script and has_open_code(words, is_fed=is_fed):
        raise _wrong(
            command,
            "lets a value be code, or choose what runs",
            move='pass it as "$1" behind the code, or allow it with takes_script',
        )


def _wrong(command: Command, what: str, move: str = "") -> ConfigError:
    return ConfigError(f"command {command.name} {what}", move=move)


def checked(command: Command, arguments: Mapping[str, Json], kind: str) -> dict[str, Json]:
    """Return the values among the arguments of an action.

    Raises:
        ContractError: One is missing, unknown, too long, does not match its pattern, or
            looks like an option where it could be one.
    """
    for name in arguments:
        if name not in command.patterns and name not in RESERVED:
            raise ContractError(f"{kind} takes no argument {name!r:.80}")
    lists = {name for words in command.stages for word in words for name in _lists(word)}
    values: dict[str, Json] = {}
    for name, pattern in command.patterns.items():
        if name not in arguments:
            raise ContractError(f"{kind} lacks its argument {name}")
        value, where = arguments[name], f"arguments.{name}"
        if name not in lists:
            _check_value(value, pattern, where)
        else:
            _check_list(value, pattern, where)
        values[name] = value
    return values


def _lists(word: str) -> list[str]:
    return [name for name, dots in PLACE.findall(word) if dots]


def _check_list(value: Json, pattern: str, where: str) -> None:
    if not isinstance(value, list) or len(cast("list[Json]", value)) > WORDS_MAX:  # a JSON list
        raise ContractError(f"{where} is no list of at most {WORDS_MAX} values")
    for item in cast("list[Json]", value):  # narrowed only as far as list[Unknown]
        _check_value(item, pattern, where)


def _check_value(value: Json, pattern: str, where: str) -> None:
    if not isinstance(value, str):
        raise ContractError(f"{where} must be text, not {type(value).__name__}")
    if len(value.encode()) > VALUE_BYTES_MAX:
        raise ContractError(f"{where} is longer than {VALUE_BYTES_MAX} bytes")
    if "\0" in value:
        raise ContractError(f"{where} holds a NUL")
    if re.fullmatch(pattern, value, re.ASCII) is None:
        raise ContractError(f"{where} does not match its pattern {pattern!r:.120}")


def words_of(command: Command, values: Mapping[str, Json]) -> list[list[str]]:
    """Return the words of each stage with the values in their places.

    Raises:
        ContractError: A value looks like an option where it could be one.
    """
    return [_stage(words, values) for words in command.stages]


def _stage(words: tuple[str, ...], values: Mapping[str, Json]) -> list[str]:
    built: list[str] = []
    for word in words:
        whole = PLACE.fullmatch(word)
        if whole and whole[2]:
            added = list(values[whole[1]])
        else:
            added = [PLACE.sub(lambda place: str(values[place[1]]), word)]
        starts_open = word.startswith("{") and PLACE.match(word) is not None
        if starts_open and _OPTION_END not in words[: words.index(word)]:
            for value in added:
                if value.startswith("-"):
                    raise ContractError(
                        f"the value {value!r:.80} looks like an option",
                        move="have the operator put it behind the word `--`",
                    )
        built += added
    if len(built) > 2 * WORDS_MAX:
        raise ContractError(f"the command has more than {2 * WORDS_MAX} words")
    return built
