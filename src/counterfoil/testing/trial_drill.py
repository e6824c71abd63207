"""The crash drill of a trial: a run on the bench's target, killed between and inside calls.

Between two calls nothing happens that anybody could see, so those deaths are enumerated.
Inside a call only the adapter knows what happens: there a process of its own makes the
call, and is killed at moments that are spread over it by a seeded draw.
"""

import random
import time
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from counterfoil.core.errors import (
    CounterfoilError,
    FrozenError,
    UnavailableError,
    UnknownOutcomeError,
)
from counterfoil.core.receipt import Receipt
from counterfoil.core.words import Level
from counterfoil.ports import Adapter, Operation
from counterfoil.testing.crash import SESSIONS_MAX, Tally, enumerate_crashes
from counterfoil.testing.expect import ConformanceError, expect
from counterfoil.testing.mortal import Died, Fate, mortal
from counterfoil.testing.saboteur_adapters import Passing
from counterfoil.testing.trial_caller import Caller, CallerError
from counterfoil.testing.trial_stage import Play, Stage, staged

SEED = 1

DEATHS = 12
"""Deaths inside each write: enough to meet each of a few steps that a call is made of."""

LANDING_S_MAX = 60.0
"""How long all deaths together may wait for calls that may still land."""


@dataclass(kw_only=True, slots=True)
class Kills:
    """What deaths inside calls came to.

    Attributes:
        kills: Processes that were killed.
        inside: Those that were killed before their call had an answer.
        reviews: Deaths after which a person was asked.
        problem: What was found; empty where nothing.
        why: Why nobody could be killed inside a call; empty where somebody was.
        offer: What the bench must offer for it.
    """

    kills: int = 0
    inside: int = 0
    reviews: int = 0
    problem: str = ""
    why: str = ""
    offer: str = ""


def die_between_calls(play: Play, second_deaths: float) -> tuple[Tally, str]:
    """Kill a run at each instant between its calls; return the tally, and what was found."""
    tried = 0

    @contextmanager
    def staging() -> Generator[Stage]:
        nonlocal tried
        play.tell("setting a target up", 0)
        with staged(play) as stage:
            what = f"a run that dies, number {tried}" if tried else "a run that goes unharmed"
            play.tell(what, play.seconds_max)
            tried += 1
            yield stage

    try:
        tally = enumerate_crashes(
            staging, may_need_review=play.asks_people, second_deaths=second_deaths
        )
    except ConformanceError as error:
        return Tally(crashes=max(0, tried - 1)), str(error)
    return tally, ""


def die_inside_calls(play: Play) -> Kills:
    """Kill a process inside each write of a run, at moments spread over it."""
    flight_s = (play.spec.in_flight_ms or 0) / 1000
    landing_s = flight_s if play.spec.level is Level.QUERYABLE else 0.0
    deaths = min(DEATHS, int(LANDING_S_MAX / play.writes / landing_s) if landing_s else DEATHS)
    if not deaths:
        return Kills(
            why=f"its calls may land for {flight_s:.0f} s, and all deaths together wait for"
            f" {LANDING_S_MAX:.0f} s",
            offer="an adapter that declares a smaller in_flight_ms",
        )
    kills, chance = Kills(), random.Random(SEED)  # noqa: S311 - chooses tests, no secrets
    try:
        call_s, whole = _measured(play)
        for number in range(1, play.writes + 1):
            for step in range(deaths):
                after_s = call_s * (step + chance.random()) / deaths
                strike = _Strike(number=number, after_s=after_s, call_s=call_s, landing_s=landing_s)
                _struck(play, strike, whole, kills)
        at_once = _Strike(number=1, after_s=0.0, call_s=call_s, landing_s=landing_s)
        for _ in range(deaths):
            if not kills.inside:  # calls are quick, or the machine is slow
                _struck(play, at_once, whole, kills)
    except CallerError as error:
        kills.why = f"an adapter that another process opens is of no use: {error}"
        kills.offer = "open, so that it reaches the target from a forked process too"
    except ConformanceError as error:
        kills.problem = str(error)
    if kills.kills and not kills.inside and not kills.problem:
        kills.why = "a call ends before anybody can be killed inside it"
        kills.offer = "a slower target"
    return kills


@dataclass(frozen=True, kw_only=True, slots=True)
class _Strike:
    """One death: in which write, how far into it, and what is waited for afterwards."""

    number: int
    after_s: float
    call_s: float
    landing_s: float

    def __str__(self) -> str:
        return f"death {self.after_s * 1000:.1f} ms into write {self.number}"


