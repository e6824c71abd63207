"""Acceptance list, section E: one effect per key, whatever the record or the target forgot."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from counterfoil.adapters.sandbox import World
from counterfoil.core.codec import Checkpoint
from counterfoil.core.errors import (
    ApprovalError,
    FrozenError,
    IdempotencyConflictError,
    IntegrityError,
)
from counterfoil.core.review import CaseReason
from counterfoil.core.run import Phase
from counterfoil.core.task import Budgets
from counterfoil.core.trace import Event, Outcome
from counterfoil.core.words import RunId
from counterfoil.stores.memory import MemoryStore
from tests.support.desks import desk
from tests.support.forging import forge_head
from tests.support.people import approve
from tests.support.scenes import (
    EFFECTS,
    KEY,
    SOUND,
    counts,
    events,
    last,
    lesson_task,
    memory_scene,
    read,
    write,
    written,
)


class ForgetfulStore(MemoryStore):
    """Has lost its index of keys and positions."""

    def find(self, run_id: RunId, name: str) -> tuple[Checkpoint, ...]:
        return ()


@pytest.mark.parametrize("expected", [pytest.param((2, 1), id="acc-056")])
def test_the_same_intent_under_a_settled_key_is_replayed(expected: tuple[int, int]) -> None:
    scene = memory_scene()
    run = scene.run()
    receipt = written(run)
    again = run.propose(write(run))
    assert (again.replayed, again.result, counts(run)) == (True, receipt.result, expected)
    assert (scene.world.write_count, last(run)) == (1, Outcome.REPLAYED)


@pytest.mark.parametrize("expected", [pytest.param((2, 1), id="acc-057")])
def test_another_intent_under_a_settled_key_is_a_conflict(expected: tuple[int, int]) -> None:
    scene = memory_scene()
    run = scene.run()
    written(run)
    with pytest.raises(IdempotencyConflictError):
        run.propose(write(run, EFFECTS))
    assert (scene.world.write_count, counts(run)) == (1, expected)
    assert last(run) is Outcome.IDEMPOTENCY_CONFLICT


@pytest.mark.parametrize("outcome", [pytest.param(Outcome.REPLAYED, id="acc-058")])
def test_a_lost_index_still_leads_to_the_first_effect(outcome: Outcome) -> None:
    scene = memory_scene(merges=False)
    store = ForgetfulStore()
    scene.store = lambda: store
    run = scene.run()
    first = written(run)
    run.propose(write(run))
    settled = run.settle()
    assert settled is not None
    assert (settled.outcome, settled.receipt.id, settled.receipt.replayed) == (
        outcome,
        first.id,
        True,
    )
    assert (scene.world.write_count, run.state.writes) == (1, 1)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda world: world.drop_receipt(KEY), id="acc-059 it is deleted"),
        pytest.param(lambda world: world.alter_receipt(KEY, id="x"), id="acc-060 its id changed"),
    ],
)
def test_a_target_that_tells_another_story_is_a_conflict(change: Callable[[World], None]) -> None:
    scene = memory_scene()
    run = scene.run()
    written(run)
    change(scene.world)
    with pytest.raises(IdempotencyConflictError):
        run.propose(write(run))
    assert (scene.world.write_count, last(run)) == (1, Outcome.IDEMPOTENCY_CONFLICT)


def _other_id(event: Event) -> Event:
    receipt = event.receipt
    return replace(event, receipt=replace(receipt, id="forged")) if receipt else event


@pytest.mark.parametrize(
    ("is_resigned", "error"),
    [
        pytest.param(True, IdempotencyConflictError, id="acc-061 and signed again"),
        pytest.param(False, IntegrityError, id="acc-061 and not signed again"),
    ],
)
def test_a_record_that_was_altered_is_not_believed(
    is_resigned: bool, error: type[Exception]
) -> None:
    scene = memory_scene(merges=False)
    with scene.run() as run:
        written(run)
    forge_head(scene, change_event=_other_id, is_resigned=is_resigned)
    with pytest.raises(error):
        _propose_again(scene)
    assert scene.world.write_count == 1


def _propose_again(scene: Any) -> None:
    run = scene.run()
    run.propose(write(run))


@pytest.mark.parametrize("reason", [pytest.param("proposal_budget_exhausted", id="acc-062")])
def test_a_replay_uses_up_the_last_proposal(reason: str) -> None:
    run = memory_scene(lesson_task(budgets=Budgets(proposals=2, steps=1))).run()
    written(run)
    run.propose(write(run))
    assert (counts(run), run.state.phase, run.state.reason) == ((2, 1), Phase.FAILED, reason)


@pytest.mark.parametrize("replayed", [pytest.param(True, id="acc-063")])
def test_a_used_key_is_no_way_around_an_approval(replayed: bool) -> None:
    at = desk()
    run, request = at.asks()
    at.hand(approve(request))
    run.settle()
    run.close()
    again = at.run("run-2")
    again.propose(write(again))
    with pytest.raises(ApprovalError):
        again.settle()
    assert (again.state.phase, at.scene.world.write_count) == (Phase.RUNNING, 1)
    first = at.run()
    assert (first.propose(write(first)).replayed, at.scene.world.write_count) == (replayed, 1)


@pytest.mark.parametrize(
    ("shared", "expected"),
    [
        pytest.param(False, CaseReason.INTENT_CONFLICT, id="acc-A23 a key of its own"),
        pytest.param(True, Outcome.REPLAYED, id="acc-A23 a key declared shared"),
    ],
)
def test_the_key_of_another_run_is_not_this_runs(
    shared: bool, expected: CaseReason | Outcome
) -> None:
    scene = memory_scene(shared_keys=shared)
    written(scene.run("run-1"))
    other = scene.run("run-2")
    other.propose(write(other))
    try:
        settled = other.settle()
        found = settled.outcome if settled else None
    except FrozenError:
        found = other.state.case.reason if other.state.case else None
    assert (found, scene.world.write_count) == (expected, 1)


def test_a_conflict_freezes_the_run_with_its_evidence() -> None:
    scene = memory_scene()
    written(scene.run("run-1"))
    other = scene.run("run-2")
    other.propose(write(other))
    with pytest.raises(FrozenError):
        other.settle()
    case = other.state.case
    assert case is not None
    assert (case.pending, case.receipt) == (other.state.pending, scene.world.receipts[KEY])
    with pytest.raises(FrozenError):
        other.propose(read(other))
    assert events(other)[-1].case == case


def test_two_keys_are_two_effects() -> None:
    scene = memory_scene()
    run = scene.run()
    written(run, key="key-1")
    written(run, EFFECTS, key="key-2")
    assert [effect.content for effect in scene.world.effects] == [SOUND, EFFECTS]
