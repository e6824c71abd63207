"""What every checkpoint store and every inbox must keep: clauses as plain functions.

Give each a fresh bench. A clause that returns is kept. One that is broken raises
`ConformanceError` with the sentence, or lets an error of the backend through where
there should be none.
"""

from collections.abc import Callable

from counterfoil.testing import inbox_statements as statements
from counterfoil.testing import store_archives as archives
from counterfoil.testing import store_marks as marks
from counterfoil.testing import store_orders as orders
from counterfoil.testing import store_rows as rows
from counterfoil.testing.store_bench import InboxBench, StoreBench

STORE_CLAUSES: tuple[Callable[[StoreBench], None], ...] = (
    rows.what_was_put_is_got,
    rows.every_byte_comes_back,
    rows.the_largest_row_comes_back,
    rows.nothing_is_got_before_it_is_put,
    rows.what_is_no_digest_is_refused,
    rows.a_second_connection_reads_what_was_put,
    rows.a_put_whose_answer_was_lost_can_be_repeated,
    rows.what_was_put_first_is_kept,
    rows.losers_of_a_race_do_not_overwrite_winners,
    rows.digests_that_begin_alike_are_different,
    rows.runs_are_kept_apart,
    rows.a_batch_is_stored_whole,
    rows.a_batch_with_one_refused_row_stores_nothing,
    rows.odd_identifiers_come_back_as_they_are,
    rows.odd_names_are_found_as_they_are,
    rows.threads_that_put_at_once_lose_nothing,
    rows.closing_twice_is_closing_once,
    orders.the_newest_checkpoint_is_found_first,
    orders.a_name_finds_every_worker_that_staged_it,
    orders.what_a_name_finds_is_bounded,
    orders.a_name_given_twice_is_found_once,
    orders.a_trace_is_in_order_of_generation,
    orders.a_trace_has_at_most_its_limit,
    orders.a_page_of_a_trace_never_ends_inside_a_generation,
    orders.runs_are_listed_in_order_and_in_pages,
    orders.a_run_is_listed_once,
    marks.a_mark_comes_back,
    marks.a_mark_of_the_same_lease_is_replaced,
    marks.an_older_lease_cannot_replace_a_mark,
    marks.an_older_lease_cannot_put,
    marks.the_marked_lease_and_newer_ones_can_put,
    marks.pruning_drops_old_states_and_nothing_else,
    marks.pruning_drops_orphans_beside_the_chain,
    marks.pruning_leaves_what_the_chain_does_not_name,
    marks.pruning_twice_is_pruning_once,
    marks.pruning_reaches_what_arrived_late,
    marks.pruning_one_run_leaves_the_others,
    archives.a_part_of_an_archive_comes_back,
    archives.the_largest_part_comes_back,
    archives.a_part_of_the_same_name_is_replaced,
    archives.nothing_is_dropped_without_a_seal,
    archives.all_checkpoints_but_one_are_dropped,
    archives.at_most_the_limit_is_dropped,
    archives.what_lies_above_is_not_dropped,
    archives.dropping_from_one_run_leaves_the_others,
    archives.what_arrives_after_a_drop_is_found,
    archives.what_is_no_digest_drops_nothing,
)

INBOX_CLAUSES: tuple[Callable[[InboxBench], None], ...] = (
    statements.statements_come_in_order_of_arrival,
    statements.the_same_bytes_twice_are_one,
    statements.every_byte_of_a_statement_comes_back,
    statements.at_most_the_limit_is_pending,
    statements.statements_of_runs_are_kept_apart,
    statements.a_second_connection_reads_a_statement,
    statements.a_discarded_statement_waits_no_more,
    statements.discarding_touches_nothing_else,
    statements.a_discarded_statement_can_be_sent_again,
    statements.runs_with_statements_are_listed_in_pages,
    statements.closing_twice_is_closing_once,
)
