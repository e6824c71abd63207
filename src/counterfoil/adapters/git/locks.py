"""Locks of other programs, shown and left alone; locks of our own dead commands, put aside.

A lock of git names no owner. One that somebody else took is reported with its age and
its user, and never touched. One that a killed command of ours left is known by what it
holds and what stands beside it, and is moved to a folder as evidence.
"""

import os
import pwd
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import msgspec

from counterfoil.adapters.git.records import Move, desk_ref, receipt_ref
from counterfoil.adapters.git.site import ASIDE, Site
from counterfoil.core.errors import UnavailableError
from counterfoil.core.words import Key, RunId

END = ".lock"

WORKTREES_MAX = 1_000
"""Linked working trees that are looked at."""

ASIDE_MAX = 10_000
"""Locks of one name that are kept as evidence."""

_PROGRAMS_MAX = 8


class Lock(msgspec.Struct, frozen=True, kw_only=True):
    """A lock that stands.

    Attributes:
        path: Where, below the git directory.
        owner: Name of the user whose file it is.
        since_ms: When it was written last, by the file system's clock, UTC.
    """

    path: str
    owner: str
    since_ms: int


def standing(site: Site, names: Iterable[str]) -> tuple[Lock, ...]:
    """Return the locks of the indexes, of the packed refs, and of these refs.

    Raises:
        UnavailableError: They cannot be looked at.
    """
    places = [site.common / "index", site.common / "HEAD", site.common / "packed-refs"]
    places += [folder / "index" for folder in worktrees(site)]
    places += [site.common / name for name in names]
    found: list[Lock] = []
    for place in places:
        lock = place.with_name(f"{place.name}{END}")
        try:
            status = lock.lstat()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise UnavailableError(f"{lock} cannot be looked at") from error
        path = lock.relative_to(site.common).as_posix()
        since_ms = status.st_mtime_ns // 1_000_000
        found.append(Lock(path=path, owner=_user(status.st_uid), since_ms=since_ms))
    return tuple(found)


def described(site: Site, lock: Lock) -> str:
    """Return one lock as a text for people: where, how old, whose, and who is at work there."""
    age = max(0, site.now_ms() - lock.since_ms) // 1_000
    text = f"{lock.path} is {age} s old and belongs to {lock.owner}"
    pids = _at_work(site)
    return f"{text}; git is at work there as {', '.join(pids)}" if pids else text


def worktrees(site: Site) -> tuple[Path, ...]:
    """Return the git directories of linked working trees."""
    with suppress(OSError):
        return tuple(sorted((site.common / "worktrees").iterdir())[:WORKTREES_MAX])
    return ()


def own(site: Site, ref: str, *, is_there: bool) -> Path | None:
    """Return the lock of one of our own refs, if a dead command of ours left it there.

    Nobody else writes a value into our refs. A lock that packs or removes one is empty,
    and only a ref that is there can be packed or removed. The lock of the repository is
    held, so no command of ours lives.

    Args:
        site: The repository.
        ref: A ref of ours.
        is_there: Whether the ref is there.
    """
    lock = _lock(site, ref)
    return lock if _held(lock) or (not is_there and os.path.lexists(lock)) else None


def clear(site: Site, ref: str, *, is_there: bool) -> None:
    """Move away the lock of one of our own refs, if a dead command of ours left it there.

    Raises:
        UnavailableError: It cannot be moved now.
    """
    lock = own(site, ref, is_there=is_there)
    if lock is None:
        return
    try:
        _keep(site, lock)
    except OSError as error:
        raise UnavailableError("a lock of a killed command cannot be put aside now") from error


def set_aside(site: Site, run_id: RunId, key: Key, move: Move | None) -> None:
    """Move away what a dead command of ours left locked, and nothing else.

    Args:
        site: The repository; its lock is held.
        run_id: Whose desk was locked.
        key: Whose receipt was locked; it is not there.
        move: The move that did not happen; None where its ref was let go of.

    The locks were taken in the order desk, moved ref, receipt, and given up by renaming
    in that order. So the lock of the moved ref is ours if it holds what we would have
    written, and was taken after our lock of the desk or before our lock of the receipt.

    Raises:
        UnavailableError: They cannot be moved now.
    """
    before = own(site, desk_ref(run_id), is_there=True)
    after = own(site, receipt_ref(key), is_there=False)
    try:
        if move is not None and _is_ours(site, move, before, after):
            _keep(site, _lock(site, move.ref))
        for place in (after, before):
            if place is not None:
                _keep(site, place)
    except OSError as error:
        raise UnavailableError("locks of a killed command cannot be put aside now") from error


def _is_ours(site: Site, move: Move, before: Path | None, after: Path | None) -> bool:
    lock = _lock(site, move.ref)
    if _held(lock) != move.new:
        return False
    if before is not None:
        return _written_ns(before) <= _written_ns(lock)
    return after is not None and _written_ns(lock) <= _written_ns(after)


def is_left(site: Site, key: Key, move: Move) -> bool:
    """Return whether a begun transaction was killed before it renamed the moved ref."""
    try:
        return _is_ours(site, move, None, own(site, receipt_ref(key), is_there=False))
    except OSError:
        return False


def _lock(site: Site, ref: str) -> Path:
    return site.common / f"{ref}{END}"


def _held(lock: Path) -> str:
    """Return the object id in a lock; empty where there is none."""
    try:
        descriptor = os.open(lock, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return ""
    try:
        return os.read(descriptor, 100).decode("ascii", "replace").strip()
    finally:
        os.close(descriptor)


def _written_ns(lock: Path) -> int:
    return lock.lstat().st_mtime_ns


def _keep(site: Site, lock: Path) -> None:
    folder = site.private / ASIDE
    folder.mkdir(mode=0o700, exist_ok=True)
    for number in range(ASIDE_MAX):
        kept = folder / f"{lock.name.removesuffix(END)}.{number}"
        if not os.path.lexists(kept):
            lock.rename(kept)
            return
    raise UnavailableError(f"{folder} is full of locks that were put aside")


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


def _at_work(site: Site) -> tuple[str, ...]:
    """Return live git processes in the repository or its working tree, as far as they show."""
    top = site.common if site.is_bare else site.common.parent
    found: list[str] = []
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            name = (place / "comm").read_text(encoding="utf-8", errors="replace").strip()
            if name.startswith("git") and (place / "cwd").readlink().is_relative_to(top):
                found.append(f"pid {place.name}")
        if len(found) == _PROGRAMS_MAX:
            break
    return tuple(found)
