"""Places in JSON by RFC 6901, and what stands there."""

import re
from datetime import datetime
from typing import cast

from counterfoil.core.bounds import INTEGER_MAX
from counterfoil.core.errors import ConfigError
from counterfoil.core.words import Json

SECONDS_BELOW = 100_000_000_000
"""Smaller numbers count seconds since 1970, others milliseconds: as milliseconds it is
March 1973, as seconds the year 5138."""

_POINTER = re.compile(r"(?:/(?:[^~/]|~[01])*)*")
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")


def check_pointer(pointer: str, field: str) -> None:
    """Refuse text that is no JSON Pointer.

    Raises:
        ConfigError: It is none.
    """
    if not _POINTER.fullmatch(pointer):
        raise ConfigError(f"{field} {pointer!r:.80} is no JSON Pointer, such as /data/0/id")


def at(document: Json, pointer: str) -> Json:
    """Return what stands at a pointer, or None where it leads nowhere."""
    for part in parts(pointer):
        if isinstance(document, dict):
            members = cast("dict[str, Json]", document)  # a JSON object
            document = members.get(part)
        elif isinstance(document, list) and _INDEX.fullmatch(part):
            items = cast("list[Json]", document)  # a JSON array
            document = items[int(part)] if int(part) < len(items) else None
        else:
            return None
    return document


def text_at(document: Json, pointer: str) -> str:
    """Return a name that stands at a pointer: text or a whole number, or empty."""
    found = at(document, pointer) if pointer else None
    is_number = isinstance(found, int) and not isinstance(found, bool)
    return str(found) if isinstance(found, str) or is_number else ""


def moment_at(document: Json, pointer: str) -> int:
    """Return the moment at a pointer, in milliseconds since 1970, or 0 when unknown."""
    found = at(document, pointer) if pointer else None
    if isinstance(found, str):
        try:
            moment = datetime.fromisoformat(found)
        except ValueError:
            return 0
        return int(moment.timestamp() * 1000) if moment.tzinfo is not None else 0
    if isinstance(found, bool) or not isinstance(found, int | float):
        return 0
    milliseconds = found * 1000 if found < SECONDS_BELOW else found
    return int(milliseconds) if 0 < milliseconds <= INTEGER_MAX else 0


def parts(pointer: str) -> list[str]:
    """Return the names of members and the numbers of items that a pointer goes through."""
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]
