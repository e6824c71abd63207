"""Opening: the root, the journal beside it, and whether they still belong together.

The instance is random and lives in the journal. It is bound to the very folder: the
number of its file system, and the folder's serial there, which no other folder ever gets.
A folder that was made anew, restored or copied is another instance, even under the
same path.
"""

import os
import secrets
import stat
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from counterfoil import journals
from counterfoil.adapters.files import catalog, journal
from counterfoil.adapters.files.disk import EXCHANGE, NOREPLACE, Disk
from counterfoil.adapters.files.journal import transaction, translated
from counterfoil.adapters.files.kinds import RESERVED_END, RESERVED_START
from counterfoil.adapters.files.trouble import name_of, refusal
from counterfoil.core.errors import ConfigError, UnavailableError
from counterfoil.journals import Connection, connect
from counterfoil.locks import locked

JOURNAL = "journal.db"
LOCK = "lock"
BUSY = "the files"
"""What other workers may keep busy."""


TAG_CHARS = 12
"""Of the instance, in reserved names: enough to tell journals apart in one folder."""

INSTANCE = "instance"
ROOT = "root"

_PROBES = (f"{RESERVED_START}-probe-a", f"{RESERVED_START}-probe-b")


@dataclass(frozen=True, kw_only=True, slots=True)
class Site:
    """What an open adapter holds.

    Attributes:
        disk: The file system.
        path: The root, all links resolved.
        root: Its descriptor.
        folder: Descriptor of the journal's folder.
        db: The journal.
        pause: Waits for so many seconds, between two tries for the lock.
    """

    disk: Disk
    path: Path
    root: int
    folder: int
    db: Connection
    pause: Callable[[float], None]


def open_site(
    root: Path, journal_folder: Path | None, disk: Disk, pause: Callable[[float], None]
) -> Site:
    """Open a root and its journal, and make the journal if there is none.

    Raises:
        ConfigError: The root is no folder, the journal lies inside it or can be read by
            others, or a file system cannot exchange two names.
        FormatError: The journal is damaged.
        UnavailableError: Something cannot be opened now.
    """
    path, place = _paths(root, journal_folder)
    root_descriptor = _opened(lambda: disk.open_root(path), f"the root {path}")
    try:
        folder = _opened(lambda: _journal_folder(place), f"the journal {place}")
        try:
            db = _journal(place, folder, pause)
        except BaseException:
            os.close(folder)
            raise
    except BaseException:
        os.close(root_descriptor)
        raise
    site = Site(disk=disk, path=path, root=root_descriptor, folder=folder, db=db, pause=pause)
    try:
        with locked(LOCK, pause, BUSY, folder=folder):
            _bind(site)
    except BaseException:
        close_site(site)
        raise
    return site


def close_site(site: Site) -> None:
    """Let go of everything."""
    site.db.close()
    os.close(site.folder)
    os.close(site.root)


def _paths(root: Path, journal_folder: Path | None) -> tuple[Path, Path]:
    try:
        path = root.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise ConfigError(f"the root {root} of files is no folder that can be reached") from error
    if journal_folder is None and not path.name:
        raise ConfigError("the root of files is the whole disk: name a folder for its journal")
    beside = path.parent / f".{path.name}{RESERVED_END}"
    given = beside if journal_folder is None else Path(os.path.normpath(journal_folder.absolute()))
    place = given.parent.resolve() / given.name
    if place.is_relative_to(path):
        raise ConfigError(f"the journal {place} lies inside the root {path}")
    return path, place


def _opened(opening: Callable[[], int], what: str) -> int:
    try:
        return opening()
    except NotADirectoryError as error:
        raise ConfigError(f"{what} is no folder") from error
    except OSError as error:
        raise UnavailableError(f"{what} cannot be opened ({name_of(error)})") from error


def _journal_folder(place: Path) -> int:
    try:
        place.mkdir(mode=0o700)
    except FileExistsError:
        pass
    else:
        above = os.open(place.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(above)
        finally:
            os.close(above)
    return os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)


