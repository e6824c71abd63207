"""Objects as the bucket shows them: looked at, listed, read.

Whatever is seen carries the moment by the service's clock, since only that clock decides
when a signed request is too late.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote

from botocore.exceptions import BotoCoreError

from counterfoil.adapters.s3 import kinds
from counterfoil.adapters.s3.wire import AnswerError, Wire, bare, headers_of, moment
from counterfoil.core.canonical import canonical, digest
from counterfoil.core.errors import UnavailableError
from counterfoil.core.task import PATHS, canonical_path, covers
from counterfoil.core.words import Digest

OBJECTS_MAX = 10_000
"""Objects of one observation: ten pages, so that it ends while a lease lasts."""

VERSIONS_MAX = 32
"""Versions of one object that are searched for ours, from the newest."""

_CARRIED = {
    "CacheControl": "CacheControl",
    "ContentDisposition": "ContentDisposition",
    "ContentEncoding": "ContentEncoding",
    "ContentLanguage": "ContentLanguage",
    "ContentType": "ContentType",
}
"""What a copy takes over from its source, beside the metadata."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """One object, or that there is none.

    Attributes:
        etag: Without its quotes; empty when there is no object.
        size: Bytes.
        modified: When it was written, as the service tells it; empty when there is none.
        modified_at: The same in whole seconds, UTC.
        version: Version id; empty where there are no versions.
        metadata: The writer's own names and values.
        carried: Further headers, by the names of a request's members.
        at: When it was looked at, by the service's clock, in whole seconds.
        content: What it holds, where that was asked for and fits.
    """

    etag: str = ""
    size: int = 0
    modified: str = ""
    modified_at: int = 0
    version: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    carried: Mapping[str, str] = field(default_factory=dict[str, str])
    at: int = 0
    content: bytes | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One object of a listing."""

    path: str
    etag: str
    size: int
    modified: str


def look(wire: Wire, name: str, *, version: str = "", bytes_max: int = -1) -> Seen:
    """Return an object by its whole name, with its content if that is within a bound.

    Raises:
        UnavailableError: It cannot be looked at.
    """
    which = {"Key": name, "VersionId": version} if version else {"Key": name}
    operation = "head_object" if bytes_max < 0 else "get_object"
    try:
        answer = wire.ask(f"looking at {name!r:.120}", operation, 404, **which)
    except AnswerError as error:
        return Seen(at=error.at)
    content = _content(answer, bytes_max) if bytes_max >= 0 else None
    headers = headers_of(answer)
    return Seen(
        etag=bare(str(answer.get("ETag", ""))),
        size=int(answer.get("ContentLength", 0)),
        modified=headers.get("last-modified", ""),
        modified_at=moment(headers, "last-modified"),
        version=str(answer.get("VersionId") or ""),
        metadata={key.lower(): value for key, value in dict(answer.get("Metadata", {})).items()},
        carried={to: str(answer[of]) for of, to in _CARRIED.items() if answer.get(of)},
        at=moment(headers),
        content=content,
    )


def versions(wire: Wire, name: str) -> tuple[str, ...]:
    """Return ids of earlier versions of an object, newest first; none where there are none.

    Raises:
        UnavailableError: They cannot be listed.
    """
    try:
        answer = wire.ask(
            f"looking for versions of {name!r:.120}",
            "list_object_versions",
            400,
            405,
            501,
            Prefix=name,
            MaxKeys=VERSIONS_MAX,
        )
    except AnswerError:
        return ()
    found: Sequence[dict[str, Any]] = answer.get("Versions", ())
    of_name = [each for each in found if each["Key"] == name]
    return tuple(str(each["VersionId"]) for each in of_name if not each.get("IsLatest"))


def listing(wire: Wire, prefix: str, entries: Sequence[str]) -> tuple[Entry, ...] | None:
    """Return the objects below the prefix that scope entries cover, in order of their paths.

    None when they are more than `OBJECTS_MAX`.

    Raises:
        UnavailableError: They cannot be listed.
    """
    found: dict[str, Entry] = {}
    for entry in entries:
        is_single = not _is_open(entry)
        start = prefix if entry == "." else f"{prefix}{entry}"
        after = ""
        while True:
            limit = 1 if is_single else kinds.PAGE_MAX
            page, is_whole = page_of(wire, prefix, start, after, limit)
            ours = [each for each in page if not kinds.is_reserved(each.path)]
            found |= {each.path: each for each in ours if covers(entry, each.path)}
            if len(found) > OBJECTS_MAX:
                return None
            if is_whole or is_single or not page:
                break
            after = kinds.behind_reserved(page[-1].path)
    return tuple(found[path] for path in sorted(found))


def page_of(
    wire: Wire, prefix: str, start: str, after: str, limit: int
) -> tuple[list[Entry], bool]:
    """Return one page of objects whose names begin with `start`, and whether it is the last.

    Args:
        wire: The way to the bucket.
        prefix: What is cut off the names.
        start: What names begin with.
        after: Path after which the page begins; empty for the first.
        limit: Most objects of the page, 1 to `kinds.PAGE_MAX`.

    Raises:
        UnavailableError: They cannot be listed.
    """
    more = {"StartAfter": f"{prefix}{after}"} if after else {}
    answer = wire.ask("listing", "list_objects_v2", Prefix=start, MaxKeys=limit, **more)
    found: Sequence[dict[str, Any]] = answer.get("Contents", ())
    page = [
        Entry(
            path=str(each["Key"]).removeprefix(prefix),
            etag=bare(str(each["ETag"])),
            size=int(each["Size"]),
            modified=each["LastModified"].isoformat(),
        )
        for each in found
    ]
    return page, not answer.get("IsTruncated")


def paths_of(scope: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Return the path entries of a scope, in order, each once.

    Raises:
        ContractError: One is no canonical path, folder or ".".
    """
    entries = sorted(set(scope.get(PATHS, ())))
    for entry in entries:
        if entry != ".":
            canonical_path(entry.removesuffix("/"), PATHS)
    return tuple(entries)


def state_digest(entries: Sequence[Entry]) -> Digest:
    """Return the digest of what a listing shows: names, ETags, sizes and times."""
    return digest(canonical([[each.path, each.etag, each.size, each.modified] for each in entries]))


def as_metadata(text: str) -> str:
    """Return text as metadata may hold it: ASCII, at most 400 characters.

    All metadata of an object together may have 2 KB, so that longer text is its digest.
    """
    quoted = quote(text, safe=" !#$&'()*+,/:;=?@[]")
    is_short = len(quoted) <= 400 and text == text.strip() and unquote(quoted) == text
    return quoted if is_short else f"sha256:{digest(text.encode())}"


def _content(answer: dict[str, Any], bytes_max: int) -> bytes | None:
    body = answer["Body"]
    try:
        if int(answer.get("ContentLength", 0)) > bytes_max:
            return None
        return bytes(body.read())
    except (BotoCoreError, OSError) as error:
        raise UnavailableError(f"reading an object: {type(error).__name__}") from error
    finally:
        body.close()


def _is_open(entry: str) -> bool:
    return entry == "." or entry.endswith("/")
