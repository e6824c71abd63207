"""What rows in SQLite rest on beside the clauses: short names, dead holders, lost rows."""

from hashlib import sha256
from pathlib import Path

import pytest
from msgspec.structs import replace

from counterfoil.core.errors import FormatError, LeaseLostError, StaleHeadError
from counterfoil.ports import FOUND_MAX
from counterfoil.stores.sqlite import SqliteHeads, open_heads
from counterfoil.stores.sqlite_store import _BY_DIGEST, _BY_NAME, SHORT_BYTES, TAIL_ROWS
from counterfoil.testing.store_bench import RUN, TTL_MS, checkpoint, created, move
from tests.support.store_process import heads_at, store_at


def of(name: bytes) -> bytes:
    return sha256(name).digest()[:SHORT_BYTES]


def heads_with(folder: Path, dead: str) -> SqliteHeads:
    return open_heads(
        folder / "heads.db",
        create=True,
        now_ms=lambda: 1_000,
        incarnation=lambda: "random",
        is_dead=lambda owner: owner == dead,
    )


def test_names_that_are_shortened_alike_are_told_apart(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    one, two = checkpoint(1, settles=("one",)), checkpoint(2, settles=("two",))
    store.put([one, two, *(checkpoint(n) for n in range(3, TAIL_ROWS + 2))])
    short = of(b"one")
    connection = store._database._live()
    connection.execute("DELETE FROM name WHERE checkpoint = 1 OR short <> ?", (of(b"two"),))
    connection.execute("UPDATE name SET short = ?", (short,))
    connection.execute("INSERT INTO name SELECT run, short, 1 FROM name LIMIT 1")
    assert store.find(RUN, "one") == (one,)
    store.close()


def test_rows_are_found_before_and_after_their_names_are_written_down(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    rows = [checkpoint(n, settles=(f"@{n}", "all")) for n in range(2 * TAIL_ROWS + 3)]
    for at, row in enumerate(rows):
        store.put([row])
        assert store.get(RUN, row.digest) == row
        assert store.find(RUN, f"@{at}") == (row,)
        assert store.get(RUN, rows[at // 2].digest) == rows[at // 2]
        assert store.find(RUN, f"@{at // 2}") == (rows[at // 2],)
    named = store._database.rows(tuple[int, int], "SELECT count(*), max(checkpoint) FROM name", ())
    assert named == [(3 * 2 * TAIL_ROWS, 2 * TAIL_ROWS)]
    assert store.find(RUN, "all") == tuple(reversed(rows))[:FOUND_MAX]
    store.close()


@pytest.mark.parametrize("query", [_BY_DIGEST, _BY_NAME], ids=["by digest", "by name"])
def test_a_look_up_walks_no_run(query: str, tmp_path: Path) -> None:
    store = store_at(tmp_path)
    plan = store._database.rows(
        tuple[int, int, int, str], f"EXPLAIN QUERY PLAN {query}", ("", b"", b"", TAIL_ROWS)
    )
    assert [step for *_, step in plan if "USING INDEX checkpoint_by_generation" in step] == []
    store.close()


@pytest.mark.parametrize("count", [TAIL_ROWS - 1, TAIL_ROWS, TAIL_ROWS + 1])
def test_a_dropped_orphan_is_not_found_and_its_number_may_be_used_again(
    count: int, tmp_path: Path
) -> None:
    store = store_at(tmp_path)
    rows = [checkpoint(n, settles=(f"@{n}",)) for n in range(count - 1)]
    orphan, kept, later = (
        checkpoint(count, salt=salt, settles=("@last",)) for salt in ("orphan", "kept", "later")
    )
    store.put([*rows, orphan])
    assert store.prune(RUN, {count: kept.digest}, 0) == 1
    assert (store.get(RUN, orphan.digest), store.find(RUN, "@last")) == (None, ())
    store.put([kept])
    store.put([later])
    assert store.get(RUN, kept.digest) == kept
    assert set(store.find(RUN, "@last")) == {kept, later}
    assert [store.get(RUN, row.digest) for row in rows] == rows
    store.close()


def test_a_dead_holders_lease_is_taken_before_it_ends(tmp_path: Path) -> None:
    heads = heads_with(tmp_path, dead="one")
    taken = heads.acquire(created(heads), "two", "other", TTL_MS)
    heads.close()
    assert (taken.owner, taken.lease_version) == ("two", 2)


def test_a_lease_is_not_taken_by_naming_a_dead_holder(tmp_path: Path) -> None:
    heads = heads_with(tmp_path, dead="somebody else")
    head = created(heads)
    with pytest.raises(LeaseLostError):
        heads.acquire(replace(head, owner="somebody else"), "two", "other", TTL_MS)
    assert heads.read(RUN) == head
    heads.close()


def test_a_dead_holders_head_that_moved_is_not_taken(tmp_path: Path) -> None:
    heads = heads_with(tmp_path, dead="one")
    head = created(heads)
    heads.advance([move(head)])
    with pytest.raises((LeaseLostError, StaleHeadError)):
        heads.acquire(head, "two", "other", TTL_MS)
    heads.close()


def test_a_register_without_its_name_is_damaged(tmp_path: Path) -> None:
    heads = heads_at(tmp_path)
    heads._database._live().execute("DELETE FROM register")
    for call in (lambda: created(heads), heads.floor_ms):
        with pytest.raises(FormatError, match="lost its name"):
            call()
    heads.close()


def test_a_column_of_another_type_is_damage(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    store.put([checkpoint(0)])
    store._database._live().execute("UPDATE checkpoint SET settles = 'no list'")
    with pytest.raises(FormatError, match="not have the form"):
        store.trace(RUN, -1, 9)
    store.close()
