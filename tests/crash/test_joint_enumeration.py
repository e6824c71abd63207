"""Every crash where commits are made at once, or by one thread for others.

Where store and register are one database there is no instant between the two halves of a
commit; and over grouped ports whoever makes the call may die for more than itself.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import pytest

from counterfoil.core.codec import Checkpoint
from counterfoil.core.errors import (
    CounterfoilError,
    LeaseLostError,
    UnavailableError,
    UnknownOutcomeError,
)
from counterfoil.core.run import Phase
from counterfoil.core.words import Level
from counterfoil.engine import audit, control
from counterfoil.engine.grouping import shared
from counterfoil.engine.parts import Parts
from counterfoil.ports import Advance, Head
from counterfoil.stores.memory_joint import MemoryJoint
from counterfoil.testing.crash import SESSIONS_MAX, enumerate_crashes
from counterfoil.testing.expect import ConformanceError
from counterfoil.testing.mortal import Fate, mortal
from counterfoil.testing.saboteur_joints import MovesBeforeRows, Passing
from counterfoil.testing.store_bench import TTL_MS
from tests.crash.test_lost_answers import STEPS, WRITES, Lost
from tests.support.killing import EAGER, opened, write_once
from tests.support.stages import (
    FORMS,
    IN_FLIGHT_MS,
    INCARNATION,
    Backend,
    Form,
    PlayStage,
    sandbox_stage,
    shop_stage,
)

pytestmark = pytest.mark.timeout(600)  # thousands of runs, on however busy a machine


@dataclass(frozen=True, kw_only=True)
class Way:
    """How commits reach the backend."""

    at_once: bool
    is_grouped: bool

    def __str__(self) -> str:
        return f"{'joint' if self.at_once else 'apart'}{', grouped' if self.is_grouped else ''}"


JOINT = Way(at_once=True, is_grouped=False)
WAYS = (JOINT, Way(at_once=True, is_grouped=True), Way(at_once=False, is_grouped=True))


class JointBackend(Backend):
    """One database, in memory, that outlives processes."""

    def __init__(self) -> None:
        super().__init__()
        self.joint = MemoryJoint(now_ms=self.clock.now_ms, incarnation=INCARNATION)

    def open(self) -> Any:
        return self.joint.store, self.joint.heads


Make = Callable[[JointBackend], Any]
Wrap = Callable[[MemoryJoint], Any]


def as_it_is(joint: MemoryJoint) -> MemoryJoint:
    return joint


@contextmanager
def joined(
    make: Make, backend: JointBackend, way: Way = JOINT, wrap: Wrap = as_it_is
) -> Generator[PlayStage]:
    """Return a stage whose processes commit in one way, each port by itself a call."""
    with make(backend) as stage:
        wired, work = stage.parts, stage.work

        def parts(owner: str = "worker") -> Parts:
            store, heads = backend.open()
            joint = wrap(backend.joint) if way.at_once else None
            return replace(wired(owner), store=store, heads=heads, joint=joint)

        stage.parts = parts
        stage.work = lambda given: work(grouped(given) if way.is_grouped else given)
        yield stage


def grouped(parts: Parts) -> Parts:
    store, heads, joint = shared(parts.store, parts.heads, parts.joint)
    return replace(parts, store=store, heads=heads, joint=joint)


def sandbox(level: Level, form: Form, in_flight_ms: int | None = None) -> Make:
    return partial(sandbox_stage, level=level, in_flight_ms=in_flight_ms, form=form)


LEVELS = (
    pytest.param(Level.TRANSACTIONAL, None, id="transactional"),
    pytest.param(Level.DEDUPLICATING, None, id="deduplicating"),
    pytest.param(Level.CONDITIONAL, None, id="conditional"),
    pytest.param(Level.QUERYABLE, IN_FLIGHT_MS, id="queryable"),
    pytest.param(Level.BLIND, None, id="blind"),
)


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
@pytest.mark.parametrize(("level", "in_flight_ms"), LEVELS)
def test_no_crash_changes_the_outcome(
    level: Level, in_flight_ms: int | None, form: Form, way: Way
) -> None:
    backend = JointBackend()
    tally = enumerate_crashes(
        lambda: joined(sandbox(level, form, in_flight_ms), backend, way),
        may_need_review=level is Level.BLIND,
        second_deaths=1.0 if way == JOINT else 1 / 3,
    )
    assert tally.crashes == len(tally.calls) + 1
    assert tally.double_crashes > tally.crashes
    assert bool(tally.reviews) == (level is Level.BLIND)
    if way.at_once:
        assert "joint.commit" in tally.calls
        assert tally.calls.count("store.put") == 1, "the first checkpoint is created"
        assert "heads.advance" not in tally.calls


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("form", FORMS[:2], ids=lambda form: form.name)
def test_no_crash_changes_the_outcome_where_functions_lose_an_answer(form: Form, way: Way) -> None:
    backend = JointBackend()
    make = partial(shop_stage, level=Level.QUERYABLE, in_flight_ms=IN_FLIGHT_MS, loses=1, form=form)
    tally = enumerate_crashes(lambda: joined(make, backend, way), second_deaths=1 / 3)
    assert (tally.crashes, tally.reviews) == (len(tally.calls) + 1, 0)


def test_a_joint_that_is_two_calls_in_the_wrong_order_is_caught() -> None:
    backend = JointBackend()

    @contextmanager
    def torn() -> Generator[PlayStage]:
        with joined(sandbox(Level.TRANSACTIONAL, EAGER), backend) as stage:
            work = stage.work

            def apart(given: Parts) -> None:
                joint = MovesBeforeRows(backend.joint, given.store, given.heads)
                work(replace(given, joint=joint))

            stage.work = apart
            yield stage

    with pytest.raises(ConformanceError):
        enumerate_crashes(torn)


# ---------------------------------------------------------------- answers that are lost


def _calls(stage: PlayStage) -> int:
    fate = Fate()
    stage.work(mortal(stage.parts(), fate))
    return len(fate.calls)


def _ends(stage: PlayStage, fate: Fate) -> bool:
    for session in range(SESSIONS_MAX):
        try:
            stage.work(mortal(stage.parts(), fate if session == 0 else Fate()))
        except (UnknownOutcomeError, UnavailableError, LeaseLostError):
            stage.wait()
        else:
            return True
    return False


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
@pytest.mark.parametrize(("level", "in_flight_ms"), LEVELS[:-1])
def test_no_lost_answer_changes_the_outcome(
    level: Level, in_flight_ms: int | None, form: Form, way: Way
) -> None:
    backend, make = JointBackend(), sandbox(level, form, in_flight_ms)
    with joined(make, backend, way) as stage:
        calls = _calls(stage)
    faults: list[str] = []
    for number in range(calls):
        for is_after in (False, True):
            fate = Lost(number, is_after=is_after)
            with joined(make, backend, way) as stage:
                try:
                    is_ended = _ends(stage, fate)
                except CounterfoilError as error:
                    faults.append(f"{number} {fate.calls[number]} {is_after=}: {error!r}")
                    continue
                run = control.show(stage.parts(), stage.run_id).run
                audit.audit(stage.parts(), stage.run_id)
                ending = (is_ended, run.phase, stage.effects())
                if ending != (True, Phase.COMPLETED, WRITES) or run.spent.steps not in STEPS:
                    faults.append(f"{number} {fate.calls[number]} {is_after=}: {ending}")
    assert faults == []


class Silent(Passing):
    """Loses the answer of every commit but the first; what was sent is kept.

    Attributes:
        sent: Each commit, in order.
        is_made: Whether a commit whose answer is lost has happened.
        then: What happens meanwhile.
    """

    def __init__(
        self, inner: MemoryJoint, *, is_made: bool, then: Callable[[], object] = tuple
    ) -> None:
        super().__init__(inner, inner.store, inner.heads)
        self.sent: list[tuple[Sequence[Checkpoint], Sequence[Advance]]] = []
        self.is_made = is_made
        self.then = then

    def commit(self, rows: Sequence[Checkpoint], moves: Sequence[Advance]) -> tuple[Head, ...]:
        self.sent.append((tuple(rows), tuple(moves)))
        if len(self.sent) == 1:
            return super().commit(rows, moves)
        if self.is_made:
            super().commit(rows, moves)
        self.then()
        raise UnknownOutcomeError("the database did not answer")


def _over(silent: Silent, backend: JointBackend) -> Any:
    return joined(sandbox(Level.TRANSACTIONAL, EAGER), backend, wrap=lambda _: silent)


def test_a_commit_that_did_not_happen_is_sent_again_as_it_was_and_then_given_up() -> None:
    backend = JointBackend()
    silent = Silent(backend.joint, is_made=False)
    with _over(silent, backend) as stage:
        run = opened(stage)
        run.remember("plan", lambda: "one")
        with pytest.raises(UnknownOutcomeError):
            write_once(run)
        assert stage.effects() == ()
    assert len(silent.sent) == 4
    assert silent.sent[1] == silent.sent[2] == silent.sent[3]


def test_a_commit_that_happened_is_not_sent_again() -> None:
    backend = JointBackend()
    silent = Silent(backend.joint, is_made=True)
    with _over(silent, backend) as stage:
        with opened(stage) as run:
            run.remember("plan", lambda: "one")
            write_once(run)
        assert stage.effects() == ("app.py=sound",)
    heads = [moves[0].expected.generation for _, moves in silent.sent]
    assert heads == list(range(len(heads))), "each commit is sent once"


def test_a_commit_is_not_sent_again_when_the_run_was_taken_over() -> None:
    backend = JointBackend()

    def take_over() -> None:
        register = backend.joint.heads
        register.release(cast("Head", register.read(stage.run_id)))
        free = cast("Head", register.read(stage.run_id))
        register.acquire(free, "another", "nonce", TTL_MS)

    silent = Silent(backend.joint, is_made=False, then=take_over)
    with _over(silent, backend) as stage:
        run = opened(stage)
        run.remember("plan", lambda: "one")
        with pytest.raises(LeaseLostError):
            write_once(run)
        assert stage.effects() == ()
    assert len(silent.sent) == 2
