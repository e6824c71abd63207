"""Every head register keeps its clauses, and every broken promise is caught."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from counterfoil.core.errors import CounterfoilError
from counterfoil.testing import head_commits as commits
from counterfoil.testing import head_leases as leases
from counterfoil.testing import head_lists as lists
from counterfoil.testing import saboteur_heads, saboteur_leases, saboteur_lists
from counterfoil.testing.conformance_heads import HEAD_CLAUSES
from counterfoil.testing.expect import ConformanceError
from tests.support import store_benches as benches

TAGS = {
    lists.odd_identifiers_come_back_as_they_are: "T26 ",
    leases.a_wiped_register_does_not_make_a_run_look_new: "T5 ",
    leases.one_of_many_takes_the_lease: "T21 ",
    leases.a_standing_lease_is_not_taken: "T21 ",
}

CAUGHT = [
    (saboteur_heads.IgnoresTheLease, commits.refuses_a_superseded_lease),
    (saboteur_heads.IgnoresTheNonce, commits.refuses_an_equal_lease_version_with_another_nonce),
    (saboteur_heads.AdvancesTwice, commits.an_advance_whose_answer_was_lost_is_not_made_twice),
    (saboteur_heads.AdvancesTwice, commits.a_batch_can_move_one_head_twice),
    (saboteur_heads.AdvancesTwice, commits.one_of_many_commits),
    (saboteur_heads.IgnoresTheCheckpoint, commits.an_advance_from_another_head_is_refused),
    (saboteur_heads.IgnoresTheIncarnation, commits.an_advance_from_another_head_is_refused),
    (saboteur_heads.ForgetsTheStatus, commits.an_advance_moves_the_head_one_generation_on),
    (saboteur_heads.TakesAnyStatus, commits.a_status_nobody_knows_is_refused),
    (saboteur_heads.HalfBatch, commits.a_batch_is_all_or_none),
    (saboteur_heads.AnswersOutOfOrder, commits.a_batch_moves_every_head),
    (saboteur_heads.ShortensInAdvance, commits.an_advance_never_shortens_the_lease),
    (saboteur_heads.ExpiredCommits, commits.an_expired_lease_cannot_commit),
    (saboteur_heads.ReleasedCommits, commits.a_released_lease_cannot_commit),
    (saboteur_heads.EndsLeasesEarly, commits.a_lease_commits_until_its_last_millisecond),
    (saboteur_heads.FollowsTheClockBack, lists.a_clock_set_back_revives_no_lease),
    (saboteur_heads.ForgetsWhenItCommitted, lists.a_commit_keeps_the_moment_it_was_judged_at),
    (saboteur_heads.NamesItselfAnew, lists.every_head_names_one_incarnation),
    (saboteur_leases.CreateOverwrites, leases.creating_twice_is_refused),
    (saboteur_leases.AcquireCreates, leases.a_wiped_register_does_not_make_a_run_look_new),
    (saboteur_leases.TakesStandingLeases, leases.a_standing_lease_is_not_taken),
    (saboteur_leases.HidesTheHolder, leases.a_standing_lease_is_not_taken),
    (saboteur_leases.KeepsTheVersion, leases.an_expired_lease_is_taken),
    (saboteur_leases.KeepsTheVersion, leases.a_released_lease_is_taken_at_once),
    (saboteur_leases.TakesFromAnOldHead, leases.a_lease_is_not_taken_from_an_old_head),
    (saboteur_leases.EverybodyWins, leases.a_lease_is_taken_once),
    (saboteur_leases.EverybodyWins, leases.one_of_many_takes_the_lease),
    (saboteur_leases.EverybodyWins, leases.one_of_many_creates_the_head),
    (saboteur_leases.EverybodyWins, commits.one_of_many_commits),
    (saboteur_leases.RenewingShortens, leases.renewing_never_shortens),
    (saboteur_leases.RenewingDoesNothing, leases.renewing_extends_the_lease),
    (saboteur_leases.RenewsForAnybody, leases.a_lease_of_another_nonce_or_version_is_not_renewed),
    (saboteur_leases.RenewsTheDead, leases.an_ended_lease_is_not_renewed),
    (saboteur_leases.RenewingComparesTheCommit, commits.renewing_and_committing_do_not_conflict),
    (saboteur_leases.ReleasesForAnybody, leases.releasing_a_lost_lease_does_nothing),
    (saboteur_leases.LeasesForNobody, leases.a_lease_nobody_could_hold_is_refused),
    (saboteur_lists.StaleReads, lists.a_second_connection_reads_every_write),
    (saboteur_lists.MakesHeadsUp, lists.odd_identifiers_come_back_as_they_are),
    (saboteur_lists.FoldsRunIds, lists.odd_identifiers_come_back_as_they_are),
    (saboteur_lists.ClaimsWhatIsHeld, lists.what_is_free_and_active_is_claimable),
    (saboteur_lists.ClaimsWhatIsHeld, lists.a_claimed_head_can_be_taken_as_it_is),
    (saboteur_lists.ClaimsWhatHasEnded, lists.what_is_free_and_active_is_claimable),
    (saboteur_lists.ClaimsInOrderOfName, lists.what_is_free_and_active_is_claimable),
    (saboteur_lists.ClaimsWithoutEnd, lists.what_is_free_and_active_is_claimable),
    (saboteur_lists.ListsByAlphabet, lists.heads_are_listed_in_order_and_in_pages),
    (saboteur_lists.ClosesOnce, lists.closing_twice_is_closing_once),
]
BACKENDS = {"memory": benches.memory_heads, "sqlite": benches.sqlite_heads}


def _sentence(clause: Callable[..., None]) -> str:
    return TAGS.get(clause, "") + clause.__name__.replace("_", " ")


@pytest.mark.parametrize(
    ("bench", "clause"),
    [
        pytest.param(bench, clause, id=f"{name} {_sentence(clause)}")
        for name, bench in BACKENDS.items()
        for clause in HEAD_CLAUSES
    ],
)
def test_a_register_keeps(bench: Any, clause: Callable[..., None], tmp_path: Path) -> None:
    with bench(tmp_path) as made:
        clause(made)


@pytest.mark.parametrize(
    ("saboteur", "clause"),
    [
        pytest.param(saboteur, clause, id=f"{saboteur.__name__} {clause.__name__}")
        for saboteur, clause in CAUGHT
    ],
)
def test_a_register_that_breaks_a_promise_is_caught(
    saboteur: Callable[..., Any], clause: Callable[..., None]
) -> None:
    with pytest.raises((ConformanceError, CounterfoilError)):
        clause(benches.spoiled_heads(saboteur))


@pytest.mark.parametrize("clause", HEAD_CLAUSES, ids=_sentence)
def test_a_register_that_breaks_nothing_passes(clause: Callable[..., None]) -> None:
    clause(benches.spoiled_heads(saboteur_heads.Passing))


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
        for module in (leases, commits, lists)
        for name, each in vars(module).items()
        if callable(each) and each.__module__ == module.__name__ and not name.startswith("_")
    }
    assert written == set(HEAD_CLAUSES)
