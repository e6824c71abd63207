"""Waiting for the end of a command, by a descriptor that no other pid can stand for."""

import os
import select
import time
from collections.abc import Callable

from counterfoil.adapters.shell.records import Seen, Standing, is_alive

ORPHAN_PAUSE_SECONDS = 0.05
"""Between two looks at a command whose supervisor is gone: nothing says when it ends."""


def monotonic_ms() -> int:
    """Return a clock for waits."""
    return time.monotonic_ns() // 1_000_000


def wait(seen: Seen, give_up_at_ms: int, pause: Callable[[float], None]) -> bool:
    """Wait until a command may have ended; return False when the time is over."""
    if seen.standing is not Standing.RUNS or seen.started is None:
        return True
    left_ms = give_up_at_ms - monotonic_ms()
    if left_ms <= 0:
        return False
    if not seen.is_watched:
        pause(ORPHAN_PAUSE_SECONDS)
        return True
    pid, begun = seen.started.supervisor
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:  # it ended a moment ago
        return True
    try:
        if not is_alive(pid, begun):
            return True
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(left_ms))
    finally:
        os.close(descriptor)
