"""How long calls to a service may take: bounds that an operator may have to know better."""

from dataclasses import dataclass

from counterfoil.core.errors import ConfigError

HOUR_S = 3_600


@dataclass(frozen=True, kw_only=True, slots=True)
class Times:
    """Bounds of one adapter.

    Attributes:
        call_ms: Longest call, and longest upload of one call: the next call goes on from
            there. Below the term of a lease, so a longer one needs a longer lease.
        request_s: Longest wait for one answer.
        lasts_s: How long the service accepts a signed call.
        landing_s: How long a call that was accepted may take until it has landed: the
            time after which the service ends a request that stands still.
    """

    call_ms: int = 20_000
    request_s: int = 5
    lasts_s: int = 10
    landing_s: int = 60

    @property
    def in_flight_ms(self) -> int:
        """How long after it began a call may still land."""
        return self.call_ms + (self.lasts_s + self.landing_s) * 1000


USUAL = Times()
"""For services on a usual network, under a lease of the usual term."""


def check(times: Times) -> None:
    """Refuse times that no call could be made with.

    Raises:
        ConfigError: One is below 1, or beyond an hour.
    """
    for name, value, most in (
        ("call_ms", times.call_ms, HOUR_S * 1000),
        ("request_s", times.request_s, HOUR_S),
        ("lasts_s", times.lasts_s, HOUR_S),
        ("landing_s", times.landing_s, HOUR_S),
    ):
        if not 1 <= value <= most:
            raise ConfigError(f"times.{name} is {value}, not 1 to {most}")
