"""Clauses of an inbox: a statement that was dropped in waits for the session, whole."""

from counterfoil.core.words import RunId
from counterfoil.testing.expect import expect
from counterfoil.testing.store_bench import ODD_TEXTS, OTHER_RUN, RUN, InboxBench


def statements_come_in_order_of_arrival(bench: InboxBench) -> None:
    """Whatever their bytes are, the first that came is the first."""
    inbox, sent = bench.open(), (b"z", b"a", b"m")
    for statement in sent:
        inbox.put(RUN, statement)
    expect(inbox.pending(RUN, 10) == sent, "statements come in order of arrival")


def the_same_bytes_twice_are_one(bench: InboxBench) -> None:
    """A person who presses twice, or whose answer was lost, has said it once."""
    inbox = bench.open()
    for statement in (b"first", b"second", b"first"):
        inbox.put(RUN, statement)
    bench.open().put(RUN, b"second")
    expect(inbox.pending(RUN, 10) == (b"first", b"second"), "the same bytes twice are one")


def every_byte_of_a_statement_comes_back(bench: InboxBench) -> None:
    """NUL and invalid UTF-8 are bytes like others, and 64 KiB are kept."""
    inbox, statement = bench.open(), bytes(range(256)) * 256
    inbox.put(RUN, statement)
    inbox.put(RUN, statement + b"\x00")
    expect(
        inbox.pending(RUN, 10) == (statement, statement + b"\x00"),
        "every byte of a statement comes back",
    )


def at_most_the_limit_is_pending(bench: InboxBench) -> None:
    """A page begins with the oldest."""
    inbox = bench.open()
    for number in range(5):
        inbox.put(RUN, b"%d" % number)
    for limit in (0, 1, 4, 5, 6):
        wanted = tuple(b"%d" % number for number in range(min(limit, 5)))
        expect(inbox.pending(RUN, limit) == wanted, f"at most {limit} are pending")


def statements_of_runs_are_kept_apart(bench: InboxBench) -> None:
    """The same bytes for two runs are two; odd run ids are ids like others."""
    inbox = bench.open()
    run_ids = (RUN, OTHER_RUN, *map(RunId, ODD_TEXTS))
    for run_id in run_ids:
        inbox.put(run_id, b"the same")
        inbox.put(run_id, run_id.encode())
    for run_id in run_ids:
        expect(
            inbox.pending(run_id, 99) == (b"the same", run_id.encode()),
            f"{run_id!r} has its own statements",
        )


def a_second_connection_reads_a_statement(bench: InboxBench) -> None:
    """Who drops it in and who applies it are different processes."""
    early, inbox = bench.open(), bench.open()
    expect(early.pending(RUN, 10) == (), "a fresh inbox is empty")
    inbox.put(RUN, b"statement")
    for other in (early, bench.open()):
        expect(other.pending(RUN, 10) == (b"statement",), "another connection reads it")


def a_discarded_statement_waits_no_more(bench: InboxBench) -> None:
    """For any connection; the others keep their order."""
    inbox = bench.open()
    for statement in (b"first", b"second", b"third"):
        inbox.put(RUN, statement)
    bench.open().discard(RUN, b"second")
    expect(inbox.pending(RUN, 10) == (b"first", b"third"), "what is discarded waits no more")


def discarding_touches_nothing_else(bench: InboxBench) -> None:
    """What is not there, or there for another run, is left; twice is once."""
    inbox = bench.open()
    inbox.put(RUN, b"the same")
    inbox.put(OTHER_RUN, b"the same")
    inbox.discard(RUN, b"the")
    inbox.discard(RUN, b"")
    expect(inbox.pending(RUN, 10) == (b"the same",), "another statement stays")
    for _ in range(2):
        inbox.discard(RUN, b"the same")
    expect(inbox.pending(RUN, 10) == (), "discarding twice is discarding once")
    expect(inbox.pending(OTHER_RUN, 10) == (b"the same",), "another run's statement stays")


def a_discarded_statement_can_be_sent_again(bench: InboxBench) -> None:
    """It comes anew, behind those that came meanwhile."""
    inbox = bench.open()
    inbox.put(RUN, b"first")
    inbox.put(RUN, b"second")
    inbox.discard(RUN, b"first")
    inbox.put(RUN, b"first")
    expect(inbox.pending(RUN, 10) == (b"second", b"first"), "what is sent again comes last")


def runs_with_statements_are_listed_in_pages(bench: InboxBench) -> None:
    """Each once, in order of code points, for as long as a statement waits."""
    inbox = bench.open()
    expect(inbox.arrivals("", 9) == (), "nothing has arrived in a fresh inbox")
    names = sorted(RunId(name) for name in ("b", "B", "a", "é", "10", "9"))
    for name in reversed(names):
        inbox.put(name, b"first")
        inbox.put(name, b"second")
    pages, after = list[str](), ""
    while page := bench.open().arrivals(after, 4):
        expect(len(page) <= 4, "a page has at most its limit")
        pages.extend(page)
        after = page[-1]
    expect(pages == names, "pages of runs join, each run once")
    expect(inbox.arrivals("", 0) == (), "a page of none is empty")
    inbox.discard(names[0], b"first")
    expect(names[0] in inbox.arrivals("", 9), "a run with one statement left is listed")
    inbox.discard(names[0], b"second")
    expect(inbox.arrivals("", 9) == tuple(names[1:]), "and one with none is not")


def closing_twice_is_closing_once(bench: InboxBench) -> None:
    """Closing loses nothing, and a second time does nothing."""
    inbox = bench.open()
    inbox.put(RUN, b"statement")
    inbox.close()
    inbox.close()
    expect(bench.open().pending(RUN, 10) == (b"statement",), "it is there after closing")
