"""The mcp adapter keeps the clauses of each level, over real servers in other processes."""

from collections.abc import Callable

import pytest

from counterfoil.ports import Adapter
from counterfoil.testing import adapter_calls as calls
from counterfoil.testing import adapter_keys as keys
from counterfoil.testing import saboteur_adapters as saboteurs
from counterfoil.testing.conformance_adapters import Clause, clauses_for
from counterfoil.testing.expect import ConformanceError
from tests.support.mcp_bench import CANDIDATES, Candidate, Desk, bench_of, spec_of
from tests.support.mcp_desk import shared

CASES = [
    pytest.param(candidate, clause, id=f"{candidate.name} {clause.__name__.replace('_', ' ')}")
    for candidate in CANDIDATES
    for clause in clauses_for(spec_of(candidate), candidate.traits)
]
BY_NAME = {candidate.name: candidate for candidate in CANDIDATES}

CAUGHT: list[tuple[str, Callable[[Adapter], Adapter], Clause]] = [
    (
        "http deduplicating",
        saboteurs.TakesAnyIntentForTheFirst,
        keys.another_intent_under_a_key_is_a_conflict,
    ),
    ("http blind", saboteurs.ReportsThePrestate, calls.the_poststate_is_what_is_observed),
    ("http deduplicating", saboteurs.ForgetsReceipts, calls.what_was_done_is_found),
    ("http deduplicating", saboteurs.HidesReplays, keys.a_repeated_call_gets_the_first_receipt),
    ("stdio deduplicating", saboteurs.FoldsKeys, calls.odd_keys_are_kept_apart),
    ("stdio deduplicating", saboteurs.ObservesFromMemory, keys.a_disturbance_is_observed),
    (
        "http deduplicating",
        saboteurs.AbsentOnError,
        calls.an_unreachable_target_is_unknown_and_not_absent,
    ),
    ("stdio queryable", saboteurs.FoundForEverybody, calls.another_runs_receipt_is_not_ours),
]


@pytest.fixture(scope="module")
def desk(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Desk:
    return shared(request.session, tmp_path_factory)


@pytest.mark.parametrize(("candidate", "clause"), CASES)
def test_it_is_kept(candidate: Candidate, clause: Clause, desk: Desk) -> None:
    bench = bench_of(candidate, desk)
    try:
        clause(bench)
    finally:
        bench.close()


@pytest.mark.parametrize(
    ("name", "saboteur", "clause"),
    [
        pytest.param(name, saboteur, clause, id=f"{name} {saboteur.__name__} {clause.__name__}")
        for name, saboteur, clause in CAUGHT
    ],
)
def test_a_broken_promise_is_caught(
    name: str, saboteur: Callable[[Adapter], Adapter], clause: Clause, desk: Desk
) -> None:
    bench = bench_of(BY_NAME[name], desk, saboteur)
    try:
        with pytest.raises(ConformanceError):
            clause(bench)
    finally:
        bench.close()
