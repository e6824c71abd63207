"""Where a key goes into the body of a request."""

from typing import cast

from counterfoil.core.words import Json
from counterfoil.pointers import parts


def put(document: Json, pointer: str, value: str) -> Json:
    """Return a copy of an object with a value at a pointer, objects made on the way.

    The caller has checked that nothing stands there, and that only objects are passed.
    """
    first, *rest = parts(pointer)
    members = dict(cast("dict[str, Json]", document or {}))  # a JSON object, or none yet
    inner = "".join(f"/{_escaped(part)}" for part in rest)
    members[first] = put(members.get(first), inner, value) if rest else value
    return members


def can_put(document: Json, pointer: str) -> bool:
    """Return whether `put` changes nothing that is there."""
    for part in parts(pointer):
        if document is None:
            return True
        if not isinstance(document, dict):
            return False
        document = cast("dict[str, Json]", document).get(part)  # a JSON object
    return document is None


def _escaped(part: str) -> str:
    return part.replace("~", "~0").replace("/", "~1")
