"""Intents that are given up: their old key is dead before a new one is used."""

from collections.abc import Callable
from typing import Any

import pytest

from counterfoil.adapters.function import Effects
from counterfoil.adapters.function.call import Call
from counterfoil.adapters.sandbox import World
from counterfoil.core.errors import RefusedError, StaleObservationError, VerificationError
from counterfoil.core.intent import Action
from counterfoil.core.receipt import ABSENT, Receipt
from counterfoil.core.task import Budgets, Policy, Task
from counterfoil.core.words import Level, RunId
from counterfoil.engine import control
from counterfoil.engine.session import Session
from counterfoil.ports import Adapter, Operation
from counterfoil.testing.crash import enumerate_crashes
from counterfoil.testing.mortal import Died
from counterfoil.testing.saboteur_adapters import Passing
from tests.support.killing import EAGER, opened, outcomes
from tests.support.stages import (
    FORMS,
    Backend,
    Form,
    PlayStage,
    closing,
    sandbox_stage,
)

pytestmark = pytest.mark.timeout(600)  # thousands of runs, on however busy a machine

TRIES_MAX = 4


def patient(run: Session) -> None:
    """Write, and write again where the world moved before the call."""
    for path, content in (("app.py", "sound"), ("notes.md", "new")):
        for _ in range(TRIES_MAX):
            try:
                run.do("write_file", path=path, content=content)
                break
            except StaleObservationError:
                continue
    run.verify()
    run.finish()


class Disturbed(Passing):
    """Another actor writes right before the first write arrives."""

    def __init__(self, inner: Adapter, world: World, disturbed: set[World]) -> None:
        super().__init__(inner)
        self._world = world
        self._disturbed = disturbed

    def execute(self, operation: Operation) -> Receipt:
        if operation.key and self._world not in self._disturbed:
            self._disturbed.add(self._world)
            self._world.other_actor_writes("theirs.txt", "theirs")
        return super().execute(operation)


def _disturbed_once() -> Callable[[World, Adapter], Adapter]:
    disturbed: set[World] = set()
    return lambda world, inner: Disturbed(inner, world, disturbed)


@pytest.mark.parametrize("form", [pytest.param(form, id=form.name) for form in FORMS])
@pytest.mark.parametrize("level", [Level.TRANSACTIONAL, Level.CONDITIONAL])
def test_an_intent_that_another_actor_overtook_is_given_up_whatever_dies(
    level: Level, form: Form
) -> None:
    backend, wrap = Backend(), _disturbed_once()
    tally = enumerate_crashes(
        lambda: sandbox_stage(backend, level=level, form=form, program=patient, wrap=wrap)
    )
    assert (tally.reviews, tally.crashes) == (0, len(tally.calls) + 1)


# ---------------------------------------------------------------- functions that forbid


class Till:
    """A target that can be told never to take a key."""

    def __init__(self) -> None:
        self.taken: dict[str, int] = {}
        self.forbidden: set[str] = set()
        self.late: list[tuple[str, int]] = []
        self.loses: int = 0
        self.dies: bool = False

    def pay(self, key: str, amount: int) -> dict[str, object]:
        if self.loses:
            self.loses -= 1
            self.late.append((key, amount))
            raise TimeoutError("no answer in time")
        if self.dies:
            self.late.append((key, amount))
            raise Died
        return self.arrive(key, amount)

    def arrive(self, key: str, amount: int) -> dict[str, object]:
        if key in self.forbidden:
            raise RefusedError("the key was made impossible")
        self.taken.setdefault(key, amount)
        return {"amount": self.taken[key]}

    def forbid(self, key: str) -> object:
        if key not in self.taken:
            self.forbidden.add(key)
            return None
        return {"amount": self.taken[key]}

    def land(self) -> None:
        for key, amount in self.late:
            try:
                self.arrive(key, amount)
            except RefusedError:
                continue


TILL_TASK = Task(
    id="pay", policy=Policy(permissions=("till.pay",)), budgets=Budgets(proposals=8, steps=8)
)


def _till_stage(till: Till) -> Any:
    backend, effects = Backend(), Effects()

    @effects.effect("till.pay", level="deduplicating", look_up=till.taken.get, forbid=till.forbid)
    def pay(call: Call, *, amount: int) -> dict[str, object]:
        return till.pay(call.key, amount)

    stage = PlayStage(
        backend=backend,
        run_id=RunId("run-1"),
        task=TILL_TASK,
        program=lambda run: run.do("till.pay", amount=3),
        adapters=lambda: effects.adapters(backend.clock.now_ms),
        count=lambda: tuple(till.taken),
        look=lambda: till.taken,
        form=EAGER,
    )
    return closing(stage)


def test_an_aborted_run_s_late_call_finds_its_key_impossible() -> None:
    till = Till()
    with _till_stage(till) as stage:
        till.dies = True
        with pytest.raises(Died):
            opened(stage).do("till.pay", amount=3)
        stage.wait()
        run = control.abort(stage.parts(), stage.run_id, actor="operator", reason="enough")
        till.land()
        assert (run.reason, till.taken) == ("aborted", {})


def test_an_aborted_run_tells_of_an_effect_that_was_there_first() -> None:
    till = Till()
    with _till_stage(till) as stage:
        till.dies = True
        with pytest.raises(Died):
            opened(stage).do("till.pay", amount=3)
        till.land()
        stage.wait()
        control.abort(stage.parts(), stage.run_id, actor="operator", reason="enough")
        assert (len(till.taken), till.forbidden) == (1, set())
        assert outcomes(stage)[-1] == "aborted"


def test_a_receipt_that_is_found_while_forbidding_counts_the_version_on() -> None:
    till = Till()
    with _till_stage(till) as stage:
        till.dies = True
        with pytest.raises(Died):
            opened(stage).do("till.pay", amount=3)
        stage.wait()
        till.dies = False
        found: list[int] = []

        class LateThenRefused(Passing):
            def execute(self, operation: Operation) -> Receipt:
                found.append(operation.prestate.version)
                till.land()
                raise RefusedError("not again")

            def look_up(self, run_id: RunId, key: Any, kind: str) -> Any:
                answer = super().look_up(run_id, key, kind)
                return ABSENT if not found or len(found) == 1 else answer

        adapters = stage.adapters
        stage.adapters = lambda: tuple(LateThenRefused(inner) for inner in adapters())
        run = opened(stage)
        run.do("till.pay", amount=3)
        (state,) = run.state.environments
        assert (state.version, len(till.taken)) == (found[0] + 1, 1)


def test_a_planner_may_verify_right_after_it_has_read() -> None:
    with sandbox_stage(Backend(), form=EAGER) as stage, opened(stage) as run:
        (state,) = run.state.environments
        seen: dict[Any, Any] = {"version": state.version}
        arguments: dict[str, Any] = {"path": "app.py"}
        run.propose(Action(kind="read_file", arguments=arguments, preconditions=seen))
        with pytest.raises(VerificationError):
            run.verify()
        assert outcomes(stage)[-2:] == ["read", "verified"]
