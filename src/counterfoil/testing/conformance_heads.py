"""What every head register must keep: clauses as plain functions.

Give each a fresh `HeadBench`. A clause that returns is kept. One that is broken raises
`ConformanceError` with the sentence, or lets an error of the register through where
there should be none.

Every register keeps `HEAD_CLAUSES`. One whose clock a bench can move keeps `CLOCK_CLAUSES`
too; one that judges by a clock of its own cannot be asked.
"""

from collections.abc import Callable

from counterfoil.testing import head_clocks as clocks
from counterfoil.testing import head_commits as commits
from counterfoil.testing import head_leases as leases
from counterfoil.testing import head_lists as lists
from counterfoil.testing.store_bench import HeadBench

HEAD_CLAUSES: tuple[Callable[[HeadBench], None], ...] = (
    leases.a_created_head_is_held_at_generation_0,
    leases.creating_twice_is_refused,
    leases.nothing_is_read_before_it_is_created,
    leases.a_wiped_register_does_not_make_a_run_look_new,
    leases.a_standing_lease_is_not_taken,
    leases.an_expired_lease_is_taken,
    leases.a_released_lease_is_taken_at_once,
    leases.a_lease_is_taken_once,
    leases.a_lease_is_not_taken_from_an_old_head,
    leases.one_of_many_takes_the_lease,
    leases.one_of_many_creates_the_head,
    leases.renewing_extends_the_lease,
    leases.renewing_never_shortens,
    leases.a_lease_of_another_nonce_or_version_is_not_renewed,
    leases.an_ended_lease_is_not_renewed,
    leases.releasing_a_lost_lease_does_nothing,
    leases.a_lease_nobody_could_hold_is_refused,
    commits.an_advance_moves_the_head_one_generation_on,
    commits.an_advance_whose_answer_was_lost_is_not_made_twice,
    commits.an_advance_from_another_head_is_refused,
    commits.refuses_a_superseded_lease,
    commits.refuses_an_equal_lease_version_with_another_nonce,
    commits.an_expired_lease_cannot_commit,
    commits.a_released_lease_cannot_commit,
    commits.an_advance_never_shortens_the_lease,
    commits.renewing_and_committing_do_not_conflict,
    commits.a_batch_moves_every_head,
    commits.a_batch_is_all_or_none,
    commits.a_batch_can_move_one_head_twice,
    commits.one_of_many_commits,
    commits.threads_that_share_a_connection_lose_nothing,
    commits.a_status_nobody_knows_is_refused,
    lists.a_second_connection_reads_every_write,
    lists.what_is_free_and_active_is_claimable,
    lists.what_was_given_up_comes_behind_what_waits,
    lists.a_paused_run_is_claimable_when_its_pause_is_over,
    lists.a_paused_run_is_taken_at_once,
    lists.a_pause_that_ends_before_it_begins_is_refused,
    lists.a_claimed_head_can_be_taken_as_it_is,
    lists.heads_are_listed_in_order_and_in_pages,
    lists.odd_identifiers_come_back_as_they_are,
    lists.every_head_names_one_incarnation,
    lists.closing_twice_is_closing_once,
)

CLOCK_CLAUSES: tuple[Callable[[HeadBench], None], ...] = (
    clocks.a_lease_stands_until_its_last_millisecond,
    clocks.a_lease_commits_until_its_last_millisecond,
    clocks.a_term_counts_from_its_grant,
    clocks.a_renewed_lease_stands_to_its_new_end,
    clocks.a_shorter_term_ends_no_lease_early,
    clocks.a_pause_lasts_to_its_last_millisecond,
    clocks.those_that_are_free_longest_come_first,
    clocks.a_clock_set_back_revives_no_lease,
    clocks.a_commit_keeps_the_moment_it_was_judged_at,
    clocks.a_clock_set_back_does_not_lengthen_a_lease,
)
