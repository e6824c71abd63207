"""Every backend that is store and register at once keeps its clauses; broken ones are caught."""

from collections.abc import Callable
from typing import Any

import pytest

from counterfoil.core.errors import CounterfoilError
from counterfoil.engine.grouping import shared
from counterfoil.stores.memory_joint import MemoryJoint
from counterfoil.testing import joint_commits as commits
from counterfoil.testing import saboteur_joints as saboteurs
from counterfoil.testing.conformance_heads import HEAD_CLAUSES
from counterfoil.testing.conformance_joints import JOINT_CLAUSES, JointBench
from counterfoil.testing.conformance_stores import STORE_CLAUSES
from counterfoil.testing.expect import ConformanceError
from counterfoil.testing.store_bench import HeadBench, StoreBench
from tests.support.store_benches import INCARNATION, Wall

CAUGHT = [
    (saboteurs.RowsWithoutMoves, commits.a_commit_stores_its_row_and_moves_its_head),
    (saboteurs.RowsWithoutMoves, commits.a_commit_from_another_head_leaves_nothing),
    (saboteurs.MovesWithoutRows, commits.a_commit_stores_its_row_and_moves_its_head),
    (saboteurs.MovesWithoutRows, commits.what_a_commit_stored_is_found),
    (saboteurs.RowsBeforeMoves, commits.a_commit_from_another_head_leaves_nothing),
    (saboteurs.RowsBeforeMoves, commits.a_commit_under_a_superseded_lease_leaves_nothing),
    (saboteurs.RowsBeforeMoves, commits.a_commit_without_a_head_leaves_nothing),
    (saboteurs.RowsBeforeMoves, commits.a_batch_is_all_or_none),
    (
        saboteurs.MovesBeforeRows,
        commits.a_commit_under_an_older_lease_than_the_mark_leaves_nothing,
    ),
    (saboteurs.MovesBeforeRows, commits.what_nobody_could_commit_is_refused),
    (saboteurs.MovesBeforeRows, commits.a_batch_is_all_or_none),
    (saboteurs.MovesLongBeforeRows, commits.whoever_reads_a_head_finds_its_checkpoint),
    (
        saboteurs.IgnoresTheMark,
        commits.a_commit_under_an_older_lease_than_the_mark_leaves_nothing,
    ),
    (saboteurs.HalfBatch, commits.a_batch_is_all_or_none),
    (saboteurs.HalfBatch, commits.a_batch_can_commit_to_one_run_twice),
    (saboteurs.AnswersOutOfOrder, commits.a_batch_commits_every_row_and_every_move),
    (saboteurs.AnswersInOrderOfRows, commits.a_batch_commits_every_row_and_every_move),
    (saboteurs.IgnoresTheLease, commits.a_commit_under_a_superseded_lease_leaves_nothing),
    (saboteurs.IgnoresTheLease, commits.a_commit_under_another_nonce_leaves_nothing),
    (saboteurs.IgnoresTheCheckpoint, commits.a_commit_from_another_head_leaves_nothing),
    (saboteurs.CommitsTwice, commits.a_commit_whose_answer_was_lost_is_not_made_twice),
    (saboteurs.CommitsTwice, commits.one_of_many_commits),
    (
        saboteurs.TakesARefusalForARepetition,
        commits.a_commit_whose_answer_was_lost_is_not_made_twice,
    ),
    (saboteurs.RefusesWhatIsStored, commits.a_row_that_was_put_before_is_committed),
    (saboteurs.ForgetsNames, commits.what_a_commit_stored_is_found),
    (saboteurs.ForgetsTheTerm, commits.a_commit_never_shortens_the_lease),
    (saboteurs.TakesAnyStatus, commits.what_nobody_could_commit_is_refused),
    (saboteurs.KeepsTheRowsOfLosers, commits.one_of_many_commits),
    (saboteurs.MovesARunOnce, commits.a_batch_can_commit_to_one_run_twice),
    (saboteurs.MovesWithoutRows, commits.threads_that_share_a_connection_lose_nothing),
]


def _memory() -> JointBench:
    made = MemoryJoint(now_ms=Wall().now_ms, incarnation=INCARNATION)
    return JointBench(open=lambda: (made.store, made.heads, made))


def _grouped() -> JointBench:
    made = MemoryJoint(now_ms=Wall().now_ms, incarnation=INCARNATION)
    store, heads, joint = shared(made.store, made.heads, made)
    assert joint is not None
    return JointBench(open=lambda: (store, heads, joint))


def _spoiled(wrap: Callable[..., Any]) -> JointBench:
    made = MemoryJoint(now_ms=Wall().now_ms, incarnation=INCARNATION)
    spoiled = wrap(made, made.store, made.heads)
    return JointBench(open=lambda: (made.store, made.heads, spoiled))


BACKENDS = {"memory": _memory, "memory, grouped": _grouped}


def _sentence(clause: Callable[..., None]) -> str:
    return clause.__name__.replace("_", " ")


@pytest.mark.parametrize(
    ("bench", "clause"),
    [
        pytest.param(bench, clause, id=f"{name} {_sentence(clause)}")
        for name, bench in BACKENDS.items()
        for clause in JOINT_CLAUSES
    ],
)
def test_a_joint_keeps(bench: Callable[[], JointBench], clause: Callable[..., None]) -> None:
    clause(bench())


@pytest.mark.parametrize("clause", STORE_CLAUSES, ids=_sentence)
def test_the_store_of_a_joint_keeps(clause: Callable[..., None]) -> None:
    made = MemoryJoint(now_ms=Wall().now_ms, incarnation=INCARNATION)
    store, _, _ = shared(made.store, made.heads, made)
    clause(StoreBench(open=lambda: store))


@pytest.mark.parametrize("clause", HEAD_CLAUSES, ids=_sentence)
def test_the_register_of_a_joint_keeps(clause: Callable[..., None]) -> None:
    wall = Wall()
    made = MemoryJoint(now_ms=wall.now_ms, incarnation=INCARNATION)
    _, heads, _ = shared(made.store, made.heads, made)
    clause(HeadBench(open=lambda: heads, advance_clock=wall.advance))


@pytest.mark.parametrize(
    ("saboteur", "clause"),
    [
        pytest.param(saboteur, clause, id=f"{saboteur.__name__} {clause.__name__}")
        for saboteur, clause in CAUGHT
    ],
)
def test_a_joint_that_breaks_a_promise_is_caught(
    saboteur: Callable[..., Any], clause: Callable[..., None]
) -> None:
    with pytest.raises((ConformanceError, CounterfoilError)):
        clause(_spoiled(saboteur))


@pytest.mark.parametrize("clause", JOINT_CLAUSES, ids=_sentence)
def test_a_joint_that_breaks_nothing_passes(clause: Callable[..., None]) -> None:
    clause(_spoiled(saboteurs.Passing))


def test_every_saboteur_is_caught() -> None:
    made = {
        each
        for name, each in vars(saboteurs).items()
        if isinstance(each, type) and issubclass(each, saboteurs.Passing)
        if not name.startswith("_")
    }
    assert made - {saboteurs.Passing} == {saboteur for saboteur, _ in CAUGHT}


def test_every_clause_is_in_the_suite_and_catches_a_saboteur() -> None:
    written = {
        each
        for name, each in vars(commits).items()
        if getattr(each, "__module__", "") == commits.__name__
        if callable(each) and not isinstance(each, type) and not name.startswith("_")
    }
    assert written == set(JOINT_CLAUSES) == {clause for _, clause in CAUGHT}
