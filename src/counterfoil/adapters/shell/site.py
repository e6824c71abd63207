"""Opening: the root that commands work below, the journal beside it, and one lock.

The lock is held from the question to the start. A supervisor that is being started holds
it too, through the descriptor that it inherits, until its start is on record: whoever
gets the lock finds that an attempt has started, or that it never will. The kernel lets
go of it when its last holder dies, so there is no stale lock.
"""

import errno
import os
import pwd
import secrets
import stat
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from counterfoil import journals
from counterfoil.adapters.shell import journal
from counterfoil.adapters.shell.journal import transaction, translated
from counterfoil.core.errors import (
    ConfigError,
    CounterfoilError,
    PermissionDeniedError,
    StaleObservationError,
    UnavailableError,
)
from counterfoil.journals import Connection, connect
from counterfoil.locks import locked

JOURNAL = "journal.db"
LOCK = "lock"
BUSY = "the journal of commands"
"""What other workers may keep busy."""

ATTEMPTS = "attempts"
READS = "reads"
SUFFIX = ".counterfoil-shell"

INSTANCE = "instance"
ROOT = "root"


@dataclass(frozen=True, kw_only=True, slots=True)
class Site:
    """What an open adapter holds.

    Attributes:
        path: The root, all links resolved.
        root: Its descriptor.
        place: Path of the journal's folder.
        folder: Its descriptor.
        db: The journal.
        watched: Files below the root whose content is part of the state.
        account: Who the commands run as.
        pause: Waits for so many seconds.
    """

    path: Path
    root: int
    place: Path
    folder: int
    db: Connection
    watched: tuple[str, ...]
    account: str
    pause: Callable[[float], None]


def open_site(
    root: Path,
    journal_folder: Path | None,
    watched: tuple[str, ...],
    pause: Callable[[float], None],
) -> Site:
    """Open a root and its journal, and make the journal if there is none.

    Raises:
        ConfigError: The root is no folder, or the journal lies inside it or can be
            reached by others.
        FormatError: The journal is damaged.
        UnavailableError: Something cannot be opened now.
    """
    path, place = _paths(root, journal_folder)
    opened: list[int] = []
    try:
        opened.append(os.open(path, os.O_RDONLY | os.O_DIRECTORY))
        opened.append(_journal_folder(place))
        for name in (ATTEMPTS, READS):
            _made(opened[1], name)
        db = _journal(place, opened[1], opened[0], pause)
    except BaseException as error:
        for descriptor in opened:
            os.close(descriptor)
        if isinstance(error, OSError):
            raise UnavailableError(
                f"the journal {place} cannot be opened ({name_of(error)})"
            ) from error
        raise
    return Site(
        path=path,
        root=opened[0],
        place=place,
        folder=opened[1],
        db=db,
        watched=watched,
        account=_account(),
        pause=pause,
    )


def close_site(site: Site) -> None:
    """Let go of everything; commands that run go on."""
    site.db.close()
    os.close(site.folder)
    os.close(site.root)


def name_of(error: OSError) -> str:
    """Return the kernel's name of an error; it holds no path and no content."""
    return errno.errorcode.get(error.errno or 0, type(error).__name__)


def refusal(error: OSError) -> CounterfoilError:
    """Return the error of the taxonomy for one that came before any effect."""
    if error.errno in (errno.EACCES, errno.EPERM):
        return PermissionDeniedError(f"the system refuses access ({name_of(error)})")
    return UnavailableError(f"commands cannot be given now ({name_of(error)})")


def _paths(root: Path, journal_folder: Path | None) -> tuple[Path, Path]:
    try:
        path = root.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise ConfigError(f"the root {root} of commands is no folder to be reached") from error
    if not path.is_dir():
        raise ConfigError(f"the root {root} of commands is no folder")
    if journal_folder is None and not path.name:
        raise ConfigError("the root of commands is the whole disk: name a folder for its journal")
    beside = path.parent / f".{path.name}{SUFFIX}"
    given = beside if journal_folder is None else Path(os.path.normpath(journal_folder.absolute()))
    place = given.parent.resolve() / given.name
    if place.is_relative_to(path):
        raise ConfigError(f"the journal {place} lies inside the root {path}")
    return path, place


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
    folder = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    if stat.S_IMODE(os.fstat(folder).st_mode) & 0o077:
        os.close(folder)
        raise ConfigError(
            f"{place} can be reached by others",
            move="make it private with `chmod 700` and start again",
        )
    return folder


def _made(folder: int, name: str) -> None:
    try:
        os.mkdir(name, 0o700, dir_fd=folder)
    except FileExistsError:
        return
    os.fsync(folder)


def _journal(place: Path, folder: int, root: int, pause: Callable[[float], None]) -> Connection:
    with locked(LOCK, pause, BUSY, folder=folder), translated("opening"):
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
        os.close(os.open(JOURNAL, flags, 0o600, dir_fd=folder))
        os.fsync(folder)
        db = connect(place / JOURNAL)
        try:
            with transaction(db, "opening"):
                journal.set_up(db)
                _bind(db, root)
        except BaseException:
            db.close()
            raise
        return db


def _bind(db: Connection, root: int) -> None:
    """Bind the journal to the root; another root is another instance."""
    found = f"{os.fstatvfs(root).f_fsid:x}:{os.fstat(root).st_ino}"
    if journals.meta(db, ROOT) != found:
        journals.set_meta(db, INSTANCE, secrets.token_hex(16))
        journals.set_meta(db, ROOT, found)


def _account() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


@contextmanager
def turn(site: Site) -> Generator[int]:
    """Hold the lock, at the root that was opened, and yield its descriptor.

    Raises:
        UnavailableError: Others keep the lock, or another folder stands at the path.
        CounterfoilError: What an `OSError` of the block means; nothing happened.
    """
    try:
        with locked(LOCK, site.pause, BUSY, folder=site.folder) as lock:
            standing, opened = site.path.stat(), os.fstat(site.root)
            if (standing.st_dev, standing.st_ino) != (opened.st_dev, opened.st_ino):
                raise UnavailableError(
                    f"another folder stands at {site.path}",
                    move="drop this session and open the run again",
                )
            yield lock
    except OSError as error:
        raise refusal(error) from error


@contextmanager
def working_folder(site: Site, folder: str) -> Generator[int]:
    """Open a folder below the root, part by part, following no link.

    Raises:
        PermissionDeniedError: A part is a link, or no folder.
        StaleObservationError: It is not there.
        OSError: It cannot be opened.
    """
    descriptor = os.dup(site.root)
    try:
        for part in folder.split("/") if folder != "." else ():
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
            try:
                inner = os.open(part, flags, dir_fd=descriptor)
            except FileNotFoundError as error:
                raise StaleObservationError(f"the folder {folder!r:.200} is not there") from error
            except NotADirectoryError as error:
                raise PermissionDeniedError(
                    f"{folder!r:.200} leads over a link, or to no folder"
                ) from error
            os.close(descriptor)
            descriptor = inner
        yield descriptor
    finally:
        os.close(descriptor)


def instance(site: Site) -> str:
    """Return the identity of this environment."""
    return journals.meta(site.db, INSTANCE) or ""
