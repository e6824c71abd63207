"""The git adapter keeps the clauses of its level, on a repository and on a bare remote."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from counterfoil.core.errors import StaleObservationError
from counterfoil.testing import adapter_calls as calls
from counterfoil.testing import adapter_fences as fences
from counterfoil.testing import adapter_keys as keys
from counterfoil.testing import saboteur_adapters as saboteurs
from counterfoil.testing.adapter_bench import AdapterBench
from counterfoil.testing.conformance_adapters import Clause, clauses_for
from counterfoil.testing.expect import ConformanceError
from tests.support.benches import Candidate
from tests.support.git_bench import Wrap, candidates, commit_bench, push_bench
from tests.support.git_scene import in_memory

CASES = [
    pytest.param(candidate, clause, id=f"{candidate.name} {clause.__name__.replace('_', ' ')}")
    for candidate in candidates()
    for clause in clauses_for(candidate.spec, candidate.traits)
]

Caught = tuple[Wrap, Clause, type[Exception]]

CAUGHT: list[Caught] = [
    (
        saboteurs.ExecutesTwice,
        keys.a_repeated_call_gets_the_first_receipt,
        StaleObservationError,  # said by the target: no branch leaves one commit twice
    ),
    (saboteurs.ObservesFromMemory, keys.a_disturbance_is_observed, ConformanceError),
    (saboteurs.IgnoresFence, fences.a_call_under_an_older_lease_is_refused, ConformanceError),
    (saboteurs.ForbidIsIgnored, keys.a_forbidden_key_never_executes, ConformanceError),
    (
        saboteurs.AbsentOnError,
        calls.an_unreachable_target_is_unknown_and_not_absent,
        ConformanceError,
    ),
    (saboteurs.ReportsThePrestate, calls.the_poststate_is_what_is_observed, ConformanceError),
]


@pytest.fixture
def place() -> Iterator[Path]:
    with in_memory() as place:
        yield place


@pytest.mark.parametrize(("candidate", "clause"), CASES)
def test_it_is_kept(candidate: Candidate, clause: Clause, place: Path) -> None:
    bench = candidate.bench(place)
    try:
        clause(bench)
    finally:
        bench.close()


@pytest.mark.parametrize("make", [commit_bench, push_bench])
@pytest.mark.parametrize(
    ("saboteur", "clause", "error"),
    [pytest.param(*caught, id=caught[1].__name__) for caught in CAUGHT],
)
def test_a_broken_promise_is_caught(
    make: Callable[[Path, Wrap], AdapterBench],
    saboteur: Wrap,
    clause: Clause,
    error: type[Exception],
    place: Path,
) -> None:
    with pytest.raises(error):
        clause(make(place, saboteur))
