"""Pairs of real servers for tests, and programs that fork workers on them."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from counterfoil.local.etcd import LocalEtcd
from counterfoil.local.postgres import LocalPostgres
from tests.process import conftest as programs
from tests.support import tellings
from tests.support.etcd import fresh_prefix
from tests.support.postgres import fresh_database

start = programs.start

JOINT = "joint PostgreSQL"
APART = "two databases of PostgreSQL"
MIXED = "SQLite and PostgreSQL"
ETCD = "PostgreSQL and etcd"
PAIRS = (JOINT, APART, MIXED, ETCD)

TERMS = {
    JOINT: {"ttl_ms": 800, "call_ms": 50},
    APART: {"ttl_ms": 800, "call_ms": 50},
    MIXED: {"ttl_ms": 800, "call_ms": 50},
    ETCD: {"ttl_ms": 1_000, "call_ms": 50},
}
"""Terms of leases that are waited for: longer than a call and its margin, and no longer than
that; etcd counts in whole seconds."""

STORY_TERMS = {
    pair: {**terms, "ttl_ms": max(1_500, terms["ttl_ms"])} for pair, terms in TERMS.items()
}
"""Terms of stories in which a worker must keep its lease for several calls."""

Start = Callable[..., Any]
Urls = Callable[[str], dict[str, Any]]
Tell = Callable[..., list[dict[str, Any]]]
RIVALS = "tests.support.rivals"


@pytest.fixture
def urls(postgres: LocalPostgres, request: pytest.FixtureRequest) -> Urls:
    """Return empty places for checkpoints and heads of a pair, by its name."""

    def made(pair: str) -> dict[str, Any]:
        if pair == ETCD:
            etcd: LocalEtcd = request.getfixturevalue("etcd")
            return {"store_url": fresh_database(postgres), "heads_url": etcd.url(fresh_prefix())}
        if pair == MIXED:
            return {"heads_url": fresh_database(postgres)}
        store = fresh_database(postgres)
        heads = store if pair == JOINT else fresh_database(postgres)
        return {"store_url": store, "heads_url": heads}

    return made


@pytest.fixture
def tell(start: Start, urls: Urls) -> Tell:
    """Have workers play a task on a pair once for each of the rest, and return what is told."""

    def played(
        task: str, pair: str, *rest: str, module: str = RIVALS, **fields: object
    ) -> list[dict[str, Any]]:
        return tellings.heard(
            lambda: start(module, task, json.dumps({**urls(pair), **fields}), *rest)
        )

    return played
