"""What `doctor` looks at: each check is a line that says what is, and how to mend it.

A check never changes anything that a program would not, and never stops the others.
"""

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import apsw

from counterfoil.cli.screen import duration
from counterfoil.compose import (
    Places,
    file_system_of,
    floor_ms_of,
    open_checkpoints,
    open_register,
    pragmas_of,
)
from counterfoil.core.errors import CounterfoilError, UsageError
from counterfoil.keys import KeyStatus, load_keyring, open_source, parse_source
from counterfoil.ports import CheckpointStore, Clock, HeadRegister

SQLITE_MIN = (3, 46, 0)
"""Oldest SQLite that the declared driver brings."""

FREE_BYTES_FAIL = 16 * 1024 * 1024
"""A few thousand commits: less, and the next run may stop in the middle."""

FREE_BYTES_WARN = 256 * 1024 * 1024

CLOCK_AHEAD_MS_MAX = 60_000
"""Register time ahead of the wall clock that people notice: leases outlive it by as much."""


class State(StrEnum):
    """How a check came out."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """What one check found.

    Attributes:
        name: What was looked at.
        state: How it came out.
        found: What is.
        mend: What to do; empty when all is well.
        exit_code: Of the family of the error that was met; 0 without one.
    """

    name: str
    state: State
    found: str
    mend: str = ""
    exit_code: int = 0


def ok(name: str, found: str) -> Line:
    """Return a line that says that all is well."""
    return Line(name=name, state=State.OK, found=found)


def warned(name: str, found: str, mend: str) -> Line:
    """Return a line that somebody should read."""
    return Line(name=name, state=State.WARN, found=found, mend=mend)


def failed(name: str, error: CounterfoilError) -> Line:
    """Return the line of a check that met an error."""
    return Line(
        name=name,
        state=State.FAIL,
        found=f"{type(error).__name__}: {error.message}",
        mend=error.move or error.next_move,
        exit_code=error.exit_code,
    )


def all_lines(places: Places, clock: Clock) -> Iterator[Line]:
    """Yield every line, in the order in which a person would look."""
    yield _driver()
    yield from _guarded("keys", lambda: _keys(places))
    yield from _guarded("checkpoints", lambda: _checkpoints(places))
    yield from _guarded("heads", lambda: _heads(places, clock))
    yield _independence(places)
    for folder in _folders(places):
        yield _folder(folder)


def _guarded(name: str, check: Callable[[], Sequence[Line]]) -> Sequence[Line]:
    try:
        return check()
    except CounterfoilError as error:
        return [failed(name, error)]


def _driver() -> Line:
    version = apsw.sqlite_lib_version()
    if tuple(int(part) for part in version.split(".")[:3]) < SQLITE_MIN:
        return warned(
            "sqlite", f"version {version} is old", "install the apsw wheel, which brings its own"
        )
    return ok("sqlite", f"version {version}")


def _keys(places: Places) -> list[Line]:
    source = parse_source(places.key_source)
    ring = load_keyring(places.keys) if places.keys else open_source(source)
    active = next(row.id for row in ring.rows if row.status is KeyStatus.ACTIVE)
    opening = sum(row.status is KeyStatus.OPENING for row in ring.rows)
    where = f"{places.keys}, for you alone" if places.keys else source.title
    return [ok("keys", f"{where}; {active} signs, {opening} more open")]


def _checkpoints(places: Places) -> list[Line]:
    store = open_checkpoints(places)
    try:
        return [_opened("checkpoints", places.store, store)]
    finally:
        store.close()


def _heads(places: Places, clock: Clock) -> list[Line]:
    register = open_register(places, clock)
    try:
        return [
            _opened("heads", places.heads, register),
            _clock(floor_ms_of(register), clock.now_ms()),
        ]
    finally:
        register.close()


def _opened(name: str, path: Path | None, port: CheckpointStore | HeadRegister) -> Line:
    if path is None:
        return warned(name, "in memory: gone with the process", f"set the url of {name} to a file")
    pragmas = ", ".join(f"{pragma} {value}" for pragma, value in pragmas_of(port).items())
    return ok(name, f"{path}, for you alone; {pragmas}")


def _clock(floor_ms: int, now_ms: int) -> Line:
    ahead_ms = floor_ms - now_ms
    if ahead_ms > CLOCK_AHEAD_MS_MAX:
        return warned(
            "clock",
            f"the register has seen a moment {duration(ahead_ms)} ahead of this clock",
            "set the clock right; until it gets there, leases of workers that died elsewhere "
            "end by release alone",
        )
    return ok("clock", "the wall clock is not behind the register")


def _independence(places: Places) -> Line:
    name, store, heads = "independence", places.store, places.heads
    if store is None or heads is None:
        return ok(name, "nothing in memory outlives its process")
    mend = "leave heads.url unset, or point it to a file outside the project, best on another disk"
    if heads.resolve() == store.resolve():
        return warned(name, "heads and checkpoints are one file", mend)
    if heads.parent.resolve() == store.parent.resolve():
        return warned(
            name, "heads lie beside checkpoints: restoring that folder turns back both", mend
        )
    if heads.resolve().is_relative_to(places.project.resolve()):
        return warned(
            name, "heads lie inside the project: restoring or copying it turns back both", mend
        )
    if _device(heads) == _device(store):
        return warned(
            name,
            "heads lie apart from checkpoints, on the same disk: restoring the whole disk "
            "turns back both",
            "put heads.url on another disk if whole disks are restored here; adapters that "
            "remember refuse it all the same",
        )
    return ok(name, "heads lie on another disk than checkpoints")


def _device(file: Path) -> int:
    """Return the disk of a file, or the one on which it would be made."""
    return next(at.stat().st_dev for at in file.resolve().parents if at.exists())


def _folders(places: Places) -> list[Path]:
    files = (places.store, places.heads, places.keys)
    return list(
        dict.fromkeys(file.parent for file in files if file is not None and file.parent.is_dir())
    )


def _folder(folder: Path) -> Line:
    kind, is_network = file_system_of(folder)
    free_bytes = shutil.disk_usage(folder).free
    found = f"{folder}: {kind or 'of unknown kind'}, {free_bytes // 1024 // 1024} MiB free"
    if is_network:
        return _unfit(f"{found}; a network's, which loses commits", "choose a local disk")
    if free_bytes < FREE_BYTES_FAIL:
        return _unfit(found, "make room before a run goes on")
    if free_bytes < FREE_BYTES_WARN:
        return warned("disk", found, "make room soon")
    return ok("disk", found)


def _unfit(found: str, mend: str) -> Line:
    code = UsageError.exit_code
    return Line(name="disk", state=State.FAIL, found=found, mend=mend, exit_code=code)
