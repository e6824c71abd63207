"""Reads: one object, what is known of it, or a page of a listing."""

from counterfoil.adapters.s3 import kinds
from counterfoil.adapters.s3.objects import Seen, look, page_of
from counterfoil.adapters.s3.site import Site
from counterfoil.core.bounds import RESULT_BYTES_MAX
from counterfoil.core.canonical import digest, encode, storable
from counterfoil.core.task import covers
from counterfoil.core.words import Json

LIMIT = 100
"""Objects of one `s3.list` that names no limit."""


def read(site: Site, kind: str, arguments: dict[str, Json]) -> Json:
    """Return what a read shows; an object that is not there has the ETag "absent".

    Content that does not fit into a result is left out whole; `reference` names it then.

    Raises:
        UnavailableError: It cannot be read.
    """
    path = arguments["path"]
    if kind == kinds.LIST:
        return _page(site, path, arguments)
    bytes_max = RESULT_BYTES_MAX if kind == kinds.GET else -1
    seen = look(site.wire, site.object(path), bytes_max=bytes_max)
    head = _head(path, seen)
    if kind == kinds.HEAD or not seen.etag:
        return head
    if seen.content is not None:
        shown = _content(seen.content, arguments.get("encoding", kinds.TEXT))
        whole = head | {"content": shown, "sha256": digest(seen.content)}
        if len(encode(storable(whole))) <= RESULT_BYTES_MAX:
            return whole
    return head | {"reference": f"{path}@etag:{seen.etag}"}


def _head(path: str, seen: Seen) -> dict[str, Json]:
    return {
        "path": path,
        "etag": seen.etag or kinds.ABSENT,
        "size": seen.size,
        "modified": seen.modified,
        "version": seen.version,
        "content_type": seen.carried.get("ContentType", ""),
        "metadata": dict(seen.metadata),
    }


def _page(site: Site, path: str, arguments: dict[str, Json]) -> Json:
    """Return objects below a folder, as many as asked for and as fit into a result."""
    limit = arguments.get("limit", LIMIT)
    start = site.prefix if path == "." else f"{site.prefix}{path}"
    page, is_whole = page_of(site.wire, site.prefix, start, arguments.get("after", ""), limit)
    shown: list[Json] = []
    last, left = "", RESULT_BYTES_MAX // 2
    for each in page:
        line = {"path": each.path, "etag": each.etag, "size": each.size}
        left -= len(encode(line))
        if left < 0:
            is_whole = False
            break
        last = kinds.behind_reserved(each.path)
        if covers(path, each.path) and not kinds.is_reserved(each.path):
            shown.append(line)
    return {"objects": shown, "next": "" if is_whole else last}


def _content(raw: bytes, encoding: Json) -> str | bytes:
    if encoding == kinds.BYTES:
        return raw
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw
