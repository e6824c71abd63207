"""Sessions that something befalls between two of their calls, and the sessions after them."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TypeVar

from counterfoil.core.errors import (
    CounterfoilError,
    LostRaceError,
    UnavailableError,
    UnknownOutcomeError,
)
from counterfoil.core.words import Level
from counterfoil.testing.mortal import Fate
from tests.support.pairs import Pair, has_completed, works
from tests.support.stages import Form, PlayStage, shop_stage

EAGER = Form(merges=False)
DONE = ("A-7", "B-9")
SESSIONS_MAX = 4
IN_FLIGHT_MS = 1_000

OUTAGES = (LostRaceError, UnavailableError, UnknownOutcomeError)
"""What a session may say of a server, a network or a disk. Anything else fails a test."""

T = TypeVar("T")
Moment = Callable[[int, str], object]
"""What is told the number and the name of each call."""


class Meddling(Fate):
    """Lets something happen right before or right after calls."""

    def __init__(self, before: Moment = lambda *_: None, after: Moment = lambda *_: None) -> None:
        super().__init__()
        self._before, self._after = before, after

    def call(self, name: str, act: Callable[[], T]) -> T:
        number = len(self.calls)
        self._before(number, name)
        try:
            return super().call(name, act)
        finally:
            self._after(number, name)


def at_number(wanted: int, act: Callable[[], object]) -> Moment:
    """Return what acts at the call with this number, from 0."""
    return lambda number, _: act() if number == wanted else None


def first(wanted: str, act: Callable[[], object]) -> Moment:
    """Return what acts at the first call of this name."""
    left = [act]
    return lambda _, name: left.pop()() if name == wanted and left else None


def nothing() -> None:
    """Mend nothing."""


def survives(
    pair: Pair, stage: PlayStage, fate: Fate, heal: Callable[[], object] = nothing
) -> list[CounterfoilError]:
    """Let sessions follow each other until the run is done; return how they ended.

    Only the first one has a fate; then the world is mended, and leases are over.
    """
    errors: list[CounterfoilError] = []
    for session in range(SESSIONS_MAX):
        try:
            works(pair, stage, fate if session == 0 else None)
        except OUTAGES as error:
            errors.append(error)
        heal()
        pair.end_leases()
        stage.wait()
        if len(errors) == session:
            break
    assert stage.effects() == DONE
    assert has_completed(stage)
    return errors


@contextmanager
def staged(pair: Pair) -> Generator[PlayStage]:
    """Return a shop that can be asked by key, and does again what it is told again."""
    made = shop_stage(pair, level=Level.QUERYABLE, in_flight_ms=IN_FLIGHT_MS, form=EAGER)
    with made as stage:
        yield stage


def calls_of(pair: Pair) -> list[str]:
    """Return the calls of a session that nothing befalls."""
    fate = Fate()
    with staged(pair) as stage:
        assert survives(pair, stage, fate) == []
    return fate.calls


def where(calls: list[str], *names: str) -> list[int]:
    """Return the numbers of calls with one of these beginnings."""
    return [number for number, name in enumerate(calls) if name.startswith(names)]
