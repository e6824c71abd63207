"""Real databases as targets: a table of notes, statements on it, and what counts them."""

import re
import sqlite3
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw

from counterfoil.adapters.sql import Dbapi, SqlAdapter, Statement, install_sql, open_sql
from counterfoil.local.postgres import LocalPostgres
from counterfoil.ports import Adapter
from counterfoil.testing.adapter_bench import AdapterBench, Call, Trait
from tests.support.folders import Line
from tests.support.postgres import execute, fresh_schema
from tests.support.sql_proxy import CommitProxy, Loss

NOW_MS = 1_700_000_000_000
NAMES_OF_STATEMENTS = ("note", "credit", "notes", "balance", "renote")
SCOPE = {"statements": NAMES_OF_STATEMENTS}
TRAITS = frozenset((Trait.DISTURBS, Trait.CHECKS_PRESTATE, Trait.LOSES_ANSWERS, Trait.CUTS_OFF))
STYLES = {"named": ":{}", "pyformat": "%({})s", "qmark": "?"}

TABLES = """
    CREATE TABLE {}note (line VARCHAR(200) NOT NULL, author VARCHAR(20) NOT NULL);
    CREATE TABLE {}account (
        name VARCHAR(20) NOT NULL PRIMARY KEY, balance BIGINT NOT NULL CHECK (balance >= 0)
    );
    INSERT INTO {}account VALUES ('ann', 100);
    INSERT INTO {}account VALUES ('bob', 100)
"""


def spelled(text: str, style: str, schema: str = "") -> str:
    """Return SQL that is written with `{schema}` and `:name` in the style of a driver."""
    in_style = re.sub(r":(\w+)", lambda match: STYLES[style].format(match[1]), text)
    return in_style.replace("{schema}", schema)


def statements(style: str, schema: str = "") -> dict[str, Statement]:
    """Return what planners may run, in the style of a driver."""

    def sql(text: str) -> str:
        return spelled(text, style, schema)

    return {
        "note": Statement(
            text=sql("INSERT INTO {schema}note (line, author) VALUES (:line, 'run')"),
            parameters={"line": str},
            rows=1,
        ),
        "credit": Statement(
            text=sql(
                "UPDATE {schema}account SET balance = balance + :amount WHERE name = :name "
                "RETURNING balance"
            ),
            parameters={"amount": int, "name": str},
        ),
        "renote": Statement(
            text=sql("UPDATE {schema}note SET line = :line"), parameters={"line": str}
        ),
        "notes": Statement(text=sql("SELECT line FROM {schema}note ORDER BY line"), is_query=True),
        "balance": Statement(
            text=sql("SELECT balance FROM {schema}account WHERE name = :name"),
            parameters={"name": str},
            is_query=True,
        ),
    }


def noted(number: int | str) -> dict[str, Any]:
    """Return one statement that adds a note."""
    return {"name": "note", "parameters": {"line": f"line {number}"}}


def credited(amount: int, name: str = "ann", **more: Any) -> dict[str, Any]:
    """Return one statement that changes a balance."""
    return {"name": "credit", "parameters": {"amount": amount, "name": name}, **more}


def write_arguments() -> dict[str, Any]:
    """Return the arguments of one payment: a balance grows by ten, and there is one row more."""
    return {"statements": [credited(10, rows=1), noted("paid")]}


def opened_at(target: str, **options: Any) -> SqlAdapter:
    """Open an adapter on a database that a place has set up, by its address alone."""
    is_file = target.startswith("sqlite:")
    style = "named" if is_file else "pyformat"
    schema = "" if is_file else f"{target.partition('?schema=')[2]}."
    settings: dict[str, Any] = {
        "statements": statements(style, schema),
        "now_ms": lambda: NOW_MS,
        "watch": spelled("SELECT line, author FROM {schema}note", style, schema),
        "call_ms": 20_000,
    }
    return open_sql(target, **(settings | options))


def write(number: int) -> Call:
    """Return the n-th write of a bench."""
    return Call(kind="sql.execute", arguments={"statements": [noted(number)]})


