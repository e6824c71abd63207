"""Secrets by reference: read right before a connection, and hidden in what comes back."""

import os
from collections.abc import Mapping
from typing import cast

from counterfoil.adapters.mcp.declare import Text, Variable
from counterfoil.core.errors import UnavailableError
from counterfoil.core.words import Json

SECRET_CHARS_MIN = 8
"""Shorter ones are guessed, and hiding them would garble honest answers."""

SECRET_CHARS_MAX = 8 * 1024
"""A long token with its claims."""

HIDDEN = "[hidden]"
"""What stands in an answer where a secret stood."""


def resolved(given: Mapping[str, Text] | None) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return texts with their secrets read, and what must not be shown.

    Raises:
        UnavailableError: A variable is not set, or holds no secret; nothing was sent.
    """
    texts: dict[str, str] = {}
    hidden: list[str] = []
    for name, text in (given or {}).items():
        if isinstance(text, Variable):
            secret = _read(text.name)
            texts[name] = text.form.replace("{}", secret)
            hidden += [texts[name], secret]
        else:
            texts[name] = text
    return texts, tuple(hidden)


def without(document: Json, hidden: tuple[str, ...]) -> Json:
    """Return a value in which no secret stands; as deep as a message can be."""
    if not hidden:
        return document
    if isinstance(document, str):
        for secret in hidden:
            document = document.replace(secret, HIDDEN)
        return document
    if isinstance(document, list):
        items = cast("list[Json]", document)  # a JSON array
        return [without(item, hidden) for item in items]
    if isinstance(document, dict):
        members = cast("dict[str, Json]", document)  # a JSON object
        return {without(name, hidden): without(item, hidden) for name, item in members.items()}
    return document


def _read(name: str) -> str:
    text = os.environ.get(name, "").rstrip("\r\n")
    is_sound = text.isascii() and text.isprintable() and text == text.strip()
    if not is_sound or not SECRET_CHARS_MIN <= len(text) <= SECRET_CHARS_MAX:
        raise UnavailableError(
            f"the environment variable {name} holds no secret of {SECRET_CHARS_MIN} to "
            f"{SECRET_CHARS_MAX} printable characters of ASCII"
        )
    return text
