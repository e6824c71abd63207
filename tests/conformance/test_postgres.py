"""PostgreSQL keeps the clauses of every port, and every broken promise on it is caught."""

from collections.abc import Callable
from typing import Any

import pytest

from counterfoil.core.errors import CounterfoilError
from counterfoil.local.postgres import LocalPostgres
from counterfoil.testing import head_commits, joint_commits, saboteur_heads, saboteur_joints
from counterfoil.testing.conformance_heads import HEAD_CLAUSES
from counterfoil.testing.conformance_joints import JOINT_CLAUSES
from counterfoil.testing.conformance_stores import INBOX_CLAUSES, STORE_CLAUSES
from counterfoil.testing.expect import ConformanceError
from tests.conformance import test_heads, test_joints, test_stores
from tests.support import postgres as benches

pytest_plugins = ["tests.support.postgres"]

Bench = Callable[..., Any]
KEPT: list[tuple[str, Bench, tuple[Callable[..., None], ...]]] = [
    ("store", benches.postgres_store, STORE_CLAUSES),
    ("heads", benches.postgres_heads, HEAD_CLAUSES),
    ("inbox", benches.postgres_inbox, INBOX_CLAUSES),
    ("joint", benches.postgres_joint, JOINT_CLAUSES),
]
CAUGHT: list[tuple[str, Bench, list[Any]]] = [
    ("store", benches.postgres_store, test_stores.STORE_CAUGHT),
    ("heads", benches.postgres_heads, test_heads.CAUGHT),
    ("inbox", benches.postgres_inbox, test_stores.INBOX_CAUGHT),
    ("joint", benches.postgres_joint, test_joints.CAUGHT),
]

BY_CHANCE = {
    (saboteur_heads.AdvancesTwice, head_commits.one_of_many_commits),
    (saboteur_joints.CommitsTwice, joint_commits.one_of_many_commits),
}
"""Caught only if one of many comes after another: on a server all may come at once, and then
nothing is broken. Another clause catches each of them for certain."""


@pytest.mark.parametrize(
    ("bench", "clause"),
    [
        pytest.param(bench, clause, id=f"{port} {clause.__name__.replace('_', ' ')}")
        for port, bench, clauses in KEPT
        for clause in clauses
    ],
)
def test_postgresql_keeps(
    postgres: LocalPostgres, bench: Bench, clause: Callable[..., None]
) -> None:
    with bench(postgres) as made:
        clause(made)


@pytest.mark.parametrize(
    ("bench", "saboteur", "clause"),
    [
        pytest.param(bench, saboteur, clause, id=f"{port} {saboteur.__name__} {clause.__name__}")
        for port, bench, pairs in CAUGHT
        for saboteur, clause in pairs
        if (saboteur, clause) not in BY_CHANCE
    ],
)
def test_a_promise_that_is_broken_on_postgresql_is_caught(
    postgres: LocalPostgres,
    bench: Bench,
    saboteur: Callable[..., Any],
    clause: Callable[..., None],
) -> None:
    with (
        bench(postgres, saboteur) as made,
        pytest.raises((ConformanceError, CounterfoilError)),
    ):
        clause(made)


def test_what_is_caught_by_chance_is_caught_for_certain_too() -> None:
    certain = {
        saboteur
        for _, _, pairs in CAUGHT
        for saboteur, clause in pairs
        if (saboteur, clause) not in BY_CHANCE
    }
    assert {saboteur for saboteur, _ in BY_CHANCE} <= certain
