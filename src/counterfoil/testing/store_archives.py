"""Clauses of a checkpoint store: what an archive keeps, and what it lets the store drop."""

from functools import partial

from counterfoil.core.archive import PIECE_BYTES_MAX, SEAL
from counterfoil.core.codec import Checkpoint
from counterfoil.core.errors import InvariantError, UsageError
from counterfoil.core.words import Digest
from counterfoil.ports import CheckpointStore, Mark
from counterfoil.testing.expect import expect
from counterfoil.testing.store_bench import (
    ODD_TEXTS,
    OTHER_RUN,
    RUN,
    StoreBench,
    checkpoint,
    refused,
)

EVERY_BYTE = bytes(range(256))
MANY = 1_000


def a_part_of_an_archive_comes_back(bench: StoreBench) -> None:
    """Every part is read under its name, by every connection, byte for byte."""
    store, other = bench.open(), bench.open()
    expect(other.archived(RUN, SEAL) is None, "a run without an archive gives None")
    parts = {name: EVERY_BYTE + name.encode() for name in (SEAL, "a" * 64, "A" * 64, *ODD_TEXTS)}
    for name, content in parts.items():
        store.archive(RUN, name, content)
    for name, content in parts.items():
        expect(other.archived(RUN, name) == content, f"{name!r} comes back as it is")
    expect(other.archived(RUN, "b" * 64) is None, "an unknown name gives None")
    expect(other.archived(OTHER_RUN, SEAL) is None, "a part belongs to its run")
    expect(store.runs("", 9) == (RUN,), "a run with an archive alone is listed")


def the_largest_part_comes_back(bench: StoreBench) -> None:
    """A piece at its bound that could not be compressed is kept exactly."""
    store, content = bench.open(), EVERY_BYTE * (PIECE_BYTES_MAX // len(EVERY_BYTE))
    store.archive(RUN, "a" * 64, content)
    expect(bench.open().archived(RUN, "a" * 64) == content, "a part at its bound comes back")


def a_part_of_the_same_name_is_replaced(bench: StoreBench) -> None:
    """A seal that nobody with a key made does not stand in the way of a genuine one."""
    store = bench.open()
    for content in (b"first", b"", b"second"):
        store.archive(RUN, SEAL, content)
        expect(bench.open().archived(RUN, SEAL) == content, "the part that was kept last is read")


def nothing_is_dropped_without_a_seal(bench: StoreBench) -> None:
    """Pieces alone stand for nothing, and neither does the archive of another run."""
    store = bench.open()
    rows = _chain(store)
    store.archive(RUN, "a" * 64, b"piece")
    store.archive(OTHER_RUN, SEAL, b"seal")
    refused(partial(store.collect, RUN, rows[-1].digest, 5, MANY), InvariantError)
    expect(bench.open().trace(RUN, -1, MANY) == tuple(rows), "every checkpoint stays as it is")


def all_checkpoints_but_one_are_dropped(bench: StoreBench) -> None:
    """They go whole, with their names; the one that is named stays, with all that is its own."""
    store, mark = bench.open(), Mark(run_id=RUN, lease_version=1, envelope=b"mark")
    rows = _chain(store)
    store.mark(mark)
    store.put([checkpoint(n, salt="loser", settles=("key",)) for n in (1, 3)])
    store.archive(RUN, SEAL, b"seal")
    expect(store.collect(RUN, rows[-1].digest, 5, MANY) == 7, "seven checkpoints went")
    for each in (store, bench.open()):
        expect(each.trace(RUN, -1, MANY) == (rows[-1],), "the last checkpoint stays as it is")
        expect(each.get(RUN, rows[2].digest) is None, "what was dropped is not got")
        expect(each.find(RUN, "@2") == (), "nor found by a name of its own")
        expect(each.find(RUN, "key") == (rows[-1],), "a name that it shared finds what stays")
        expect(each.archived(RUN, SEAL) == b"seal", "the archive stays")
        expect(each.marked(RUN) == mark, "the mark stays")
        expect(each.runs("", 9) == (RUN,), "the run is still listed")


def at_most_the_limit_is_dropped(bench: StoreBench) -> None:
    """The oldest go first, so that one call takes as little time as its caller wants."""
    store = bench.open()
    rows = _chain(store)
    store.archive(RUN, SEAL, b"seal")
    for limit, left in ((0, 6), (2, 4), (1, 3), (9, 1), (9, 1)):
        before = len(store.trace(RUN, -1, MANY))
        dropped = store.collect(RUN, rows[-1].digest, 5, limit)
        expect(dropped == before - left, f"{limit} at most are dropped, and counted")
        expect(store.trace(RUN, -1, MANY) == tuple(rows[-left:]), "the oldest are dropped first")


def what_lies_above_is_not_dropped(bench: StoreBench) -> None:
    """A generation above the head is none of an archive's business."""
    store = bench.open()
    rows = _chain(store)
    store.archive(RUN, SEAL, b"seal")
    store.collect(RUN, rows[3].digest, 3, MANY)
    expect(store.trace(RUN, -1, MANY) == tuple(rows[3:]), "what lies above stays")


def dropping_from_one_run_leaves_the_others(bench: StoreBench) -> None:
    """Also where the others are archived, and their generations are the same."""
    store = bench.open()
    rows = _chain(store)
    others = [checkpoint(n, run_id=OTHER_RUN, settles=("key", f"@{n}")) for n in range(6)]
    store.put(others)
    for run_id in (RUN, OTHER_RUN):
        store.archive(run_id, SEAL, run_id.encode())
    store.collect(RUN, rows[-1].digest, 5, MANY)
    expect(store.trace(OTHER_RUN, -1, MANY) == tuple(others), "another run keeps everything")
    expect(store.archived(OTHER_RUN, SEAL) == OTHER_RUN.encode(), "and its own archive")
    for row in others:
        expect(store.find(OTHER_RUN, row.settles[1]) == (row,), "and what it is found by")


def what_arrives_after_a_drop_is_found(bench: StoreBench) -> None:
    """Dropped rows leave no gap into which later ones fall."""
    store = bench.open()
    old = [checkpoint(n, settles=(f"@{n}",)) for n in range(100)]
    store.put(old)
    store.archive(RUN, SEAL, b"seal")
    while store.collect(RUN, Digest("0" * 64), 99, 30):
        pass
    expect(store.trace(RUN, -1, MANY) == (), "every checkpoint went")
    rows = [checkpoint(n, run_id=OTHER_RUN, settles=(f"@{n}",)) for n in range(100)]
    for row in rows:
        store.put([row])
    for row in rows:
        expect(store.get(OTHER_RUN, row.digest) == row, "a later row is got")
        expect(store.find(OTHER_RUN, row.settles[0]) == (row,), "and found")
        expect(store.find(RUN, row.settles[0]) == (), "and what was dropped is not")
    store.put(old[:3])
    expect(store.trace(RUN, -1, MANY) == tuple(old[:3]), "what was dropped can be put again")


def what_is_no_digest_drops_nothing(bench: StoreBench) -> None:
    """A slip in the name of what is to stay must not cost it."""
    store = bench.open()
    rows = _chain(store)
    store.archive(RUN, SEAL, b"seal")
    for name in ("", rows[-1].digest.upper(), rows[-1].digest[:-1]):
        refused(partial(store.collect, RUN, Digest(name), 5, MANY), UsageError)
    expect(store.trace(RUN, -1, MANY) == tuple(rows), "every checkpoint stays")


def _chain(store: CheckpointStore) -> list[Checkpoint]:
    rows = [checkpoint(n, settles=("key", f"@{n}")) for n in range(6)]
    store.put(rows)
    return rows
