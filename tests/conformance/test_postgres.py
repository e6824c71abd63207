"""PostgreSQL keeps the clauses of every port, and every broken promise on it is caught."""

from collections.abc import Callable
from typing import Any

import pytest

from counterfoil.core.errors import CounterfoilError
from counterfoil.local.postgres import LocalPostgres
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
