"""Every adapter keeps the clauses of its level, and every broken promise is caught."""

from collections.abc import Callable
from pathlib import Path

import pytest

from counterfoil.core.errors import CounterfoilError
from counterfoil.core.words import Level
from counterfoil.ports import Adapter
from counterfoil.testing import adapter_calls as calls
from counterfoil.testing import adapter_fences as fences
from counterfoil.testing import adapter_keys as keys
from counterfoil.testing import saboteur_adapters as saboteurs
from counterfoil.testing import saboteur_kinds as declarations
from counterfoil.testing.conformance_adapters import ADAPTER_CLAUSES, Clause, clauses_for
from counterfoil.testing.expect import ConformanceError
from tests.support.benches import Candidate, candidates, sandbox_bench

CASES = [
    pytest.param(candidate, clause, id=f"{candidate.name} {clause.__name__.replace('_', ' ')}")
    for candidate in candidates()
    for clause in clauses_for(candidate.spec, candidate.traits)
]

CAUGHT: list[tuple[Callable[[Adapter], Adapter], Clause]] = [
    (declarations.PromisesTooMuch, calls.kinds_promise_what_their_level_can_hold),
    (declarations.ChangesWhatItNormalises, calls.normalising_twice_is_normalising_once),
    (declarations.AcceptsAnyArguments, calls.arguments_out_of_contract_are_refused),
    (declarations.TouchesNothing, calls.what_a_call_touches_is_text),
    (saboteurs.ReceiptOfOther, calls.a_receipt_proves_its_effect),
    (saboteurs.ForgetsTheDigest, calls.a_receipt_proves_its_effect),
    (saboteurs.ReportsThePrestate, calls.the_poststate_is_what_is_observed),
    (saboteurs.ObservesFromMemory, calls.a_write_changes_what_is_observed),
    (saboteurs.ObservesFromMemory, keys.a_disturbance_is_observed),
    (saboteurs.SeesSomethingElseEachTime, calls.observing_changes_nothing),
    (saboteurs.NumbersItsReads, calls.reading_changes_nothing),
    (saboteurs.AnswersWithoutEnd, calls.a_result_is_bounded_json),
    (saboteurs.ForgetsReceipts, calls.what_was_done_is_found),
    (saboteurs.RemembersOnlyItsOwn, calls.what_was_done_is_found_by_a_new_adapter),
    (saboteurs.FoundForEverybody, calls.another_runs_receipt_is_not_ours),
    (saboteurs.FoldsKeys, calls.odd_keys_are_kept_apart),
    (saboteurs.RefusesLostAnswers, calls.a_lost_answer_is_no_refusal),
    (saboteurs.AbsentOnError, calls.an_unreachable_target_is_unknown_and_not_absent),
    (saboteurs.ExecutesTwice, keys.a_repeated_call_gets_the_first_receipt),
    (saboteurs.ExecutesTwice, keys.a_call_repeated_by_a_new_adapter_gets_the_first_receipt),
    (saboteurs.ExecutesTwice, keys.a_lost_answer_is_settled_by_the_same_call),
    (saboteurs.ExecutesTwice, keys.another_runs_key_is_a_conflict),
    (saboteurs.HidesReplays, keys.a_repeated_call_gets_the_first_receipt),
    (saboteurs.RenumbersReceipts, keys.a_repeated_call_gets_the_first_receipt),
    (saboteurs.TakesAnyIntentForTheFirst, keys.another_intent_under_a_key_is_a_conflict),
    (saboteurs.TakesAnyIntentForTheFirst, keys.another_runs_key_is_a_conflict),
    (saboteurs.ExecutesTwice, keys.callers_that_race_with_one_key_cause_one_effect),
    (saboteurs.ChecksPrestateBeforeTheKey, keys.a_replay_is_answered_though_the_environment_moved),
    (saboteurs.IgnoresPrestate, keys.a_write_built_on_another_state_is_refused),
    (saboteurs.IgnoresPrestate, keys.a_write_built_before_another_runs_write_is_refused),
    (saboteurs.ForbidIsIgnored, keys.a_forbidden_key_never_executes),
    (saboteurs.ForbidIsIgnored, keys.forbidding_twice_is_forbidding_once),
    (saboteurs.ForbidsBlindly, keys.what_is_done_cannot_be_forbidden),
    (saboteurs.IgnoresFence, keys.a_forbidding_under_an_older_lease_is_refused),
    (saboteurs.IgnoresFence, fences.a_call_under_an_older_lease_is_refused),
    (saboteurs.IgnoresFence, fences.an_older_lease_cannot_be_taken),
    (
        saboteurs.IgnoresNonce,
        fences.a_call_under_another_holders_lease_of_one_version_is_refused,
    ),
    (saboteurs.IgnoresNonce, fences.an_older_lease_cannot_be_taken),
    (saboteurs.FencesAllRunsTogether, fences.fences_of_different_runs_are_apart),
    (saboteurs.RefusesItsOwnHolder, fences.a_call_under_the_standing_lease_goes_through),
    (saboteurs.InventsWhatItServed, fences.nothing_is_served_before_the_first_call),
    (saboteurs.ForgetsWhatItServed, fences.taking_returns_what_was_served_last),
]


