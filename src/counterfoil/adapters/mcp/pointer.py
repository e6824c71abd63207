"""What structured content says of what was looked for."""

from typing import cast

from counterfoil.adapters.mcp.declare import When
from counterfoil.core.words import Json
from counterfoil.pointers import at, parts


def is_empty_at(document: Json, pointer: str, *, is_missing_empty: bool) -> bool:
    """Return whether a document says that a place is empty, and does not merely lack it.

    Args:
        document: Structured content.
        pointer: The place.
        is_missing_empty: Whether an object without such a member says so too.
    """
    around, _, _ = pointer.rpartition("/")
    container = at(document, around)
    if not pointer or not isinstance(container, dict | list):
        return False
    if isinstance(container, list):
        return not container
    name = parts(pointer)[-1]
    members = cast("dict[str, Json]", container)  # a JSON object
    return members.get(name, None if is_missing_empty else pointer) is None


def fits(when: When, document: Json) -> bool:
    """Return whether structured content is the one that is meant."""
    found = at(document, when.at)
    if when.equals is None:
        return found is not None
    return isinstance(found, bool) == isinstance(when.equals, bool) and found == when.equals
