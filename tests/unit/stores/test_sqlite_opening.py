"""Opening: whose file it is, which version it has, and that every setting took."""

from pathlib import Path

import apsw
import pytest
from msgspec.structs import replace

from counterfoil.core.errors import (
    ConfigError,
    FormatError,
    HeadMissingError,
    RollbackError,
    UsageError,
)
from counterfoil.stores import sqlite_driver
from counterfoil.stores.migrate import Schema, migrate
from counterfoil.stores.sqlite import SqliteHeads, open_heads, open_inbox, open_store
from counterfoil.stores.sqlite_file import _was_there
from counterfoil.stores.sqlite_heads import HEADS_SCHEMA
from counterfoil.stores.sqlite_inbox import INBOX_SCHEMA
from counterfoil.stores.sqlite_store import STORE_SCHEMA
from counterfoil.testing.store_bench import RUN, checkpoint, raced
from tests.support.store_process import first_head, heads_at, store_at

SCHEMAS = [
    pytest.param(schema, id=schema.name) for schema in (STORE_SCHEMA, HEADS_SCHEMA, INBOX_SCHEMA)
]


def changed(path: Path, statements: str) -> None:
    """Run statements on a database as another program would."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    connection.execute(statements)
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    connection.close()


def test_every_pragma_is_as_it_must_be(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store.db", create=True)
    found = {name: store._database._live().pragma(name) for name in sqlite_driver.PRAGMAS}
    store.close()
    assert found == sqlite_driver.PRAGMAS
    assert (found["journal_mode"], found["synchronous"], found["foreign_keys"]) == ("wal", 2, 1)


class Stubborn:
    """A connection on which one pragma keeps its value."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.values: dict[str, object] = {name: "stubborn"}

    def pragma(self, name: str, value: object = None) -> object:
        if value is not None and name != self.name:
            self.values[name] = value
        return self.values[name]


@pytest.mark.parametrize("name", sqlite_driver.PRAGMAS)
def test_a_pragma_that_did_not_take_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} stays stubborn"):
        sqlite_driver.set_pragmas(Stubborn(name), Path("store.db"))


def test_a_missing_file_is_named_by_what_is_lost(tmp_path: Path) -> None:
    with pytest.raises(RollbackError, match="no checkpoint store"):
        open_store(tmp_path / "store.db", create=False)
    with pytest.raises(HeadMissingError, match="no head register"):
        open_heads(
            tmp_path / "heads.db", create=False, now_ms=lambda: 0, incarnation=lambda: "random"
        )
    assert list(tmp_path.iterdir()) == []


def test_a_later_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    open_store(path, create=True).close()
    changed(path, f"PRAGMA user_version = {STORE_SCHEMA.version + 1}")
    with pytest.raises(ConfigError, match=f"this release knows {STORE_SCHEMA.version}"):
        open_store(path, create=True)
    changed(path, f"PRAGMA user_version = {STORE_SCHEMA.version}")
    open_store(path, create=False).close()


def test_another_programs_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    open_store(path, create=True).close()
    changed(path, "PRAGMA application_id = 1")
    with pytest.raises(ConfigError, match="not a store database"):
        open_store(path, create=True)


def test_a_heads_file_is_no_store(tmp_path: Path) -> None:
    heads_at(tmp_path).close()
    with pytest.raises(ConfigError, match="not a store database"):
        open_store(tmp_path / "state" / "heads.db", create=True)
    with pytest.raises(ConfigError, match="not a inbox database"):
        open_inbox(tmp_path / "state" / "heads.db", create=True)


