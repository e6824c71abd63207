"""A command that runs a stranger's code ends with a sentence, even where that code does not.

First the main thread is interrupted, as with Ctrl-C, so that whatever was set up is taken
down. Code that does not hear even that is left behind: the command reports and exits.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

from counterfoil.cli.screen import report
from counterfoil.core.errors import RefusedError

SET_UP_S = 120.0
"""For what declares no time: an import, or a target that is set up."""

TEAR_DOWN_S = 10.0
"""For what was set up to be taken down, once the main thread is interrupted."""

LOOK_S = 0.1


class _Patience:
    """What is being waited for, and until when; a thread looks now and then."""

    def __init__(self, *, as_json: bool) -> None:
        self.is_over = False
        self.has_run_out = False
        self._as_json = as_json
        self._what = ""
        self._seconds = 0.0
        self._until = 0.0
        self.tell("importing it", 0)

    def tell(self, what: str, within_s: float) -> None:
        """Begin to wait for something, for so many seconds; 0 for as long as a set-up takes."""
        seconds = within_s or SET_UP_S
        self._what, self._seconds, self._until = what, seconds, time.monotonic() + seconds

    @property
    def error(self) -> RefusedError:
        """What is said where patience has run out."""
        return RefusedError(
            f"no answer within {self._seconds:.0f} s while trying: {self._what}",
            move="find what hangs there, or declare a longer call_ms",
        )

    def look(self) -> None:
        """Interrupt the main thread where patience runs out, and leave where that is not enough."""
        while not self.is_over and time.monotonic() < self._until:
            time.sleep(LOOK_S)
        if self.is_over:
            return
        self.has_run_out = True
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        time.sleep(TEAR_DOWN_S)
        if not self.is_over:
            report(self.error, as_json=self._as_json)
        sys.stdout.flush()
        os._exit(self.error.exit_code)  # threads that hang would keep the process for ever


@contextmanager
def patience(*, as_json: bool) -> Generator[Callable[[str, float], None]]:
    """Give what is told of each thing that is tried, and within how many seconds it must end.

    Raises:
        RefusedError: Something did not end in time.
    """
    waiting = _Patience(as_json=as_json)
    # A shell that starts commands in the background has them ignore it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=waiting.look, daemon=True).start()
    try:
        yield waiting.tell
    except KeyboardInterrupt:
        if waiting.has_run_out:
            raise waiting.error from None
        raise
    finally:
        waiting.is_over = True
        signal.signal(signal.SIGINT, before)
