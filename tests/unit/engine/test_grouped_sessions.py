"""Sessions of one process share durable writes, and nothing else."""

import random
import sys
import threading
from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import replace as changed

from counterfoil.adapters.function import Call, Effects, Found
from counterfoil.compose import wire
from counterfoil.core.errors import (
    LeaseLostError,
    StaleHeadError,
    UnavailableError,
    UnknownOutcomeError,
)
from counterfoil.core.task import Budgets, Policy, Task
from counterfoil.core.words import RunId
from counterfoil.engine import audit
from counterfoil.engine.grouping import shared
from counterfoil.engine.parts import Parts
from counterfoil.keeper import Keeper
from counterfoil.ports import CheckpointStore, Head, HeadRegister
from counterfoil.settings import Settings
from counterfoil.stores.memory import MemoryHeads, MemoryStore
from counterfoil.stores.memory_joint import MemoryJoint
from counterfoil.stores.sqlite import open_heads, open_store
from counterfoil.testing.clock import VirtualClock
from counterfoil.testing.mortal import Died
from counterfoil.testing.store_bench import TTL_MS, checkpoint, created, move
from tests.support.crowds import SHARED, Caller, Lockstep
from tests.support.stages import INCARNATION, KEYRING
from tests.support.store_benches import Wall

SESSIONS, STEPS = 64, 20
TASK = Task(id="count", policy=Policy(permissions=("count.up",)), budgets=Budgets(steps=99))


@dataclass
class Target:
    """Counts every arrival, under its key."""

    arrivals: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def effects(self) -> Effects:
        effects = Effects()

        @effects.effect("count.up", level="deduplicating", look_up=self.look_up)
        def count(call: Call, *, number: int) -> dict[str, object]:
            with self.lock:
                self.arrivals[call.key] += 1
            return {"number": number}

        return effects

    def look_up(self, key: str) -> Found | None:
        return Found(result={}) if key in self.arrivals else None


def wired(target: Target, clock: VirtualClock, store: Any, heads: Any, joint: Any = None) -> Parts:
    """Return an engine over these very ports."""
    adapters = target.effects().adapters(clock.now_ms)
    parts = wire(
        Settings(),
        KEYRING,
        store,
        heads,
        adapters,
        clock=clock,
        owner="worker",
        runs_background=False,
    )
    return replace(parts, store=store, heads=heads, joint=joint)


@pytest.fixture
def files(tmp_path: Path) -> Generator[tuple[CheckpointStore, HeadRegister, VirtualClock]]:
    clock = VirtualClock()
    store = open_store(tmp_path / "project" / "checkpoints.db", create=True)
    heads = open_heads(
        tmp_path / "state" / "heads.db",
        create=True,
        now_ms=clock.now_ms,
        incarnation=lambda: INCARNATION,
    )
    yield store, heads, clock
    heads.close()
    store.close()


def counting(parts: Parts, run_id: str, steps: int = STEPS) -> None:
    with Keeper(parts).run(TASK, run_id) as run:
        for number in range(steps):
            assert run.do("count.up", number=number) == {"number": number}


def test_many_sessions_on_files_make_far_fewer_writes_than_steps(
    files: tuple[CheckpointStore, HeadRegister, VirtualClock],
) -> None:
    store, heads, clock = files
    step, target = Lockstep(SESSIONS), Target()
    group = shared(step.before(store), step.before(heads))
    parts = wired(target, clock, *(step.around(port) for port in group[:2]))

    def work(run_id: str) -> None:
        try:
            counting(parts, run_id)
        finally:
            step.end()

    callers = [Caller(partial(work, f"run-{n}")) for n in range(SESSIONS)]
    assert [caller.end().error for caller in callers] == [None] * SESSIONS
    assert set(target.arrivals.values()) == {1}
    assert target.arrivals.total() == SESSIONS * STEPS
    assert step.writes < SESSIONS * STEPS * 2 // 10
    for n in range(SESSIONS):
        audit.audit(parts, RunId(f"run-{n}"))


def test_many_sessions_over_a_joint_make_fewer_writes_still() -> None:
    step, target, clock = Lockstep(SESSIONS), Target(), VirtualClock()
    joint = MemoryJoint(now_ms=clock.now_ms, incarnation=INCARNATION)
    store, heads, group = shared(joint.store, joint.heads, step.before(joint))
    parts = wired(target, clock, store, heads, step.around(group))

    def work(run_id: str) -> None:
        try:
            counting(parts, run_id)
        finally:
            step.end()

    callers = [Caller(partial(work, f"run-{n}")) for n in range(SESSIONS)]
    assert [caller.end().error for caller in callers] == [None] * SESSIONS
    assert (set(target.arrivals.values()), target.arrivals.total()) == ({1}, SESSIONS * STEPS)
    assert step.writes < SESSIONS * STEPS // 10
    for n in range(SESSIONS):
        audit.audit(parts, RunId(f"run-{n}"))


@pytest.mark.parametrize("sessions", [2, 16])
def test_sessions_on_files_that_meet_as_it_comes_lose_nothing(
    files: tuple[CheckpointStore, HeadRegister, VirtualClock], sessions: int
) -> None:
    store, heads, clock = files
    target = Target()
    parts = wired(target, clock, *shared(store, heads))
    callers = [Caller(partial(counting, parts, f"run-{n}")) for n in range(sessions)]
    assert [caller.end().error for caller in callers] == [None] * sessions
    assert (set(target.arrivals.values()), target.arrivals.total()) == ({1}, sessions * STEPS)


