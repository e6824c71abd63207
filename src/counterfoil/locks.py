"""One worker at a time: a lock that is held from the question to the receipt.

The kernel lets go of it when its holder dies, so there is no stale lock. It is opened
anew each time, so threads of one process exclude each other too.
"""

import fcntl
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from counterfoil.core.errors import UnavailableError

PAUSE_SECONDS = 0.005
TRIES_MAX = 800
"""Four seconds: less than half of a call, and long for another worker's turn."""


@contextmanager
def locked(
    path: str | Path, pause: Callable[[float], None], what: str, *, folder: int | None = None
) -> Generator[int]:
    """Hold the lock, and yield its descriptor; a child that inherits that holds it too.

    Args:
        path: The file; it is made if it is missing, and no link is followed.
        pause: Waits for so many seconds.
        what: What others kept busy, for people.
        folder: Descriptor of the folder that a relative path begins at.

    Raises:
        UnavailableError: Others held it all the while.
        OSError: It cannot be opened.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600, dir_fd=folder)
    try:
        for _ in range(TRIES_MAX):
            if _took(descriptor):
                break
            pause(PAUSE_SECONDS)
        else:
            raise UnavailableError(f"other workers kept {what} busy all the while")
        yield descriptor
    finally:
        os.close(descriptor)


def _took(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
