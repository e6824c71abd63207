"""What rows in SQLite rest on beside the clauses: short names, dead holders, lost rows."""

from hashlib import sha256
from pathlib import Path

import pytest
from msgspec.structs import replace

from counterfoil.core.errors import FormatError, LeaseLostError, StaleHeadError
from counterfoil.stores.sqlite import SqliteHeads, open_heads
from counterfoil.testing.store_bench import RUN, TTL_MS, checkpoint, created, move
from tests.support.store_process import heads_at, store_at


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
    store.put([one, two])
    short = sha256(b"one").digest()[:8]
    store._database._live().execute("UPDATE settled SET name = ?", (short,))
    assert store.find(RUN, "one") == (one,)
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
