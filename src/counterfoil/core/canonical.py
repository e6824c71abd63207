"""One byte string per value: normal forms, strict decoding, digests.

Two spellings of one value must get one digest, and two values never the same one.
Values that identify something (arguments) are normalised and refused when they cannot
be; values that report something (results) are kept without loss instead, since their
effect has already happened.

Source: RFC 8785 (JSON canonicalization scheme), through `rfc8785`.
"""

import base64
import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha256
from typing import TypeVar, cast

import msgspec
import rfc8785

from counterfoil.core.bounds import INTEGER_MAX, JSON_DEPTH_MAX
from counterfoil.core.errors import ContractError, FormatError
from counterfoil.core.words import Digest, Json

MARK = "$counterfoil"
"""Member that marks a value which JSON cannot hold as it is."""

_T = TypeVar("_T")
_encoder = msgspec.json.Encoder()


def digest(content: bytes) -> Digest:
    """Return the SHA-256 of `content` as 64 hexadecimal digits."""
    return Digest(sha256(content).hexdigest())


def canonical(value: Json) -> bytes:
    """Return the RFC 8785 bytes of a normalised value."""
    return rfc8785.dumps(value)


def normalise(value: object, field: str) -> Json:
    """Return the one JSON value that stands for `value` in a digest.

    Whole floats become integers, tuples become lists, aware datetimes become UTC text,
    bytes become a marked object. Text is kept as it is: two Unicode forms are two texts.

    Args:
        value: None, bool, int, float, text, bytes, aware datetime, list, tuple or mapping.
        field: Where the value came in, for the message.

    Raises:
        ContractError: A number is not finite or beyond ±(2^53 - 1), text holds half a
            character, a datetime is naive, a member name is no text, nesting is deeper
            than `JSON_DEPTH_MAX`, or a type has no JSON form.
    """
    return _normalise(value, field, JSON_DEPTH_MAX)


def _normalise(value: object, field: str, depth_left: int) -> Json:
    match value:
        case None | bool():
            return value
        case str():
            return _text(value, field)
        case int():
            return _integer(int(value), field)
        case float():
            return _float(value, field)
        case bytes():
            return {MARK: "bytes", "base64": base64.b64encode(value).decode("ascii")}
        case datetime():
            return _instant(value, field)
        case list() | tuple() | dict() | Mapping():
            if depth_left == 0:
                raise ContractError(f"{field} is nested deeper than {JSON_DEPTH_MAX}")
            if isinstance(value, list | tuple):
                items = cast("list[object]", value)  # narrowed only as far as list[Unknown]
                return [_normalise(item, field, depth_left - 1) for item in items]
            return _object(cast("Mapping[object, object]", value), field, depth_left - 1)
        case _:
            raise ContractError(f"{field} holds a {type(value).__name__}, which has no JSON form")


def _object(value: Mapping[object, object], field: str, depth_left: int) -> Json:
    members: dict[str, Json] = {}
    for name, item in value.items():
        if not isinstance(name, str):
            raise ContractError(f"{field} has a member name that is no text: {name!r:.40}")
        members[_text(name, field)] = _normalise(item, field, depth_left)
    if MARK in members:
        _unmark_bytes(members, field)
    return members


def _text(value: str, field: str) -> str:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ContractError(f"{field} holds half a character (a lone surrogate)") from error
    return value


def _integer(value: int, field: str) -> int:
    if abs(value) > INTEGER_MAX:
        raise ContractError(f"{field} holds an integer beyond ±(2^53 - 1)")
    return value


def _float(value: float, field: str) -> Json:
    if not math.isfinite(value):
        raise ContractError(f"{field} holds {value}, which is not a finite number")
    return _integer(int(value), field) if value.is_integer() else value


def _instant(value: datetime, field: str) -> str:
    if value.tzinfo is None:
        raise ContractError(f"{field} holds a datetime without a time zone")
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _unmark_bytes(value: Mapping[str, Json], field: str) -> bytes:
    encoded = value.get("base64")
    if set(value) != {MARK, "base64"} or value[MARK] != "bytes" or not isinstance(encoded, str):
        raise ContractError(f"{field} uses the reserved member {MARK}")
    try:
        return base64.b64decode(encoded, validate=True)
    except ValueError as error:
        raise ContractError(f"{field} holds bytes that are not base64") from error


def native(value: Json) -> Json:
    """Return a normalised value as a program wants it: marked bytes become bytes."""
    if isinstance(value, list):
        items: list[Json] = value
        return [native(item) for item in items]
    if isinstance(value, dict):
        members: dict[str, Json] = value
        if MARK in members:
            return _unmark_bytes(members, "value")
        return {name: native(item) for name, item in members.items()}
    return value


