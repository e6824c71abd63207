"""One worker at a time: the lock that is held from the question to the receipt.

The kernel lets go of it when its holder dies, so there is no stale lock. It is opened
anew each time, so threads of one process exclude each other too.
"""

import fcntl
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager

from counterfoil.core.errors import UnavailableError

LOCK = "lock"
"""Name of the lock file in the journal's folder."""

PAUSE_SECONDS = 0.005
TRIES_MAX = 1_000
"""Five seconds: half of the longest call, and long for another worker's write."""


@contextmanager
def locked(folder: int, pause: Callable[[float], None]) -> Generator[int]:
    """Hold the lock, and yield its descriptor.

    Args:
        folder: Descriptor of the journal's folder.
        pause: Waits for so many seconds.

    Raises:
        UnavailableError: Others held it all the while.
    """
    descriptor = os.open(LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600, dir_fd=folder)
    try:
        for _ in range(TRIES_MAX):
            if _took(descriptor):
                break
            pause(PAUSE_SECONDS)
        else:
            raise UnavailableError("other workers kept the files busy all the while")
        yield descriptor
    finally:
        os.close(descriptor)


def _took(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
