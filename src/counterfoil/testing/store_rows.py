"""Clauses of a checkpoint store: what is put stays as it is, and can be got by anyone."""

from functools import partial

from msgspec.structs import replace

from counterfoil.core.bounds import EVENTS_BYTES_MAX, INTEGER_MAX
from counterfoil.core.errors import LeaseLostError, UsageError
from counterfoil.core.words import Digest, RunId
from counterfoil.ports import Mark
from counterfoil.testing.expect import expect
from counterfoil.testing.store_bench import (
    ODD_TEXTS,
    OTHER_RUN,
    RUN,
    StoreBench,
    checkpoint,
    digest_of,
    raced,
    refused,
)

EVERY_BYTE = bytes(range(256))


def what_was_put_is_got(bench: StoreBench) -> None:
    """A row comes back equal in every field."""
    store, row = bench.open(), checkpoint(3, settles=("key", "@2"))
    store.put([row])
    expect(store.get(RUN, row.digest) == row, "what was put is got")


def every_byte_comes_back(bench: StoreBench) -> None:
    """NUL, invalid UTF-8 and line ends are bytes like others."""
    store = bench.open()
    row = replace(
        checkpoint(0), envelope=EVERY_BYTE, state=b"\x00" + EVERY_BYTE, events=EVERY_BYTE + b"\r\n"
    )
    store.put([row])
    expect(store.get(RUN, row.digest) == row, "every byte comes back")