def strict_json(text: str | bytes, field: str, *, bytes_max: int) -> Json:
    """Decode JSON that comes from outside, and refuse what two readers may read apart.

    Raises:
        ContractError: Too long, not UTF-8, a byte order mark, a member twice, NaN or an
            infinity, trailing text, nested too deep, or no JSON at all.
    """
    raw = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    if len(raw) > bytes_max:
        raise ContractError(f"{field} has {len(raw)} bytes, the bound is {bytes_max}")
    try:
        decoded = json.loads(
            raw.decode("utf-8"),
            object_pairs_hook=_unique_members,
            parse_constant=_no_constant,
        )
    except RecursionError as error:
        raise ContractError(f"{field} is nested deeper than {JSON_DEPTH_MAX}") from error
    except ContractError as error:
        raise ContractError(f"{field}: {error.message}") from error
    except ValueError as error:
        raise ContractError(f"{field} is not strict JSON: {type(error).__name__}") from error
    return normalise(decoded, field)


def _unique_members(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ContractError("a member is named twice")
    return members


def _no_constant(name: str) -> Json:
    raise ContractError(f"{name} is no JSON number")


def encode(value: object) -> bytes:
    """Return the one JSON form of a value of ours; structs keep their field order."""
    return _encoder.encode(value)


def decode(raw: bytes, shape: type[_T], what: str, *, bytes_max: int) -> _T:
    """Decode bytes that `encode` wrote, and nothing else.

    Encoding the value again must give the same bytes. That one rule refuses members
    named twice, unknown members, other spellings of numbers, white space and marks.

    Raises:
        FormatError: The bytes are too many, are no such value, or are not its one form.
    """
    if len(raw) > bytes_max:
        raise FormatError(f"{what} has {len(raw)} bytes, the bound is {bytes_max}")
    try:
        value = msgspec.json.decode(raw, type=shape, strict=True)
        if _encoder.encode(value) == raw:
            return value
    except RecursionError as error:
        raise FormatError(f"{what} is nested deeper than {JSON_DEPTH_MAX}") from error
    except (msgspec.MsgspecError, UnicodeError, ValueError) as error:
        raise FormatError(f"{what} cannot be read: {_reason(error)}") from error
    raise FormatError(f"{what} is not in its one form")


def shaped(value: Json, shape: type[_T], field: str) -> _T:
    """Convert a strictly decoded JSON value to `shape`; unknown members are refused.

    Raises:
        ContractError: A member is missing, unknown or of another type.
    """
    try:
        return msgspec.convert(value, shape, strict=True)
    except msgspec.ValidationError as error:
        raise ContractError(f"{field}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    """Return the driver's words without the value that it may quote."""
    return str(error).splitlines()[0][:200].encode("ascii", "backslashreplace").decode("ascii")


def storable(value: object) -> Json:
    """Return a JSON value from which `restored` gives `value` back without loss.

    For results: their effect has happened, so nothing here is refused but types and
    depths without any form, which are kept as marked text of their type.
    """
    return _storable(value, JSON_DEPTH_MAX)


def _storable(value: object, depth_left: int) -> Json:
    match value:
        case None | bool():
            return value
        case str():
            return value if _is_utf8(value) else _marked("text", value)
        case int():
            exact = abs(value) <= INTEGER_MAX
            return int(value) if exact else {MARK: "integer", "text": str(value)}
        case float():
            fits = math.isfinite(value) and abs(value) <= INTEGER_MAX
            return value if fits else {MARK: "float", "text": repr(value)}
        case bytes():
            return {MARK: "bytes", "base64": base64.b64encode(value).decode("ascii")}
        case list() | tuple() if depth_left:
            items = cast("list[object]", value)  # narrowed only as far as list[Unknown]
            return [_storable(item, depth_left - 1) for item in items]
        case dict() | Mapping() if depth_left:
            return _storable_object(cast("Mapping[object, object]", value), depth_left - 1)
        case datetime():
            return value.isoformat()
        case _:
            return {MARK: "unknown", "type": type(value).__name__}


def _storable_object(value: Mapping[object, object], depth_left: int) -> Json:
    pairs = [(name, _storable(item, depth_left)) for name, item in value.items()]
    plain = all(isinstance(name, str) and name != MARK and _is_utf8(name) for name, _ in pairs)
    if plain:
        return dict(pairs)
    return {MARK: "object", "items": [[_storable(name, depth_left), item] for name, item in pairs]}


def _is_utf8(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text)


def _marked(kind: str, text: str) -> Json:
    raw = text.encode("utf-8", "surrogatepass")
    return {MARK: kind, "base64": base64.b64encode(raw).decode("ascii")}


def restored(value: Json) -> Json:
    """Return the value that `storable` was given; unknown marks stay as they are."""
    if isinstance(value, list):
        entries: list[Json] = value
        return [restored(item) for item in entries]
    if not isinstance(value, dict):
        return value
    members: dict[str, Json] = value
    match members.get(MARK):
        case None:
            return {name: restored(item) for name, item in members.items()}
        case "bytes":
            return base64.b64decode(members["base64"])
        case "text":
            return base64.b64decode(members["base64"]).decode("utf-8", "surrogatepass")
        case "integer":
            return int(members["text"])
        case "float":
            return float(members["text"])
        case "object":
            return {restored(name): restored(item) for name, item in members["items"]}
        case _:
            return members
