"""What every adapter must keep, by level: clauses as plain functions.

Choose them with `clauses_for`, and give each a fresh `AdapterBench`. A clause that
returns is kept. One that is broken raises `ConformanceError` with the sentence, or lets
an error of the adapter through where there should be none.
"""

from collections.abc import Callable, Iterator, Mapping

from counterfoil.core.intent import KindSpec
from counterfoil.core.words import Level
from counterfoil.testing import adapter_calls as calls
from counterfoil.testing import adapter_fences as fences
from counterfoil.testing import adapter_keys as keys
from counterfoil.testing.adapter_bench import AdapterBench, Trait

Clause = Callable[[AdapterBench], None]

KEEPS_KEYS = (Level.TRANSACTIONAL, Level.DEDUPLICATING)
"""Levels at which a repeated call is harmless."""


def _needs(*traits: Trait) -> frozenset[Trait]:
    return frozenset(traits)


ADAPTER_CLAUSES: Mapping[Clause, frozenset[Trait]] = {
    calls.kinds_promise_what_their_level_can_hold: _needs(),
    calls.normalising_twice_is_normalising_once: _needs(),
    calls.arguments_out_of_contract_are_refused: _needs(),
    calls.what_a_call_touches_is_text: _needs(),
    calls.a_write_happens_once: _needs(),
    calls.different_keys_are_different_effects: _needs(),
    calls.a_receipt_proves_its_effect: _needs(),
    calls.the_poststate_is_what_is_observed: _needs(),
    calls.a_write_changes_what_is_observed: _needs(),
    calls.observing_changes_nothing: _needs(),
    calls.reading_changes_nothing: _needs(),
    calls.a_result_is_bounded_json: _needs(),
    calls.a_receipt_can_be_stored: _needs(),
    calls.a_target_that_cannot_be_asked_says_unknown: _needs(Trait.BLIND),
    calls.a_key_that_was_never_used_is_absent: _needs(Trait.ASKABLE),
    calls.what_was_done_is_found: _needs(Trait.ASKABLE),
    calls.what_was_done_is_found_by_a_new_adapter: _needs(Trait.ASKABLE),
    calls.another_runs_receipt_is_not_ours: _needs(Trait.ASKABLE, Trait.PRIVATE_KEYS),
    calls.odd_keys_are_kept_apart: _needs(Trait.ASKABLE),
    calls.a_lost_answer_is_no_refusal: _needs(Trait.LOSES_ANSWERS),
    calls.an_unreachable_target_is_unknown_and_not_absent: _needs(Trait.CUTS_OFF),
    calls.an_unreachable_target_is_not_observed: _needs(Trait.CUTS_OFF),
    keys.a_repeated_call_gets_the_first_receipt: _needs(Trait.KEYED),
    keys.a_call_repeated_by_a_new_adapter_gets_the_first_receipt: _needs(Trait.KEYED),
    keys.a_lost_answer_is_settled_by_the_same_call: _needs(Trait.KEYED, Trait.LOSES_ANSWERS),
    keys.another_intent_under_a_key_is_a_conflict: _needs(Trait.KEYED),
    keys.another_runs_key_is_a_conflict: _needs(Trait.KEYED, Trait.PRIVATE_KEYS),
    keys.a_shared_key_answers_another_run_with_the_first_effect: _needs(
        Trait.KEYED, Trait.SHARED_KEYS
    ),
    keys.callers_that_race_with_one_key_cause_one_effect: _needs(Trait.KEYED),
    keys.a_replay_is_answered_though_the_environment_moved: _needs(Trait.KEYED, Trait.DISTURBS),
    keys.a_write_built_on_another_state_is_refused: _needs(Trait.DISTURBS, Trait.CHECKS_PRESTATE),
    keys.a_write_built_before_another_runs_write_is_refused: _needs(Trait.CHECKS_PRESTATE),
    keys.a_disturbance_is_observed: _needs(Trait.DISTURBS),
    keys.a_forbidden_key_never_executes: _needs(Trait.FORBIDDING),
    keys.forbidding_twice_is_forbidding_once: _needs(Trait.FORBIDDING),
    keys.a_forbidden_key_is_still_absent: _needs(Trait.FORBIDDING),
    keys.what_is_done_cannot_be_forbidden: _needs(Trait.FORBIDDING),
    keys.forbidding_one_key_leaves_the_others: _needs(Trait.FORBIDDING),
    keys.a_forbidding_under_an_older_lease_is_refused: _needs(Trait.FENCING, Trait.FORBIDDING),
    keys.forbidding_and_executing_race_to_one_answer: _needs(Trait.FORBIDDING),
    fences.a_call_under_an_older_lease_is_refused: _needs(Trait.FENCING),
    fences.a_call_under_another_holders_lease_of_one_version_is_refused: _needs(Trait.FENCING),
    fences.a_call_under_the_standing_lease_goes_through: _needs(Trait.FENCING),
    fences.an_older_lease_cannot_be_taken: _needs(Trait.FENCING),
    fences.nothing_is_served_before_the_first_call: _needs(Trait.FENCING),
    fences.taking_returns_what_was_served_last: _needs(Trait.FENCING),
    fences.taking_twice_is_taking_once: _needs(Trait.FENCING),
    fences.fences_of_different_runs_are_apart: _needs(Trait.FENCING),
}
"""Each clause, and the traits without which it does not apply."""


def clauses_for(spec: KindSpec, traits: frozenset[Trait] = frozenset()) -> tuple[Clause, ...]:
    """Return the clauses that a kind with these promises must keep, in order.

    Args:
        spec: Declaration of the kind that the bench writes with.
        traits: What the bench can do, and knows of the target; each adds clauses.
    """
    held = traits | frozenset(_declared(spec, traits))
    return tuple(clause for clause, needs in ADAPTER_CLAUSES.items() if needs <= held)


def _declared(spec: KindSpec, traits: frozenset[Trait]) -> Iterator[Trait]:
    yield Trait.ASKABLE if spec.has_look_up else Trait.BLIND
    if spec.level in KEEPS_KEYS:
        yield Trait.KEYED
    if spec.fences:
        yield Trait.FENCING
    if spec.forbids:
        yield Trait.FORBIDDING
    if Trait.SHARED_KEYS not in traits:
        yield Trait.PRIVATE_KEYS
