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

from counterfoil.core.bounds import INTEGER_MAX, JSON_DEPTH_MAX, RESULT_BYTES_MAX
from counterfoil.core.errors import ContractError, FormatError
from counterfoil.core.plain import MARK, plain_copy, unmarked_copy
from counterfoil.core.words import Digest, Json

_T = TypeVar("_T")
_encoder = msgspec.json.Encoder()
_sorting_encoder = msgspec.json.Encoder(order="sorted")


def digest(content: bytes) -> Digest:
    """Return the SHA-256 of `content` as 64 hexadecimal digits."""
    return Digest(sha256(content).hexdigest())


def canonical(value: Json) -> bytes:
    """Return the RFC 8785 bytes of a normalised value.

    Raises:
        ContractError: The value is not normalised.
    """
    try:
        if plain := plain_copy(value):
            return _sorting_encoder.encode(plain[0])  # the same bytes, many times faster
        return rfc8785.dumps(value)
    except RecursionError as error:
        raise ContractError(f"a value is nested deeper than {JSON_DEPTH_MAX}") from error
    except ValueError as error:
        raise ContractError(f"a value has no canonical form: {type(error).__name__}") from error


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
    if plain := plain_copy(value):
        return plain[0]
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
            members = cast("Mapping[object, object]", value)  # the same, of Mapping
            return _object(members, field, depth_left - 1)
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
    if not _is_utf8(value):
        raise ContractError(f"{field} holds half a character (a lone surrogate)")
    return _plain(value)


def _plain(value: str) -> str:
    """Return text without the class it came in: encoders know no subclass."""
    return str.__str__(value)


def _integer(value: int, field: str) -> int:
    if abs(value) > INTEGER_MAX:
        raise ContractError(f"{field} holds an integer beyond ±(2^53 - 1)")
    return value


def _float(value: float, field: str) -> Json:
    if not math.isfinite(value):
        raise ContractError(f"{field} holds {value}, which is not a finite number")
    return _integer(int(value), field) if value.is_integer() else value


def _instant(value: datetime, field: str) -> str:
    if value.utcoffset() is None:
        raise ContractError(f"{field} holds a datetime without a time zone")
    try:
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    except OverflowError as error:
        raise ContractError(f"{field} holds a datetime that has no UTC form") from error


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
    if type(value) in (list, dict) and (unmarked := unmarked_copy(value)):
        return unmarked[0]
    if isinstance(value, list):
        items = cast("list[Json]", value)  # narrowed only as far as list[Unknown]
        return [native(item) for item in items]
    if isinstance(value, dict):
        members = cast("dict[str, Json]", value)  # narrowed only as far as dict[Unknown]
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
    """Return the one JSON form of a value of ours; structs keep their field order.

    Raises:
        ContractError: Something in it has no JSON form.
    """
    try:
        return _encoder.encode(value)
    except RecursionError as error:
        raise ContractError(f"a value is nested deeper than {JSON_DEPTH_MAX}") from error
    except (msgspec.MsgspecError, TypeError, ValueError) as error:
        raise ContractError(f"a value has no JSON form: {_reason(error)}") from error


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

    For results: their effect has happened, so nothing here is refused. Tuples come back
    as lists and datetimes as text; of types and depths without any form, the name of
    the type is kept.
    """
    if plain := plain_copy(value):
        return plain[0]
    return _storable(value, JSON_DEPTH_MAX)


def bounded(value: object) -> Json:
    """Return `storable(value)`, or its digest and size when it is over `RESULT_BYTES_MAX`."""
    result = storable(value)
    raw = encode(result)
    if len(raw) <= RESULT_BYTES_MAX:
        return result
    return {MARK: "large", "sha256": digest(raw), "size": len(raw)}


def _storable(value: object, depth_left: int) -> Json:
    match value:
        case None | bool():
            return value
        case str():
            return _plain(value) if _is_utf8(value) else _marked("text", value)
        case int():
            exact = abs(value) <= INTEGER_MAX  # digits in base ten have a limit, see int()
            return int(value) if exact else {MARK: "integer", "hex": hex(value)}
        case float():
            fits = math.isfinite(value) and abs(value) <= INTEGER_MAX
            return float(value) if fits else {MARK: "float", "text": float.__repr__(value)}
        case bytes() | bytearray():
            return {MARK: "bytes", "base64": base64.b64encode(value).decode("ascii")}
        case list() | tuple() if depth_left:
            items = cast("list[object]", value)  # narrowed only as far as list[Unknown]
            return [_storable(item, depth_left - 1) for item in items]
        case dict() | Mapping() if depth_left:
            members = cast("Mapping[object, object]", value)  # the same, of Mapping
            return _storable_object(members, depth_left - 1)
        case datetime():
            return value.isoformat()
        case _:
            return {MARK: "unknown", "type": type(value).__name__}


def _storable_object(value: Mapping[object, object], depth_left: int) -> Json:
    pairs = [(name, _storable(item, depth_left)) for name, item in value.items()]
    plain = all(isinstance(name, str) and name != MARK and _is_utf8(name) for name, _ in pairs)
    if plain:
        return {_plain(name): item for name, item in pairs if isinstance(name, str)}
    return {MARK: "object", "items": [[_storable(name, depth_left), item] for name, item in pairs]}


def _is_utf8(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _marked(kind: str, text: str) -> Json:
    raw = text.encode("utf-8", "surrogatepass")
    return {MARK: kind, "base64": base64.b64encode(raw).decode("ascii")}


def restored(value: Json) -> Json:
    """Return the value that `storable` was given; what it did not write stays as it is."""
    if type(value) in (list, dict) and (unmarked := unmarked_copy(value)):
        return unmarked[0]
    if isinstance(value, list):
        entries = cast("list[Json]", value)  # narrowed only as far as list[Unknown]
        return [restored(item) for item in entries]
    if not isinstance(value, dict):
        return value
    members = cast("dict[str, Json]", value)  # narrowed only as far as dict[Unknown]
    if MARK not in members:
        return {name: restored(item) for name, item in members.items()}
    try:
        return _unmarked(members)
    except (KeyError, TypeError, ValueError):
        return members


def _unmarked(members: Mapping[str, Json]) -> Json:
    match members[MARK]:
        case "bytes":
            return base64.b64decode(members["base64"], validate=True)
        case "text":
            return base64.b64decode(members["base64"]).decode("utf-8", "surrogatepass")
        case "integer":
            return int(members["hex"], 16)
        case "float":
            return float(members["text"])
        case "object":
            return {_as_name(restored(name)): restored(item) for name, item in members["items"]}
        case _:
            return members


def _as_name(value: Json) -> Json:
    """Return a member name again: one that was a tuple came back as a list."""
    if isinstance(value, list):
        entries = cast("list[Json]", value)  # narrowed only as far as list[Unknown]
        return tuple(_as_name(item) for item in entries)
    return value
