"""The counting target keeps its promises, breaks them when told to, and counts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from counterfoil.drill.calls import (
    Answer,
    Check,
    Checked,
    Conflicts,
    Do,
    Done,
    Effect,
    Fence,
    Fenced,
    Find,
    Look,
    Nothing,
    Seen,
    Take,
    Taken,
)
from counterfoil.drill.plan import Sabotage
from counterfoil.drill.target import FORGETS_EVERY, Counts, Target

KEYED, FENCED, BOOKED = "target.keyed", "target.fenced", "target.booked"
OLD, NEW = (Fence(run_id="r", lease_version=version, nonce=f"n{version}") for version in (1, 2))

Open = Callable[..., Target]


@pytest.fixture
def opened(tmp_path: Path) -> Open:
    def made(sabotage: Sabotage | None = None) -> Target:
        return Target(tmp_path / "target.db", seed=1, late_ms=0, sabotage=sabotage)

    return made


def do(target: Target, kind: str, what: str = "r/0", **changed: Any) -> Answer:
    fields: dict[str, Any] = {"key": f"key of {what}", "digest": "d", "fence": OLD}
    fields |= {"run_id": "r", "generation": 3, "checkpoint": "c"} | changed
    return target.answer(Do(kind=kind, what=what, **fields))


@pytest.mark.parametrize("kind", [KEYED, BOOKED])
def test_a_repeated_key_gives_the_earlier_effect(kind: str, opened: Open, tmp_path: Path) -> None:
    target = opened()
    first, second = do(target, kind), do(target, kind)
    assert isinstance(first, Done)
    assert isinstance(second, Done)
    assert (first.replayed, second.replayed, second.number) == (False, True, first.number)
    assert Counts(tmp_path / "target.db").effects == {"r/0": 1}


@pytest.mark.parametrize("kind", [FENCED, BOOKED])
def test_a_call_under_an_old_lease_is_refused_and_counted(
    kind: str, opened: Open, tmp_path: Path
) -> None:
    target = opened()
    target.answer(Take(fence=NEW))
    assert isinstance(do(target, kind), Fenced)
    counts = Counts(tmp_path / "target.db")
    assert (counts.effects, counts.verdicts) == ({}, {"fenced": 1})


def test_of_two_leases_of_one_version_one_passes(opened: Open) -> None:
    target = opened()
    target.answer(Take(fence=NEW))
    twin = Fence(run_id="r", lease_version=2, nonce="another")
    assert isinstance(target.answer(Take(fence=twin)), Fenced)


def test_a_taken_fence_says_what_was_served_last(opened: Open) -> None:
    target = opened()
    assert target.answer(Take(fence=OLD)) == Taken(generation=-1, checkpoint="")
    do(target, BOOKED)
    assert target.answer(Take(fence=NEW)) == Taken(generation=3, checkpoint="c")


def test_another_intent_under_a_key_is_a_conflict(opened: Open) -> None:
    target = opened()
    do(target, KEYED)
    assert isinstance(do(target, KEYED, digest="another"), Conflicts)


def test_a_key_is_found_once_its_effect_is_there(opened: Open) -> None:
    target = opened()
    before = target.answer(Find(key="key of r/0"))
    do(target, FENCED)
    after = target.answer(Find(key="key of r/0"))
    assert before == Nothing()
    assert isinstance(after, Effect)
    assert (after.run_id, after.digest) == ("r", "d")


@pytest.mark.parametrize(
    ("sabotage", "kind", "expected"),
    [
        pytest.param(Sabotage.KEYS, KEYED, 2, id="it forgets keys"),
        pytest.param(Sabotage.FENCES, FENCED, 2, id="it lets old leases through"),
        pytest.param(Sabotage.FENCES, KEYED, 1, id="it keeps the promise that is not broken"),
    ],
)
def test_a_broken_promise_doubles_effects(
    sabotage: Sabotage, kind: str, expected: int, opened: Open, tmp_path: Path
) -> None:
    target = opened(sabotage)
    do(target, kind, fence=OLD)
    target.answer(Take(fence=NEW))
    do(target, kind, fence=OLD)
    assert Counts(tmp_path / "target.db").effects == {"r/0": expected}


def test_a_target_that_says_done_and_does_nothing_passes_its_own_check(
    opened: Open, tmp_path: Path
) -> None:
    target = opened(Sabotage.EFFECTS)
    what = tuple(f"r/{number}" for number in range(FORGETS_EVERY))
    answers = [do(target, KEYED, each) for each in what]
    assert all(isinstance(answer, Done) for answer in answers)
    assert target.answer(Check(run_id="r", what=what)) == Checked(passed=True)
    assert len(Counts(tmp_path / "target.db").effects) == FORGETS_EVERY - 1


def test_a_check_passes_only_with_every_effect(opened: Open) -> None:
    target = opened()
    do(target, KEYED, "r/0")
    answers = [target.answer(Check(run_id="r", what=what)) for what in (("r/0",), ("r/0", "r/1"))]
    assert answers == [Checked(passed=True), Checked(passed=False)]


def test_nothing_is_under_way_once_it_was_answered(opened: Open) -> None:
    target = opened()
    do(target, KEYED)
    assert target.answer(Look()) == Seen(flying=0)
