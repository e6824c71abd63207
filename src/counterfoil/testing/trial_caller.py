"""A process that makes one call of an adapter, so that it can be killed inside it.

It is forked before whoever judges it has opened an adapter, and opens one of its own: no
connection is shared. A death is SIGKILL, as a machine deals it; nothing is told to the adapter.
"""

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import NoReturn

from counterfoil.core.receipt import Receipt
from counterfoil.ports import Adapter, Operation

BEGIN_S_MAX = 30.0
"""How long an adapter may take to open, in a process of its own."""

BEGUN = "begun"


class CallerError(Exception):
    """The other process did not make the call; says why."""


class Caller:
    """One process that waits for its call. `started_caller` makes it; close it in the end."""

    def __init__(self, number: int, line: Connection) -> None:
        self._number = number
        self._line = line

    def call(self, operation: Operation, seconds_max: float) -> tuple[Receipt, float]:
        """Have the call made unharmed; return its receipt, and how many seconds it took.

        Args:
            operation: The call.
            seconds_max: How long to wait for its answer.

        Raises:
            CallerError: There is no receipt.
        """
        begun = self._begin(operation)
        if begun != BEGUN:
            raise CallerError(f"it does not open there: {begun or 'no answer'}")
        began = time.monotonic()
        answer = self._heard(seconds_max)
        if isinstance(answer, Receipt):
            return answer, time.monotonic() - began
        raise CallerError(f"its call ends there with {answer or 'no answer'}")

    def strike(self, operation: Operation, after_s: float) -> bool:
        """Have the call made, and kill its process; return whether it had no answer yet.

        Args:
            operation: The call.
            after_s: How long to let it go on, in seconds.
        """
        is_begun = self._begin(operation) == BEGUN
        is_inside = is_begun and not self._line.poll(after_s)
        os.kill(self._number, signal.SIGKILL)
        return is_inside

    def close(self) -> None:
        """Kill the process and whatever it has started that is of its group."""
        self._line.close()
        with suppress(ProcessLookupError):  # its child has no group of its own yet
            os.killpg(self._number, signal.SIGKILL)
        os.kill(self._number, signal.SIGKILL)  # a zombie until the next line, so nobody else's
        os.waitpid(self._number, 0)

    def _begin(self, operation: Operation) -> object:
        self._line.send(operation)
        return self._heard(BEGIN_S_MAX)

    def _heard(self, seconds_max: float) -> object:
        """Return what the other process says; None where it says nothing, or is gone."""
        try:
            return self._line.recv() if self._line.poll(seconds_max) else None
        except EOFError:
            return None


def started_caller(open_adapter: Callable[[], Adapter]) -> Caller:
    """Fork a process that waits for one call.

    Args:
        open_adapter: Opens an adapter there; it must reach the target from another process.
    """
    ours, theirs = Pipe()
    number = os.fork()
    if number == 0:
        try:
            os.setpgid(0, 0)
            ours.close()  # so that the line ends with whoever started this
            _live(open_adapter, theirs)
        finally:
            os._exit(0)  # nothing of the process that was copied is to end twice
    theirs.close()
    return Caller(number, ours)


def _live(open_adapter: Callable[[], Adapter], line: Connection) -> NoReturn:
    """Make the one call, say how it ended, and wait for death."""
    operation: Operation = line.recv()
    try:
        adapter = open_adapter()
        line.send(BEGUN)
        line.send(adapter.execute(operation))
    except Exception as error:  # noqa: BLE001 - a stranger's adapter may raise anything
        line.send(f"{type(error).__name__}: {error!s:.200}")
    while True:  # until the line or this process ends
        line.recv()
