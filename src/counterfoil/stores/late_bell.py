"""A bell that costs a connection only where somebody waits for it."""

from collections.abc import Callable
from threading import Event, RLock

from counterfoil.core.errors import ConfigError, UnavailableError
from counterfoil.ports import Bell


class LateBell:
    """A `Bell` that is opened when somebody first waits, since few keepers have workers.

    Where it cannot be opened, as behind a pooler, waiting is all it does: nothing rests
    on a ring.
    """

    def __init__(self, opens: Callable[[], Bell]) -> None:
        self._opens = opens
        self._lock = RLock()  # whoever opens may be told to close by a signal
        self._bell: Bell | None = None
        self._is_futile = False
        self._closed = Event()

    def wait(self, timeout_ms: int) -> bool:
        """Return True on a ring, False when the time is over or the bell is closed.

        The first wait is a ring: one may have been missed before anybody listened.
        """
        was_heard = self._bell is not None
        bell = self._opened()
        if bell is not None and not was_heard:
            return True
        if bell is not None:
            return bell.wait(timeout_ms)
        self._closed.wait(max(0, timeout_ms) / 1000)
        return False

    def close(self) -> None:
        """Let go of the connection, and end every wait; a second time does nothing."""
        self._closed.set()
        with self._lock:
            bell, self._bell = self._bell, None
        if bell is not None:
            bell.close()

    def _opened(self) -> Bell | None:
        with self._lock:
            if self._bell is None and not self._is_futile and not self._closed.is_set():
                try:
                    self._bell = self._opens()
                except UnavailableError:
                    return None
                except ConfigError:
                    self._is_futile = True
            if self._closed.is_set():
                self.close()
            return self._bell