@pytest.mark.parametrize(("candidate", "clause"), CASES)
def test_it_is_kept(candidate: Candidate, clause: Clause, tmp_path: Path) -> None:
    bench = candidate.bench(tmp_path)
    try:
        clause(bench)
    finally:
        bench.close()


@pytest.mark.parametrize(
    ("saboteur", "clause"),
    [
        pytest.param(saboteur, clause, id=f"{saboteur.__name__} {clause.__name__}")
        for saboteur, clause in CAUGHT
    ],
)
def test_a_broken_promise_is_caught(saboteur: Callable[[Adapter], Adapter], clause: Clause) -> None:
    with pytest.raises((ConformanceError, CounterfoilError)):
        clause(sandbox_bench(wrap=saboteur))


def test_an_adapter_that_breaks_nothing_passes() -> None:
    bench = sandbox_bench(wrap=saboteurs.Passing)
    spec = next(spec for spec in bench.open().kinds if spec.risk.writes)
    for clause in clauses_for(spec, bench.traits):
        clause(sandbox_bench(wrap=saboteurs.Passing))


def test_every_saboteur_is_caught() -> None:
    wrappers = {
        each
        for module in (saboteurs, declarations)
        for each in vars(module).values()
        if isinstance(each, type) and issubclass(each, saboteurs.Passing)
    }
    spoiled = wrappers - {saboteurs.Passing, declarations.Redeclaring}
    assert spoiled == {saboteur for saboteur, _ in CAUGHT}


def test_every_clause_applies_to_some_adapter() -> None:
    chosen = {
        clause
        for candidate in candidates()
        for clause in clauses_for(candidate.spec, candidate.traits)
    }
    assert chosen == set(ADAPTER_CLAUSES)


@pytest.mark.parametrize("level", Level)
def test_a_level_is_not_held_to_what_only_others_promise(level: Level) -> None:
    spec = next(one.spec for one in candidates() if one.name == f"sandbox {level}")
    chosen = clauses_for(spec)
    assert (
        keys.a_repeated_call_gets_the_first_receipt in chosen,
        keys.a_forbidden_key_never_executes in chosen,
        fences.an_older_lease_cannot_be_taken in chosen,
        calls.what_was_done_is_found in chosen,
    ) == {
        Level.TRANSACTIONAL: (True, True, True, True),
        Level.DEDUPLICATING: (True, False, False, True),
        Level.CONDITIONAL: (False, False, True, True),
        Level.QUERYABLE: (False, False, False, True),
        Level.BLIND: (False, False, False, False),
    }[level]
