"""A write is one round trip and one commit, however many rows it has."""

import time
from collections.abc import Callable, Generator
from contextlib import ExitStack

import psycopg
import pytest

from counterfoil.core.words import RunId
from counterfoil.local.postgres import LocalPostgres
from counterfoil.ports import Head
from counterfoil.stores.postgres import (
    PostgresHeads,
    PostgresInbox,
    PostgresJoint,
    PostgresStore,
    open_heads,
    open_inbox,
    open_joint,
    open_store,
)
from counterfoil.testing.store_bench import RUN, checkpoint, created, move
from tests.support.postgres import LossyProxy, advance_to, execute, fresh_database

pytest_plugins = ["tests.support.postgres"]

MANY = 40
Ports = tuple[PostgresStore, PostgresHeads, PostgresInbox, PostgresJoint, list[Head]]
Scene = tuple[str, LossyProxy, Ports]


@pytest.fixture(scope="module", autouse=True)
def calm(postgres: LocalPostgres) -> Generator[None]:
    """Keep the server from vacuuming by itself, which takes transaction numbers too."""
    execute(postgres.url(), "ALTER SYSTEM SET autovacuum = off")
    execute(postgres.url(), "SELECT pg_reload_conf()")
    workers = "SELECT 1 FROM pg_stat_activity WHERE backend_type LIKE 'autovacuum%'"
    while execute(postgres.url(), workers):
        time.sleep(0.05)
    yield
    execute(postgres.url(), "ALTER SYSTEM RESET autovacuum")
    execute(postgres.url(), "SELECT pg_reload_conf()")


@pytest.fixture
def scene(postgres: LocalPostgres) -> Generator[Scene]:
    url = fresh_database(postgres)
    with LossyProxy(postgres.port) as proxy, ExitStack() as stack:
        through = f"{proxy.through(url)}?pool=1"
        store = open_store(through, create=True)
        stack.callback(store.close)
        heads = open_heads(through, create=True)
        stack.callback(heads.close)
        inbox = open_inbox(through, create=True)
        stack.callback(inbox.close)
        joint = open_joint(through)
        stack.callback(joint.close)
        held = [created(heads, RunId(f"run {number}")) for number in range(MANY)]
        store.put([checkpoint(0, run_id=head.run_id) for head in held])
        yield url, proxy, (store, heads, inbox, joint, held)


def _commit(ports: Ports, count: int) -> None:
    *_, joint, held = ports
    rows = [checkpoint(1, run_id=head.run_id, settles=("@1", "key")) for head in held[:count]]
    moves = [advance_to(head, row.digest) for head, row in zip(held, rows, strict=False)]
    assert len(joint.commit(rows, moves)) == count


WRITES: dict[str, Callable[[Ports], object]] = {
    "a put": lambda ports: ports[0].put([checkpoint(1, settles=("@1", "key"))]),
    "a put of many": lambda ports: ports[0].put([checkpoint(n) for n in range(MANY)]),
    "an advance": lambda ports: ports[1].advance([move(ports[4][0])]),
    "an advance of many": lambda ports: ports[1].advance([move(head) for head in ports[4]]),
    "a commit": lambda ports: _commit(ports, 1),
    "a commit of many": lambda ports: _commit(ports, MANY),
    "a renewal": lambda ports: ports[1].renew(ports[4][0], 99_000),
    "a statement": lambda ports: ports[2].put(RUN, b"statement"),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_write_is_one_commit(scene: Scene, write: Callable[[Ports], object]) -> None:
    url, _, ports = scene
    query = "SELECT pg_current_xact_id()::text::bigint"
    ((before,),) = execute(url, query)
    write(ports)
    ((after,),) = execute(url, query)
    assert after - before == 2, "that of the write, and that of the question"


@pytest.mark.parametrize("what", [what for what in WRITES if "many" not in what])
def test_a_write_is_one_round_trip(scene: Scene, what: str) -> None:
    _, proxy, ports = scene
    before = proxy.requests
    WRITES[what](ports)
    assert proxy.requests - before == 1


def test_a_read_is_one_round_trip(scene: Scene) -> None:
    _, proxy, (store, heads, inbox, *_) = scene
    for read in (
        lambda: store.trace(RUN, -1, 9),
        lambda: store.find(RUN, "key"),
        lambda: heads.read(RUN),
        lambda: inbox.pending(RUN, 9),
    ):
        before = proxy.requests
        read()
        assert proxy.requests - before == 1


def test_runs_that_commit_at_once_wait_for_no_row_of_each_other(scene: Scene) -> None:
    url, _, (_, heads, _, joint, held) = scene
    with psycopg.connect(url) as other:
        other.execute("SELECT 1 FROM counterfoil.run WHERE run_id = 'run 0' FOR UPDATE")
        other.execute("SELECT counterfoil.renew('run 0', 'nonce of run 0', 1, 20000)")
        row = checkpoint(1, run_id=held[1].run_id)
        (moved,) = joint.commit([row], [advance_to(held[1], row.digest)])
        assert heads.read(held[1].run_id) == moved
        other.rollback()
