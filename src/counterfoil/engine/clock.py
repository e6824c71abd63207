"""The system's clocks."""

import time

_MONOTONIC = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SystemClock:
    """Wall clock, and a monotonic clock that counts suspended time where there is one."""

    def now_ms(self) -> int:
        """Return the wall clock, UTC, in milliseconds."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Return CLOCK_BOOTTIME, or the monotonic clock of other systems."""
        return time.clock_gettime_ns(_MONOTONIC) // 1_000_000
