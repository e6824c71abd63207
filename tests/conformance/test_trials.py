"""An adapter on trial is shown the level that was borne out, and no other."""

import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from counterfoil.core.receipt import Receipt
from counterfoil.core.words import Level, RunId
from counterfoil.ports import Adapter, Operation
from counterfoil.testing import trial_drill
from counterfoil.testing.adapter_bench import AdapterBench, Call, Trait, operation
from counterfoil.testing.saboteur_adapters import Passing
from counterfoil.testing.saboteur_kinds import Redeclaring
from counterfoil.testing.trial import Outcome, Verdict, try_adapter
from counterfoil.testing.trial_caller import started_caller
from tests.support.benches import function_bench, sandbox_bench
from tests.support.letter_desk import bench_of

FEW = 4
"""Deaths inside each write, where other things are tried out than the deaths."""

DESKS = (
    ("transactional",),
    ("transactional", "forbids"),
    ("deduplicating",),
    ("deduplicating", "unseen"),
    ("conditional",),
    ("queryable",),
    ("blind",),
)
"""Desks that are what they claim to be; each is killed with SIGKILL inside its calls."""


def tried(*desk: str, call_ms: int = 10_000) -> Verdict:
    """Return what comes of a desk, with few deaths."""
    return judged(partial(bench_of, *desk, call_ms=call_ms))


def judged(make_bench: Callable[[], AdapterBench]) -> Verdict:
    return try_adapter(make_bench, second_deaths=0)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial_drill, "DEATHS", FEW)


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("desk", DESKS, ids=" ".join)
def test_a_level_that_is_there_is_shown(desk: tuple[str, ...]) -> None:
    verdict = tried(*desk)
    assert [each for each in verdict.findings if each.problem] == []
    assert (verdict.untried, verdict.drill.problem) == ((), "")
    assert (verdict.shown, verdict.outcome) == (Level(desk[0]), Outcome.HELD)
    assert verdict.drill.kills.kills >= 2 * FEW
    assert verdict.drill.kills.inside > 0


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize(
    ("desk", "shown", "sentence"),
    [
        (
            ("transactional", "fenceless"),
            Level.DEDUPLICATING,
            "a call under an older lease is refused",
        ),
        (
            ("deduplicating", "doubles"),
            Level.QUERYABLE,
            "a repeated call gets the first receipt",
        ),
        (
            ("conditional", "fenceless"),
            Level.QUERYABLE,
            "a call under an older lease is refused",
        ),
        (
            ("conditional", "unconditional"),
            Level.QUERYABLE,
            "a write built before another runs write is refused",
        ),
        (("queryable", "forgets"), Level.BLIND, "what was done is found"),
        (("deduplicating", "forgets"), Level.BLIND, "what was done is found"),
        (("blind", "remembers"), None, "a target that cannot be asked says unknown"),
    ],
    ids=str,
)
def test_a_level_that_is_not_there_is_not_shown(
    desk: tuple[str, ...], shown: Level | None, sentence: str
) -> None:
    verdict = tried(*desk)
    assert (verdict.shown, verdict.outcome) == (shown, Outcome.NOT_HELD)
    assert sentence in {each.sentence for each in verdict.findings if each.problem}


@pytest.mark.usefixtures("few")
def test_a_condition_that_was_not_tried_bears_nothing_out() -> None:
    def silent() -> AdapterBench:
        bench = bench_of("conditional")
        return replace(bench, traits=bench.traits - {Trait.CHECKS_PRESTATE})

    verdict = judged(silent)
    assert (verdict.shown, verdict.outcome) == (Level.QUERYABLE, Outcome.NOT_HELD)
    assert {each.offer for each in verdict.untried} == {"Trait.CHECKS_PRESTATE in traits"}


def test_a_fence_that_is_not_declared_bears_nothing_out() -> None:
    def fenceless(adapter: Adapter) -> Adapter:
        return Redeclaring(adapter, lambda spec: replace(spec, fences=False))

    verdict = judged(lambda: sandbox_bench(level=Level.CONDITIONAL, wrap=fenceless))
    assert (verdict.claimed, verdict.shown) == (Level.CONDITIONAL, None)


# ---------------------------------------------------------------- what was not tried


