"""Terms as people write them, such as "90d", in milliseconds."""

import re

from counterfoil.core.errors import ConfigError, CounterfoilError

UNITS_MS = {"s": 1_000, "min": 60_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

_TERM = re.compile(r"([0-9]{1,6}) ?(s|min|m|h|d)")


def term_ms(
    text: str, *, name: str, most_days: int, error: type[CounterfoilError] = ConfigError
) -> int:
    """Return a term in milliseconds; 0 is one.

    Args:
        text: A number and a unit: s, min or m, h, d.
        name: What it is given as, for the message.
        most_days: The longest that is taken.
        error: What to raise.

    Raises:
        CounterfoilError: `error`: it is none, or is too long.
    """
    found = _TERM.fullmatch(text.strip())
    ms = int(found[1]) * UNITS_MS[found[2]] if found else -1
    if not 0 <= ms <= most_days * UNITS_MS["d"]:
        raise error(
            f"{name} {text!r:.40} is no term up to {most_days} days", move="write 30min, 12h or 90d"
        )
    return ms