def test_a_session_that_lost_its_lease_fails_alone() -> None:
    target, clock = Target(), VirtualClock()
    inner = MemoryHeads(now_ms=clock.now_ms, incarnation=INCARNATION)
    step = Lockstep(8)
    group = shared(MemoryStore(), step.before(inner))
    parts = wired(target, clock, group[0], step.around(group[1]))

    def work(run_id: str) -> None:
        try:
            with Keeper(parts).run(TASK, run_id) as run:
                for number in range(STEPS):
                    if (run_id, number) == ("run-3", 9):
                        taken_over(inner, RunId(run_id))
                    run.do("count.up", number=number)
        finally:
            step.end()

    callers = [Caller(partial(work, f"run-{n}")) for n in range(8)]
    errors = [caller.end().error for caller in callers]
    assert [type(error) for error in errors if error] == [LeaseLostError]
    assert errors[3] is not None
    assert set(target.arrivals.values()) == {1}
    assert target.arrivals.total() == 7 * STEPS + 9


def taken_over(heads: HeadRegister, run_id: RunId) -> None:
    head = heads.read(run_id)
    assert head is not None
    heads.release(head)
    free = heads.read(run_id)
    assert free is not None
    heads.acquire(free, "another", "nonce", TTL_MS)


# ---------------------------------------------------------------- faults in any order


Group = tuple[Any, Any, Any]
CHANCE = 0.05
AFTER = (UnknownOutcomeError, Died)
"""What may be said of a write that has happened."""


class Troubled:
    """A port whose shared writes fail now and then: before they happened, or after."""

    def __init__(self, inner: Any, seed: int, errors: tuple[type[BaseException], ...]) -> None:
        self._inner = inner
        self._chance = random.Random(seed)
        self._errors = errors
        self.faults = 0
        self.largest = 0

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._inner, name)
        return partial(self._tried, call) if name in SHARED else call

    def _tried(self, call: Any, *given: Sequence[Any]) -> Any:
        self.largest = max(self.largest, len(given[0]))
        if self._chance.random() < CHANCE:
            self._fail()
        answer = call(*given)
        if self._chance.random() < CHANCE:
            self._fail(*AFTER)
        return answer

    def _fail(self, *of: type[BaseException]) -> None:
        self.faults += 1
        kinds = [error for error in self._errors if not of or error in of]
        raise self._chance.choice(kinds)("a fault of the test")


WALKERS, WALKED = 12, 25


def walk(group: Group, heads: HeadRegister, head: Head) -> int:
    """Move one run on as a worker does, and return how often it was moved."""
    store, register, joint = group
    moves = 0
    while head.generation < WALKED:
        row = checkpoint(head.generation + 1, run_id=head.run_id)
        step = changed(move(head), checkpoint=row.digest)
        try:
            if joint is not None:
                (moved,) = joint.commit([row], [step])
            else:
                store.put([row])
                (moved,) = register.advance([step])
        except (UnknownOutcomeError, UnavailableError, StaleHeadError, Died):
            present = heads.read(head.run_id)
            assert present is not None
            assert present.generation - head.generation in (0, 1)
            moved = present
        assert (moved.run_id, moved.nonce) == (head.run_id, head.nonce)
        moves += moved.generation - head.generation
        head = moved
    return moves


@pytest.fixture
def quick_switches() -> Generator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("quick_switches")
@pytest.mark.parametrize("has_joint", [False, True], ids=["apart", "joint"])
@pytest.mark.parametrize("all_meet", [False, True], ids=["as it comes", "all meet"])
@pytest.mark.parametrize("seed", range(8))
def test_no_fault_and_no_order_of_threads_loses_or_repeats_a_move(
    seed: int, all_meet: bool, has_joint: bool
) -> None:
    errors = (UnknownOutcomeError, UnavailableError, Died)
    made = MemoryJoint(now_ms=Wall().now_ms, incarnation=INCARNATION)
    ports = (made.store, made.heads, made)
    troubled = [Troubled(port, seed * 3 + n, errors) for n, port in enumerate(ports)]
    step, group = Lockstep(WALKERS), cast("Group", troubled)
    if all_meet:
        group = cast("Group", [step.before(port) for port in troubled])
    store, heads, joint = map(step.around, shared(*group))
    held = [created(made.heads, RunId(f"run-{n}")) for n in range(WALKERS)]

    def work(head: Head) -> int:
        try:
            return walk((store, heads, joint if has_joint else None), made.heads, head)
        finally:
            step.end()

    callers = [Caller(partial(work, head)) for head in held]
    assert [(c.end().error, c.answer) for c in callers] == [(None, WALKED)] * WALKERS
    for head in held:
        rows = made.store.trace(head.run_id, 0, WALKED + 1)
        assert [row.generation for row in rows] == list(range(1, WALKED + 1))
    assert sum(port.faults for port in troubled) > 0
    assert max(port.largest for port in troubled) > WALKERS // 2 or not all_meet
