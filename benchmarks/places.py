"""Pairs of places for benchmarks: servers, projects on them, and the raw limit of each.

The raw limit of a commit is one row where checkpoints lie and one head where heads lie,
as durable as ours and one after the other; in one database, both in one statement.
"""

import base64
import itertools
import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import apsw
import httpx
import psycopg

from benchmarks.raw import HEAD_BYTES
from benchmarks.stage import Ledger, effects_of
from counterfoil import Effects, Keeper, open_keeper
from counterfoil.compose import init_project
from counterfoil.local.etcd import LocalEtcd
from counterfoil.local.postgres import LocalPostgres
from counterfoil.settings import FILE_NAME

SQLITE, POSTGRESQL, ETCD = "sqlite", "postgresql", "etcd"
ANOTHER = "another postgresql"
"""A database beside that of the checkpoints."""

PAIRS = (
    (SQLITE, SQLITE),
    (POSTGRESQL, POSTGRESQL),
    (POSTGRESQL, ANOTHER),
    (SQLITE, POSTGRESQL),
    (POSTGRESQL, ETCD),
    (SQLITE, ETCD),
)
ROW_BYTES = 2_200
"""Of a checkpoint of a step whose receipt rides, as the `step` benchmark finds it."""

Commit = Callable[[], None]


def name_of(pair: tuple[str, str]) -> str:
    """Return how a pair is called in the table."""
    return f"{pair[0]}, one database" if pair == (POSTGRESQL,) * 2 else " and ".join(pair)


@dataclass(kw_only=True)
class Servers:
    """Owns one server of each kind, started when first asked for."""

    _stack: ExitStack
    _postgres: LocalPostgres | None = None
    _etcd: LocalEtcd | None = None
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    @property
    def postgres(self) -> LocalPostgres:
        if self._postgres is None:
            self._postgres = self._stack.enter_context(LocalPostgres())
        return self._postgres

    @property
    def etcd(self) -> LocalEtcd:
        if self._etcd is None:
            self._etcd = self._stack.enter_context(LocalEtcd())
        return self._etcd

    def urls(self, pair: tuple[str, str], folder: Path) -> tuple[str, str]:
        """Return URLs of places that nothing has used."""
        number = next(self._numbers)
        urls: dict[str, str] = {}
        if POSTGRESQL in pair:
            urls[POSTGRESQL] = self.postgres.create_database(f"bench_{number}")
        if ANOTHER in pair:
            urls[ANOTHER] = self.postgres.create_database(f"bench_{number}_heads")
        if ETCD in pair:
            urls[ETCD] = self.etcd.url(f"bench-{number}")
        store, heads = pair
        return (
            urls.get(store, f"sqlite:{folder}/project/checkpoints.db"),
            urls.get(heads, f"sqlite:{folder}/user/heads.db"),
        )


@contextmanager
def servers() -> Iterator[Servers]:
    """Give servers that are gone afterwards."""
    with ExitStack() as stack:
        yield Servers(_stack=stack)


def set_up(folder: Path, store_url: str, heads_url: str) -> Path:
    """Set a project up, all of it below a folder but what the URLs name."""
    project, user = folder / "project", folder / "user"
    project.mkdir(mode=0o700, parents=True)
    user.mkdir(mode=0o700)
    os.environ["XDG_STATE_HOME"] = os.environ["XDG_CONFIG_HOME"] = str(user)
    text = f'[store]\nurl = "{store_url}"\n[heads]\nurl = "{heads_url}"\n'
    (project / FILE_NAME).write_text(text, encoding="utf-8")
    init_project(project, writes_settings=False)
    return project


@contextmanager
def keeper_on(project: Path, effects: Effects | None = None) -> Iterator[Keeper]:
    """Open a project's keeper with the one effect of all benchmarks."""
    with open_keeper(project, effects=effects or effects_of(Ledger())) as keeper:
        yield keeper