@pytest.mark.parametrize(
    "statements",
    [
        pytest.param("DROP INDEX checkpoint_by_generation", id="an index is gone"),
        pytest.param("DROP TABLE mark", id="a table is gone"),
        pytest.param("CREATE TABLE other (a)", id="a table was added"),
        pytest.param(
            "CREATE TRIGGER t AFTER INSERT ON checkpoint BEGIN DELETE FROM state; END",
            id="a trigger was added",
        ),
    ],
)
def test_changed_tables_are_refused(statements: str, tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    open_store(path, create=True).close()
    changed(path, statements)
    with pytest.raises(FormatError, match="tables are not those"):
        open_store(path, create=False)


def test_what_sqlite_keeps_for_itself_is_no_change(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = open_store(path, create=True)
    store.put([checkpoint(0)])
    store.close()
    changed(path, "ANALYZE")
    open_store(path, create=False).close()


@pytest.mark.parametrize("schema", SCHEMAS)
def test_scripts_are_numbered_without_a_gap(schema: Schema) -> None:
    folder = Path(sqlite_driver.__file__).parent / "sql"
    names = sorted(path.name for path in folder.glob(f"{schema.name}_*.sql"))
    assert names == [f"{schema.name}_{n:03}.sql" for n in range(1, schema.version + 1)]


@pytest.mark.parametrize("schema", SCHEMAS)
def test_a_script_that_fails_leaves_nothing(schema: Schema) -> None:
    connection = sqlite_driver.connect(None)
    connection.pragma("application_id", schema.application_id)
    connection.execute("CREATE TABLE state (a); CREATE TABLE head (a); CREATE TABLE statement (a)")
    before = connection.execute("SELECT name FROM sqlite_schema").fetchall()
    with pytest.raises(apsw.SQLError):
        migrate(connection, schema)
    assert connection.execute("SELECT name FROM sqlite_schema").fetchall() == before
    assert (connection.pragma("user_version"), connection.in_transaction) == (0, False)
    connection.close()


def test_application_ids_differ() -> None:
    ids = {schema.values[0].application_id for schema in SCHEMAS}
    assert len(ids) == len(SCHEMAS)


def test_a_register_keeps_the_name_it_was_created_with(tmp_path: Path) -> None:
    names = iter("abcdefgh")

    def opened() -> SqliteHeads:
        return open_heads(
            tmp_path / "heads.db", create=True, now_ms=lambda: 0, incarnation=lambda: next(names)
        )

    first = opened()
    made = first.create(RUN, checkpoint(0).digest, "one", "nonce", 1_000)
    first.close()
    second = opened()
    read = second.read(RUN)
    second.close()
    assert (made.incarnation, read) == ("a", made)


@pytest.mark.parametrize("round_number", [pytest.param(n, id=f"T21 round {n}") for n in range(8)])
def test_a_register_created_by_many_at_once_is_one(round_number: int, tmp_path: Path) -> None:
    names = iter(range(99))

    def created() -> SqliteHeads:
        return open_heads(
            tmp_path / "state" / "heads.db",
            create=True,
            now_ms=lambda: 0,
            incarnation=lambda: f"name {next(names)}",
        )

    opened = [each for each in raced([created] * 8) if isinstance(each, SqliteHeads)]
    assert len(opened) == 8
    opened[0].create(RUN, checkpoint(0).digest, "one", "nonce", 1_000)
    seen = {head.incarnation for heads in opened if (head := heads.read(RUN))}
    for heads in opened:
        heads.close()
    assert len(seen) == 1
    left = sorted(path.name for path in (tmp_path / "state").iterdir())
    assert left == ["heads.db", "heads.db-shm", "heads.db-wal"]


def test_a_file_created_between_two_looks_is_not_gone(tmp_path: Path) -> None:
    path = tmp_path / "state" / "heads.db"
    heads = heads_at(tmp_path)
    meanwhile = _was_there(path)
    path.unlink()
    gone = _was_there(path)
    heads.close()
    assert (meanwhile, gone) == (False, True)


def test_a_clock_set_back_revives_nothing_after_reopening(tmp_path: Path) -> None:
    heads = heads_at(tmp_path, now_ms=1_000)
    store = store_at(tmp_path)
    head = first_head(store, heads)
    heads.close()
    late = heads_at(tmp_path, now_ms=head.expires_at_ms)
    late.create("run-2", checkpoint(0).digest, "two", "other", 1_000)
    late.close()
    early = heads_at(tmp_path, now_ms=1_000)
    free = early.claimable(9)
    early.close()
    store.close()
    assert [each.run_id for each in free] == [RUN]


def test_what_was_closed_is_not_used(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    store.close()
    for call in (lambda: store.put([checkpoint(0)]), lambda: store.trace(RUN, -1, 1)):
        with pytest.raises(UsageError, match="closed"):
            call()


def test_the_log_is_empty_after_closing(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    store.put([checkpoint(n) for n in range(50)])
    log = tmp_path / "project" / "store.db-wal"
    assert log.stat().st_size > 0
    store.close()
    assert log.stat().st_size == 0


def test_pages_that_pruning_frees_are_used_again(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    connection = store._database._live()
    pages = []
    for block in range(6):
        rows = [checkpoint(n) for n in range(block * 50, block * 50 + 50)]
        store.put([replace(row, state=b"s" * 20_000) for row in rows])
        store.prune(RUN, {}, block * 50 + 50)
        pages.append(connection.pragma("page_count"))
    store.close()
    growth = pages[-1] - pages[0]
    assert growth < pages[0]
