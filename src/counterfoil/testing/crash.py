"""Every crash of a program, one after the other, judged on the target itself.

The program runs once unharmed to learn its port calls. Then, for every instant between
two calls, a fresh process runs to that instant and dies, and fresh processes recover
until the run has ended. Each recovery is made to die at each of its own instants too.

Right after one call and right before the next is one instant for everybody else: the
process does nothing in between that anybody could see. So there is one more instant
than there are calls. Likewise all instants between two calls that change something leave
one and the same world; for second deaths one of them stands for all.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields
from typing import Protocol

from counterfoil.core.errors import (
    CounterfoilError,
    FrozenError,
    UnavailableError,
    UnknownOutcomeError,
    UnknownRunError,
)
from counterfoil.core.run import Phase, Run, Spent
from counterfoil.core.words import RunId
from counterfoil.engine import audit, control
from counterfoil.engine.parts import Parts
from counterfoil.testing.expect import ConformanceError, expect
from counterfoil.testing.mortal import Death, Died, Fate, mortal

READS = frozenset(
    {
        "adapter.look_up",
        "adapter.observe",
        "heads.heads",
        "heads.read",
        "store.archived",
        "store.find",
        "store.get",
        "store.marked",
        "store.runs",
        "store.trace",
    }
)
"""Calls that change nothing."""

SESSIONS_MAX = 8
"""Processes that one run may need: two deaths, and a few that wait for the target."""


class Stage(Protocol):
    """A target and its stores, as they are whether or not a process lives."""

    @property
    def run_id(self) -> RunId:
        """The run that the program works on."""
        ...

    def parts(self) -> Parts:
        """Open every port anew, as a new process does, without a background thread."""
        ...

    def work(self, parts: Parts) -> None:
        """Run the program from its start to its end."""
        ...

    def wait(self) -> None:
        """Let time pass until a dead process's lease and its calls in flight are over."""
        ...

    def calm(self) -> None:
        """Let everything that is still under way arrive."""
        ...

    def effects(self) -> tuple[str, ...]:
        """Name the effects that the target counts, in order; no two that are wanted alike."""
        ...

    def content(self) -> object:
        """Return what the target holds; compared with that of the unharmed run."""
        ...


