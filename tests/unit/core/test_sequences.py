"""What holds after any sequence of things that can happen to a run."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from counterfoil.core.bounds import EVENTS_PER_COMMIT_MAX
from counterfoil.core.codec import encode_events, extended, open_checkpoint
from counterfoil.core.errors import (
    BudgetError,
    ContractError,
    CounterfoilError,
    FrozenError,
    StaleObservationError,
    TerminalError,
    UnavailableError,
)
from counterfoil.core.inputs import (
    Aborted,
    CaseOpened,
    Facts,
    Failed,
    Garbled,
    GivenUp,
    Input,
    Observed,
    Proposed,
    ReceiptSeen,
    Remembered,
    Resent,
    Settled,
    Step,
)
from counterfoil.core.intent import EnvironmentState
from counterfoil.core.machine import Standing, apply, standing
from counterfoil.core.run import Run, check_invariants, environment_of
from counterfoil.core.trace import Outcome
from counterfoil.core.words import IntentDigest
from tests.support.runs import (
    BEGAN_MS,
    BOX,
    TASK,
    VERIFIERS,
    action,
    case_of,
    checkpoint,
    fresh,
    receipt_of,
    rules,
)

FULL: Facts = {"box": {"a": "full"}}
STALE = StaleObservationError("moved")


def now(run: Run) -> EnvironmentState:
    return environment_of(run, "box") or BOX


def next_state(run: Run) -> EnvironmentState:
    version = now(run).version + 1
    return replace(now(run), version=version, fingerprint=f"f{version}")


def proposed(name: str, **fields: object) -> Callable[[Run], Input]:
    def make(run: Run) -> Input:
        seen = {"preconditions": {"version": now(run).version}}
        return Proposed(
            action=action(name, **seen | fields),
            action_id="a",
            environments=(now(run),),
            facts=FULL,
        )

    return make


def receipt_seen(was_recovered: bool, drifts: bool) -> Callable[[Run], Input | None]:
    def make(run: Run) -> Input | None:
        if standing(run) is not Standing.BUSY or run.pending is None:
            return None
        after = next_state(run)
        later = replace(after, version=after.version + 1, fingerprint="other") if drifts else None
        receipt = receipt_of(run.pending, poststate=after)
        return ReceiptSeen(receipt=receipt, was_recovered=was_recovered, observed=later)

    return make


def when_busy(given: Input) -> Callable[[Run], Input | None]:
    return lambda run: given if standing(run) is Standing.BUSY else None


MAKERS: list[Callable[[Run], Input | None]] = [
    proposed("box.put"),
    proposed("box.put", arguments={"item": "z"}),
    proposed("box.put", preconditions={"version": 0}),
    proposed("box.buy"),
    proposed("box.get"),
    proposed("box.check"),
    proposed("box.check", arguments={"item": "b"}),
    proposed("finish"),
    proposed("cancel"),
    proposed("box.fly"),
    lambda run: Garbled(error=ContractError("no JSON")),
    lambda run: Remembered(name="n", digest=IntentDigest("i1:0"), value=run.cursor),
    lambda run: Observed(environments=(now(run),)),
    lambda run: Observed(environments=(next_state(run),)),
    lambda run: CaseOpened(case=case_of(run.pending)),
    lambda run: Aborted(actor="ann", reason="enough"),
    receipt_seen(was_recovered=False, drifts=False),
    receipt_seen(was_recovered=True, drifts=True),
    when_busy(Resent()),
    when_busy(GivenUp(outcome=Outcome.STALE_OBSERVATION, error=STALE)),
]

moves = st.lists(
    st.tuples(
        st.sampled_from(
            [n for n in range(len(MAKERS)) for _ in range(1 if n in (8, 14, 15) else 5)]
        ),
        st.integers(-10, 50),
        st.booleans(),
    ),
    max_size=40,
)
Move = tuple[int, int, bool]


def settled(step: Step, fails: bool, now_ms: int) -> Step:
    """Return the step with which an admitted read or verification is committed."""
    if step.admitted is None or step.events:
        return step
    given: Input = Failed(admitted=step.admitted, error=UnavailableError("away"))
    if not fails:
        given = Settled(
            admitted=step.admitted,
            action_id="a",
            result=None,
            environments=(now(step.run),),
            passed=step.admitted.spec.name == "box.check",
        )
    return apply(step.run, given, rules(now_ms))


def history(made: list[Move]) -> list[tuple[Run, Step]]:
    """Play moves on a run, and return each run before with the step that was committed."""
    run, past, now_ms = fresh(), [], BEGAN_MS
    for number, later_ms, fails in made:
        given = MAKERS[number](run)
        now_ms += later_ms
        if given is None:
            continue
        try:
            step = settled(apply(run, given, rules(now_ms)), fails, now_ms)
        except (FrozenError, TerminalError, BudgetError):
            continue
        after = extended(step.run, encode_events(step.events))
        past.append((run, replace_run(step, after)))
        run = after
    return past


def replace_run(step: Step, run: Run) -> Step:
    return Step(run=run, events=step.events, settles=step.settles, error=step.error)


@given(moves)
def test_the_rules_of_a_run_hold(made: list[Move]) -> None:
    for _, step in history(made):
        check_invariants(step.run, TASK)


@given(moves)
@pytest.mark.parametrize("row", [pytest.param("time", id="acc-A19 the floor of time")])
def test_time_does_not_go_back(row: str, made: list[Move]) -> None:
    times = [event.at_ms for _, step in history(made) for event in step.events]
    floors = [step.run.floor_ms for _, step in history(made)]
    assert (times, floors) == (sorted(times), sorted(floors))


@given(moves)
@pytest.mark.parametrize("row", [pytest.param("budget", id="acc-A13 nothing is refunded")])
def test_what_is_spent_stays_spent(row: str, made: list[Move]) -> None:
    assert not [
        (before.spent, step.run.spent)
        for before, step in history(made)
        if step.run.spent.proposals < before.spent.proposals
        or step.run.spent.steps < before.spent.steps
        or step.run.spent.cost_micros < before.spent.cost_micros
    ]


@given(moves)
def test_the_budgets_hold(made: list[Move]) -> None:
    spent = [step.run.spent for _, step in history(made)]
    assert all(
        one.proposals <= TASK.budgets.proposals and one.cost_micros <= TASK.budgets.cost_micros
        for one in spent
    )


@given(moves)
def test_a_step_fits_into_one_commit(made: list[Move]) -> None:
    assert all(len(step.events) <= EVENTS_PER_COMMIT_MAX for _, step in history(made))


@given(moves)
def test_whatever_changes_a_run_is_in_its_trace(made: list[Move]) -> None:
    assert not [
        (before, step.run)
        for before, step in history(made)
        if not step.events and replace(step.run, floor_ms=before.floor_ms) != before
    ]


@given(moves)
def test_every_checkpoint_opens_as_the_run_that_was_sealed(made: list[Move]) -> None:
    for before, step in history(made)[-3:]:
        if step.events:
            bare = replace(step.run, trace_size=before.trace_size, frontier=before.frontier)
            row = checkpoint(bare, step.events)
            assert open_checkpoint(row, VERIFIERS).run == step.run


@given(moves)
def test_a_pending_intent_leaves_by_a_receipt_a_sealed_end_or_an_abort(made: list[Move]) -> None:
    gone = {
        step.events[0].outcome
        for before, step in history(made)
        if before.pending is not None and step.run.pending is None
    }
    assert gone <= {
        Outcome.EXECUTED,
        Outcome.RECONCILED,
        Outcome.STALE_OBSERVATION,
        Outcome.ABORTED,
    }


@given(moves)
def test_only_proof_of_the_last_world_completes(made: list[Move]) -> None:
    for _, step in history(made):
        if step.run.phase == "completed":
            assert step.run.evidence is not None
            assert step.run.evidence.environments == step.run.environments


@given(moves)
def test_positions_are_settled_once_and_in_order(made: list[Move]) -> None:
    names = [name for _, step in history(made) for name in step.settles if name.startswith("@")]
    assert names == [f"@{position}" for position in range(len(names))]


@given(moves)
def test_what_a_caller_is_told_is_of_the_taxonomy(made: list[Move]) -> None:
    errors = [step.error for _, step in history(made) if step.error is not None]
    assert all(isinstance(error, CounterfoilError) for error in errors)