@pytest.mark.usefixtures("few")
def test_what_was_not_tried_is_named_with_what_it_needs() -> None:
    verdict = tried("deduplicating", "bare")
    assert (verdict.shown, verdict.outcome) == (Level.DEDUPLICATING, Outcome.PARTLY_TRIED)
    offers = {each.sentence: each.offer for each in verdict.untried}
    assert offers == {
        "reading changes nothing": "reads, calls that change nothing",
        "arguments out of contract are refused": "garbled, calls whose arguments are out of"
        " contract",
        "a lost answer is no refusal": "lose_answer, and Trait.LOSES_ANSWERS in traits",
        "a lost answer is settled by the same call": "lose_answer, and Trait.LOSES_ANSWERS"
        " in traits",
        "an unreachable target is unknown and not absent": "cut_off, and Trait.CUTS_OFF in traits",
        "an unreachable target is not observed": "cut_off, and Trait.CUTS_OFF in traits",
        "a replay is answered though the environment moved": "disturb, and Trait.DISTURBS"
        " in traits",
        "a disturbance is observed": "disturb, and Trait.DISTURBS in traits",
        "two effects are told from each other": "effects, which names each of them",
    }
    assert {each.sentence for each in verdict.findings}.isdisjoint(offers)
    assert all(each.why for each in verdict.untried)


def test_a_target_in_one_process_is_not_killed_inside_a_call() -> None:
    verdict = judged(partial(function_bench, Level.DEDUPLICATING))
    reasons = {each.sentence: each.why for each in verdict.untried}
    assert "lies in one process" in reasons["a process is killed inside a call"]
    assert verdict.drill.kills.kills == 0
    assert (verdict.shown, verdict.outcome) == (Level.DEDUPLICATING, Outcome.PARTLY_TRIED)


def test_calls_that_land_late_are_not_killed_before_they_have_landed() -> None:
    verdict = tried("queryable", "slow")
    reasons = {each.sentence: each.why for each in verdict.untried}
    assert "may land for 600 s" in reasons["a process is killed inside a call"]
    assert verdict.outcome is Outcome.PARTLY_TRIED


def test_an_adapter_that_opens_nowhere_else_is_not_killed_inside_a_call() -> None:
    here = os.getpid()

    def homely() -> AdapterBench:
        bench = bench_of("deduplicating")

        def opened() -> Adapter:
            if os.getpid() != here:
                raise RuntimeError("no connection crosses a fork")
            return bench.open()

        return replace(bench, open=opened)

    verdict = judged(homely)
    (untried,) = verdict.untried
    assert "no connection crosses a fork" in untried.why
    assert verdict.outcome is Outcome.PARTLY_TRIED


# ---------------------------------------------------------------- the crash drill


def test_what_only_a_death_inside_a_call_shows_is_found() -> None:
    verdict = tried("deduplicating", "two steps")
    assert [each for each in verdict.findings if each.problem] == []
    assert verdict.drill.tally.crashes > 20
    assert "ms into write" in verdict.drill.problem
    assert (verdict.shown, verdict.outcome) == (Level.QUERYABLE, Outcome.NOT_HELD)


@pytest.mark.usefixtures("few")
def test_a_doubled_effect_does_not_hide_a_missing_one() -> None:
    verdict = tried("deduplicating", "overwrites")
    problems = {each.sentence: each.problem for each in verdict.findings if each.problem}
    assert problems["different keys are different effects"] == (
        "not so: each effect is there once, not {'letter 2': 2}"
    )
    assert "an effect happened twice" in verdict.drill.problem
    assert verdict.outcome is Outcome.NOT_HELD


@pytest.mark.usefixtures("few")
def test_where_effects_have_no_names_a_run_has_but_one() -> None:
    verdict = tried("deduplicating", "overwrites", "nameless")
    (untried,) = verdict.untried
    assert "would hide one that is missing" in untried.why
    assert verdict.drill.kills.kills == FEW
    assert verdict.outcome is Outcome.PARTLY_TRIED


@pytest.mark.usefixtures("few")
def test_a_call_may_take_longer_than_a_lease() -> None:
    assert tried("deduplicating", call_ms=60_000).outcome is Outcome.HELD


@pytest.mark.usefixtures("few")
def test_a_write_may_be_built_on_what_is_there() -> None:
    def building() -> AdapterBench:
        bench = bench_of("deduplicating")

        def write(number: int) -> Call:
            text = f"letter {number}, after {bench.count()}"
            return Call(kind="desk.letter", arguments={"text": text})

        return replace(bench, write=write)

    assert judged(building).outcome is Outcome.HELD


class Starts(Passing):
    """Starts a program that would stay for ever, and fails."""

    def execute(self, operation: Operation) -> Receipt:
        subprocess.Popen(["sleep", "3600"], pass_fds=[int(operation.run_id)])
        raise RuntimeError("it did not come to an end")


def test_what_a_call_has_started_ends_with_it() -> None:
    bench = bench_of("deduplicating")
    ours, theirs = os.pipe()
    caller = started_caller(lambda: Starts(bench.open()))
    os.close(theirs)
    sent = operation(bench, bench.open(), bench.write(1), run_id=RunId(str(theirs)))
    is_inside = caller.strike(sent, 60)
    caller.close()
    assert not is_inside
    assert os.read(ours, 1) == b""  # nobody holds the other end
    os.close(ours)
    bench.close()
