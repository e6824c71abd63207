"""A real PostgreSQL for tests: one server for each test process, one database for each bench."""

import itertools
import os
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from counterfoil.local.postgres import LocalPostgres
from counterfoil.stores.postgres import open_heads, open_inbox, open_joint, open_store
from counterfoil.testing.conformance_joints import JointBench
from counterfoil.testing.store_bench import HeadBench, InboxBench, StoreBench

NOW_MS = 1_700_000_000_000
NUMBERS = itertools.count()

Wrap = Callable[..., Any]


@pytest.fixture(scope="session")
def postgres() -> Generator[LocalPostgres]:
    """A server of this test process; a test that stops it starts it again."""
    with LocalPostgres() as server:
        yield server


def fresh_database(server: LocalPostgres) -> str:
    """Return the URL of an empty database."""
    return server.create_database(f"test_{os.getpid()}_{next(NUMBERS)}")


def execute(url: str, statement: str, *bindings: object) -> list[tuple[Any, ...]]:
    """Run raw SQL by itself, on a connection of its own."""
    base = url.partition("?")[0]
    with psycopg.connect(base, autocommit=True) as connection:
        cursor = connection.execute(statement.encode(), bindings or None)
        return cursor.fetchall() if cursor.description else []


@dataclass
class ServerWall:
    """The server's clock in one database, as far as the register can see it."""

    url: str
    at_ms: int = NOW_MS

    def begin(self) -> None:
        execute(self.url, "CREATE TABLE wall AS SELECT %s::bigint AS at_ms", self.at_ms)
        execute(
            self.url,
            "CREATE OR REPLACE FUNCTION counterfoil.now_ms() RETURNS bigint LANGUAGE sql "
            "VOLATILE AS 'SELECT at_ms FROM public.wall'",
        )

    def now_ms(self) -> int:
        return self.at_ms

    def advance(self, ms: int) -> None:
        self.at_ms += ms
        execute(self.url, "UPDATE wall SET at_ms = %s", self.at_ms)


def _closing(stack: ExitStack, opens: Callable[[], Any]) -> Callable[[], Any]:
    def opened() -> Any:
        port = opens()
        stack.callback(port.close)
        return port

    return opened


@contextmanager
def postgres_store(server: LocalPostgres, wrap: Wrap | None = None) -> Generator[StoreBench]:
    url = fresh_database(server)
    with ExitStack() as stack:
        plain = _closing(stack, lambda: open_store(url, create=True))
        plain()
        yield StoreBench(open=plain if wrap is None else lambda: wrap(plain()))


@contextmanager
def postgres_heads(server: LocalPostgres, wrap: Wrap | None = None) -> Generator[HeadBench]:
    url = fresh_database(server)
    wall = ServerWall(url)
    with ExitStack() as stack:
        plain = _closing(stack, lambda: open_heads(url, create=True))
        plain()
        wall.begin()
        opened = plain if wrap is None else lambda: wrap(plain(), wall.now_ms)
        yield HeadBench(open=opened, advance_clock=wall.advance)


@contextmanager
def postgres_inbox(server: LocalPostgres, wrap: Wrap | None = None) -> Generator[InboxBench]:
    url = fresh_database(server)
    with ExitStack() as stack:
        plain = _closing(stack, lambda: open_inbox(url, create=True))
        plain()
        yield InboxBench(open=plain if wrap is None else lambda: wrap(plain()))


@contextmanager
def postgres_joint(server: LocalPostgres, wrap: Wrap | None = None) -> Generator[JointBench]:
    url = fresh_database(server)
    with ExitStack() as stack:

        def opened() -> Any:
            store = open_store(url, create=True)
            stack.callback(store.close)
            heads = open_heads(url, create=True)
            stack.callback(heads.close)
            joint = open_joint(url)
            stack.callback(joint.close)
            return store, heads, joint if wrap is None else wrap(joint, store, heads)

        opened()
        yield JointBench(open=opened)
