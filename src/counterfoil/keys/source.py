"""Where a process finds its keys, named in a setting: a file, a variable, a command.

A setting names the place of a key and never is the key: settings are committed, shown
in listings of running programs, and kept in the history of shells.
"""

import base64
import binascii
import os
import re
import selectors
import shlex
import signal
import subprocess
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from time import monotonic

from counterfoil.core.errors import ConfigError, UnavailableError
from counterfoil.keys.keyfile import load_keyring
from counterfoil.keys.keyring import Keyring, KeyStatus, RootKey, clean, made

COMMAND_MS_MAX = 30_000
"""Time for a key command: it may ask a vault, and must not hang a start."""

OUTPUT_BYTES_MAX = 16 * 1024
"""Output of a key command, and a variable: more keys than a ring can hold."""

_FORM = "64 hexadecimal or 44 base64 characters, several with commas between, the first signs"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HEX = re.compile(r"[0-9A-Fa-f]+")
_LITERAL = re.compile(r"(?<![\w+/-])(?:[0-9A-Fa-f]{64}|[0-9A-Za-z+/_-]{43}=)(?![\w+/=-])")


class SourceKind(StrEnum):
    """The three kinds of places that keys come from."""

    FILE = "file"
    ENV = "env"
    COMMAND = "command"


@dataclass(frozen=True, kw_only=True, slots=True)
class KeySource:
    """The place of keys.

    Attributes:
        kind: One of three.
        place: Path, name of an environment variable, or command line. It is not shown:
            the arguments of a command may open a vault.
    """

    kind: SourceKind
    place: str = field(repr=False)

    @property
    def title(self) -> str:
        """The place as messages name it."""
        match self.kind:
            case SourceKind.FILE:
                return f"key file {self.place}"
            case SourceKind.ENV:
                return f"environment variable {self.place}"
            case SourceKind.COMMAND:
                return f"key command {shlex.split(self.place)[0]}"


@clean
def parse_source(text: str) -> KeySource:
    """Return the source that a setting names.

    Args:
        text: "file:PATH", "env:NAME" or "command:ARGV", which no shell reads.

    Raises:
        ConfigError: It is a key itself, or names no source. The text is not repeated.
    """
    scheme, colon, place = text.partition(":")
    if _holds_literal(text if not colon else place, scheme):
        raise ConfigError(
            "a key itself stands where the place of a key belongs",
            move="name its place as file:PATH, env:NAME or command:ARGV, and take another key, "
            "since settings and the history of a shell may hold this one",
        )
    problem = _problem(scheme, place)
    if not colon or problem:
        raise ConfigError(
            f"the key source {problem or 'names no place'}",
            move="write file:PATH, env:NAME or command:ARGV",
        )
    return KeySource(kind=SourceKind(scheme), place=place)


@clean
def open_source(source: KeySource, *, command_ms: int = COMMAND_MS_MAX) -> Keyring:
    """Return the keys found at a source.

    Args:
        source: As `parse_source` returns it.
        command_ms: Longest that a key command may take.

    Raises:
        ConfigError: There is nothing there, it is no key, or a file is open to others.
        UnavailableError: A command took too long, or a file cannot be read just then.
    """
    match source.kind:
        case SourceKind.FILE:
            return load_keyring(Path(source.place).expanduser())
        case SourceKind.ENV:
            text = os.environ.get(source.place)
            if text is None:
                raise ConfigError(f"{source.title} is not set")
            return made(_roots(text, source.title), source.title)
        case SourceKind.COMMAND:
            text = _output(source, command_ms / 1000)
            return made(_roots(text, source.title), source.title)


def _holds_literal(place: str, scheme: str) -> bool:
    """Return whether a key stands in `place`; a path may well end in a digest."""
    if scheme == SourceKind.COMMAND:
        return _LITERAL.search(place) is not None
    return _LITERAL.fullmatch(place.strip()) is not None


def _problem(scheme: str, place: str) -> str:
    """Return what is wrong with a source, without its text, or an empty string."""
    if scheme not in tuple(SourceKind):
        return "is of no known kind"
    if not place or "\0" in place:
        return "names no place"
    if scheme == SourceKind.ENV and not _NAME.fullmatch(place):
        return "is no name of an environment variable"
    if scheme == SourceKind.COMMAND:
        try:
            return "" if shlex.split(place) else "names no command"
        except ValueError:
            return "has a quote that is not closed"
    return ""


def _roots(text: str, title: str) -> list[RootKey]:
    if len(text) > OUTPUT_BYTES_MAX:
        raise ConfigError(f"{title} has {len(text)} characters, the bound is {OUTPUT_BYTES_MAX}")
    secrets = [_secret(word.strip(), title) for word in text.split(",")]
    return [
        RootKey(secret=secret, status=KeyStatus.OPENING if place else KeyStatus.ACTIVE)
        for place, secret in enumerate(secrets)
    ]


def _secret(word: str, title: str) -> bytes:
    """Decode one key; hexadecimal digits are tried first, since most are base64 too."""
    try:
        if _HEX.fullmatch(word) and len(word) % 2 == 0:
            return bytes.fromhex(word)
        return base64.b64decode(word, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ConfigError(f"{title} holds something that is no key: {_FORM}") from error


def _output(source: KeySource, seconds: float) -> str:
    """Run a key command and return what it says; what it complains of may hold the key."""
    deadline = monotonic() + seconds
    try:
        child = subprocess.Popen(
            shlex.split(source.place),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        raise ConfigError(f"{source.title} cannot be started: {error.strerror}") from error
    try:
        raw = _read(child, source.title, deadline)
        status = child.wait(timeout=max(0.0, deadline - monotonic()))
    except subprocess.TimeoutExpired as error:
        raise UnavailableError(f"{source.title} did not end in time") from error
    finally:
        if child.returncode is None:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        if child.stdout is not None:
            child.stdout.close()
    if status != 0:
        raise ConfigError(f"{source.title} ended with status {status}")
    try:
        return raw.decode("ascii")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{source.title} holds something that is no key: {_FORM}") from error


def _read(child: subprocess.Popen[bytes], title: str, deadline: float) -> bytes:
    raw = b""
    if child.stdout is None:
        return raw
    with selectors.DefaultSelector() as ready:
        ready.register(child.stdout, selectors.EVENT_READ)
        while len(raw) <= OUTPUT_BYTES_MAX:
            if not ready.select(max(0.0, deadline - monotonic())):
                raise UnavailableError(f"{title} gave no key in time")
            part = os.read(child.stdout.fileno(), OUTPUT_BYTES_MAX)
            if not part:
                return raw
            raw += part
    raise ConfigError(f"{title} says more than {OUTPUT_BYTES_MAX} bytes")
