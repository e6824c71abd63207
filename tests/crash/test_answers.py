"""What targets answer: nothing, too late, too much, or something that is no text.

Threats T19 and T20, field case C14.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from counterfoil.core.bounds import RESULT_BYTES_MAX
from counterfoil.core.errors import (
    ContractError,
    FrozenError,
    IdempotencyConflictError,
    UnavailableError,
    UnknownOutcomeError,
)
from counterfoil.core.receipt import ABSENT, LookUp, unknown
from counterfoil.core.task import Policy, Task
from counterfoil.core.trace import Outcome
from counterfoil.core.words import Key, Level, RunId
from counterfoil.engine import control
from counterfoil.engine.parts import Parts
from counterfoil.ports import Adapter, CheckpointStore
from counterfoil.testing.mortal import Death, Died, Fate, MortalStore, mortal
from counterfoil.testing.saboteur_adapters import Passing
from tests.support.killing import (
    EAGER,
    Counting,
    counted,
    killed,
    opened,
    proposed,
    write_once,
)
from tests.support.stages import (
    Backend,
    PlayStage,
    Shop,
    closing,
    restock,
    sandbox_stage,
    shop_effects,
    shop_stage,
)

# ---------------------------------------------------------------- T19, T20


@pytest.mark.parametrize(
    ("answer", "level"),
    [
        pytest.param(unknown("timed out"), Level.TRANSACTIONAL, id="T20 timed out"),
        pytest.param(unknown("partly"), Level.QUERYABLE, id="T20 partial"),
        pytest.param(TimeoutError(), Level.DEDUPLICATING, id="T20 an exception"),
        pytest.param(KeyError("id"), Level.CONDITIONAL, id="T20 an answer that cannot be read"),
    ],
)
def test_what_a_look_up_cannot_say_leads_to_no_second_effect(
    answer: LookUp | Exception, level: Level
) -> None:
    class Dumb(Passing):
        def look_up(self, run_id: RunId, key: Key, kind: str) -> LookUp:
            if isinstance(answer, Exception):
                raise answer
            return answer

    wire: list[str] = []
    with sandbox_stage(
        Backend(),
        level=level,
        form=EAGER,
        program=write_once,
        wrap=lambda _, inner: Dumb(Counting(inner, wire)),
    ) as stage:
        killed(stage)
        for _ in range(3):
            with opened(stage) as run, pytest.raises(UnknownOutcomeError):
                write_once(run)
            stage.wait()
        assert (len(wire), len(stage.effects())) == (1, 1)


@pytest.mark.parametrize("is_bounded", [pytest.param(False, id="T20 eventually consistent")])
def test_an_absence_that_may_only_be_late_is_no_leave_to_send_again(is_bounded: bool) -> None:
    with shop_stage(Backend(), level=Level.QUERYABLE, form=EAGER) as stage:
        adapters = stage.adapters

        class Behind(Passing):
            def look_up(self, run_id: RunId, key: Key, kind: str) -> LookUp:
                return ABSENT

        stage.adapters = lambda: tuple(Behind(inner) for inner in adapters())
        _killed_shop(stage)
        with pytest.raises(FrozenError):
            stage.work(stage.parts())
        assert stage.effects() == ("A-7",)


def _killed_shop(stage: PlayStage) -> None:
    rehearsal = Fate()
    with shop_stage(Backend(), level=Level.QUERYABLE, form=stage.form) as other:
        other.work(mortal(other.parts(), rehearsal))
    at = rehearsal.calls.index("adapter.execute")
    with pytest.raises(Died):
        stage.work(mortal(stage.parts(), Fate(Death(at=at, is_after=True))))
    stage.wait()


@pytest.mark.parametrize(
    ("spoil", "is_refused"),
    [
        pytest.param(lambda world: world.drop_receipt("k1"), True, id="T19 ours done, theirs not"),
        pytest.param(
            lambda world: world.alter_receipt("k1", id="other/9"), True, id="T19 both and different"
        ),
        pytest.param(lambda world: None, False, id="T19 both and the same"),
    ],
)
def test_a_settled_key_is_compared_with_what_its_target_says(
    spoil: Callable[[Any], object], is_refused: bool
) -> None:
    worlds: list[Any] = []

    def note(world: Any, adapter: Adapter) -> Adapter:
        worlds.append(world)
        return adapter

    with sandbox_stage(Backend(), form=EAGER, wrap=note) as stage:
        with opened(stage) as run:
            proposed(run, "sound", key="k1")
            run.settle()
        spoil(worlds[0])
        with opened(stage) as run:
            if is_refused:
                with pytest.raises(IdempotencyConflictError):
                    proposed(run, "sound", key="k1")
            else:
                assert proposed(run, "sound", key="k1").replayed
        assert len(stage.effects()) == 1


@pytest.mark.parametrize("call", [pytest.param("adapter.execute", id="T19 theirs done, ours not")])
def test_a_receipt_that_only_the_target_has_is_adopted(call: str) -> None:
    with sandbox_stage(Backend(), form=EAGER, program=write_once) as stage:
        killed(stage, call)
        with opened(stage) as run:
            settled = run.settle()
        assert settled is not None
        assert (settled.outcome, len(stage.effects())) == (Outcome.RECONCILED, 1)


# ---------------------------------------------------------------- C14

SHOP_TASK = Task(id="ask", policy=Policy(permissions=("shop.order", "shop.check")))


class Answering(Shop):
    """A shop that answers with whatever it is given."""

    answer: Any = None

    def order(self, key: str, sku: str) -> dict[str, object]:
        return super().order(key, sku) | {"answer": self.answer}


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param("a\x00b", id="C14 a NUL"),
        pytest.param("\\u0000", id="C14 a six characters"),
        pytest.param("\ud800", id="C14 a half a character"),
        pytest.param(b"\xff\x00", id="C14 a bytes"),
    ],
)
@pytest.mark.parametrize("is_on_disk", [False, True], ids=["memory", "sqlite"])
def test_whatever_a_target_answers_is_kept_and_the_run_goes_on(
    answer: Any, is_on_disk: bool, quick_folder: Any
) -> None:
    backend = Backend(quick_folder if is_on_disk else None)
    with _answering(backend, answer) as stage:
        with opened(stage) as run:
            first = run.do("shop.order", sku="A-7")
        with opened(stage) as run:
            again = run.do("shop.order", sku="A-7")
            run.do("shop.order", sku="B-9")
        assert isinstance(first, dict)
        assert (first["answer"], again) == (answer, first)
        assert stage.effects() == ("A-7", "B-9")


@pytest.mark.parametrize("size", [pytest.param(8 * RESULT_BYTES_MAX, id="C14 a too much text")])
def test_too_large_an_answer_is_kept_by_its_digest(size: int) -> None:
    with _answering(Backend(), "x" * size) as stage:
        with opened(stage) as run:
            first = run.do("shop.order", sku="A-7")
        with opened(stage) as run:
            assert run.do("shop.order", sku="A-7") == first
            run.do("shop.order", sku="B-9")
        assert len(str(first)) < RESULT_BYTES_MAX
        assert stage.effects() == ("A-7", "B-9")


@pytest.mark.parametrize(
    "content",
    [
        pytest.param("\ud800", id="C14 b half a character"),
        pytest.param(float("nan"), id="C14 b no number"),
        pytest.param(2**53, id="C14 b too large a number"),
        pytest.param(object(), id="C14 b no value"),
    ],
)
def test_what_cannot_be_stored_is_refused_before_anything_is_sent(content: Any) -> None:
    wire: list[str] = []
    with sandbox_stage(Backend(), form=EAGER, wrap=counted(wire)) as stage:
        with opened(stage) as run:
            with pytest.raises(ContractError):
                run.do("write_file", path="app.py", content=content)
            assert (run.state.pending, run.state.cursor, run.state.writes) == (None, 0, 0)
        assert (wire, stage.effects()) == ([], ())


class Full(MortalStore):
    """Has no room from its n-th put on."""

    def __init__(self, inner: CheckpointStore, room: int) -> None:
        super().__init__(inner, Fate())
        self._room = room

    def put(self, batch: Any) -> None:
        self._room -= 1
        if self._room < 0:
            raise UnavailableError("no space is left")
        super().put(batch)


@pytest.mark.parametrize(
    "room",
    [
        pytest.param(2, id="C14 c no room for the receipt"),
        pytest.param(1, id="C14 c no room for the intent"),
    ],
)
def test_a_full_store_leaves_the_run_as_it_was(room: int) -> None:
    with sandbox_stage(Backend(), form=EAGER, program=write_once) as stage:
        parts: Parts = stage.parts()
        full = dataclasses.replace(parts, store=Full(parts.store, room))
        with pytest.raises(UnavailableError):
            stage.work(full)
        shown = control.show(stage.parts(), stage.run_id)
        assert shown.head.generation == room - 1
        assert (shown.run.pending is not None) == (room == 2)
        assert len(stage.effects()) == room - 1
        stage.wait()
        stage.work(stage.parts())
        assert len(stage.effects()) == 1


def _answering(backend: Backend, answer: Any) -> Any:
    shop = Answering(dedupes=True)
    shop.answer = answer
    effects = shop_effects(shop, Level.DEDUPLICATING, in_flight_ms=None, is_observed=False)
    stage = PlayStage(
        backend=backend,
        run_id=backend.new_run(),
        task=SHOP_TASK,
        program=restock,
        adapters=lambda: effects.adapters(backend.clock.now_ms),
        count=lambda: tuple(shop.placed),
        look=lambda: None,
    )
    return closing(stage)
