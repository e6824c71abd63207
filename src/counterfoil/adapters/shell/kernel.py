"""What the supervisor and the adapter both ask of the kernel; the standard library alone.

A pid is used again and again; a pid together with its start time is not, within one
start of the machine. So whatever is named here is named by both, and signals go through
a descriptor that was opened before the start time was compared.
"""

import errno
import os
import signal
import time
from hashlib import sha256
from typing import NamedTuple

START, EXIT, SPARE = "start", "exit", "exit.new"
STDOUT, STDERR = "stdout", "stderr"
"""Files of an attempt."""

TOKEN_NAME = "COUNTERFOIL_ATTEMPT"  # noqa: S105 - the name of a variable, no secret
"""Variable in the environment of a command by which what it leaves behind is known."""

KILL_MS = 5_000
"""How long what does not die of SIGKILL is waited for: it hangs in the kernel."""

HASHED_BYTES_MAX = 64 * 1024 * 1024
"""A larger watched file is known by its size and time: hashing it would hold all up."""

CHUNK_BYTES = 64 * 1024


class Life(NamedTuple):
    """One entry of the kernel's table; pid and start together are never used twice."""

    pid: int
    start: int
    state: str
    parent: int
    session: int
    threads: int

    @property
    def runs(self) -> bool:
        """Whether it lives; one whose first thread has ended lives on in its others."""
        return self.state not in "ZX" or self.threads > 1


def life(pid: int) -> Life | None:
    """Return what the kernel says of a pid; None when there is no such."""
    try:
        raw = content(f"/proc/{pid}/stat")
    except OSError:
        return None
    fields = raw.rpartition(b")")[2].split()
    if len(fields) < 20:
        return None
    return Life(
        pid=pid,
        start=int(fields[19]),
        state=fields[0].decode(),
        parent=int(fields[1]),
        session=int(fields[3]),
        threads=int(fields[17]),
    )


def lives() -> list[Life]:
    """Return everything that lives, and can be seen from here; zombies are left out."""
    found = (life(int(name)) for name in os.listdir("/proc") if name.isdecimal())  # noqa: PTH208 - paths cost imports
    return [one for one in found if one is not None and one.runs]


def boot_id() -> str:
    """Return the identity of this start of the machine."""
    return content("/proc/sys/kernel/random/boot_id").decode().strip()


def pid_namespace() -> str:
    """Return the identity of the namespace in which our pids mean anything."""
    return os.readlink("/proc/self/ns/pid")  # noqa: PTH115 - paths cost imports


def boot_ms() -> int:
    """Return a clock that starts with the machine and counts suspended time."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


def send(pid: int, start: int, number: int) -> bool:
    """Send a signal to exactly this one; return whether it was there and could be sent."""
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        found = life(pid)
        if found is None or found.start != start:
            return False
        signal.pidfd_send_signal(descriptor, number)
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)


def digests(root: int, paths: list[str]) -> list[str]:
    """Return for each path below a root the digest of the file, or what else is there.

    Raises:
        OSError: Something cannot be read.
    """
    return [_digest(root, path) for path in paths]


def _digest(root: int, path: str) -> str:
    folder = os.dup(root)
    try:
        *above, name = path.split("/")
        for part in above:
            inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
            os.close(folder)
            folder = inner
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
        descriptor = os.open(name, flags, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            return "absent"
        if error.errno in (errno.ELOOP, errno.ENXIO):
            return "no file"
        raise
    finally:
        os.close(folder)
    try:
        status = os.fstat(descriptor)
        if status.st_mode & 0o170000 != 0o100000:
            return "no file"
        if status.st_size > HASHED_BYTES_MAX:
            return f"{status.st_size} bytes at {status.st_mtime_ns}"
        code = sha256()
        while chunk := os.read(descriptor, CHUNK_BYTES):
            code.update(chunk)
        return code.hexdigest()
    finally:
        os.close(descriptor)


def content(path: str) -> bytes:
    """Return what the kernel shows at a path, at most one chunk.

    Raises:
        OSError: Nothing, or not to us.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, CHUNK_BYTES)
    finally:
        os.close(descriptor)
