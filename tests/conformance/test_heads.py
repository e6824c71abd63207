"""Every head register keeps its clauses, and every broken promise is caught."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from counterfoil.core.errors import CounterfoilError
from counterfoil.testing import head_clocks as clocks
from counterfoil.testing import head_commits as commits
from counterfoil.testing import head_leases as leases
from counterfoil.testing import head_lists as lists
from counterfoil.testing import saboteur_heads, saboteur_leases, saboteur_lists
from counterfoil.testing.conformance_heads import CLOCK_CLAUSES, HEAD_CLAUSES
from counterfoil.testing.expect import ConformanceError
from tests.support import store_benches as benches
from tests.support.head_saboteurs import CAUGHT

TAGS = {
    lists.odd_identifiers_come_back_as_they_are: "T26 ",
    leases.a_wiped_register_does_not_make_a_run_look_new: "T5 ",
    leases.one_of_many_takes_the_lease: "T21 ",
    leases.a_standing_lease_is_not_taken: "T21 ",
}

ALL_CLAUSES = (*HEAD_CLAUSES, *CLOCK_CLAUSES)
BY_CHANCE = {(saboteur_heads.AdvancesTwice, commits.one_of_many_commits)}
"""Caught for certain by another clause; by this one only where callers meet in time."""

BACKENDS = {"memory": benches.memory_heads, "sqlite": benches.sqlite_heads}


def _sentence(clause: Callable[..., None]) -> str:
    return TAGS.get(clause, "") + clause.__name__.replace("_", " ")


@pytest.mark.parametrize(
    ("bench", "clause"),
    [
        pytest.param(bench, clause, id=f"{name} {_sentence(clause)}")
        for name, bench in BACKENDS.items()
        for clause in ALL_CLAUSES
    ],
)
def test_a_register_keeps(bench: Any, clause: Callable[..., None], tmp_path: Path) -> None:
    with bench(tmp_path) as made:
        clause(made)


@pytest.mark.parametrize(
    ("bench", "saboteur", "clause"),
    [
        pytest.param(bench, saboteur, clause, id=f"{kind} {saboteur.__name__} {clause.__name__}")
        for kind, bench in BACKENDS.items()
        for saboteur, clause in CAUGHT
        if kind == "memory" or (saboteur, clause) not in BY_CHANCE
    ],
)
def test_a_register_that_breaks_a_promise_is_caught(
    bench: Any, saboteur: Callable[..., Any], clause: Callable[..., None], tmp_path: Path
) -> None:
    with (
        benches.spoiled_heads(bench, saboteur, tmp_path) as made,
        pytest.raises((ConformanceError, CounterfoilError)),
    ):
        clause(made)


@pytest.mark.parametrize("clause", ALL_CLAUSES, ids=_sentence)
def test_a_register_that_breaks_nothing_passes(clause: Callable[..., None], tmp_path: Path) -> None:
    with benches.spoiled_heads(benches.memory_heads, saboteur_heads.Passing, tmp_path) as made:
        clause(made)


def test_every_saboteur_is_caught() -> None:
    made = {
        each
        for module in (saboteur_heads, saboteur_leases, saboteur_lists)
        for name, each in vars(module).items()
        if isinstance(each, type) and issubclass(each, saboteur_heads.Passing)
        if not name.startswith("_")
    }
    assert made - {saboteur_heads.Passing} == {saboteur for saboteur, _ in CAUGHT}


def test_every_clause_is_in_the_suite() -> None:
    written = {
        each
        for module in (leases, commits, lists, clocks)
        for name, each in vars(module).items()
        if callable(each) and each.__module__ == module.__name__ and not name.startswith("_")
    }
    assert written == set(ALL_CLAUSES)
    assert len(written) == len(ALL_CLAUSES)
