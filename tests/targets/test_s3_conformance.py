"""Every kind of write keeps the clauses of its level, and broken promises are caught."""

from collections.abc import Callable
from pathlib import Path

import pytest

from counterfoil.ports import Adapter
from counterfoil.testing import adapter_calls as calls
from counterfoil.testing import adapter_fences as fences
from counterfoil.testing import adapter_keys as keys
from counterfoil.testing import saboteur_adapters as saboteurs
from counterfoil.testing.adapter_bench import Trait
from counterfoil.testing.conformance_adapters import Clause, clauses_for
from counterfoil.testing.expect import ConformanceError
from tests.support.s3_bench import SPECS, bench_of, scene, traits_of
from tests.support.s3_server import VERSIONED, LocalS3

pytest_plugins = ["tests.support.s3_server"]

OF_EACH_KIND = frozenset(
    (
        calls.arguments_out_of_contract_are_refused,
        calls.a_write_happens_once,
        calls.a_receipt_proves_its_effect,
        calls.the_poststate_is_what_is_observed,
        calls.a_write_changes_what_is_observed,
        calls.what_was_done_is_found_by_a_new_adapter,
        calls.a_lost_answer_is_no_refusal,
        keys.a_repeated_call_gets_the_first_receipt,
        keys.a_lost_answer_is_settled_by_the_same_call,
        keys.another_intent_under_a_key_is_a_conflict,
        keys.callers_that_race_with_one_key_cause_one_effect,
        keys.a_write_built_on_another_state_is_refused,
        keys.what_is_done_cannot_be_forbidden,
    )
)
"""What a kind can break by itself; the rest is the adapter's, and is held to with `s3.put`."""


def _chosen(kind: str) -> tuple[Clause, ...]:
    every = clauses_for(SPECS[kind], traits_of(kind))
    return tuple(each for each in every if kind == "s3.put" or each in OF_EACH_KIND)


WITHOUT_NETWORK = frozenset(
    clauses_for(SPECS["s3.put"], traits_of("s3.put") - {Trait.LOSES_ANSWERS, Trait.CUTS_OFF})
)
"""Clauses that lose nothing on the way."""

CASES = [
    pytest.param(kind, clause, id=f"{kind} {clause.__name__.replace('_', ' ')}")
    for kind in ("s3.put", "s3.copy", "s3.upload", "s3.delete")
    for clause in _chosen(kind)
]


@pytest.mark.parametrize(("kind", "clause"), CASES)
def test_it_is_kept(kind: str, clause: Clause, s3: LocalS3, tmp_path: Path) -> None:
    with scene(s3, tmp_path, VERSIONED) as place:
        clause(bench_of(place, kind, direct=clause in WITHOUT_NETWORK))


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
    with scene(s3, tmp_path, VERSIONED) as place, pytest.raises(ConformanceError):
        clause(bench_of(place, "s3.put", saboteur))
