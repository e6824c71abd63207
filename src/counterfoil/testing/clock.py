"""A clock that stands still until it is moved: leases end when a test says so."""

BEGAN_MS = 1_700_000_000_000
"""Where it starts: any moment that is plainly no wall clock's present."""


class VirtualClock:
    """Wall clock and monotonic clock in one; it moves only when told to.

    Args:
        at_ms: Where it starts, UTC, in milliseconds.
    """

    def __init__(self, at_ms: int = BEGAN_MS) -> None:
        self._at_ms = at_ms

    def now_ms(self) -> int:
        """Return the moment it stands at, in milliseconds."""
        return self._at_ms

    def monotonic_ms(self) -> int:
        """Return the same moment: nothing here sets a clock back."""
        return self._at_ms

    def advance(self, by_ms: int) -> None:
        """Let `by_ms` milliseconds pass.

        Raises:
            ValueError: Time would go back.
        """
        if by_ms < 0:
            raise ValueError(f"time does not go back, not by {-by_ms} ms")
        self._at_ms += by_ms
