"""Every store and inbox keeps its clauses, and every broken promise is caught."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from counterfoil.core.errors import CounterfoilError
from counterfoil.testing import inbox_statements as statements
from counterfoil.testing import (
    saboteur_archives,
    saboteur_inboxes,
    saboteur_marks,
    saboteur_stores,
)
from counterfoil.testing import store_archives as archives
from counterfoil.testing import store_marks as marks
from counterfoil.testing import store_orders as orders
from counterfoil.testing import store_rows as rows
from counterfoil.testing.conformance_stores import INBOX_CLAUSES, STORE_CLAUSES
from counterfoil.testing.expect import ConformanceError
from tests.support import store_benches as benches

ODD = (rows.odd_identifiers_come_back_as_they_are, rows.odd_names_are_found_as_they_are)
TAGS = {**dict.fromkeys(ODD, "T26 "), statements.statements_of_runs_are_kept_apart: "T26 "}

STORE_CAUGHT = [
    (saboteur_stores.ChangesBytes, rows.every_byte_comes_back),
    (saboteur_stores.CutsAtNul, rows.every_byte_comes_back),
    (saboteur_stores.CutsLargeRows, rows.the_largest_row_comes_back),
    (saboteur_stores.RoundsNumbers, rows.the_largest_row_comes_back),
    (saboteur_stores.ForgetsNames, rows.what_was_put_is_got),
    (saboteur_stores.ForgetsNames, orders.a_name_finds_every_worker_that_staged_it),
    (saboteur_stores.NormalisesIdentifiers, rows.odd_identifiers_come_back_as_they_are),
    (saboteur_stores.FoldsDigests, rows.what_is_no_digest_is_refused),
    (saboteur_stores.ShortensDigests, rows.digests_that_begin_alike_are_different),
    (saboteur_stores.AcknowledgesAndForgets, rows.a_batch_is_stored_whole),
    (saboteur_stores.HalfBatch, rows.a_batch_with_one_refused_row_stores_nothing),
    (saboteur_stores.StaleReads, rows.a_second_connection_reads_what_was_put),
    (saboteur_stores.RefusesARepeatedPut, rows.a_put_whose_answer_was_lost_can_be_repeated),
    (saboteur_stores.Overwrites, rows.what_was_put_first_is_kept),
    (saboteur_stores.KeepsOnePerGeneration, rows.losers_of_a_race_do_not_overwrite_winners),
    (saboteur_stores.MixesRuns, rows.runs_are_kept_apart),
    (saboteur_stores.TakesNamesForPatterns, rows.odd_names_are_found_as_they_are),
    (saboteur_stores.FindsOldestFirst, orders.the_newest_checkpoint_is_found_first),
    (saboteur_stores.FindsOnlyOne, orders.a_name_finds_every_worker_that_staged_it),
    (saboteur_stores.FindsWithoutEnd, orders.what_a_name_finds_is_bounded),
    (saboteur_stores.FindsARowPerName, orders.a_name_given_twice_is_found_once),
    (saboteur_stores.TracesFromAfter, orders.a_trace_is_in_order_of_generation),
    (saboteur_stores.TracesNewestFirst, orders.a_trace_is_in_order_of_generation),
    (saboteur_stores.TracesWithoutEnd, orders.a_trace_has_at_most_its_limit),
    (saboteur_stores.SplitsGenerations, orders.a_page_of_a_trace_never_ends_inside_a_generation),
    (saboteur_stores.ListsByAlphabet, orders.runs_are_listed_in_order_and_in_pages),
    (saboteur_stores.ListsARunPerCheckpoint, orders.a_run_is_listed_once),
    (saboteur_stores.ForgetsOnClose, rows.closing_twice_is_closing_once),
    (saboteur_stores.ClosesOnce, rows.closing_twice_is_closing_once),
    (saboteur_marks.ForgetsTheMark, marks.a_mark_comes_back),
    (saboteur_marks.KeepsTheFirstMark, marks.a_mark_of_the_same_lease_is_replaced),
    (saboteur_marks.AcceptsOldMarks, marks.an_older_lease_cannot_replace_a_mark),
    (saboteur_marks.IgnoresTheMark, marks.an_older_lease_cannot_put),
    (saboteur_marks.HoldsItsHolderOff, marks.the_marked_lease_and_newer_ones_can_put),
    (saboteur_marks.MarksEveryRun, marks.the_marked_lease_and_newer_ones_can_put),
    (saboteur_marks.PrunesNothing, marks.pruning_drops_old_states_and_nothing_else),
    (saboteur_marks.PrunesOneStateTooMany, marks.pruning_drops_old_states_and_nothing_else),
    (saboteur_marks.PrunesTheChainToo, marks.pruning_drops_old_states_and_nothing_else),
    (saboteur_marks.LeavesOrphans, marks.pruning_drops_orphans_beside_the_chain),
    (saboteur_marks.PrunesAboveTheHead, marks.pruning_leaves_what_the_chain_does_not_name),
    (saboteur_marks.CountsWhatIsGone, marks.pruning_twice_is_pruning_once),
    (saboteur_marks.RemembersHowFarItPruned, marks.pruning_reaches_what_arrived_late),
    (saboteur_marks.PrunesEveryRun, marks.pruning_one_run_leaves_the_others),
    (saboteur_archives.ForgetsTheArchive, archives.a_part_of_an_archive_comes_back),
    (saboteur_archives.FoldsPartNames, archives.a_part_of_an_archive_comes_back),
    (saboteur_archives.MixesArchives, archives.a_part_of_an_archive_comes_back),
    (saboteur_archives.CutsLargeParts, archives.the_largest_part_comes_back),
    (saboteur_archives.KeepsTheFirstPart, archives.a_part_of_the_same_name_is_replaced),
    (saboteur_archives.CollectsWithoutASeal, archives.nothing_is_dropped_without_a_seal),
    (saboteur_archives.CollectsNothing, archives.all_checkpoints_but_one_are_dropped),
    (saboteur_archives.CollectsStatesAlone, archives.all_checkpoints_but_one_are_dropped),
    (saboteur_archives.CollectsTheLastToo, archives.all_checkpoints_but_one_are_dropped),
    (saboteur_archives.LeavesNames, archives.all_checkpoints_but_one_are_dropped),
    (saboteur_archives.DropsTheMark, archives.all_checkpoints_but_one_are_dropped),
    (saboteur_archives.CollectsWithoutEnd, archives.at_most_the_limit_is_dropped),
    (saboteur_archives.CollectsAboveTheHead, archives.what_lies_above_is_not_dropped),
    (saboteur_archives.CollectsEveryRun, archives.dropping_from_one_run_leaves_the_others),
    (saboteur_archives.RefusesWhatWasDropped, archives.what_arrives_after_a_drop_is_found),
    (saboteur_archives.TakesAnyDigest, archives.what_is_no_digest_drops_nothing),
]
INBOX_CAUGHT = [
    (saboteur_inboxes.NewestFirst, statements.statements_come_in_order_of_arrival),
    (saboteur_inboxes.SortsStatements, statements.statements_come_in_order_of_arrival),
    (saboteur_inboxes.KeepsRepetitions, statements.the_same_bytes_twice_are_one),
    (saboteur_inboxes.CutsAtNul, statements.every_byte_of_a_statement_comes_back),
    (saboteur_inboxes.ReturnsEverything, statements.at_most_the_limit_is_pending),
    (saboteur_inboxes.MixesRuns, statements.statements_of_runs_are_kept_apart),
    (saboteur_inboxes.StaleReads, statements.a_second_connection_reads_a_statement),
    (saboteur_inboxes.DiscardsNothing, statements.a_discarded_statement_waits_no_more),
    (saboteur_inboxes.DiscardsTheFirst, statements.a_discarded_statement_waits_no_more),
    (saboteur_inboxes.DiscardsForEveryRun, statements.discarding_touches_nothing_else),
    (
        saboteur_inboxes.RemembersWhatItDiscarded,
        statements.a_discarded_statement_can_be_sent_again,
    ),
    (saboteur_inboxes.ListsWhatIsDone, statements.runs_with_statements_are_listed_in_pages),
    (saboteur_inboxes.ListsWithoutEnd, statements.runs_with_statements_are_listed_in_pages),
    (saboteur_inboxes.ListsByAlphabet, statements.runs_with_statements_are_listed_in_pages),
    (saboteur_inboxes.ClosesOnce, statements.closing_twice_is_closing_once),
]


def _sentence(clause: Callable[..., None]) -> str:
    return TAGS.get(clause, "") + clause.__name__.replace("_", " ")


def _kept(backends: dict[str, Any], clauses: tuple[Callable[..., None], ...]) -> list[Any]:
    return [
        pytest.param(bench, clause, id=f"{name} {_sentence(clause)}")
        for name, bench in backends.items()
        for clause in clauses
    ]


def _caught(backends: dict[str, Any], pairs: list[Any]) -> list[Any]:
    return [
        pytest.param(bench, saboteur, clause, id=f"{name} {saboteur.__name__} {clause.__name__}")
        for name, bench in backends.items()
        for saboteur, clause in pairs
    ]


STORES = {"memory": benches.memory_store, "sqlite": benches.sqlite_store}
INBOXES = {"memory": benches.memory_inbox, "sqlite": benches.sqlite_inbox}


@pytest.mark.parametrize(("bench", "clause"), _kept(STORES, STORE_CLAUSES))
def test_a_store_keeps(bench: Any, clause: Callable[..., None], tmp_path: Path) -> None:
    with bench(tmp_path) as made:
        clause(made)


@pytest.mark.parametrize(("bench", "clause"), _kept(INBOXES, INBOX_CLAUSES))
def test_an_inbox_keeps(bench: Any, clause: Callable[..., None], tmp_path: Path) -> None:
    with bench(tmp_path) as made:
        clause(made)


@pytest.mark.parametrize(("bench", "saboteur", "clause"), _caught(STORES, STORE_CAUGHT))
def test_a_store_that_breaks_a_promise_is_caught(
    bench: Any, saboteur: Callable[..., Any], clause: Callable[..., None], tmp_path: Path
) -> None:
    with (
        benches.spoiled_store(bench, saboteur, tmp_path) as made,
        pytest.raises((ConformanceError, CounterfoilError)),
    ):
        clause(made)


@pytest.mark.parametrize(("bench", "saboteur", "clause"), _caught(INBOXES, INBOX_CAUGHT))
def test_an_inbox_that_breaks_a_promise_is_caught(
    bench: Any, saboteur: Callable[..., Any], clause: Callable[..., None], tmp_path: Path
) -> None:
    with (
        benches.spoiled_inbox(bench, saboteur, tmp_path) as made,
        pytest.raises((ConformanceError, CounterfoilError)),
    ):
        clause(made)


@pytest.mark.parametrize("clause", STORE_CLAUSES, ids=_sentence)
def test_a_store_that_breaks_nothing_passes(clause: Callable[..., None], tmp_path: Path) -> None:
    passing = saboteur_stores.Passing
    with benches.spoiled_store(benches.memory_store, passing, tmp_path) as made:
        clause(made)


@pytest.mark.parametrize("clause", INBOX_CLAUSES, ids=_sentence)
def test_an_inbox_that_breaks_nothing_passes(clause: Callable[..., None], tmp_path: Path) -> None:
    passing = saboteur_inboxes.Passing
    with benches.spoiled_inbox(benches.memory_inbox, passing, tmp_path) as made:
        clause(made)


@pytest.mark.parametrize(
    ("modules", "base", "pairs"),
    [
        pytest.param(
            (saboteur_stores, saboteur_marks, saboteur_archives),
            saboteur_stores.Passing,
            STORE_CAUGHT,
            id="stores",
        ),
        pytest.param((saboteur_inboxes,), saboteur_inboxes.Passing, INBOX_CAUGHT, id="inboxes"),
    ],
)
def test_every_saboteur_is_caught(modules: Any, base: type, pairs: list[Any]) -> None:
    made = {
        each
        for module in modules
        for name, each in vars(module).items()
        if isinstance(each, type) and issubclass(each, base) and not name.startswith("_")
    }
    assert made - {base} == {saboteur for saboteur, _ in pairs}


@pytest.mark.parametrize(
    ("modules", "clauses"),
    [
        pytest.param((rows, orders, marks, archives), STORE_CLAUSES, id="stores"),
        pytest.param((statements,), INBOX_CLAUSES, id="inboxes"),
    ],
)
def test_every_clause_is_in_the_suite(modules: Any, clauses: tuple[Any, ...]) -> None:
    written = {
        each
        for module in modules
        for name, each in vars(module).items()
        if getattr(each, "__module__", "") == module.__name__ and not name.startswith("_")
    }
    assert written == set(clauses)
