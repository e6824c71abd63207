"""Secrets by reference: read right before a call, and gone after it.

No value is kept, shown or put into an error. What a service echoes is hidden.
"""

import os
import signal
import subprocess
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from threading import Timer
from typing import cast

from counterfoil.core.errors import UnavailableError
from counterfoil.core.words import Json

SECRET_CHARS_MIN = 8
"""Shorter ones are guessed, and hiding them would garble honest answers."""

SECRET_BYTES_MAX = 8 * 1024
"""A long token with its claims; servers take about as much in one header."""

HIDDEN = "[hidden]"
"""What stands in an answer where a secret stood; plain in JSON and in text."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Secret:
    """Where a header's value is read from; give one of the two.

    Attributes:
        environment: Name of an environment variable.
        command: A command and its arguments, started without a shell; the first line
            that it prints.
        form: What the header holds, "{}" standing for the secret: "Bearer {}".
    """

    environment: str = ""
    command: tuple[str, ...] = ()
    form: str = "{}"


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class Headers:
    """Headers of one request, and the secrets in them.

    Attributes:
        pairs: Names and values, as they are sent.
        hidden: What must not be shown.
    """

    pairs: tuple[tuple[str, str], ...]
    hidden: tuple[str, ...] = ()


def resolved(given: Iterable[Mapping[str, str | Secret] | None], seconds: float) -> Headers:
    """Return headers with their secrets read; a later mapping wins.

    Args:
        given: Headers of the service, then those of the request.
        seconds: Longest that one command may take.

    Raises:
        UnavailableError: A secret cannot be read; nothing was sent.
    """
    values: dict[str, tuple[str, str | Secret]] = {}
    for mapping in given:
        values |= {name.lower(): (name, value) for name, value in (mapping or {}).items()}
    pairs: list[tuple[str, str]] = []
    hidden: list[str] = []
    for name, value in values.values():
        if isinstance(value, Secret):
            secret = _read(value, seconds)
            shown = value.form.replace("{}", secret)
            hidden += [shown, secret]
            pairs.append((name, shown))
        else:
            pairs.append((name, value))
    return Headers(pairs=tuple(pairs), hidden=tuple(hidden))


def without(body: bytes, hidden: tuple[str, ...]) -> bytes:
    """Return a body in which no secret stands as it is."""
    for secret in hidden:
        body = body.replace(secret.encode("ascii"), HIDDEN.encode("ascii"))
    return body


def veiled(value: Json, hidden: tuple[str, ...]) -> Json:
    """Return a JSON value in whose texts no secret stands, however JSON spelled it."""
    match value:
        case str():
            for secret in hidden:
                value = value.replace(secret, HIDDEN)
            return value
        case list():
            items = cast("list[Json]", value)  # a JSON array
            return [veiled(item, hidden) for item in items]
        case dict():
            members = cast("dict[str, Json]", value)  # a JSON object
            return {veiled(name, hidden): veiled(item, hidden) for name, item in members.items()}
        case _:
            return value


def _read(secret: Secret, seconds: float) -> str:
    if secret.environment:
        where = f"the environment variable {secret.environment}"
        text = os.environ.get(secret.environment, "")
    else:
        where = f"the command {secret.command[0]}"
        text = _said(secret.command, seconds).decode("utf-8", "replace").partition("\n")[0]
    text = text.rstrip("\r\n")
    is_sound = text.isascii() and text.isprintable() and text == text.strip()
    if not is_sound or not SECRET_CHARS_MIN <= len(text) <= SECRET_BYTES_MAX:
        raise UnavailableError(
            f"{where} holds no secret of {SECRET_CHARS_MIN} to {SECRET_BYTES_MAX} printable "
            "characters of ASCII"
        )
    return text


def _said(command: tuple[str, ...], seconds: float) -> bytes:
    """Return what a command printed, of which one byte more than allowed is read."""
    try:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        raise UnavailableError(f"the command {command[0]} cannot be started") from error
    watch = Timer(max(0.0, seconds), _end, (child,))
    watch.daemon = True
    watch.start()
    try:
        with child:
            out = child.stdout.read(SECRET_BYTES_MAX + 1) if child.stdout else b""
            if len(out) > SECRET_BYTES_MAX:
                _end(child)
    finally:
        watch.cancel()
    if child.returncode != 0:
        raise UnavailableError(f"the command {command[0]} ended with {child.returncode}")
    return out


def _end(child: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
