"""A process of many sessions that share their writes is killed: each run loses nothing."""

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TypeVar

import pytest

from counterfoil.core.errors import (
    CounterfoilError,
    LeaseLostError,
    UnavailableError,
    UnknownOutcomeError,
)
from counterfoil.core.task import Budgets, Policy, Task
from counterfoil.core.words import Level, RunId
from counterfoil.engine import audit
from counterfoil.engine.grouping import shared
from counterfoil.engine.parts import Parts
from counterfoil.keeper import Keeper
from counterfoil.stores.memory_joint import MemoryJoint
from counterfoil.testing.crash import SESSIONS_MAX
from counterfoil.testing.mortal import Died, Fate, mortal
from tests.support.crowds import Caller
from tests.support.stages import FORMS, IN_FLIGHT_MS, INCARNATION, Backend, Form, shop_stage

_T = TypeVar("_T")
RUNS = tuple(f"run-{name}" for name in "abcdef")
SKUS = ("A-7", "B-9", "C-2")
TASK = Task(id="restock", policy=Policy(permissions=("shop.order",)), budgets=Budgets(steps=9))
STRIDE = 2
"""Every second instant: threads come in another order at each run, so that all are met."""


class SharedFate(Fate):
    """Ends all threads of a process at once, at its n-th call; those under way still arrive."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self._left = at
        self._lock = threading.Lock()

    def call(self, name: str, act: Callable[[], _T]) -> _T:
        with self._lock:
            self.calls.append(name)
            self._left -= 1
            self.is_dead = self.is_dead or self._left < 0
        if self.is_dead:
            raise Died(f"a dead process calls {name}")
        answer = act()
        if self.is_dead:
            raise Died(f"{name} answers a dead process")
        return answer


def live(parts: Parts, fate: Fate) -> list[CounterfoilError | Died]:
    """Work on every run, each in a thread; return what stopped those that did not end."""
    given = mortal(parts, fate)
    store, heads, joint = shared(given.store, given.heads, given.joint)
    keeper = Keeper(replace(given, store=store, heads=heads, joint=joint))

    def work(run_id: str) -> None:
        with keeper.run(TASK, run_id) as run:
            for sku in SKUS:
                run.do("shop.order", sku=f"{run_id} {sku}")

    errors = [caller.end().error for caller in [Caller(partial(work, each)) for each in RUNS]]
    stopped = (Died, UnknownOutcomeError, UnavailableError, LeaseLostError)
    assert [error for error in errors if error and not isinstance(error, stopped)] == []
    return [error for error in errors if isinstance(error, stopped)]


@pytest.mark.parametrize("has_joint", [False, True], ids=["apart", "joint"])
@pytest.mark.parametrize("form", FORMS[:2], ids=lambda form: form.name)
def test_a_process_of_many_sessions_can_be_killed_at_any_call(form: Form, has_joint: bool) -> None:
    at, is_over = 0, False
    while not is_over:
        is_over = killed_at(at, form, has_joint=has_joint)
        at += STRIDE
    assert at > len(RUNS) * len(SKUS)


def killed_at(at: int, form: Form, *, has_joint: bool) -> bool:
    """Kill a process at a call, and go on until all runs end; return whether it outlived it."""
    backend = Backend()
    made = MemoryJoint(now_ms=backend.clock.now_ms, incarnation=INCARNATION)
    with shop_stage(backend, level=Level.QUERYABLE, in_flight_ms=IN_FLIGHT_MS, form=form) as stage:

        def parts() -> Parts:
            joint = made if has_joint else None
            return replace(stage.parts(), store=made.store, heads=made.heads, joint=joint)

        outlived = not live(parts(), SharedFate(at))
        for _ in range(SESSIONS_MAX):
            stage.wait()
            if not live(parts(), Fate()):
                break
        else:
            raise AssertionError(f"killed at {at}: not every run ends")
        assert Counter(stage.effects()) == Counter(f"{run} {sku}" for run in RUNS for sku in SKUS)
        for run_id in RUNS:
            audit.audit(parts(), RunId(run_id))
        return outlived