READS = (
    Call(kind="sql.query", arguments={"statement": "notes"}),
    Call(kind="sql.query", arguments={"statement": "balance", "parameters": {"name": "ann"}}),
    Call(kind="sql.check", arguments={"statement": "notes", "expected": []}),
)


def _executing(*calls: Any) -> Call:
    return Call(kind="sql.execute", arguments={"statements": list(calls)})


GARBLED = (
    Call(kind="sql.execute", arguments={}),
    Call(kind="sql.execute", arguments={"statements": {}}),
    Call(kind="sql.execute", arguments={"statements": [noted(1)], "text": "DELETE FROM note"}),
    _executing(),
    _executing(*[noted(1)] * 33),
    _executing("note"),
    _executing({"parameters": {"line": "a"}}),
    _executing({"name": "DELETE FROM note"}),
    _executing({"name": ["note"]}),
    _executing({"name": "note", "text": "DELETE FROM note"}),
    _executing({"name": "note"}),
    _executing({"name": "note", "parameters": ["a"]}),
    _executing({"name": "note", "parameters": {"line": 1}}),
    _executing({"name": "note", "parameters": {"line": None}}),
    _executing({"name": "note", "parameters": {"line": "a\0b"}}),
    _executing({"name": "note", "parameters": {"line": "a", "author": "me"}}),
    _executing({"name": "credit", "parameters": {"amount": True, "name": "ann"}}),
    _executing({"name": "credit", "parameters": {"amount": 1.5, "name": "ann"}}),
    _executing({**noted(1), "rows": -1}),
    _executing({**noted(1), "rows": True}),
    _executing({**noted(1), "rows": "1"}),
    _executing({**noted(1), "returning": {}}),
    _executing({**noted(1), "returning": [1]}),
    _executing({**noted(1), "returning": [{}] * 1_001}),
    Call(kind="sql.query", arguments={"statement": "note", "parameters": {"line": "a"}}),
    Call(kind="sql.query", arguments={"statement": "SELECT 1"}),
    Call(kind="sql.query", arguments={"statement": "notes", "parameters": {"a": 1}}),
    Call(kind="sql.check", arguments={"statement": "notes"}),
    Call(kind="sql.check", arguments={"statement": "notes", "expected": 0}),
)


@dataclass(kw_only=True)
class Place:
    """One fresh database with the tables of receipts, and the verbs that tests need.

    Attributes:
        target: How adapters reach it.
        run: Runs SQL as any other program does.
        style: How its driver writes parameters.
        schema: Where its tables are, with a dot; empty where there is one place.
        cut_off: Makes it unreachable.
        lose_answer: Loses the answer of the next call.
        proxy: The way to it, where that is a network.
    """

    target: str | Dbapi
    run: Callable[[str], list[tuple[Any, ...]]]
    style: str
    schema: str = ""
    cut_off: Callable[[], None]
    lose_answer: Callable[[], None]
    lost: list[bool] = field(default_factory=list)
    proxy: CommitProxy | None = None
    stack: ExitStack = field(default_factory=ExitStack)

    def adapter(self, **options: Any) -> SqlAdapter:
        """Open an adapter, closed with the place."""
        settings: dict[str, Any] = {
            "statements": statements(self.style, self.schema),
            "now_ms": lambda: NOW_MS,
            "watch": self.sql("SELECT line, author FROM {schema}note"),
            "call_ms": 20_000,
        }
        opened = open_sql(self.target, **(settings | options))
        self.stack.callback(opened.close)
        return opened

    def line(self, **options: Any) -> Adapter:
        """Open an adapter on whose way an answer can be lost."""
        return Line(self.adapter(**options), self.lost)  # type: ignore[arg-type] # any adapter will do

    def sql(self, text: str) -> str:
        """Return SQL in the style and the schema of the place."""
        return spelled(text, self.style, self.schema)

    def do(self, text: str) -> list[tuple[Any, ...]]:
        """Run SQL that is written with `{schema}` as any other program does."""
        return self.run(text.replace("{schema}", self.schema))

    def note(self, line: str) -> None:
        """Add a note as somebody else."""
        self.do("INSERT INTO {schema}note VALUES ('{line}', 'somebody')".replace("{line}", line))

    @property
    def count(self) -> int:
        """Notes that runs made."""
        return int(self.do("SELECT count(*) FROM {schema}note WHERE author = 'run'")[0][0])

    @property
    def lines(self) -> list[str]:
        """All notes, in order."""
        return [row[0] for row in self.do("SELECT line FROM {schema}note ORDER BY line")]

    def balance(self, name: str = "ann") -> int:
        """What an account holds."""
        text = "SELECT balance FROM {schema}account WHERE name = '{name}'"
        return int(self.do(text.replace("{name}", name))[0][0])

    def close(self) -> None:
        """Close every adapter, and the network."""
        self.stack.close()

    def bench(self, wrap: Callable[[Adapter], Adapter] = lambda adapter: adapter) -> AdapterBench:
        """Return the place as clauses use it."""
        return AdapterBench(
            open=lambda: wrap(self.line()),
            write=write,
            count=lambda: self.count,
            close=self.close,
            reads=READS,
            garbled=GARBLED,
            scope=SCOPE,
            traits=TRAITS,
            disturb=lambda: self.note("theirs"),
            lose_answer=self.lose_answer,
            cut_off=self.cut_off,
        )