def _measured(play: Play) -> tuple[float, Counter[str]]:
    """Return how long a call takes in a process of its own, in seconds, and the effects.

    Raises:
        CallerError: It does not work there, or its effects are not on the target.
        ConformanceError: The run does not end.
    """
    play.tell("setting a target up", 0)
    with staged(play, callers=play.writes) as stage:
        play.tell("a run whose calls are made by other processes", play.seconds_max)
        fate, hand = Fate(), _Hand(stage.callers, seconds_max=play.seconds_max)
        _begun(stage, hand, fate)
        if hand.why:
            raise CallerError(hand.why)
        seen = Counter(stage.effects())
        if not seen:
            raise CallerError("what it does is not on the target, which lies in one process")
        return min(hand.took_s), seen


def _struck(play: Play, strike: _Strike, whole: Counter[str], kills: Kills) -> None:
    """Kill the process of one call, recover, and count on the target.

    Raises:
        ConformanceError: Says what did not hold.
    """
    kills.kills += 1
    play.tell("setting a target up", 0)
    with staged(play, callers=1) as stage:
        play.tell(str(strike), play.seconds_max + strike.landing_s)
        fate = Fate()
        hand = _Hand(stage.callers, seconds_max=play.seconds_max, strike=strike)
        _begun(stage, hand, fate)
        expect(fate.is_dead, f"{strike}: the run ends before it")
        kills.inside += hand.is_inside
        time.sleep(strike.landing_s)  # only the run's own clock can be moved on
        is_completed = _recovered(stage, strike)
        time.sleep(min(strike.call_s, 1.0))  # for what still lands where it should not
        seen = Counter(stage.effects())
    twice, missing = seen - whole, whole - seen
    expect(not twice, f"{strike}: effects beyond the unharmed run: {dict(twice)}")
    kills.reviews += not is_completed
    expect(is_completed or play.asks_people, f"{strike}: a person is asked at {play.spec.level}")
    expect(not (is_completed and missing), f"{strike}: it completes without {dict(missing)}")


def _begun(stage: Stage, hand: "_Hand", fate: Fate) -> None:
    """Let the first worker live until its end, or its death."""
    try:
        stage.work(mortal(stage.parts(hand.over(fate)), fate))
    except Died:
        return
    except CounterfoilError as error:
        raise ConformanceError(f"a run by other processes raises {error!r}") from error


def _recovered(stage: Stage, strike: _Strike) -> bool:
    """Let new workers go on until the run has ended; return whether it has completed."""
    for _ in range(SESSIONS_MAX):
        stage.wait()
        try:
            stage.work(stage.parts())
        except FrozenError:
            return False
        except (UnknownOutcomeError, UnavailableError):
            continue
        except CounterfoilError as error:
            raise ConformanceError(f"{strike}: the next session raises {error!r}") from error
        return True
    raise ConformanceError(f"{strike}: it does not end in {SESSIONS_MAX} sessions")


class _Hand:
    """Has writes of a run made by other processes.

    Attributes:
        took_s: How long each took, in seconds.
        is_inside: Whether the process that was struck had no answer yet.
        why: Why a call was not made; empty where all were.
    """

    def __init__(
        self, callers: Sequence[Caller], *, seconds_max: float, strike: _Strike | None = None
    ) -> None:
        self.took_s: list[float] = []
        self.is_inside = False
        self.why = ""
        self._callers = iter(callers)
        self._seconds_max = seconds_max
        self._strike = strike
        self._begun = 0

    def over(self, fate: Fate) -> Callable[[Adapter], Adapter]:
        """Return what leaves the writes of an adapter to this hand."""
        return lambda adapter: _ByHand(adapter, self, fate)

    def execute(self, adapter: Adapter, operation: Operation, fate: Fate) -> Receipt:
        """Make a write of the run, or die in it.

        Raises:
            Died: It was to die here, or there is no going on.
        """
        self._begun += 1
        if self._strike is None:
            try:
                receipt, took_s = next(self._callers).call(operation, self._seconds_max)
            except CallerError as error:
                self.why = str(error)
                raise _died(fate) from error
            self.took_s.append(took_s)
            return receipt
        if self._begun != self._strike.number:
            return adapter.execute(operation)
        self.is_inside = next(self._callers).strike(operation, self._strike.after_s)
        raise _died(fate)


def _died(fate: Fate) -> Died:
    fate.is_dead = True
    return Died("inside a call")


class _ByHand(Passing):
    """Leaves writes to a hand."""

    def __init__(self, inner: Adapter, hand: _Hand, fate: Fate) -> None:
        super().__init__(inner)
        self._hand = hand
        self._fate = fate

    def execute(self, operation: Operation) -> Receipt:
        """Hand on: reads to the adapter, and writes to the hand."""
        if not operation.key:
            return self.inner.execute(operation)
        return self._hand.execute(self.inner, operation, self._fate)
