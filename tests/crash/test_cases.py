"""Field cases C01 and C08: what went wrong elsewhere, and must not here."""

from typing import Any

import pytest

from counterfoil.core.errors import (
    ContractError,
    FrozenError,
    IdempotencyConflictError,
    RefusedError,
    UnavailableError,
    UnknownOutcomeError,
)
from counterfoil.core.receipt import LookUp
from counterfoil.core.review import CaseReason
from counterfoil.core.run import Phase
from counterfoil.core.trace import Outcome
from counterfoil.core.words import Json, Key, Level, RunId
from counterfoil.engine import control
from counterfoil.keeper import Keeper
from counterfoil.ports import Adapter
from counterfoil.testing.saboteur_adapters import Passing
from tests.support.killing import (
    EAGER,
    Counting,
    counted,
    killed,
    opened,
    outcomes,
    proposed,
    write_once,
)
from tests.support.stages import (
    Backend,
    sandbox_stage,
)

# ---------------------------------------------------------------- C01


@pytest.mark.parametrize("level", [pytest.param(Level.TRANSACTIONAL, id="C01 a look-up by key")])
def test_an_effect_whose_result_was_not_saved_is_not_made_again(level: Level) -> None:
    wire: list[str] = []
    with sandbox_stage(
        Backend(), level=level, form=EAGER, program=write_once, wrap=counted(wire)
    ) as stage:
        killed(stage)
        with opened(stage) as run:
            result = write_once(run)
        assert (len(wire), len(stage.effects())) == (1, 1)
        assert result == {"path": "app.py", "version": 1}
        assert outcomes(stage)[-1] is Outcome.RECONCILED


@pytest.mark.parametrize("level", [pytest.param(Level.BLIND, id="C01 b no look-up")])
def test_without_a_look_up_a_person_decides(level: Level) -> None:
    wire: list[str] = []
    with sandbox_stage(
        Backend(), level=level, form=EAGER, program=write_once, wrap=counted(wire)
    ) as stage:
        killed(stage)
        with opened(stage) as run, pytest.raises(FrozenError):
            write_once(run)
        shown = control.show(stage.parts(), stage.run_id).run
        assert (len(wire), len(stage.effects())) == (1, 1)
        assert shown.phase is Phase.NEEDS_REVIEW
        assert shown.pending is not None
        assert shown.case is not None
        assert shown.case.reason is CaseReason.OUTCOME_UNKNOWN


class Unavailable(Passing):
    """Answers look-ups with 503, some times."""

    def __init__(self, inner: Adapter, left: list[str]) -> None:
        super().__init__(inner)
        self._left = left

    def look_up(self, run_id: RunId, key: Key, kind: str) -> LookUp:
        if self._left:
            raise UnavailableError(self._left.pop())
        return super().look_up(run_id, key, kind)


@pytest.mark.parametrize(
    "level",
    [
        pytest.param(Level.TRANSACTIONAL, id="C01 c T20 503 first, transactional"),
        pytest.param(Level.DEDUPLICATING, id="C01 c T20 503 first, deduplicating"),
        pytest.param(Level.CONDITIONAL, id="C01 c T20 503 first, conditional"),
        pytest.param(Level.QUERYABLE, id="C01 c T20 503 first, queryable"),
    ],
)
def test_a_look_up_that_fails_first_is_asked_again_later(level: Level) -> None:
    wire: list[str] = []
    failures = ["503", "503"]
    with sandbox_stage(
        Backend(),
        level=level,
        form=EAGER,
        program=write_once,
        wrap=lambda _, inner: Unavailable(Counting(inner, wire), failures),
    ) as stage:
        killed(stage)
        with opened(stage) as run:
            for _ in range(2):
                with pytest.raises(UnknownOutcomeError):
                    write_once(run)
                assert run.state.pending is not None
            write_once(run)
        assert (len(wire), len(stage.effects())) == (1, 1)
        assert outcomes(stage)[-1] is Outcome.RECONCILED


# ---------------------------------------------------------------- C08


@pytest.mark.parametrize(
    ("content", "more", "error"),
    [
        pytest.param("other", {}, IdempotencyConflictError, id="C08 b another amount"),
        pytest.param("sound", {"note": "x"}, ContractError, id="C08 d an invalid field"),
        pytest.param(7, {}, ContractError, id="C08 d an invalid amount"),
    ],
)
def test_a_used_key_with_something_else_is_refused_and_nothing_is_sent(
    content: Any, more: dict[str, Json], error: type[RefusedError]
) -> None:
    wire: list[str] = []
    with sandbox_stage(Backend(), form=EAGER, wrap=counted(wire)) as stage:
        with opened(stage) as run:
            proposed(run, "sound", key="k1")
            run.settle()
        with opened(stage) as run:
            with pytest.raises(error):
                proposed(run, content, key="k1", **more)
            assert (run.state.pending, run.state.phase) == (None, Phase.RUNNING)
        assert (wire, len(stage.effects())) == (["k1"], 1)


@pytest.mark.parametrize("key", [pytest.param("k1", id="C08 c the same again")])
def test_a_used_key_with_the_same_intent_answers_from_the_record(key: str) -> None:
    wire: list[str] = []
    with sandbox_stage(Backend(), form=EAGER, wrap=counted(wire)) as stage:
        with opened(stage) as run:
            proposed(run, "sound", key=key)
            first = run.settle()
        with opened(stage) as run:
            again = proposed(run, "sound", key=key)
        assert first is not None
        assert (again.replayed, again.result) == (True, first.receipt.result)
        assert (wire, len(stage.effects())) == (["k1"], 1)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param("sound", id="C08 a the target knows the key from elsewhere"),
        pytest.param("other", id="C08 b the target knows the key with another amount"),
    ],
)
def test_a_key_that_only_the_target_knows_freezes_the_run_with_all_evidence(content: str) -> None:
    backend = Backend()
    worlds: list[Any] = []
    with sandbox_stage(backend, form=EAGER, wrap=lambda w, a: worlds.append(w) or a) as stage:
        with opened(stage) as run:
            proposed(run, "sound", key="k1")
            run.settle()
        (key,) = worlds[0].receipts
        with Keeper(stage.parts()).run(stage.task, "run-of-another") as run:
            proposed(run, content, key=key)
            with pytest.raises(FrozenError):
                run.settle()
            case = run.state.case
            with pytest.raises(FrozenError):
                proposed(run, "third", key="k3")
            with pytest.raises(FrozenError):
                run.settle()
        assert case is not None
        assert case.reason is CaseReason.INTENT_CONFLICT
        assert case.pending is not None
        assert case.receipt == worlds[0].receipts[key]
        assert case.receipt is not None
        assert (case.pending.digest == case.receipt.digest) == (content == "sound")
        assert case.observed is not None
        assert len(stage.effects()) == 1
