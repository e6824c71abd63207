"""The records of an attempt, and what they and the kernel say about how it stands."""

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import msgspec

from counterfoil.adapters.shell.kernel import (
    EXIT,
    START,
    TOKEN_NAME,
    Life,
    boot_id,
    boot_ms,
    content,
    life,
    lives,
    pid_namespace,
    send,
)
from counterfoil.core.canonical import decode
from counterfoil.core.errors import FormatError

RECORD_BYTES_MAX = 64 * 1024
VOID = b"void"
"""What stands in place of a start that was made impossible."""

KILL_TURNS, KILL_PAUSE_SECONDS = 50, 0.01
"""Half a second for what nobody watches any more to die of SIGKILL."""

SLOW_MS = 60_000
"""How late a supervisor that cannot be seen from here may record an end: its disk is slow."""


class Started(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a supervisor records before the command runs; pids with their start times."""

    boot: str
    namespace: str
    supervisor: tuple[int, int]
    stages: tuple[tuple[int, int], ...]
    session: int
    token: str
    started_at_ms: int
    ends_boot_ms: int


class Exited(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a supervisor records when nothing of the command is left, or cannot be ended."""

    stages: tuple[dict[str, int | str], ...]
    is_timed_out: bool
    is_stopped: bool
    left_behind: int
    survivors: tuple[tuple[int, int], ...]
    stdout_bytes: int
    stderr_bytes: int
    stdout_kept: int
    stderr_kept: int
    output_trouble: str
    watched: tuple[str, ...] | None
    started_at_ms: int
    ended_at_ms: int


class Standing(Enum):
    """How an attempt stands."""

    NEVER = "it did not run, and will not"
    RUNS = "it runs"
    ENDED = "its end is on record"
    LOST = "it ran, and its end is not known"


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """How an attempt stands, and by what.

    Attributes:
        standing: How it stands.
        started: Record of its start, if there is one.
        exited: Record of its end, if there is one.
        survivors: What is known to run of it, pids with their start times.
        may_run: Whether something of it may run that nobody watches.
        is_watched: Whether its supervisor lives.
        why: Why its end is not known, or cannot be seen from here.
    """

    standing: Standing
    started: Started | None = None
    exited: Exited | None = None
    survivors: tuple[tuple[int, int], ...] = ()
    may_run: bool = False
    is_watched: bool = False
    why: str = ""


def look(folder: int, pause: Callable[[float], None], *, is_stopping: bool = False) -> Seen:
    """Say how an attempt stands; under the lock, so that a start is decided.

    One whose supervisor is gone is left to run until its time is over, and then stopped.

    Args:
        folder: Descriptor of its folder.
        pause: Waits for so many seconds.
        is_stopping: Whether its time is over at once.

    Raises:
        FormatError: A record is not what a supervisor writes.
        OSError: They cannot be read.
    """
    exited = _exited(folder)
    raw = _read(folder, START)
    if raw is None and exited is None:
        raw = VOID if _made_void(folder) else _read(folder, START)
    if raw in (None, VOID, b""):
        if exited is None:
            return Seen(standing=Standing.NEVER)
        why = "there is a record of its end, and none of its start"
        return Seen(standing=Standing.LOST, may_run=True, why=why)
    started = decode(raw, Started, "the start of a command", bytes_max=RECORD_BYTES_MAX)
    if exited is not None:
        return _ended(started, exited)
    if started.boot != boot_id():
        why = "the machine was started anew while it ran"
        return Seen(standing=Standing.LOST, started=started, why=why)
    if started.namespace != pid_namespace():
        return _elsewhere(started)
    if is_alive(*started.supervisor):
        if is_stopping:
            send(*started.supervisor, signal.SIGTERM)
        return Seen(standing=Standing.RUNS, started=started, is_watched=True)
    exited = _exited(folder)  # it may have ended between the two looks
    if exited is not None:
        return _ended(started, exited)
    return _orphaned(started, pause, is_stopping=is_stopping)


def is_alive(pid: int, start: int) -> bool:
    """Return whether exactly this one lives."""
    found = life(pid)
    return found is not None and found.start == start and found.runs


def _ended(started: Started, exited: Exited) -> Seen:
    if len(exited.stages) != len(started.stages):
        raise FormatError("the end of a command has other stages than its start")
    if all("failed" in stage for stage in exited.stages):
        return Seen(standing=Standing.NEVER, started=started, exited=exited)
    left = _left(started, exited)
    if not left and not any("alive" in stage for stage in exited.stages):
        return Seen(standing=Standing.ENDED, started=started, exited=exited)
    return Seen(
        standing=Standing.LOST,
        started=started,
        exited=exited,
        survivors=left,
        may_run=bool(left),
        why="something of it could not be stopped",
    )


def _left(started: Started, exited: Exited) -> tuple[tuple[int, int], ...]:
    """Return what its supervisor could not stop, and may live."""
    if started.boot != boot_id():
        return ()
    if started.namespace != pid_namespace():
        return exited.survivors
    return tuple(one for one in exited.survivors if is_alive(*one))


def _elsewhere(started: Started) -> Seen:
    """Judge by its time alone what has no pid here; its supervisor records an end by then."""
    where = f"it was started in another PID namespace, {started.namespace}"
    if boot_ms() < started.ends_boot_ms + SLOW_MS:
        why = f"{where}: whether it runs can be told from there alone"
        return Seen(standing=Standing.RUNS, started=started, may_run=True, why=why)
    why = f"{where}, and no end was recorded in its time"
    return Seen(standing=Standing.LOST, started=started, may_run=True, why=why)


def _orphaned(started: Started, pause: Callable[[float], None], *, is_stopping: bool) -> Seen:
    alive = _survivors(started)
    standing, why = Standing.LOST, "its supervisor was killed before it recorded the end"
    if alive and not is_stopping and boot_ms() < started.ends_boot_ms:
        standing, why = Standing.RUNS, "it still runs without its supervisor"
    elif alive:
        alive = _kill(started, pause)
    left = tuple((one.pid, one.start) for one in alive)
    return Seen(standing=standing, started=started, survivors=left, may_run=bool(left), why=why)


def _kill(started: Started, pause: Callable[[float], None]) -> tuple[Life, ...]:
    """Kill what bears the mark of an attempt; return what may be left of it."""
    for _ in range(KILL_TURNS):
        alive = _survivors(started)
        marked = [one for one in alive if _is_marked(one, started)]
        for one in marked:
            send(one.pid, one.start, signal.SIGKILL)
        if not marked:
            return alive
        pause(KILL_PAUSE_SECONDS)
    return _survivors(started)


def _survivors(started: Started) -> tuple[Life, ...]:
    """Return what lives and bears the mark, or is of a session that bore it.

    Only what bears the mark is ever killed: the number of a session that is over may be
    another's by now.
    """
    return tuple(
        one for one in lives() if one.session == started.session or _is_marked(one, started)
    )


def _is_marked(one: Life, started: Started) -> bool:
    if (one.pid, one.start) in started.stages:
        return True
    try:
        variables = content(f"/proc/{one.pid}/environ").split(b"\0")
    except OSError:  # another account's, or gone
        return False
    return f"{TOKEN_NAME}={started.token}".encode() in variables


def _exited(folder: int) -> Exited | None:
    raw = _read(folder, EXIT)
    if raw is None:
        return None
    return decode(raw, Exited, "the end of a command", bytes_max=RECORD_BYTES_MAX)


def _made_void(folder: int) -> bool:
    """Put something where the start would be recorded; False when it is recorded."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    try:
        descriptor = os.open(START, flags, 0o600, dir_fd=folder)
    except FileExistsError:
        return False
    try:
        os.write(descriptor, VOID)
        os.fsync(descriptor)
        os.fsync(folder)
    finally:
        os.close(descriptor)
    return True


def _read(folder: int, name: str) -> bytes | None:
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=folder)
    except FileNotFoundError:
        return None
    try:
        return os.read(descriptor, RECORD_BYTES_MAX + 1)
    finally:
        os.close(descriptor)
