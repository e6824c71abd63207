"""The background thread of a session: renew the lease, flush what waits."""

import logging
import threading

from counterfoil.core.errors import CounterfoilError, LeaseLostError
from counterfoil.engine.ledger import Ledger

log = logging.getLogger("counterfoil.engine")

FLUSH_AFTER_MS = 250
"""How long a receipt may wait for the next intent before it is committed alone."""

BEATS_PER_TERM = 9
"""A beat in each ninth of a term: three tries before a third is over."""


class Pulse:
    """Owns a thread that beats until it is stopped."""

    def __init__(self, *, ledger: Ledger, lock: threading.RLock) -> None:
        self._ledger = ledger
        self._lock = lock
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="counterfoil-pulse", daemon=True)

    def start(self) -> None:
        """Begin to beat."""
        self._thread.start()

    def stop(self) -> None:
        """Stop, and wait until the thread is out of the ports."""
        self._stopped.set()
        self._thread.join()

    def _beat(self) -> None:
        ttl_ms = self._ledger.parts.ttl_ms
        pause_ms = min(FLUSH_AFTER_MS / 2, ttl_ms / BEATS_PER_TERM)
        while not self._stopped.wait(pause_ms / 1000):
            try:
                self._renew_if_due()
                self._flush_if_due()
            except LeaseLostError:
                return
            except CounterfoilError as error:
                facts = {"run": self._ledger.run.run_id, "reason": type(error).__name__}
                log.warning("unavailable", extra=facts)

    def _renew_if_due(self) -> None:
        if self._ledger.lease.is_due(self._ledger.parts.clock.monotonic_ms()):
            self._ledger.renew()

    def _flush_if_due(self) -> None:
        if self._ledger.staged_for_ms() < FLUSH_AFTER_MS or not self._lock.acquire(blocking=False):
            return
        try:
            if self._ledger.broken is None:
                self._ledger.flush()
        finally:
            self._lock.release()
