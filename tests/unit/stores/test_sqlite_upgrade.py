"""Databases that an earlier release wrote open under this one, with everything in them."""

import json
from hashlib import sha256
from pathlib import Path

import apsw
import pytest

from counterfoil.core.archive import SEAL
from counterfoil.core.words import Digest, RunId
from counterfoil.ports import Advance
from counterfoil.stores.migrate import Schema
from counterfoil.stores.sqlite import open_heads, open_store
from counterfoil.stores.sqlite_heads import HEADS_SCHEMA
from counterfoil.stores.sqlite_store import STORE_SCHEMA, TAIL_ROWS
from counterfoil.testing.store_bench import RUN, checkpoint

ROWS = TAIL_ROWS + 3
"""Some in a whole block of names, and some in the tail."""

NOW_MS = 1_700_000_000_000


def of_version_1(path: Path, schema: Schema, rows: list[tuple[str, tuple[object, ...]]]) -> None:
    """Write a database as the first release did."""
    connection = apsw.Connection(str(path))
    connection.pragma("page_size", schema.page_bytes)
    connection.pragma("journal_mode", "wal")
    script = Path(open_store.__code__.co_filename).parent / "sql" / f"{schema.name}_001.sql"
    connection.execute(script.read_text(encoding="utf-8"))
    connection.pragma("application_id", schema.application_id)
    connection.pragma("user_version", 1)
    for statement, bindings in rows:
        connection.execute(statement, bindings)  # type: ignore[arg-type]  # plain SQLite values
    connection.close()
    path.chmod(0o600)


def settled(number: int) -> str:
    return f"effect-{number}"


def store_rows() -> list[tuple[str, tuple[object, ...]]]:
    rows: list[tuple[str, tuple[object, ...]]] = [
        ("INSERT INTO run VALUES (1, ?, -1, 0)", (RUN,)),
    ]
    for number in range(1, ROWS + 1):
        row, name = checkpoint(number), settled(number)
        rows += [
            (
                "INSERT INTO checkpoint VALUES (?, 1, ?, ?, ?, ?, ?, ?)",
                (
                    number,
                    row.generation,
                    row.lease_version,
                    bytes.fromhex(row.digest),
                    json.dumps([name]),
                    row.envelope,
                    row.events,
                ),
            ),
            ("INSERT INTO state VALUES (?, ?)", (number, row.state)),
            ("INSERT INTO settled VALUES (1, ?, ?)", (sha256(name.encode()).digest()[:8], number)),
        ]
    return rows


def test_a_store_of_the_first_release_keeps_every_row_and_name(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    of_version_1(path, STORE_SCHEMA, store_rows())
    store = open_store(path, create=False)
    for number in range(1, ROWS + 1):
        digest = checkpoint(number).digest
        assert store.get(RUN, digest) is not None
        assert [row.digest for row in store.find(RUN, settled(number))] == [digest]
    for number in range(ROWS + 1, 2 * TAIL_ROWS + 1):
        store.put([checkpoint(number)])
    assert [row.generation for row in store.trace(RUN, 0, 1_000)] == [*range(1, 2 * TAIL_ROWS + 1)]
    assert store.get(RUN, checkpoint(ROWS).digest) is not None
    store.close()


def test_a_store_of_the_first_release_takes_archives(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    of_version_1(path, STORE_SCHEMA, store_rows())
    store = open_store(path, create=False)
    last = checkpoint(ROWS)
    store.archive(RUN, SEAL, b"seal")
    assert store.collect(RUN, last.digest, ROWS, 1_000) == ROWS - 1
    assert [row.digest for row in store.trace(RUN, 0, 1_000)] == [last.digest]
    store.close()
    assert open_store(path, create=False).archived(RUN, SEAL) == b"seal"


@pytest.mark.parametrize("status", ["active", "frozen", "terminal"])
def test_a_register_of_the_first_release_keeps_heads_and_clock(status: str, tmp_path: Path) -> None:
    path = tmp_path / "heads.db"
    digest = Digest("ab" * 32)
    head = "INSERT INTO head VALUES (?, 7, ?, ?, ?, 3, ?, ?)"
    free = ("free", bytes.fromhex(digest), "", "", 0, status)
    held = ("held", bytes.fromhex(digest), "owner", "nonce", NOW_MS + 9_000, status)
    of_version_1(
        path,
        HEADS_SCHEMA,
        [
            ("INSERT INTO register VALUES (1, 'name', ?)", (NOW_MS,)),
            (head, free),
            (head, held),
        ],
    )
    heads = open_heads(path, create=False, now_ms=lambda: 0, incarnation=lambda: "another")
    assert heads.floor_ms() == NOW_MS
    claimable = [head.run_id for head in heads.claimable(9)]
    assert claimable == (["free"] if status == "active" else [])
    present = heads.read(RunId("held"))
    assert present is not None
    assert (present.generation, present.checkpoint, present.incarnation) == (7, digest, "name")
    (moved,) = heads.advance(
        [Advance(expected=present, checkpoint=Digest("cd" * 32), status=status, ttl_ms=9_000)]
    )
    assert moved.generation == 8
    heads.close()
