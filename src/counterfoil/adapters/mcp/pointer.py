"""Places in structured content by RFC 6901, and what stands there."""

import re
from datetime import datetime
from typing import cast

from counterfoil.adapters.mcp.declare import When
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
        raise ConfigError(f"{field} {pointer!r:.80} is no JSON Pointer, such as /tickets/0/id")


def at(document: Json, pointer: str) -> Json:
    """Return what stands at a pointer, or None where it leads nowhere."""
    for part in pointer.split("/")[1:]:
        name = _name(part)
        if isinstance(document, dict):
            members = cast("dict[str, Json]", document)  # a JSON object
            document = members.get(name)
        elif isinstance(document, list) and _INDEX.fullmatch(name):
            items = cast("list[Json]", document)  # a JSON array
            document = items[int(name)] if int(name) < len(items) else None
        else:
            return None
    return document


def is_empty_at(document: Json, pointer: str, *, is_missing_empty: bool) -> bool:
    """Return whether a document says that a place is empty, and does not merely lack it.

    Args:
        document: Structured content.
        pointer: The place.
        is_missing_empty: Whether an object without such a member says so too.
    """
    around, _, part = pointer.rpartition("/")
    container = at(document, around)
    if not pointer or not isinstance(container, dict | list):
        return False
    if isinstance(container, list):
        return not container
    members = cast("dict[str, Json]", container)  # a JSON object
    return members.get(_name(part), None if is_missing_empty else part) is None


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


def fits(when: When, document: Json) -> bool:
    """Return whether structured content is the one that is meant."""
    found = at(document, when.at)
    if when.equals is None:
        return found is not None
    return isinstance(found, bool) == isinstance(when.equals, bool) and found == when.equals


def _name(part: str) -> str:
    """Return the name of a member, as a part of a pointer spells it."""
    return part.replace("~1", "/").replace("~0", "~")