def _journal(place: Path, folder: int, pause: Callable[[float], None]) -> Connection:
    _check_private(os.fstat(folder), place, 0o700)
    try:
        with locked(LOCK, pause, BUSY, folder=folder), translated("opening"):
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
            descriptor = os.open(JOURNAL, flags, 0o600, dir_fd=folder)
            try:
                _check_private(os.fstat(descriptor), place / JOURNAL, 0o600)
            finally:
                os.close(descriptor)
            os.fsync(folder)
            db = connect(place / JOURNAL)
            with transaction(db, "opening"):
                journal.set_up(db)
            return db
    except OSError as error:
        raise UnavailableError(
            f"the journal {place} cannot be opened ({name_of(error)})"
        ) from error


def _check_private(status: os.stat_result, path: Path, mode: int) -> None:
    if stat.S_IMODE(status.st_mode) & 0o077:
        raise ConfigError(
            f"{path} can be reached by others",
            move=f"make it private with `chmod {mode:o}` and start again",
        )


def _bind(site: Site) -> None:
    """Bind the journal to the root; another root is another instance."""
    found = _root_identity(site)
    with translated("opening"):
        if journals.meta(site.db, ROOT) == found:
            return
    try:
        _probe(site.disk, site.root)
        _probe(site.disk, site.folder)
    except OSError as error:
        raise ConfigError(
            f"the file system of {site.path} or of its journal cannot exchange two names "
            f"({name_of(error)})",
            move="use a local file system such as ext4, xfs, btrfs or tmpfs",
        ) from error
    with transaction(site.db, "opening"):
        journals.set_meta(site.db, INSTANCE, secrets.token_hex(16))
        journals.set_meta(site.db, ROOT, found)
        catalog.forget(site.db)


def _root_identity(site: Site) -> str:
    try:
        system = os.fstatvfs(site.root).f_fsid
        return f"{system:x}:{site.disk.serial_of(site.root)}"
    except OSError as error:
        raise UnavailableError(f"the root {site.path} cannot be read ({name_of(error)})") from error


def _probe(disk: Disk, folder: int) -> None:
    """Refuse a file system without the renames and links that a plan is decided by.

    Raises:
        OSError: It lacks one of them.
    """
    one, other = _PROBES
    try:
        for name in _PROBES:
            if disk.stat(folder, name) is not None:
                disk.unlink(folder, name)
        os.close(disk.create_file(folder, one, 0o600))
        disk.link(folder, one, other)
        disk.unlink(folder, other)
        disk.rename(folder, one, folder, other, NOREPLACE)
        os.close(disk.create_file(folder, one, 0o600))
        disk.rename(folder, one, folder, other, EXCHANGE)
    finally:
        for name in _PROBES:
            if disk.stat(folder, name) is not None:
                disk.unlink(folder, name)


@contextmanager
def turn(site: Site) -> Generator[None]:
    """Hold the lock, at the root that was opened.

    Raises:
        UnavailableError: Others keep the lock, or another folder stands at the path.
        CounterfoilError: What an `OSError` of the block means; nothing happened.
    """
    try:
        with locked(LOCK, site.pause, BUSY, folder=site.folder):
            standing = site.path.stat()
            opened = site.disk.status(site.root)
            if (standing.st_dev, standing.st_ino) != (opened.st_dev, opened.st_ino):
                raise UnavailableError(
                    f"another folder stands at {site.path}",
                    move="drop this session and open the run again",
                )
            yield
    except OSError as error:
        raise refusal(error) from error


def file_time_ns(site: Site) -> int:
    """Return the present time of the file system, by a file that is touched."""
    descriptor = os.open(LOCK, os.O_RDWR | os.O_NOFOLLOW, dir_fd=site.folder)
    try:
        os.utime(descriptor)
        return os.fstat(descriptor).st_ctime_ns
    finally:
        os.close(descriptor)


def instance(site: Site) -> str:
    """Return the identity of this environment."""
    return journals.meta(site.db, INSTANCE) or ""


def leftover(site: Site) -> str:
    """Return how the reserved names of this journal's own spare files begin."""
    return f"{RESERVED_START}-{instance(site)[:TAG_CHARS]}-"
