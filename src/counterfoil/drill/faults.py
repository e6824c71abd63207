"""What happens to workers, and when: one endless list for each seed."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from counterfoil.drill.lines import Stands

FAULT_SECONDS = 1.5
"""Mean time between two faults of one worker: it gets a run or two done in between."""

SHARES = (0.6, 0.2, 0.2)
"""Of kills, short pauses and long ones, in the order of `Action`."""

AT_A_CALL = 0.6
"""Share of faults that wait until a worker stands right before or after a call of a port."""

SHORT = (0.1, 0.7)
LONG = (1.2, 1.7)
"""Length of pauses, in leases: the one must not cost a run, the other must."""


class Action(StrEnum):
    """What is done to a worker."""

    KILL = "kill"
    SHORT_PAUSE = "short pause"
    LONG_PAUSE = "long pause"


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """One fault.

    Attributes:
        after_s: Seconds after the one before it.
        action: What is done.
        waits_for_a_call: Whether it hits whoever stands at a port next.
        luck: 0 up to 1; whom it hits otherwise.
        pause_s: How long a pause is; 0 for a kill.
    """

    after_s: float
    action: Action
    waits_for_a_call: bool
    luck: float
    pause_s: float

    def suits(self, stands: Stands) -> bool:
        """Return whether it may hit a worker that stands there.

        A long pause is for one that is about to move something: it wakes up with all its
        checks done, and must be refused.
        """
        return self.action is not Action.LONG_PAUSE or stands.is_before_a_write


def faults(*, seed: int, workers: int, lease_ms: int) -> Iterator[Fault]:
    """Yield faults without end; the same arguments give the same ones."""
    draw = random.Random(f"faults {seed}")  # noqa: S311 - to be repeatable, not secret
    while True:
        action = draw.choices(tuple(Action), SHARES)[0]
        leases = _leases(action, draw)
        yield Fault(
            after_s=draw.expovariate(workers / FAULT_SECONDS),
            action=action,
            waits_for_a_call=draw.random() < AT_A_CALL,
            luck=draw.random(),
            pause_s=leases * lease_ms / 1000,
        )


def _leases(action: Action, draw: random.Random) -> float:
    match action:
        case Action.KILL:
            return 0.0
        case Action.SHORT_PAUSE:
            return draw.uniform(*SHORT)
        case Action.LONG_PAUSE:
            return draw.uniform(*LONG)
