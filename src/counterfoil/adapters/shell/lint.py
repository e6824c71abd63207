"""Whether a command as it is declared lets a value be code, or choose what runs.

A list of programs and of how they read their words: a lint and no wall. It knows these
programs by their names, and what they document of their options; what any other program
does with a word, only the pattern of the value bounds.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

PLACE = re.compile(r"\{([a-z][a-z0-9_]*)(\.\.\.)?\}")
"""Where a value stands in a word."""

_VERSION = re.compile(r"(?<=[a-z])[-.0-9]+$")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_ENDS_OF_EXEC = (";", "+")


class _First(Enum):
    """What the first operand is, and what follows it."""

    CODE = "code, or the file or subcommand that decides what runs; then its arguments"
    COMMAND = "another program; then its words"
    TEXT = "text that a shell or another interpreter reads, to the last word"
    NOTHING = "data; options may follow it"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Reading:
    """How a program reads its words, as far as these say what runs.

    Attributes:
        first: What the first operand is, unless an option hands over code.
        code: Short options whose argument is code, or names what is run.
        long: Long ones.
        argued: Short options with another argument.
        long_argued: Long ones.
        skipped: Operands before the one that counts as the first.
        is_shell: Whether short options are as with `sh`: -c takes no argument.
        reads_input: Whether it takes its input for code where no word is.
    """

    first: _First = _First.CODE
    code: str = ""
    long: tuple[str, ...] = ()
    argued: str = ""
    long_argued: tuple[str, ...] = ()
    skipped: int = 0
    is_shell: bool = False
    reads_input: bool = False


_SHELL = _Reading(is_shell=True, argued="oO", long_argued=("rcfile", "init-file"), reads_input=True)
_LAUNCHER = _Reading(first=_First.COMMAND)
_WITH_OPTIONS = _Reading(first=_First.NOTHING)
_AWK = _Reading(
    code="feEil", long=("file", "source", "exec", "include", "load"), argued="vF",
    long_argued=("assign", "field-separator"),
)  # fmt: skip
_LUA = _Reading(code="el", reads_input=True)
_MYSQL = _Reading(
    first=_First.NOTHING, code="e", long=("execute", "init-command", "defaults-file"),
    argued="hPuDS", reads_input=True,
)  # fmt: skip
_NODE = _Reading(
    code="epr", long=("eval", "print", "require", "import", "loader", "env-file"), argued="C",
    long_argued=("conditions",), reads_input=True,
)  # fmt: skip
_PYTHON = _Reading(code="cm", argued="WX", long_argued=("check-hash-based-pycs",), reads_input=True)
_SUDO = _Reading(
    first=_First.COMMAND, argued="ugCDhpRrtTU",
    long_argued=("user", "group", "host", "prompt", "chdir", "chroot", "role", "type"),
)  # fmt: skip

PROGRAMS = {
    **dict.fromkeys(
        ("ash", "bash", "csh", "dash", "ksh", "mksh", "rbash", "sh", "tcsh", "zsh"), _SHELL
    ),
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), _AWK),
    **dict.fromkeys(("busybox", "nohup", "setsid"), _LAUNCHER),
    **dict.fromkeys(("bun", "node", "nodejs"), _NODE),
    **dict.fromkeys(("doas", "sudo"), _SUDO),
    **dict.fromkeys(("lua", "luajit"), _LUA),
    **dict.fromkeys(("mariadb", "mysql"), _MYSQL),
    **dict.fromkeys(("pypy", "python"), _PYTHON),
    "chroot": replace(_LAUNCHER, skipped=1),
    "deno": _Reading(skipped=1, reads_input=True),
    "env": replace(
        _LAUNCHER, code="S", long=("split-string",), argued="uC", long_argued=("unset", "chdir")
    ),
    "fish": _Reading(code="cC", long=("command", "init-command"), reads_input=True),
    "flock": replace(
        _LAUNCHER, skipped=1, code="c", long=("command",), argued="wE",
        long_argued=("wait", "timeout", "conflict-exit-code"),
    ),
    "git": _Reading(code="c", long=("exec-path", "config-env"), argued="C"),
    "ionice": replace(_LAUNCHER, argued="cnpPu", long_argued=("class", "classdata")),
    "nice": replace(_LAUNCHER, argued="n", long_argued=("adjustment",)),
    "parallel": _Reading(first=_First.TEXT, argued="jnNLISdaC"),
    "perl": _Reading(code="eEMm", argued="I", reads_input=True),
    "php": _Reading(
        code="rBREfFzdc", long=("run", "file", "define", "process-code"), argued="tS",
        reads_input=True,
    ),
    "psql": _Reading(
        first=_First.NOTHING, code="cf", long=("command", "file"), argued="dhLopPRTUvF",
        reads_input=True,
    ),
    "rsync": replace(
        _WITH_OPTIONS, code="eM", long=("rsh", "rsync-path", "remote-option"), argued="fBT"
    ),
    "ruby": _Reading(code="er", argued="ICE", reads_input=True),
    "scp": replace(_WITH_OPTIONS, code="oFS", argued="cDiJlP"),
    "script": replace(_WITH_OPTIONS, code="c", long=("command",), argued="BEIOTm"),
    "sed": _Reading(code="ef", long=("expression", "file"), argued="l"),
    "sftp": replace(_WITH_OPTIONS, code="oFSbD", argued="BciJlPRsX"),
    "sqlite": _Reading(
        first=_First.TEXT, skipped=1, long=("cmd", "init"), long_argued=("separator", "nullvalue"),
        reads_input=True,
    ),
    "ssh": _Reading(
        first=_First.TEXT, skipped=1, code="oFI", argued="BbcDEeiJLlmOpQRSWw", reads_input=True
    ),
    "stdbuf": replace(_LAUNCHER, argued="ioe", long_argued=("input", "output", "error")),
    "su": replace(_WITH_OPTIONS, code="cs", long=("command", "shell", "session-command")),
    "tar": replace(
        _WITH_OPTIONS, code="IF", argued="fCbTXHgKLNV",
        long=(
            "use-compress-program", "to-command", "checkpoint-action", "rsh-command",
            "rmt-command", "info-script", "new-volume-script",
        ),
    ),
    "time": replace(_LAUNCHER, argued="fo", long_argued=("format", "output")),
    "timeout": replace(
        _LAUNCHER, skipped=1, argued="ks", long_argued=("kill-after", "signal")
    ),
    "watch": _Reading(first=_First.TEXT, argued="n", long_argued=("interval",)),
    "xargs": replace(
        _LAUNCHER, argued="aEdILnPs",
        long_argued=("arg-file", "delimiter", "max-args", "max-procs", "max-chars"),
    ),
}  # fmt: skip
"""Programs that run what their words say, without the version at the end of a name."""

OTHERS = ("find", "powershell", "pwsh")
"""Programs whose words are read by rules of their own."""


class _Next(Enum):
    """What an option says of itself and of the next word."""

    PLAIN = "no more"
    ARGUMENT = "the next word is its argument"
    CODE = "the next word is code"
    GIVEN = "code was given"
    OPEN = "a value stands where code does"


def has_open_code(words: Sequence[str], *, is_fed: bool = False) -> bool:
    """Return whether a value is code for a program of the list, or chooses what runs.

    Args:
        words: Words of one stage, the program first.
        is_fed: Whether its input comes from a stage in which a value stands.
    """
    program = _VERSION.sub("", words[0].rpartition("/")[2])
    if program == "find":
        return _has_open_find(words)
    if program in OTHERS:
        return _has_open_powershell(words, is_fed=is_fed)
    reading = PROGRAMS.get(program)
    return reading is not None and _is_open(reading, words, is_fed=is_fed)


def _is_open(reading: _Reading, words: Sequence[str], *, is_fed: bool) -> bool:
    awaited, is_given, has_ended, skipped = _Next.PLAIN, False, False, reading.skipped
    for number, word in enumerate(words[1:], 1):
        place = PLACE.search(word)
        if awaited is _Next.CODE or awaited is _Next.ARGUMENT:
            if place and (awaited is _Next.CODE or place[2]):
                return True
            is_given = is_given or awaited is _Next.CODE
            awaited = _Next.PLAIN
        elif not has_ended and word.startswith(("-", "+")) and len(word) > 1:
            has_ended = word == "--"
            awaited = _Next.PLAIN if has_ended else _option(reading, word)
            is_given = is_given or awaited is _Next.GIVEN
            if awaited is _Next.OPEN:
                return True
        elif skipped and reading.first is not _First.NOTHING:
            if place and place[2]:
                return True
            skipped -= 1
        elif reading.first is _First.COMMAND and _ASSIGNMENT.match(word):
            continue
        elif reading.first is not _First.NOTHING:
            return not is_given and _is_open_from(reading, words[number:], is_fed=is_fed)
    return is_fed and reading.reads_input and not is_given


def _is_open_from(reading: _Reading, words: Sequence[str], *, is_fed: bool) -> bool:
    """Return whether the first operand, or what follows it, is code with a value."""
    if reading.first is _First.TEXT:
        return any(map(PLACE.search, words))
    if PLACE.search(words[0]):
        return True
    if reading.first is _First.COMMAND:
        return has_open_code(words, is_fed=is_fed)
    return is_fed and reading.reads_input and words[0] in ("-", "/dev/stdin")


def _option(reading: _Reading, word: str) -> _Next:
    place = PLACE.search(word)
    name, equals, _ = word.lstrip("-").partition("=")
    if place and (reading.is_shell or (word.startswith("--") and PLACE.search(name))):
        return _Next.OPEN
    if word.startswith("--") or name in (*reading.long, *reading.long_argued):
        if any(known.startswith(name) for known in reading.long):
            if not equals:
                return _Next.CODE
            return _Next.OPEN if place else _Next.GIVEN
        is_argued = not equals and any(known.startswith(name) for known in reading.long_argued)
        return _Next.ARGUMENT if is_argued else _Next.PLAIN
    if reading.is_shell:
        return _Next.ARGUMENT if set(reading.argued) & set(word) else _Next.PLAIN
    return _cluster(reading, word[1:])


def _cluster(reading: _Reading, letters: str) -> _Next:
    """Judge short options in one word; what may be read in two ways counts as the worse."""
    has_code = False
    for number, letter in enumerate(letters, 1):
        if letter == "{" and PLACE.search(letters):
            return _Next.OPEN
        if letter in reading.argued and not has_code:
            return _Next.PLAIN if letters[number:] else _Next.ARGUMENT
        has_code = has_code or letter in reading.code
    if letters[-1] in reading.code:
        return _Next.CODE
    return _Next.GIVEN if has_code else _Next.PLAIN


def _has_open_find(words: Sequence[str]) -> bool:
    for number, word in enumerate(words):
        if word.startswith("-") and PLACE.search(word):
            return True
        if word in ("-exec", "-execdir", "-ok", "-okdir"):
            run = list(words[number + 1 :])
            for end in _ENDS_OF_EXEC:
                run = run[: run.index(end)] if end in run else run
            if run and (PLACE.search(run[0]) or has_open_code(run)):
                return True
    return False


def _has_open_powershell(words: Sequence[str], *, is_fed: bool) -> bool:
    """Return whether a value stands anywhere but behind -File and the name of a file."""
    for number, word in enumerate(words[1:], 1):
        name = word.lstrip("-").lower()
        if PLACE.search(word):
            return True
        if word.startswith("-") and name and "file".startswith(name):
            return any(map(PLACE.search, words[number + 1 : number + 2]))
    return is_fed
