"""What a change of files would look like, for the person who is asked to allow it."""

import difflib

from counterfoil.adapters.files import kinds
from counterfoil.adapters.files.look import Found, examine, spot
from counterfoil.adapters.files.site import Site
from counterfoil.core.canonical import digest
from counterfoil.core.words import Json
from counterfoil.ports import PREVIEW_CHARS_MAX

TEXT_BYTES_MAX = 64 * 1024
"""Longer files are shown by size and hash: nobody reads such a difference on a screen."""

LINES_MAX = 2_000
"""Lines of each side that are compared: comparing takes time with their product."""

CUT = "\n… (cut here)"


def preview(site: Site, kind: str, arguments: dict[str, Json]) -> str:
    """Return what a change would do, at most `PREVIEW_CHARS_MAX` characters.

    Text is shown as a unified difference to what is there; what is no text, or is long,
    by size and hash. The lock is held.

    Args:
        site: The root.
        kind: A kind of this adapter.
        arguments: Checked arguments.

    Raises:
        PermissionDeniedError: A path leads over a link, or to no regular file.
        OSError: A file cannot be read.
    """
    match kind:
        case kinds.WRITE:
            text = _write(site, arguments["path"], kinds.content(arguments["content"]))
        case kinds.DELETE:
            text = f"delete {arguments['path']}: {_named(_found(site, arguments['path']))}"
        case kinds.MOVE:
            source, target = arguments["source"], arguments["target"]
            there = _found(site, target)
            over = f"\nin place of {target}: {_named(there)}" if there is not None else ""
            text = f"move {source} to {target}: {_named(_found(site, source))}{over}"
        case _:
            text = ""
    return text if len(text) <= PREVIEW_CHARS_MAX else text[: PREVIEW_CHARS_MAX - len(CUT)] + CUT


def _write(site: Site, path: str, content: bytes) -> str:
    found = _found(site, path)
    before = _text(found.content if found is not None else b"")
    after = _text(content)
    if before is None or after is None:
        new = f"{len(content)} bytes, SHA-256 {digest(content)}"
        return f"write {path}\nthere is: {_named(found)}\nthere would be: {new}"
    if found is not None and found.content == content:
        return f"write {path}: it holds exactly this already"
    lines = difflib.unified_diff(
        before.splitlines(),
        after.splitlines(),
        fromfile=path if found is not None else "(no file)",
        tofile=path,
        lineterm="",
    )
    return "\n".join(lines) or f"write {path}: only the ends of lines differ"


def _text(content: bytes | None) -> str | None:
    """Return content as text that can be compared, or None."""
    if content is None or len(content) > TEXT_BYTES_MAX or b"\0" in content:
        return None
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return text if text.count("\n") <= LINES_MAX else None


def _named(found: Found | None) -> str:
    if found is None:
        return "no file"
    return f"{found.entry.size} bytes, SHA-256 {found.entry.sha256}"


def _found(site: Site, path: str) -> Found | None:
    with spot(site.disk, site.root, path) as place:
        if place is None:
            return None
        return examine(site.disk, place, path, bytes_max=TEXT_BYTES_MAX)