class RawPair:
    """Owns the raw places of a pair; `commits` gives one writer's durable commits."""

    def __init__(self, pair: tuple[str, str], folder: Path, owner: Servers) -> None:
        self._pair = pair
        self._folder = folder
        self._owner = owner
        self._stack = ExitStack()
        self._row, self._head = b"x" * ROW_BYTES, b"y" * HEAD_BYTES
        if POSTGRESQL in pair:
            self._url = owner.postgres.create_database(f"raw_{folder.name.replace('-', '_')}")
            with psycopg.connect(self._url, autocommit=True) as connection:
                connection.execute("CREATE TABLE row (number serial PRIMARY KEY, content bytea)")
                connection.execute(
                    "CREATE TABLE head (run integer PRIMARY KEY, number integer, content bytea)"
                )
        if ETCD in pair:
            self._http = self._stack.enter_context(httpx.Client(timeout=10, trust_env=False))

    def commits(self, run: int) -> Commit:
        """Return what makes one commit of one run, over a connection of its own."""
        if self._pair == (POSTGRESQL, POSTGRESQL):
            return self._in_one_database(run)
        makes: dict[str, Callable[[int, bool], Commit]] = {
            SQLITE: self._in_sqlite,
            POSTGRESQL: self._in_postgres,
            ANOTHER: self._in_postgres,
            ETCD: self._in_etcd,
        }
        store = makes[self._pair[0]](run, True)
        heads = makes[self._pair[1]](run, False)

        def commit() -> None:
            store()
            heads()

        return commit

    def close(self) -> None:
        """Let go of every connection."""
        self._stack.close()

    def _connection(self, run: int) -> "psycopg.Connection[tuple[object, ...]]":
        connection = self._stack.enter_context(psycopg.connect(self._url, autocommit=True))
        connection.prepare_threshold = 0
        connection.execute(
            "INSERT INTO head VALUES (%s, 0, %s) ON CONFLICT DO NOTHING", (run, self._head)
        )
        return connection

    def _in_one_database(self, run: int) -> Commit:
        connection = self._connection(run)
        statement = (
            "WITH put AS (INSERT INTO row (content) VALUES (%s)) "
            "UPDATE head SET number = number + 1, content = %s WHERE run = %s"
        )
        return lambda: _done(connection.execute(statement, (self._row, self._head, run)))

    def _in_postgres(self, run: int, is_store: bool) -> Commit:
        connection = self._connection(run)
        if is_store:
            put = "INSERT INTO row (content) VALUES (%s)"
            return lambda: _done(connection.execute(put, (self._row,)))
        move = "UPDATE head SET number = number + 1, content = %s WHERE run = %s"
        return lambda: _done(connection.execute(move, (self._head, run)))

    def _in_sqlite(self, run: int, is_store: bool) -> Commit:
        file = self._folder / f"raw-{'store' if is_store else 'heads'}.db"
        connection = apsw.Connection(str(file))
        self._stack.callback(connection.close)
        connection.set_busy_timeout(60_000)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(
            "CREATE TABLE IF NOT EXISTS row (number INTEGER PRIMARY KEY, content BLOB);"
            "CREATE TABLE IF NOT EXISTS head (run INTEGER PRIMARY KEY, number, content BLOB)"
        )
        connection.execute("INSERT OR IGNORE INTO head VALUES (?, 0, ?)", (run, self._head))
        if is_store:
            put = "INSERT INTO row (content) VALUES (?)"
            return lambda: _done(connection.execute(put, (self._row,)))
        move = "UPDATE head SET number = number + 1, content = ? WHERE run = ?"
        return lambda: _done(connection.execute(move, (self._head, run)))

    def _in_etcd(self, run: int, _is_store: bool) -> Commit:
        url = f"http://{self._owner.etcd.endpoints[0]}/v3/kv/txn"
        key = base64.b64encode(f"raw-{self._folder.name}/{run}".encode()).decode()
        value = base64.b64encode(self._head).decode()
        body = json.dumps({"success": [{"request_put": {"key": key, "value": value}}]}).encode()
        return lambda: _done(self._http.post(url, content=body).raise_for_status())


def _done(_answer: object) -> None:
    """Take an answer, and do nothing with it."""