Staging = Callable[[], AbstractContextManager[Stage]]
"""Sets a fresh stage up, and takes it down."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ending:
    """How a run ended, in all that a crash must not change.

    Attributes:
        phase: Where it stands.
        reason: Why it stopped.
        cursor: Positions that are settled.
        writes: Effects that the run counts.
        spent: Budgets used.
        is_settled: Whether nothing is pending.
        effects: What the target counts.
        content: What the target holds.
    """

    phase: Phase
    reason: str
    cursor: int
    writes: int
    spent: Spent
    is_settled: bool
    effects: tuple[str, ...]
    content: object


@dataclass(kw_only=True, slots=True)
class Tally:
    """What an enumeration went through.

    Attributes:
        calls: Port calls of the unharmed run.
        crashes: Runs that died once.
        double_crashes: Runs whose recovery died as well.
        reviews: Runs that ended with a person's question.
    """

    calls: tuple[str, ...] = ()
    crashes: int = 0
    double_crashes: int = 0
    reviews: int = 0


@dataclass(kw_only=True, slots=True)
class _Story:
    """What is told of one run, over all its processes."""

    deaths: list[str] = field(default_factory=list[str])
    commits: int = 0
    spent: Spent = field(default_factory=Spent)

    def tell(self, condition: bool, sentence: str) -> None:
        expect(condition, f"{self}: {sentence}")

    def __str__(self) -> str:
        return " then ".join(self.deaths) or "the unharmed run"


def enumerate_crashes(
    staging: Staging,
    *,
    may_need_review: bool = False,
    second_deaths: float = 1.0,
    spares_reads: bool = True,
    seed: int = 0,
) -> Tally:
    """Kill a program at every instant, and its recovery at every instant of its own.

    Args:
        staging: Sets up target, stores and program.
        may_need_review: Whether the target's level lets a run end in review, with each
            effect at most once; otherwise each happens exactly once.
        second_deaths: Share of the recoveries' instants to die at.
        spares_reads: Whether one of the instants between two changes stands for all of
            them where there are two deaths; first deaths always come at every instant.
        seed: Chooses the share.

    Raises:
        ConformanceError: Names the instants, and what did not hold after them.
    """
    tally, chance = Tally(), random.Random(seed)  # noqa: S311 - chooses tests, no secrets
    whole = _unharmed(staging, tally)
    for death in _instants(tally.calls):
        calls = _crash(staging, (death,), whole, tally, may_need_review=may_need_review)
        tally.crashes += 1
        if spares_reads and _follows_a_read(death, tally.calls):
            continue
        for second in _instants(calls):
            is_spared = spares_reads and _follows_a_read(second, calls)
            if is_spared or chance.random() >= second_deaths:
                continue
            _crash(staging, (death, second), whole, tally, may_need_review=may_need_review)
            tally.double_crashes += 1
    return tally


def _instants(calls: tuple[str, ...]) -> Iterator[Death]:
    for number in range(len(calls)):
        yield Death(at=number)
    if calls:
        yield Death(at=len(calls) - 1, is_after=True)


def _follows_a_read(death: Death, calls: tuple[str, ...]) -> bool:
    last = death.at if death.is_after else death.at - 1
    return last >= 0 and calls[last] in READS


def _unharmed(staging: Staging, tally: Tally) -> Ending:
    """Run the program to its end once, and note its calls."""
    with staging() as stage:
        story = _Story()
        fate = _first_to_end(stage, story)
        tally.calls = tuple(fate.calls)
        stage.calm()
        ending = _ending(stage, stage.parts(), story)
        story.tell(ending.phase is Phase.COMPLETED, f"it ends {ending.phase}")
        is_once = len(set(ending.effects)) == len(ending.effects)
        story.tell(is_once, f"an effect happened twice: {ending.effects}")
        return ending


def _first_to_end(stage: Stage, story: _Story) -> Fate:
    """Run unharmed, waiting for the target where it says so; return the first process."""
    first: Fate | None = None
    for _ in range(SESSIONS_MAX):
        fate = Fate()
        first = first or fate
        if _live(stage, fate, story):
            return first
        stage.wait()
    raise ConformanceError(f"{story}: it does not end in {SESSIONS_MAX} sessions")


def _crash(
    staging: Staging,
    deaths: tuple[Death, ...],
    whole: Ending,
    tally: Tally,
    *,
    may_need_review: bool,
) -> tuple[str, ...]:
    """Run one story to its end and judge it; return the calls of its first recovery."""
    with staging() as stage:
        story, eyes = _Story(), stage.parts()
        for death in deaths:
            _live(stage, Fate(death), story)
            stage.wait()
            _check_point(eyes, stage.run_id, story)
        recovery = Fate()
        is_ended = _live(stage, recovery, story)
        for _ in range(SESSIONS_MAX):
            if is_ended:
                break
            stage.wait()
            is_ended = _live(stage, Fate(), story)
        story.tell(is_ended, f"it does not end in {SESSIONS_MAX} sessions")
        stage.calm()
        ending = _ending(stage, eyes, story)
        tally.reviews += ending.phase is Phase.NEEDS_REVIEW
        _judge(ending, whole, story, may_need_review=may_need_review)
        return tuple(recovery.calls)


def _live(stage: Stage, fate: Fate, story: _Story) -> bool:
    """Let one process live; return whether the run has come to an end."""
    try:
        stage.work(mortal(stage.parts(), fate))
    except Died:
        story.deaths.append(fate.last_words)
        return False
    except FrozenError:
        return True
    except (UnknownOutcomeError, UnavailableError):
        return False
    except CounterfoilError as error:
        raise ConformanceError(f"{story}: the next session raises {error!r}") from error
    finally:
        story.commits += fate.commits
    return True


def _check_point(eyes: Parts, run_id: RunId, story: _Story) -> None:
    """Hold a crash point to it: the newest checkpoint opens, and no budget came back."""
    run = _shown(eyes, run_id, story)
    if run is None:
        story.tell(story.commits == 0, "the register has forgotten the run")
        return
    before, now = story.spent, run.spent
    story.tell(
        now.proposals >= before.proposals
        and now.steps >= before.steps
        and now.cost_micros >= before.cost_micros,
        f"a budget was refunded: {before} before, {now} after",
    )
    story.spent = now


def _shown(eyes: Parts, run_id: RunId, story: _Story) -> Run | None:
    try:
        view = control.show(eyes, run_id)
    except UnknownRunError:
        return None
    except CounterfoilError as error:
        raise ConformanceError(f"{story}: neither checkpoint opens: {error!r}") from error
    newest = story.commits - 1
    story.tell(
        view.head.generation == newest,
        f"the head says generation {view.head.generation}, {newest} was acknowledged last",
    )
    return view.run


def _ending(stage: Stage, eyes: Parts, story: _Story) -> Ending:
    run = _shown(eyes, stage.run_id, story)
    if run is None:
        raise ConformanceError(f"{story}: there is no run")
    try:
        audit.audit(eyes, stage.run_id)
    except CounterfoilError as error:
        raise ConformanceError(f"{story}: the audit refuses the run: {error!r}") from error
    return Ending(
        phase=run.phase,
        reason=run.reason,
        cursor=run.cursor,
        writes=run.writes,
        spent=run.spent,
        is_settled=run.pending is None,
        effects=stage.effects(),
        content=stage.content(),
    )


def _judge(ending: Ending, whole: Ending, story: _Story, *, may_need_review: bool) -> None:
    twice = Counter(ending.effects) - Counter(whole.effects)
    story.tell(not twice, f"effects beyond the unharmed run: {dict(twice)}")
    if may_need_review and ending.phase is Phase.NEEDS_REVIEW:
        story.tell(not ending.is_settled, "a run in review has lost its pending intent")
        return
    story.tell(ending == whole, f"it ends otherwise than unharmed: {_otherwise(ending, whole)}")


def _otherwise(ending: Ending, whole: Ending) -> str:
    """Return in what two endings differ, for people."""
    names = [name.name for name in fields(Ending)]
    pairs = {name: (getattr(ending, name), getattr(whole, name)) for name in names}
    return "; ".join(
        f"{name} is {'empty' if seen == '' else seen}, not {wanted}"
        for name, (seen, wanted) in pairs.items()
        if seen != wanted
    )
