"""How programs of a drill belong together: none of them outlives who started it."""

import ctypes
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from counterfoil.core.errors import UnavailableError
from counterfoil.drill.lines import LINE_BYTES_MAX

PR_SET_PDEATHSIG = 1
END_SECONDS_MAX = 10


def die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent dies, even if it is stopped then."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def end_with_input() -> None:
    """End this process at once when its standard input ends."""
    threading.Thread(target=_end_with_input, daemon=True).start()


def _end_with_input() -> None:
    while os.read(0, 1):
        pass
    os._exit(0)


class Child:
    """Owns one program: its input, its output, its end.

    It runs in a session of its own, so that an interrupt from the keyboard reaches the
    drill alone; it ends when its input does. What it has to say of itself goes to a log, or
    without one to our standard error.
    """

    def __init__(self, module: str, arguments: Sequence[str], *, log: Path | None) -> None:
        errors = None if log is None else log.open("ab")
        try:
            self._child = subprocess.Popen(
                [sys.executable, "-c", f"from {module} import main; main()", *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        finally:
            if errors is not None:
                errors.close()
        self._name = module.rpartition(".")[2]
        self._unread = b""

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._child.pid

    def lines(self, seconds: float) -> list[bytes]:
        """Return the lines that have come, having waited for one at most so long.

        Raises:
            UnavailableError: The program has ended.
        """
        output = self._child.stdout
        if output is None or not select.select([output], [], [], max(0.0, seconds))[0]:
            return []
        read = os.read(output.fileno(), 16 * LINE_BYTES_MAX)
        if not read:
            raise UnavailableError(f"the {self._name} of the drill has ended")
        *lines, self._unread = (self._unread + read).split(b"\n")
        return lines

    def line(self, seconds: float) -> bytes:
        """Return the one line that comes next.

        Raises:
            UnavailableError: The program has ended, or says nothing for so long.
        """
        ends_at = time.monotonic() + seconds
        while time.monotonic() < ends_at:
            lines = self.lines(ends_at - time.monotonic())
            if lines:
                return lines[0]
        raise UnavailableError(f"the {self._name} of the drill says nothing")

    def send(self, line: bytes) -> None:
        """Write to its input.

        Raises:
            UnavailableError: The program has ended.
        """
        try:
            if self._child.stdin is not None:
                self._child.stdin.write(line)
                self._child.stdin.flush()
        except BrokenPipeError as error:
            raise UnavailableError(f"the {self._name} of the drill has ended") from error

    def close(self, seconds: float = END_SECONDS_MAX) -> None:
        """End the program, by closing its input or, after so long, by force."""
        if self._child.stdin is not None:
            with suppress(OSError):
                self._child.stdin.close()
        try:
            self._child.wait(seconds)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        if self._child.stdout is not None:
            self._child.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
