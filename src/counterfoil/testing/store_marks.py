"""Clauses of a checkpoint store: what a mark holds off, and what pruning leaves."""

from msgspec.structs import replace

from counterfoil.core.errors import LeaseLostError
from counterfoil.ports import CheckpointStore, Mark
from counterfoil.testing.expect import expect
from counterfoil.testing.store_bench import OTHER_RUN, RUN, StoreBench, checkpoint, refused


def a_mark_comes_back(bench: StoreBench) -> None:
    """The newest mark is read, by every connection, byte for byte."""
    store, other = bench.open(), bench.open()
    for lease_version in (1, 2, 7):
        mark = Mark(run_id=RUN, lease_version=lease_version, envelope=bytes(range(256)))
        store.mark(mark)
        expect(other.marked(RUN) == mark, "the mark that was set last is read")
    expect(store.runs("", 9) == (RUN,), "a run with a mark alone is listed")


def a_mark_of_the_same_lease_is_replaced(bench: StoreBench) -> None:
    """A holder marks again after each commit."""
    store = bench.open()
    for envelope in (b"first", b"second"):
        store.mark(Mark(run_id=RUN, lease_version=3, envelope=envelope))
    mark = store.marked(RUN)
    expect(mark is not None and mark.envelope == b"second", "a holder may replace its mark")


def an_older_lease_cannot_replace_a_mark(bench: StoreBench) -> None:
    """A worker that wakes up late leaves no evidence over its successor's."""
    store, standing = bench.open(), Mark(run_id=RUN, lease_version=3, envelope=b"standing")
    bench.open().mark(standing)
    late = Mark(run_id=RUN, lease_version=2, envelope=b"late")
    refused(lambda: store.mark(late), LeaseLostError)
    expect(store.marked(RUN) == standing, "the standing mark stays")


def an_older_lease_cannot_put(bench: StoreBench) -> None:
    """A late worker's checkpoint is refused, whoever set the mark."""
    store = bench.open()
    store.put([checkpoint(1, lease_version=2)])
    bench.open().mark(Mark(run_id=RUN, lease_version=3, envelope=b"mark"))
    late = checkpoint(2, lease_version=2)
    refused(lambda: store.put([late]), LeaseLostError)
    expect(bench.open().get(RUN, late.digest) is None, "a late checkpoint is not stored")


def the_marked_lease_and_newer_ones_can_put(bench: StoreBench) -> None:
    """A mark holds off older leases, and nobody else."""
    store = bench.open()
    store.mark(Mark(run_id=RUN, lease_version=3, envelope=b"mark"))
    rows = [
        checkpoint(1, lease_version=3),
        checkpoint(2, lease_version=4),
        checkpoint(1, lease_version=1, run_id=OTHER_RUN),
    ]
    for row in rows:
        store.put([row])
    expect(
        [store.get(row.run_id, row.digest) for row in rows] == rows,
        "the marked lease, a newer one and other runs go on",
    )


def pruning_drops_old_states_and_nothing_else(bench: StoreBench) -> None:
    """Headers and events stay for good, and the newest states with them."""
    store = bench.open()
    rows = [checkpoint(n, settles=(f"@{n}",)) for n in range(6)]
    store.put(rows)
    changed = store.prune(RUN, {row.generation: row.digest for row in rows}, 4)
    kept = tuple(replace(row, state=b"") if row.generation < 4 else row for row in rows)
    expect(changed == 4, "four rows changed")
    expect(bench.open().trace(RUN, -1, 99) == kept, "old states are dropped, all else stays")
    expect(store.find(RUN, "@1") == (kept[1],), "what is settled is still found")


def pruning_drops_orphans_beside_the_chain(bench: StoreBench) -> None:
    """Losers of a race go whole, with their names; the chain stays."""
    store = bench.open()
    chain = [checkpoint(n, settles=("key",)) for n in range(4)]
    store.put(chain)
    store.put([checkpoint(n, salt=salt, settles=("key",)) for n in (1, 3) for salt in "xy"])
    changed = store.prune(RUN, {row.generation: row.digest for row in chain}, 0)
    expect(changed == 4, "four rows changed")
    expect(bench.open().trace(RUN, -1, 99) == tuple(chain), "the chain stays, and nothing else")
    expect(store.find(RUN, "key") == tuple(reversed(chain)), "an orphan's name is gone with it")


def pruning_leaves_what_the_chain_does_not_name(bench: StoreBench) -> None:
    """A generation above the head may be about to be named by it."""
    store, head = bench.open(), checkpoint(5)
    rows = [
        checkpoint(4, salt="unnamed"),
        head,
        *(checkpoint(n, salt=s) for n in (6, 7) for s in "ab"),
    ]
    store.put(rows)
    store.prune(RUN, {5: head.digest}, 5)
    left = store.trace(RUN, -1, 99)
    expect({row.digest for row in left} == {row.digest for row in rows}, "every row is left")
    expect(
        {row for row in left if row.generation >= 5} == set(rows[1:]),
        "generations that are not below keep their states",
    )


def pruning_twice_is_pruning_once(bench: StoreBench) -> None:
    """A second pass has nothing to do, and neither has one over an unknown run."""
    store = bench.open()
    _raced_for(store)
    chain = {n: checkpoint(n).digest for n in range(3)}
    expect(store.prune(RUN, chain, 2) == 3, "two states and one orphan go")
    expect(store.prune(RUN, chain, 2) == 0, "a second pass changes nothing")
    expect(store.prune(OTHER_RUN, chain, 2) == 0, "a run that is unknown has nothing to prune")


def pruning_reaches_what_arrived_late(bench: StoreBench) -> None:
    """A state that is put below a bound already pruned to goes with the next pass."""
    store = bench.open()
    store.put([checkpoint(n) for n in range(5)])
    store.prune(RUN, {}, 4)
    late = checkpoint(2, salt="late")
    store.put([late])
    expect(store.prune(RUN, {}, 4) == 1, "the late state goes")
    row = store.get(RUN, late.digest)
    expect(row == replace(late, state=b""), "and its row stays")


def pruning_one_run_leaves_the_others(bench: StoreBench) -> None:
    """Rows of another run are not touched, even where their generations are the same."""
    store = bench.open()
    _raced_for(store)
    rows = [checkpoint(n, run_id=OTHER_RUN) for n in range(3)]
    store.put(rows)
    store.prune(RUN, {n: checkpoint(n).digest for n in range(3)}, 3)
    expect(store.trace(OTHER_RUN, -1, 9) == tuple(rows), "another run keeps everything")


def _raced_for(store: CheckpointStore) -> None:
    store.put([checkpoint(n) for n in range(3)])
    store.put([checkpoint(1, salt="loser")])
