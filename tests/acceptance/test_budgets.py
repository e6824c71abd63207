"""Acceptance list, section F: every proposal counts, and every end says why."""

from collections.abc import Callable
from contextlib import suppress

import pytest

from counterfoil.core.errors import ContractError, TerminalError, VerificationError
from counterfoil.core.intent import Action
from counterfoil.core.run import Phase
from counterfoil.core.task import Budgets
from counterfoil.core.trace import Outcome
from counterfoil.engine.session import Session
from tests.support.scenes import (
    act,
    check,
    counts,
    last,
    lesson_task,
    memory_scene,
    outcomes,
    read,
    write,
)


def _spent(run: Session) -> tuple[Phase, str, Outcome]:
    return run.state.phase, run.state.reason, last(run)


@pytest.mark.parametrize(
    "expected",
    [
        pytest.param(
            (
                Phase.FAILED,
                "proposal_budget_exhausted",
                Outcome.PROPOSAL_BUDGET_EXHAUSTED,
            ),
            id="acc-066",
        )
    ],
)
def test_bad_proposals_use_the_budget_up(expected: tuple[Phase, str, Outcome]) -> None:
    run = memory_scene(lesson_task(budgets=Budgets(proposals=2, steps=2))).run()
    for _ in range(2):
        with pytest.raises(ContractError):
            run.propose(act(run, "fly"))
    assert (_spent(run), counts(run)) == (expected, (2, 0))


@pytest.mark.parametrize(
    "expected",
    [
        pytest.param(
            (Phase.FAILED, "step_budget_exhausted", Outcome.STEP_BUDGET_EXHAUSTED), id="acc-067"
        )
    ],
)
def test_a_read_beyond_the_steps_ends_the_run(expected: tuple[Phase, str, Outcome]) -> None:
    run = memory_scene(lesson_task(budgets=Budgets(proposals=5, steps=1))).run()
    run.propose(read(run))
    with pytest.raises(TerminalError):
        run.propose(read(run))
    assert _spent(run) == expected


@pytest.mark.parametrize(
    "propose",
    [
        pytest.param(read, id="acc-068 a read"),
        pytest.param(write, id="acc-068 a write"),
        pytest.param(check, id="acc-068 a verification"),
        pytest.param(lambda run: "{", id="acc-068 no action at all"),
    ],
)
def test_nothing_is_proposed_to_a_run_that_failed(
    propose: Callable[[Session], Action | str],
) -> None:
    scene = memory_scene(lesson_task(budgets=Budgets(proposals=1, steps=1)))
    run = scene.run()
    with pytest.raises(ContractError):
        run.propose(act(run, "fly"))
    before = outcomes(run)
    with pytest.raises(TerminalError):
        run.propose(propose(run))
    assert (outcomes(run), scene.world.write_count) == (before, 0)


@pytest.mark.parametrize("outcome", [pytest.param(Outcome.EXECUTION_ERROR, id="acc-069")])
def test_finishing_without_evidence_costs_a_step(outcome: Outcome) -> None:
    run = memory_scene().run()
    with pytest.raises(VerificationError):
        run.finish()
    assert (counts(run), last(run)) == ((1, 1), outcome)


def test_a_run_that_ended_by_its_budget_releases_its_lease() -> None:
    scene = memory_scene(lesson_task(budgets=Budgets(proposals=1, steps=1)))
    with scene.run() as run, suppress(ContractError):
        run.propose(act(run, "fly"))
    head = scene.heads().read(run.state.run_id)
    assert head is not None
    assert (head.status, head.owner) == ("terminal", "")
