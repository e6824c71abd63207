"""The four kinds of action on files: their arguments, checked, and what they touch."""

import json
import re
from collections.abc import Callable

from counterfoil.core.canonical import native, normalise
from counterfoil.core.errors import ContractError
from counterfoil.core.intent import KindSpec
from counterfoil.core.plain import MARK
from counterfoil.core.task import PATHS, canonical_path
from counterfoil.core.words import Json, Level, Risk

NAME = "files"
"""Name of the adapter."""

READ = "files.read"
WRITE = "files.write"
DELETE = "files.delete"
MOVE = "files.move"

ABSENT = "absent"
"""What stands in place of a digest where there is no file."""

TEXT = "text"
BYTES = "bytes"

RESERVED_START = ".counterfoil"
RESERVED_END = ".counterfoil-journal"
"""Names of Counterfoil's own: neither observed nor to be addressed."""

NAME_BYTES_MAX = 255
"""One part of a path: NAME_MAX of Linux."""

CALL_MS = 10_000
"""Longest call: the wait for another worker, and a few durable writes."""

_SHA256 = re.compile(r"[0-9a-f]{64}")

_ARGUMENTS = {
    READ: (("path",), ("encoding",)),
    WRITE: (("path", "content"), ("expected",)),
    DELETE: (("path",), ("expected",)),
    MOVE: (("source", "target"), ("expected_target",)),
}
"""Per kind, the arguments that must be there and those that may."""


def is_reserved(name: str) -> bool:
    """Return whether one part of a path is a name of Counterfoil's own."""
    folded = name.casefold()
    return folded.startswith(RESERVED_START) or folded.endswith(RESERVED_END)


def kinds() -> tuple[KindSpec, ...]:
    """Return what the adapter declares."""
    return (
        _kind(READ, Risk.READ_ONLY, ("path",)),
        _kind(WRITE, Risk.REVERSIBLE_WRITE, ("path",)),
        _kind(DELETE, Risk.REVERSIBLE_WRITE, ("path",)),
        _kind(MOVE, Risk.REVERSIBLE_WRITE, ("source", "target")),
    )


def _kind(name: str, risk: Risk, paths: tuple[str, ...]) -> KindSpec:
    def touches(arguments: dict[str, Json]) -> tuple[tuple[str, str], ...]:
        return tuple((PATHS, arguments[path]) for path in paths)

    return KindSpec(
        name=name,
        adapter=NAME,
        risk=risk,
        level=Level.TRANSACTIONAL,
        permission=name,
        normalise=_normaliser(name),
        touches=touches,
        call_ms=CALL_MS,
        linearizable=True,
        fences=True,
        forbids=True,
    )


def _normaliser(kind: str) -> Callable[[dict[str, Json]], dict[str, Json]]:
    required, optional = _ARGUMENTS[kind]

    def checked(arguments: dict[str, Json]) -> dict[str, Json]:
        for name in required:
            if name not in arguments:
                raise ContractError(f"{kind} lacks its argument {name}")
        for name in arguments:
            if name not in (*required, *optional):
                raise ContractError(f"{kind} takes no argument {name!r:.80}")
        given = {name: normalise(value, f"arguments.{name}") for name, value in arguments.items()}
        for name, value in given.items():
            _check(name, value)
        if kind == MOVE and given["source"] == given["target"]:
            raise ContractError(f"{kind} has one path as source and target")
        return given

    return checked


def _check(name: str, value: Json) -> None:
    match name:
        case "path" | "source" | "target":
            check_path(value, f"arguments.{name}")
        case "encoding":
            if value not in (TEXT, BYTES):
                raise ContractError(f"arguments.encoding is neither {TEXT!r} nor {BYTES!r}")
        case "expected" | "expected_target":
            if value != ABSENT and not (isinstance(value, str) and _SHA256.fullmatch(value)):
                raise ContractError(f"arguments.{name} is neither {ABSENT!r} nor a SHA-256 in hex")
        case _:
            content(value)


def check_path(value: Json, field: str) -> str:
    """Return a path that an action may name.

    Raises:
        ContractError: It is not canonical, a part is longer than `NAME_BYTES_MAX`
            bytes, or a part is reserved.
    """
    path = canonical_path(value, field)
    for part in path.split("/"):
        if len(part.encode()) > NAME_BYTES_MAX:
            raise ContractError(f"{field} has a part of more than {NAME_BYTES_MAX} bytes")
        if is_reserved(part):
            raise ContractError(f"{field} {path!r:.120} has a part that Counterfoil reserves")
    return path


def content(value: Json) -> bytes:
    """Return the bytes that an argument `content` stands for.

    Text is written as UTF-8 and bytes as they are; any other value as JSON with sorted
    members, two spaces and a final newline.

    Raises:
        ContractError: A marked value is not well formed.
    """
    if isinstance(value, str):
        return value.encode("utf-8")
    if isinstance(value, dict) and MARK in value:
        raw = native(value)
        if isinstance(raw, bytes):
            return raw
    text = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
    return f"{text}\n".encode()
