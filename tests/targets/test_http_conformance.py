"""The http adapter keeps the clauses of each level, over real services in other processes."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from counterfoil.ports import Adapter
from counterfoil.testing import adapter_calls as calls
from counterfoil.testing import adapter_fences as fences
from counterfoil.testing import adapter_keys as keys
from counterfoil.testing import saboteur_adapters as saboteurs
from counterfoil.testing.conformance_adapters import Clause, clauses_for
from counterfoil.testing.expect import ConformanceError
from tests.support.http_bench import (
    ASGI,
    CANDIDATES,
    STDLIB,
    Candidate,
    Shop,
    bench_of,
    running,
    spec_of,
)

CASES = [
    pytest.param(candidate, clause, id=f"{candidate.name} {clause.__name__.replace('_', ' ')}")
    for candidate in CANDIDATES
    for clause in clauses_for(spec_of(candidate), candidate.traits)
]
BY_NAME = {candidate.name: candidate for candidate in CANDIDATES}

CAUGHT: list[tuple[str, Callable[[Adapter], Adapter], Clause]] = [
    ("transactional", saboteurs.ForgetsTheDigest, calls.a_receipt_proves_its_effect),
    ("deduplicating", saboteurs.ForgetsReceipts, calls.what_was_done_is_found),
    ("deduplicating", saboteurs.HidesReplays, keys.a_repeated_call_gets_the_first_receipt),
    ("deduplicating", saboteurs.FoldsKeys, calls.odd_keys_are_kept_apart),
    ("deduplicating", saboteurs.ObservesFromMemory, keys.a_disturbance_is_observed),
    ("deduplicating", saboteurs.IgnoresPrestate, keys.a_write_built_on_another_state_is_refused),
    (
        "deduplicating, never asked",
        saboteurs.HidesReplays,
        keys.a_repeated_call_gets_the_first_receipt,
    ),
    ("queryable", saboteurs.AbsentOnError, calls.an_unreachable_target_is_unknown_and_not_absent),
    ("queryable", saboteurs.FoundForEverybody, calls.another_runs_receipt_is_not_ours),
    ("transactional", saboteurs.IgnoresFence, fences.a_call_under_an_older_lease_is_refused),
    ("transactional", saboteurs.ForbidIsIgnored, keys.a_forbidden_key_never_executes),
    ("transactional", saboteurs.ForgetsWhatItServed, fences.taking_returns_what_was_served_last),
]


@pytest.fixture(scope="module")
def shops(tmp_path_factory: Any) -> Iterator[dict[str, Shop]]:
    folder: Path = tmp_path_factory.mktemp("shops")
    for name in ("stdlib", "asgi"):
        (folder / name).mkdir()
    with running(STDLIB, folder / "stdlib") as stdlib, running(ASGI, folder / "asgi") as asgi:
        yield {STDLIB: stdlib, ASGI: asgi}


@pytest.mark.parametrize(("candidate", "clause"), CASES)
def test_it_is_kept(candidate: Candidate, clause: Clause, shops: dict[str, Shop]) -> None:
    bench = bench_of(candidate, shops[candidate.module])
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
    name: str, saboteur: Callable[[Adapter], Adapter], clause: Clause, shops: dict[str, Shop]
) -> None:
    bench = bench_of(BY_NAME[name], shops[BY_NAME[name].module], saboteur)
    try:
        with pytest.raises(ConformanceError):
            clause(bench)
    finally:
        bench.close()