def sqlite_place(folder: Path) -> Place:
    """Return a fresh SQLite file, reached by apsw."""
    path = _made_file(folder)
    return _file_place(path, f"sqlite:{path}", "named", lambda text: _by_apsw(path, text))


def dbapi_place(folder: Path) -> Place:
    """Return a fresh SQLite file, reached by Python's own driver through a factory."""
    path = _made_file(folder)
    place = Dbapi(
        module=sqlite3, connect=lambda: sqlite3.connect(f"file:{path}?mode=rw", uri=True, timeout=9)
    )
    return _file_place(path, place, "qmark", lambda text: _by_sqlite3(path, text))


def _made_file(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "target.db"
    db = apsw.Connection(str(path))
    db.execute("PRAGMA journal_mode=wal")
    db.execute(TABLES.replace("{}", ""))
    db.close()
    return path


def _by_apsw(path: Path, text: str) -> list[tuple[Any, ...]]:
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        db.set_busy_timeout(9_000)
        return list(db.execute(text))
    finally:
        db.close()


def _by_sqlite3(path: Path, text: str) -> list[tuple[Any, ...]]:
    db = sqlite3.connect(f"file:{path}?mode=rw", uri=True, timeout=9, isolation_level=None)
    try:
        return db.execute(text).fetchall()
    finally:
        db.close()


def _file_place(
    path: Path, target: str | Dbapi, style: str, run: Callable[[str], list[tuple[Any, ...]]]
) -> Place:
    lost: list[bool] = []
    install_sql(target)
    return Place(
        target=target,
        run=run,
        style=style,
        cut_off=lambda: _moved(path),
        lose_answer=lambda: lost.append(True),
        lost=lost,
    )


def _moved(path: Path) -> None:
    path.rename(path.with_name("elsewhere.db"))


def postgres_place(server: LocalPostgres) -> Place:
    """Return a fresh schema of a PostgreSQL server, reached through a network."""
    url = fresh_schema(server)
    schema = url.partition("?schema=")[2]
    install_sql(url)
    execute(url, TABLES.replace("{}", f"{schema}."))
    stack = ExitStack()
    proxy = stack.enter_context(CommitProxy(server.port))
    return Place(
        target=proxy.through(url),
        run=lambda text: execute(url, text),
        style="pyformat",
        schema=f"{schema}.",
        cut_off=proxy.refuse,
        lose_answer=lambda: proxy.lose(Loss.ANSWER),
        proxy=proxy,
        stack=stack,
    )


@contextmanager
def opened(name: str, folder: Path, server: Callable[[], LocalPostgres]) -> Generator[Place]:
    """Return a fresh place by the name of its database."""
    match name:
        case "sqlite":
            place = sqlite_place(folder)
        case "dbapi":
            place = dbapi_place(folder)
        case _:
            place = postgres_place(server())
    try:
        yield place
    finally:
        place.close()


NAMES = ("sqlite", "postgresql", "dbapi")
