"""The kinds of action on a bucket: their arguments, checked, and what they touch.

A path is the one spelling of an object's name below the prefix of the adapter. Names
that S3 allows and a path does not (`..`, `//`, control characters) cannot be addressed.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from counterfoil.adapters.s3.times import Times
from counterfoil.core.canonical import native, normalise
from counterfoil.core.errors import ContractError
from counterfoil.core.intent import KindSpec
from counterfoil.core.plain import MARK
from counterfoil.core.task import PATHS, canonical_path
from counterfoil.core.words import Json, Level, Risk

NAME = "s3"
"""Name of the adapter."""

GET = "s3.get"
HEAD = "s3.head"
LIST = "s3.list"
PUT = "s3.put"
COPY = "s3.copy"
DELETE = "s3.delete"
UPLOAD = "s3.upload"

ENDPOINTS = "endpoints"
BUCKETS = "buckets"
FILES = "files"
"""Scope lists beside `paths`: exact words each."""

ABSENT = "absent"
"""What stands in place of an ETag where there is no object."""

TEXT = "text"
BYTES = "bytes"

RESERVED = ".counterfoil"
"""Folder of Counterfoil's own, below any prefix: neither observed nor to be addressed."""

KEY_BYTES_MAX = 1024
"""An object's name, prefix included: what S3 allows."""

PAGE_MAX = 1_000
"""Objects of one `s3.list`: what S3 returns at once."""

_SHA256 = re.compile(r"[0-9a-f]{64}")
_ETAG = re.compile(r"[!#-~]{1,200}")
_CONTENT_TYPE = re.compile(r"[ -~]{1,200}")

_ARGUMENTS = {
    GET: (("path",), ("encoding",)),
    HEAD: (("path",), ()),
    LIST: (("path",), ("after", "limit")),
    PUT: (("path", "content"), ("expected", "content_type")),
    COPY: (("source", "path"), ("expected", "expected_source")),
    DELETE: (("path",), ("expected",)),
    UPLOAD: (("path", "file", "sha256"), ("expected", "content_type")),
}
"""Per kind, the arguments that must be there and those that may."""

_TOUCHED = {COPY: ("source", "path")}


@dataclass(frozen=True, kw_only=True, slots=True)
class Terms:
    """What the kinds of one adapter are declared with.

    Attributes:
        endpoint: Address of the service.
        bucket: Name of the bucket.
        prefix: What every name begins with; empty for the whole bucket.
        times: Bounds of calls.
        uploads: Whether there are files to upload.
    """

    endpoint: str
    bucket: str
    prefix: str
    times: Times
    uploads: bool


def kinds(terms: Terms) -> tuple[KindSpec, ...]:
    """Return what an adapter declares.

    Writes that leave their receipt in the object are `conditional`. A deletion leaves
    nothing, so it is `queryable`.
    """
    reads = tuple(_kind(terms, name, Risk.READ_ONLY, Level.QUERYABLE) for name in (GET, HEAD, LIST))
    names = (PUT, COPY, UPLOAD) if terms.uploads else (PUT, COPY)
    writes = tuple(_kind(terms, n, Risk.REVERSIBLE_WRITE, Level.CONDITIONAL) for n in names)
    delete = _kind(terms, DELETE, Risk.IRREVERSIBLE_WRITE, Level.QUERYABLE)
    return (*reads, *writes, delete)


def _kind(terms: Terms, name: str, risk: Risk, level: Level) -> KindSpec:
    def touches(arguments: dict[str, Json]) -> tuple[tuple[str, str], ...]:
        fields = _TOUCHED.get(name, ("path",))
        places = ((ENDPOINTS, terms.endpoint), (BUCKETS, terms.bucket))
        paths = tuple((PATHS, arguments[field]) for field in fields)
        files = ((FILES, arguments["file"]),) if name == UPLOAD else ()
        return (*places, *paths, *files)

    return KindSpec(
        name=name,
        adapter=NAME,
        risk=risk,
        level=level,
        permission=name,
        normalise=_normaliser(name, terms.prefix),
        touches=touches,
        call_ms=terms.times.call_ms,
        in_flight_ms=terms.times.in_flight_ms,
        linearizable=True,
        fences=risk.writes,
        forbids=risk.writes,
    )


def _normaliser(kind: str, prefix: str) -> Callable[[dict[str, Json]], dict[str, Json]]:
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
            _check(kind, name, value, prefix)
        if kind == COPY and given["source"] == given["path"]:
            raise ContractError(f"{kind} has one path as source and target")
        return given

    return checked


def _check(kind: str, name: str, value: Json, prefix: str) -> None:
    field = f"arguments.{name}"
    match name:
        case "path" if kind == LIST:
            if value != ".":
                folder = value.removesuffix("/") if isinstance(value, str) else value
                check_path(folder, field, prefix)
        case "path" | "source":
            check_path(value, field, prefix)
        case "after" | "file":
            canonical_path(value, field)
        case "expected" | "expected_source":
            _check_etag(value, field, is_absent_allowed=kind in (PUT, COPY, UPLOAD))
        case "sha256":
            _check_text(value, _SHA256, field, "a SHA-256 in hex")
        case "content_type":
            _check_text(value, _CONTENT_TYPE, field, "a content type")
        case "encoding":
            if value not in (TEXT, BYTES):
                raise ContractError(f"{field} is neither {TEXT!r} nor {BYTES!r}")
        case "limit":
            if type(value) is not int or not 1 <= value <= PAGE_MAX:
                raise ContractError(f"{field} is no number from 1 to {PAGE_MAX}")
        case _:
            content(value)


def check_path(value: Json, field: str, prefix: str) -> str:
    """Return a path that an action may name.

    Raises:
        ContractError: It is not canonical, is reserved, or makes a name of more than
            `KEY_BYTES_MAX` bytes with the prefix before it.
    """
    path = canonical_path(value, field)
    if len(f"{prefix}{path}".encode()) > KEY_BYTES_MAX:
        raise ContractError(f"{field} makes a name of more than {KEY_BYTES_MAX} bytes")
    if is_reserved(path):
        raise ContractError(f"{field} {path!r:.120} has a part that Counterfoil reserves")
    return path


def is_reserved(path: str) -> bool:
    """Return whether a path belongs to Counterfoil's own records.

    Those of another adapter may lie below its prefix, so that any part counts, and a
    service may keep objects where letters are folded.
    """
    return any(part.casefold() == RESERVED for part in path.split("/"))


def behind_reserved(path: str) -> str:
    """Return a name after all records that a path is one of; another path as it is.

    A look at everything passes records by, however many there are.
    """
    parts = path.split("/")
    for number, part in enumerate(parts):
        if part.casefold() == RESERVED:
            return max(path, "/".join((*parts[: number + 1], "~")))
    return path


def _check_etag(value: Json, field: str, *, is_absent_allowed: bool) -> None:
    if value == ABSENT:
        if not is_absent_allowed or field.endswith("source"):
            raise ContractError(f"{field} cannot be {ABSENT!r}")
        return
    _check_text(value, _ETAG, field, "an ETag without its quotes")


def _check_text(value: Json, pattern: re.Pattern[str], field: str, what: str) -> None:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise ContractError(f"{field} is not {what}")


def content(value: Json) -> bytes:
    """Return the bytes that an argument `content` stands for: text as UTF-8, bytes as they are.

    Raises:
        ContractError: It is neither.
    """
    if isinstance(value, str):
        return value.encode("utf-8")
    if isinstance(value, dict) and MARK in value:
        raw = native(value)
        if isinstance(raw, bytes):
            return raw
    raise ContractError("arguments.content is neither text nor bytes")
