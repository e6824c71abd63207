"""Looking at everything that a scope covers, and hashing only what changed.

No link is followed; a link is an object of its own, known by its target. A file whose
figures (device, inode, size, both times) are those of the last look is not read again,
unless it had changed so shortly before that a change right after might not show.
"""

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256

from counterfoil.adapters.files.disk import Disk
from counterfoil.adapters.files.kinds import is_reserved
from counterfoil.adapters.files.look import Spot, entry_of, examine, kind_of, open_folder, spot
from counterfoil.adapters.files.realm import FILE, LINK, Entry
from counterfoil.core.errors import PermissionDeniedError, UnavailableError
from counterfoil.core.task import covers

FILES_MAX = 100_000
"""Objects in one scope: each costs a system call at every look."""

DEPTH_MAX = 128
"""Folders inside folders: each holds a descriptor while it is walked."""

GRAIN_NS = 2_000_000_000
"""Coarsest time stamps of a file system: the two seconds of FAT."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Scan:
    """One look.

    Attributes:
        disk: The file system.
        root: Descriptor of the root.
        known: What was seen the last time.
        started_ns: Time of the file system when the look began.
        clears: Whether a reserved name is one that a killed call of this journal left.
    """

    disk: Disk
    root: int
    known: Mapping[str, Entry]
    started_ns: int
    clears: Callable[[str], bool]


def scan(look: Scan, patterns: tuple[str, ...]) -> dict[str, Entry]:
    """Return everything under some scope entries, by path.

    Raises:
        UnavailableError: More than `FILES_MAX` objects, deeper than `DEPTH_MAX`, or a
            file that keeps changing.
        OSError: Something cannot be read.
    """
    found: dict[str, Entry] = {}
    for pattern in _outermost(patterns):
        for path, entry in _under(look, pattern):
            found[path] = entry
            if len(found) > FILES_MAX:
                raise UnavailableError(f"the scope covers more than {FILES_MAX} files")
    return found


def _outermost(patterns: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(
        pattern
        for pattern in patterns
        if not any(other != pattern and covers(other, pattern) for other in patterns)
    )


def _under(look: Scan, pattern: str) -> Iterator[tuple[str, Entry]]:
    """Yield what one scope entry covers; a link on the way hides all of it."""
    if pattern == ".":
        yield from _folder(look, look.root, "", 0)
        return
    try:
        with spot(look.disk, look.root, pattern.removesuffix("/")) as place:
            if place is None:
                return
            if not pattern.endswith("/"):
                yield from _object(look, place, pattern)
                return
            inner = open_folder(look.disk, place.folder, place.name, pattern)
    except (PermissionDeniedError, FileNotFoundError):
        return
    try:
        yield from _folder(look, inner, pattern, 0)
    finally:
        os.close(inner)


def _object(look: Scan, place: Spot, path: str) -> Iterator[tuple[str, Entry]]:
    """Yield the object at a path, if it is spelt so; on some disks other spellings find it."""
    names = _names(look, place.folder)
    status = look.disk.stat(place.folder, place.name) if place.name in names else None
    if status is not None and not stat.S_ISDIR(status.st_mode):
        entry = _entry(look, place, path, status)
        if entry is not None:
            yield path, entry


def _folder(look: Scan, folder: int, prefix: str, depth: int) -> Iterator[tuple[str, Entry]]:
    if depth > DEPTH_MAX:
        raise UnavailableError(f"folders below the root are nested deeper than {DEPTH_MAX}")
    for name in _names(look, folder):
        status = look.disk.stat(folder, name)
        if status is None:
            continue
        path = f"{prefix}{name}"
        if not stat.S_ISDIR(status.st_mode):
            entry = _entry(look, Spot(folder=folder, name=name), path, status)
            if entry is not None:
                yield path, entry
            continue
        try:
            inner = open_folder(look.disk, folder, name, path)
        except (FileNotFoundError, PermissionDeniedError):
            continue
        try:
            yield from _folder(look, inner, f"{path}/", depth + 1)
        finally:
            os.close(inner)


def _names(look: Scan, folder: int) -> list[str]:
    """Return the names in a folder that are not our own, and clear what a killed call left."""
    names: list[str] = []
    for name in look.disk.names(folder):
        if not is_reserved(name):
            names.append(name)
        elif look.clears(name):
            look.disk.unlink(folder, name)
    return names


def _entry(look: Scan, place: Spot, path: str, status: os.stat_result) -> Entry | None:
    known = look.known.get(path)
    kind = kind_of(status.st_mode)
    if known is not None and known.is_settled and _is_same(known, status, kind):
        return known
    settled = status.st_ctime_ns < look.started_ns - GRAIN_NS
    if kind == LINK:
        target = os.fsencode(look.disk.read_link(place.folder, place.name))
        return entry_of(status, kind, sha256(target).hexdigest(), settled=settled)
    if kind != FILE:
        mode = stat.S_IFMT(status.st_mode)
        return entry_of(status, kind, sha256(f"{mode:o}".encode()).hexdigest(), settled=settled)
    try:
        found = examine(look.disk, place, path)
    except PermissionDeniedError as error:
        raise UnavailableError(f"{path!r:.200} keeps changing") from error
    if found is None:
        return None
    return replace(found.entry, is_settled=found.entry.ctime_ns < look.started_ns - GRAIN_NS)


def _is_same(known: Entry, status: os.stat_result, kind: str) -> bool:
    return known == entry_of(status, kind, known.sha256, settled=True)
