"""Every kind of write keeps the clauses of its level, and broken promises are caught."""

from collections.abc import Callable
from pathlib import Path

import pytest

from counterfoil.core.errors import CounterfoilError
from counterfoil.ports import Adapter
from counterfoil.testing import adapter_calls as calls
from counterfoil.testing import adapter_fences as fences
from counterfoil.testing import adapter_keys as keys
from counterfoil.testing import saboteur_adapters as saboteurs
from counterfoil.testing.conformance_adapters import Clause, clauses_for
from counterfoil.testing.expect import ConformanceError
from tests.support.s3_bench import SPECS, bench_of, scene, traits_of
from tests.support.s3_server import VERSIONED, LocalS3

pytest_plugins = ["tests.support.s3_server"]

WRITES = ("s3.put", "s3.copy", "s3.upload", "s3.delete")
CASES = [
    pytest.param(kind, clause, id=f"{kind} {clause.__name__.replace('_', ' ')}")
    for kind in WRITES
    for clause in clauses_for(SPECS[kind], traits_of(kind))
]


@pytest.mark.parametrize(("kind", "clause"), CASES)
def test_it_is_kept(kind: str, clause: Clause, s3: LocalS3, tmp_path: Path) -> None:
    with scene(s3, tmp_path, VERSIONED) as place:
        clause(bench_of(place, kind))


@pytest.mark.parametrize(
    ("saboteur", "clause"),
    [
        (saboteurs.ExecutesTwice, keys.a_repeated_call_gets_the_first_receipt),
        (saboteurs.ForgetsReceipts, calls.what_was_done_is_found),
        (saboteurs.AbsentOnError, calls.an_unreachable_target_is_unknown_and_not_absent),
        (saboteurs.IgnoresPrestate, keys.a_write_built_on_another_state_is_refused),
        (saboteurs.IgnoresFence, fences.a_call_under_an_older_lease_is_refused),
        (saboteurs.ForbidIsIgnored, keys.a_forbidden_key_never_executes),
        (saboteurs.ReportsThePrestate, calls.the_poststate_is_what_is_observed),
        (saboteurs.FoundForEverybody, calls.another_runs_receipt_is_not_ours),
    ],
)
def test_a_broken_promise_is_caught_on_a_real_bucket(
    saboteur: Callable[[Adapter], Adapter], clause: Clause, s3: LocalS3, tmp_path: Path
) -> None:
    with (
        scene(s3, tmp_path, VERSIONED) as place,
        pytest.raises((ConformanceError, CounterfoilError)),
    ):
        clause(bench_of(place, "s3.put", saboteur))