def the_largest_row_comes_back(bench: StoreBench) -> None:
    """Sizes and numbers at their bounds are kept exactly."""
    store = bench.open()
    row = replace(
        checkpoint(INTEGER_MAX, lease_version=INTEGER_MAX),
        events=EVERY_BYTE * (EVENTS_BYTES_MAX // len(EVERY_BYTE)),
    )
    store.put([row])
    expect(store.get(RUN, row.digest) == row, "a row at its bounds comes back")


def nothing_is_got_before_it_is_put(bench: StoreBench) -> None:
    """A checkpoint, a name, a mark, a run that was never put is not there."""
    store = bench.open()
    store.put([checkpoint(0)])
    for run_id in (RUN, OTHER_RUN):
        expect(store.get(run_id, digest_of("another")) is None, "an unknown digest gives None")
        expect(store.find(run_id, "key") == (), "an unknown name finds nothing")
        expect(store.marked(run_id) is None, "a run without a mark gives None")
    expect(store.trace(OTHER_RUN, -1, 10) == (), "an unknown run has no trace")


def what_is_no_digest_is_refused(bench: StoreBench) -> None:
    """A name that is not 64 lower-case hexadecimal digits never reaches a row."""
    store, row = bench.open(), checkpoint(0)
    for name in ("", "x" * 64, row.digest.upper(), row.digest[:-1], row.digest + "\n"):
        bad = replace(row, digest=name)
        refused(partial(store.put, [bad]), UsageError)
        refused(partial(store.get, RUN, bad.digest), UsageError)
    expect(store.trace(RUN, -1, 10) == (), "a refused row is not stored")


def a_second_connection_reads_what_was_put(bench: StoreBench) -> None:
    """Rows, names and marks are seen by whoever opens the store next, and by who has it open."""
    early, store = bench.open(), bench.open()
    expect(early.trace(RUN, -1, 10) == (), "a fresh store is empty")
    row, mark = checkpoint(0, settles=("key",)), Mark(run_id=RUN, lease_version=1, envelope=b"m")
    store.put([row])
    store.mark(mark)
    for other in (early, bench.open()):
        expect(other.get(RUN, row.digest) == row, "another connection gets the row")
        expect(other.find(RUN, "key") == (row,), "another connection finds the name")
        expect(other.trace(RUN, -1, 10) == (row,), "another connection sees the trace")
        expect(other.marked(RUN) == mark, "another connection reads the mark")
        expect(other.runs("", 10) == (RUN,), "another connection lists the run")


def a_put_whose_answer_was_lost_can_be_repeated(bench: StoreBench) -> None:
    """Putting again, through any connection, changes nothing."""
    store, row = bench.open(), checkpoint(0, settles=("key",))
    store.put([row])
    store.put([row])
    bench.open().put([row, row])
    expect(store.trace(RUN, -1, 10) == (row,), "a row that is put again is one row")
    expect(store.find(RUN, "key") == (row,), "its name is found once")


def what_was_put_first_is_kept(bench: StoreBench) -> None:
    """A row is never replaced: other bytes under its digest are not taken."""
    store, row = bench.open(), checkpoint(0, settles=("key",))
    store.put([row])
    store.put([replace(row, envelope=b"other", state=b"other", events=b"other", settles=("z",))])
    expect(store.get(RUN, row.digest) == row, "the first row stays as it is")
    expect(store.find(RUN, "z") == (), "names of a row that is not taken are not taken")


def losers_of_a_race_do_not_overwrite_winners(bench: StoreBench) -> None:
    """Two workers' checkpoints of one generation both stay."""
    store, rows = bench.open(), [checkpoint(5, salt=salt) for salt in ("a", "b")]
    bench.open().put([rows[0]])
    store.put([rows[1]])
    expect(
        [store.get(RUN, row.digest) for row in rows] == rows, "both checkpoints of a race are got"
    )


def digests_that_begin_alike_are_different(bench: StoreBench) -> None:
    """An index over the first digits of a digest finds rows; the whole digest decides."""
    store, row = bench.open(), checkpoint(0)
    alike = [replace(checkpoint(0), digest=Digest(row.digest[:-1] + digit)) for digit in "0123"]
    rows = [replace(each, envelope=each.digest.encode()) for each in alike]
    store.put(rows)
    for each in rows:
        expect(store.get(RUN, each.digest) == each, "each digest gets its own row")
    unknown = Digest(row.digest[:-1] + "4")
    expect(store.get(RUN, unknown) is None, "a digest that only begins alike gets nothing")


def runs_are_kept_apart(bench: StoreBench) -> None:
    """What belongs to one run is not found under another, even under the same digest."""
    store, row = bench.open(), checkpoint(0, settles=("key",))
    twin = replace(row, run_id=OTHER_RUN, state=b"of the other run")
    store.put([row])
    expect(store.get(OTHER_RUN, row.digest) is None, "a digest belongs to its run")
    expect(store.find(OTHER_RUN, "key") == (), "a name belongs to its run")
    expect(store.trace(OTHER_RUN, -1, 10) == (), "a trace belongs to its run")
    store.put([twin])
    expect(store.get(OTHER_RUN, row.digest) == twin, "the other run has its own row")
    expect(store.get(RUN, row.digest) == row, "the first run keeps its own")


def a_batch_is_stored_whole(bench: StoreBench) -> None:
    """Rows of several runs go in together, and an empty batch is none."""
    store = bench.open()
    rows = [checkpoint(n, run_id=run_id) for run_id in (RUN, OTHER_RUN) for n in range(3)]
    store.put(rows)
    store.put([])
    expect(
        [bench.open().get(row.run_id, row.digest) for row in rows] == rows,
        "every row of a batch is stored",
    )


def a_batch_with_one_refused_row_stores_nothing(bench: StoreBench) -> None:
    """A batch is all or none, wherever in it the refused row stands."""
    store = bench.open()
    store.mark(Mark(run_id=OTHER_RUN, lease_version=2, envelope=b"mark"))
    good, late = checkpoint(0), checkpoint(0, run_id=OTHER_RUN, lease_version=1)
    for batch in ([good, late], [late, good]):
        refused(partial(store.put, batch), LeaseLostError)
        expect(bench.open().get(RUN, good.digest) is None, "a refused batch stores nothing")
        expect(store.trace(OTHER_RUN, -1, 10) == (), "the refused row is not stored")
    store.put([good])
    expect(store.get(RUN, good.digest) == good, "the good row alone goes in")


def odd_identifiers_come_back_as_they_are(bench: StoreBench) -> None:
    """Quotes, separators, wildcards and foreign letters in a run id are letters."""
    store = bench.open()
    rows = [checkpoint(n, run_id=RunId(text)) for n, text in enumerate(ODD_TEXTS)]
    store.put(rows)
    for row in rows:
        store.mark(Mark(run_id=row.run_id, lease_version=1, envelope=row.envelope))
    for row in rows:
        expect(store.get(row.run_id, row.digest) == row, f"{row.run_id!r} gets its own row")
        expect(store.trace(row.run_id, -1, 99) == (row,), f"{row.run_id!r} has its own trace")
        mark = store.marked(row.run_id)
        expect(
            mark is not None and mark.envelope == row.envelope, f"{row.run_id!r} has its own mark"
        )
    expect(store.runs("", 99) == tuple(sorted(ODD_TEXTS)), "every run id is listed as it is")


def odd_names_are_found_as_they_are(bench: StoreBench) -> None:
    """A name is compared whole and exactly: no pattern, no folding, no prefix."""
    store = bench.open()
    rows = [checkpoint(n, settles=(text,)) for n, text in enumerate(ODD_TEXTS)]
    store.put(rows)
    for row in rows:
        expect(store.find(RUN, row.settles[0]) == (row,), f"{row.settles[0]!r} finds its own row")
    for name in ("%", "_" * 4, "naïve", "null", "x" * 199, "surrounded by spaces", ""):
        expect(store.find(RUN, name) == (), f"{name!r} finds nothing")


def threads_that_put_at_once_lose_nothing(bench: StoreBench) -> None:
    """One connection shared by threads, and one for each, store every row."""
    shared = bench.open()
    rows = [checkpoint(n, settles=(f"@{n}",)) for n in range(24)]
    stores = [shared if n % 2 else bench.open() for n in range(len(rows))]
    answers = raced([partial(store.put, [row]) for store, row in zip(stores, rows, strict=True)])
    expect(answers == [None] * len(rows), "puts at once all succeed")
    expect(shared.trace(RUN, -1, 99) == tuple(rows), "and every row is stored")


def closing_twice_is_closing_once(bench: StoreBench) -> None:
    """Closing loses nothing, and a second time does nothing."""
    store, row = bench.open(), checkpoint(0)
    store.put([row])
    store.close()
    store.close()
    expect(bench.open().get(RUN, row.digest) == row, "what was put is there after closing")
