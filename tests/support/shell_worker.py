"""A warm worker that gives each command in a process of its own, and kills that anywhere.

Started as `python -m tests.support.shell_worker`. Each line holds a folder and a number:
a fork opens the folder's `root` and makes the call that lies in `call`, and dies by
SIGKILL before its so-many-th call of the system, counted from the moment the adapter is
open. Of calls that change nothing outside only the last before one that does counts: to
die before any of them is one and the same. The answer is how the fork ended.
"""

import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

from counterfoil.ports import Operation
from tests.support.shell_bench import Yard

KERNEL = ("posix", "fcntl", "select", "_posixsubprocess", "apsw")
"""Modules whose functions and methods leave the interpreter."""

LOOKS = frozenset(
    "dup fetchall fetchone fspath fstat poll pipe read readlink register stat unregister urandom "
    "WIFSTOPPED waitstatus_to_exitcode pidfd_open".split()
)
"""Those that change nothing that another process can see."""

READERS = frozenset(
    "_digest _head _read check_fence content is_forbidden newest open_attempts served _one".split()
)
"""Functions of the adapter that only read, whatever they call."""


class Boundaries:
    """Counts calls that leave the interpreter, and dies before one of them."""

    def __init__(self, fatal: int) -> None:
        self._left = fatal

    def note(self, frame: FrameType, event: str, called: Any) -> None:
        if event != "c_call":
            return
        home = getattr(called, "__module__", None) or type(called.__self__).__module__
        if home not in KERNEL or called.__name__ in LOOKS or frame.f_code.co_name in READERS:
            return
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def work(place: Path, fatal: int) -> None:
    """Make the call."""
    asked = msgspec.msgpack.decode((place / "call").read_bytes(), type=Operation)
    adapter = Yard(place).open()
    sys.setprofile(Boundaries(fatal).note)
    adapter.execute(asked)
    sys.setprofile(None)


def serve() -> None:
    """Make one call after the other."""
    while line := sys.stdin.readline().split():
        child = os.fork()
        if child == 0:
            try:
                work(Path(line[0]), int(line[1]))
            except BaseException as error:  # noqa: BLE001 # a forked process must end here
                sys.stderr.write(f"{error!r}\n")
                os._exit(1)
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        sys.stdout.write(f"{code}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    serve()
