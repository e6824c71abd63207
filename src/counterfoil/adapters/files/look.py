"""Walking below the root and looking at one object, without following any link.

A path is taken part by part, each relative to the folder before it, so that a link
anywhere on it is refused and never followed, whenever it was put there.
"""

import errno
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256

from counterfoil.adapters.files.disk import Disk
from counterfoil.adapters.files.plan import Identity
from counterfoil.adapters.files.realm import FILE, LINK, OTHER, Entry
from counterfoil.core.errors import PermissionDeniedError, UnavailableError

LOOKS_MAX = 3
"""Looks at a file that keeps changing while it is read."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Spot:
    """A name in an open folder."""

    folder: int
    name: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """A regular file as it is.

    Attributes:
        entry: What it is and holds.
        serial: Which object it is.
        mode: Its permissions.
        user: Its owner.
        group: Its group.
        links: How many names it has.
        content: Its bytes, where they were asked for and are few enough.
    """

    entry: Entry
    serial: str
    mode: int
    user: int
    group: int
    links: int
    content: bytes | None


@contextmanager
def spot(disk: Disk, root: int, path: str, *, make: bool = False) -> Generator[Spot | None]:
    """Open the folder of a path; yield None when there is none.

    Args:
        disk: The file system.
        root: Descriptor of the root.
        path: Canonical path.
        make: Make the missing folders, each durably.

    Raises:
        PermissionDeniedError: A folder of the path is a link, or no folder.
        OSError: A folder cannot be opened or made.
    """
    *parts, name = path.split("/")
    folder = os.dup(root)
    try:
        for part in parts:
            inner = _step(disk, folder, part, path, make=make)
            if inner is None:
                yield None
                return
            os.close(folder)
            folder = inner
        yield Spot(folder=folder, name=name)
    finally:
        os.close(folder)


def _step(disk: Disk, folder: int, part: str, path: str, *, make: bool) -> int | None:
    try:
        return open_folder(disk, folder, part, path)
    except FileNotFoundError:
        if not make:
            return None
    try:
        disk.make_folder(folder, part)
    except FileExistsError:
        return open_folder(disk, folder, part, path)
    disk.sync(folder)
    return open_folder(disk, folder, part, path)


def open_folder(disk: Disk, folder: int, part: str, path: str) -> int:
    """Open one folder on the way to a path.

    Raises:
        PermissionDeniedError: It is a link, or no folder.
    """
    try:
        return disk.open_folder(folder, part)
    except OSError as error:
        if error.errno in (errno.ENOTDIR, errno.ELOOP):
            raise PermissionDeniedError(
                f"{part!r:.80} on the way to {path!r:.200} is a link, or no folder"
            ) from error
        raise


def serial(disk: Disk, place: Spot | None) -> str | None:
    """Return which object is at a place, or None where there is nothing."""
    return None if place is None else disk.serial(place.folder, place.name)


def identity(disk: Disk, place: Spot) -> Identity | None:
    """Return which object is at a place, and what it holds."""
    status = disk.stat(place.folder, place.name)
    if status is None:
        return None
    if stat.S_ISREG(status.st_mode):
        found = look(disk, place, status, None)
        return Identity(serial=found.serial, sha256=found.entry.sha256)
    other = disk.serial(place.folder, place.name)
    return None if other is None else Identity(serial=other, sha256="")


def examine(disk: Disk, place: Spot, path: str, *, bytes_max: int = 0) -> Found | None:
    """Return the regular file at a place, or None where there is nothing.

    Args:
        disk: The file system.
        place: Where.
        path: Its path, for messages.
        bytes_max: Return the content too if it has no more bytes than this.

    Raises:
        PermissionDeniedError: There is a link, a folder, or a device.
        UnavailableError: The file keeps changing.
    """
    for _ in range(LOOKS_MAX):
        status = disk.stat(place.folder, place.name)
        if status is None:
            return None
        if not stat.S_ISREG(status.st_mode):
            what = "a link" if stat.S_ISLNK(status.st_mode) else "no regular file"
            raise PermissionDeniedError(f"{path!r:.200} is {what}")
        try:
            return look(disk, place, status, bytes_max)
        except (FileNotFoundError, BlockingIOError):
            continue
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
    raise UnavailableError(f"{path!r:.200} keeps changing")


def look(disk: Disk, place: Spot, status: os.stat_result, bytes_max: int | None) -> Found:
    """Read a regular file once.

    Raises:
        BlockingIOError: It changed meanwhile.
        OSError: It cannot be read, or is a link by now.
    """
    descriptor = disk.open_file(place.folder, place.name)
    try:
        before = disk.status(descriptor)
        hasher, kept = sha256(), bytearray()
        keep = before.st_size <= (bytes_max or 0)
        while piece := disk.read(descriptor):
            hasher.update(piece)
            if keep:
                kept += piece
        after = disk.status(descriptor)
        number = disk.serial_of(descriptor)
    finally:
        os.close(descriptor)
    if _figures(before) != _figures(after) or before.st_ino != status.st_ino:
        raise BlockingIOError(errno.EAGAIN, "the file changed while it was read", place.name)
    return Found(
        entry=entry_of(after, FILE, hasher.hexdigest()),
        serial=number,
        mode=stat.S_IMODE(after.st_mode),
        user=after.st_uid,
        group=after.st_gid,
        links=after.st_nlink,
        content=bytes(kept) if keep and bytes_max is not None else None,
    )


def entry_of(status: os.stat_result, kind: str, digest: str, *, settled: bool = False) -> Entry:
    """Return what is kept of an object."""
    return Entry(
        kind=kind,
        sha256=digest,
        dev=status.st_dev,
        inode=status.st_ino,
        size=status.st_size,
        mtime_ns=status.st_mtime_ns,
        ctime_ns=status.st_ctime_ns,
        is_settled=settled,
    )


def kind_of(mode: int) -> str:
    """Return which kind of entry an object is."""
    if stat.S_ISREG(mode):
        return FILE
    return LINK if stat.S_ISLNK(mode) else OTHER


def _figures(status: os.stat_result) -> tuple[int, ...]:
    return (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
