"""How long a lease holder may still act, by its own clock.

The register's clock decides when a lease ends; the holder's clock decides when the
holder stops. This module keeps the second moment before the first. It reads no clock
itself: callers pass moments of a monotonic clock.
"""

import threading

from counterfoil.core.errors import LeaseLostError, UsageError

DRIFT_PPM = 1_000
"""Greatest drift between two clocks: ten times what NTP tolerates of a bad crystal."""


def time_to_act_ms(*, ttl_ms: int, round_trip_ms: int, drift_ppm: int = DRIFT_PPM) -> int:
    """Return how long the holder may act after a renewal, in milliseconds.

    Count from the arrival of the reply, on a monotonic clock.

    Args:
        ttl_ms: Term granted by the register, on its clock; at least 1.
        round_trip_ms: From sending the renewal to its reply; at least 0.
        drift_ppm: Greatest drift between both clocks, in parts per million.

    Returns:
        0 or more; 0 means the term is already spent, so renew before acting.

    Raises:
        UsageError: An argument is outside its range.

    Source:
        Gray and Cheriton, "Leases", SOSP 1989: term at the client is term at the
        server, less message time, less the allowance for clock error.
    """
    if ttl_ms < 1 or round_trip_ms < 0 or drift_ppm < 0:
        raise UsageError(f"out of range: {ttl_ms=} {round_trip_ms=} {drift_ppm=}")
    drift_ms = -(-ttl_ms * drift_ppm // 1_000_000)
    return max(0, ttl_ms - round_trip_ms - drift_ms)


class Lease:
    """The term of one acquisition; extended by renewals and by commits alike.

    Shared by the session and the thread that renews, hence the lock.
    """

    def __init__(self, *, ttl_ms: int) -> None:
        self._ttl_ms = ttl_ms
        self._ends_at_ms = 0
        self._lost: LeaseLostError | None = None
        self._lock = threading.Lock()

    def extend(self, *, sent_at_ms: int, now_ms: int) -> None:
        """Count a grant that was asked for at `sent_at_ms` and arrived at `now_ms`."""
        left_ms = time_to_act_ms(ttl_ms=self._ttl_ms, round_trip_ms=max(0, now_ms - sent_at_ms))
        with self._lock:
            self._ends_at_ms = max(self._ends_at_ms, now_ms + left_ms)

    def lose(self, error: LeaseLostError) -> None:
        """Record that the register said the lease is another's."""
        with self._lock:
            self._lost = error

    def left_ms(self, now_ms: int) -> int:
        """Return how long the holder may still act.

        Raises:
            LeaseLostError: The lease is known to be lost.
        """
        with self._lock:
            if self._lost is not None:
                raise self._lost
            return max(0, self._ends_at_ms - now_ms)

    def is_due(self, now_ms: int) -> bool:
        """Return whether a third of the term is used up, so that it is time to renew."""
        with self._lock:
            return self._lost is None and self._ends_at_ms - now_ms < self._ttl_ms * 2 // 3
