"""Clauses of a checkpoint store: in which order rows come back, and how pages join."""

from counterfoil.core.words import RunId
from counterfoil.ports import FOUND_MAX
from counterfoil.testing.expect import expect
from counterfoil.testing.store_bench import OTHER_RUN, RUN, StoreBench, checkpoint

PAGES_MAX = 100


def the_newest_checkpoint_is_found_first(bench: StoreBench) -> None:
    """Whatever the order of arrival, the highest generation that settles a name is first."""
    store = bench.open()
    rows = [checkpoint(n, settles=("key", f"@{n}")) for n in (4, 9, 2)]
    for row in rows:
        store.put([row])
    found = store.find(RUN, "key")
    expect([row.generation for row in found] == [9, 4, 2], "the newest is found first")
    expect(set(found) == set(rows), "and each is whole")
    expect(store.find(RUN, "@4") == (rows[0],), "another name of a row finds it alone")


def a_name_finds_every_worker_that_staged_it(bench: StoreBench) -> None:
    """Losers of a race are found beside the winner, so that the chain can decide."""
    store, rows = bench.open(), [checkpoint(5, salt=s, settles=("key",)) for s in "abc"]
    store.put(rows)
    expect(set(store.find(RUN, "key")) == set(rows), "every staged row is found")


def what_a_name_finds_is_bounded(bench: StoreBench) -> None:
    """A worker that crashes in a loop does not make a look-up grow."""
    store = bench.open()
    store.put([checkpoint(n, settles=("key",)) for n in range(FOUND_MAX + 4)])
    found = [row.generation for row in store.find(RUN, "key")]
    newest = list(range(FOUND_MAX + 3, 3, -1))
    expect(found == newest, f"a name finds the newest {FOUND_MAX} and no more")


def a_name_given_twice_is_found_once(bench: StoreBench) -> None:
    """The same name twice in one row is one name, and the row comes back as it was."""
    store, row = bench.open(), checkpoint(0, settles=("key", "key"))
    store.put([row])
    expect(store.find(RUN, "key") == (row,), "a row is found once under one name")


def a_trace_is_in_order_of_generation(bench: StoreBench) -> None:
    """Whatever the order of arrival, the oldest is first, and `after` is not in it."""
    store = bench.open()
    for generation in (3, 0, 2, 1):
        store.put([checkpoint(generation)])
    whole = [row.generation for row in store.trace(RUN, -1, 10)]
    expect(whole == [0, 1, 2, 3], "the oldest is first")
    rest = [row.generation for row in store.trace(RUN, 1, 10)]
    expect(rest == [2, 3], "a trace begins above `after`")
    expect(store.trace(RUN, 3, 10) == (), "nothing is above the last")


def a_trace_has_at_most_its_limit(bench: StoreBench) -> None:
    """A page is no longer than asked for, where no generation was raced for."""
    store = bench.open()
    store.put([checkpoint(n) for n in range(5)])
    for limit in (0, 1, 4, 5, 6):
        expect(
            len(store.trace(RUN, -1, limit)) == min(limit, 5), f"a page of {limit} holds so many"
        )


def a_page_of_a_trace_never_ends_inside_a_generation(bench: StoreBench) -> None:
    """Paging by generation meets every row once, though a generation has several."""
    store = bench.open()
    rows = [checkpoint(n, salt=s) for n in range(4) for s in "abc"[: 1 + n % 3]]
    store.put(rows)
    for limit in (1, 2, 3):
        seen, after = list(store.trace(RUN, -1, limit)), -1
        for _ in range(PAGES_MAX):
            if not seen or seen[-1].generation == after:
                break
            after = seen[-1].generation
            seen.extend(store.trace(RUN, after, limit))
        expect(len(seen) == len(rows), f"pages of {limit} meet every row once")
        expect(set(seen) == set(rows), f"pages of {limit} meet every row")


def runs_are_listed_in_order_and_in_pages(bench: StoreBench) -> None:
    """Order is by code point, so that pages join whatever the language of the database."""
    store = bench.open()
    names = sorted(RunId(name) for name in ("b", "B", "a", "Z", "é", "z", "ä", "10", "9", "A b"))
    store.put([checkpoint(0, run_id=name) for name in reversed(names)])
    expect(store.runs("", 99) == tuple(names), "runs are in order of their code points")
    pages, after = list[RunId](), ""
    for _ in range(PAGES_MAX):
        page = store.runs(after, 3)
        expect(len(page) <= 3, "a page has at most its limit")
        if not page:
            break
        pages.extend(page)
        after = page[-1]
    expect(pages == names, "pages of runs join")
    expect(store.runs("", 0) == (), "a page of none is empty")


def a_run_is_listed_once(bench: StoreBench) -> None:
    """However many checkpoints it has."""
    store = bench.open()
    store.put([checkpoint(n, run_id=run_id) for n in range(5) for run_id in (OTHER_RUN, RUN)])
    expect(store.runs("", 99) == (RUN, OTHER_RUN), "each run is listed once")
