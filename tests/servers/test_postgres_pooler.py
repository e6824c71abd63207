"""Behind a pooler that lends each transaction another connection, an owner is an owner."""

import itertools
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from counterfoil.core.errors import ConfigError, CounterfoilError, LeaseLostError, LostRaceError
from counterfoil.local.postgres import LocalPostgres
from counterfoil.ports import Head
from counterfoil.stores.postgres import (
    PostgresHeads,
    open_bell,
    open_heads,
    open_joint,
    open_store,
)
from counterfoil.testing.conformance_heads import HEAD_CLAUSES
from counterfoil.testing.conformance_joints import JOINT_CLAUSES
from counterfoil.testing.store_bench import RUN, TTL_MS, checkpoint, created, raced
from tests.support import postgres as benches
from tests.support.postgres import Pooler, ServerWall, execute, fresh_database

pytest_plugins = ["tests.support.postgres"]

WORKERS = itertools.count()
ONE_FOR_ALL, ANOTHER_EACH_TIME = 1, 2
SIZES = [
    pytest.param(ONE_FOR_ALL, id="C13 two workers share one connection"),
    pytest.param(ANOTHER_EACH_TIME, id="C13 every transaction has another connection"),
]


@contextmanager
def _pooled(server: LocalPostgres, size: int) -> Generator[tuple[str, ServerWall]]:
    """Make a database with a register; yield its URL through a pooler, and its clock."""
    url = fresh_database(server)
    open_store(url, create=True).close()
    open_heads(url, create=True).close()
    wall = ServerWall(url)
    wall.begin()
    with Pooler(server, size) as pooler:
        yield pooler.through(url), wall


def _worker(stack: ExitStack, url: str) -> PostgresHeads:
    """Open the register with connections that no other worker uses."""
    heads = open_heads(f"{url}?application_name=worker-{next(WORKERS)}", create=False)
    stack.callback(heads.close)
    return heads


def _free(heads: PostgresHeads) -> Head:
    heads.release(created(heads))
    head = heads.read(RUN)
    assert head is not None
    return head


@pytest.mark.parametrize(
    ("size", "backends"),
    [
        pytest.param(ONE_FOR_ALL, 1, id="C13 one for all"),
        pytest.param(ANOTHER_EACH_TIME, 2, id="C13 another each time"),
    ],
)
def test_the_pooler_does_what_these_tests_need(
    postgres: LocalPostgres, size: int, backends: int
) -> None:
    with _pooled(postgres, size) as (url, _):
        busy = [lambda: execute(url, "SELECT pg_backend_pid(), pg_sleep(0.1)") for _ in range(4)]
        seen = {answer[0][0] for answer in raced(busy) if isinstance(answer, list)}
        assert len(seen) == backends


@pytest.mark.parametrize("size", SIZES)
def test_of_many_workers_one_becomes_the_owner(postgres: LocalPostgres, size: int) -> None:
    with _pooled(postgres, size) as (url, _), ExitStack() as stack:
        workers = [_worker(stack, url) for _ in range(4)]
        free = _free(workers[0])
        takes: list[Callable[[], Head]] = [
            lambda n=n, heads=heads: heads.acquire(free, f"w{n}", f"nonce {n}", TTL_MS)
            for n, heads in enumerate(workers)
        ]
        answers = raced(takes)
        assert sum(isinstance(answer, Head) for answer in answers) == 1
        assert sum(isinstance(answer, LostRaceError) for answer in answers) == 3


@pytest.mark.parametrize("size", SIZES)
def test_a_worker_that_asks_again_does_not_own_twice(postgres: LocalPostgres, size: int) -> None:
    with _pooled(postgres, size) as (url, _), ExitStack() as stack:
        one, two = _worker(stack, url), _worker(stack, url)
        free = _free(one)
        held = one.acquire(free, "one", "nonce", TTL_MS)
        for heads in (one, two):
            with pytest.raises(LeaseLostError, match="'one' holds the run"):
                heads.acquire(free, "one", "nonce", TTL_MS)
        assert two.read(RUN) == held


@pytest.mark.parametrize("size", SIZES)
def test_what_is_released_is_taken_at_once_by_another(postgres: LocalPostgres, size: int) -> None:
    with _pooled(postgres, size) as (url, _), ExitStack() as stack:
        one, two = _worker(stack, url), _worker(stack, url)
        held = one.acquire(_free(one), "one", "nonce", TTL_MS)
        for version in range(3, 9):
            one.release(held)
            (free,) = two.claimable(9)
            held = two.acquire(free, "two", f"nonce {version}", TTL_MS)
            assert held.lease_version == version
            one, two = two, one


@pytest.mark.parametrize("size", SIZES)
def test_a_dead_owner_is_followed_when_its_lease_ends(postgres: LocalPostgres, size: int) -> None:
    with _pooled(postgres, size) as (url, wall), ExitStack() as stack:
        two = _worker(stack, url)
        _killed_owner(url)
        held = two.read(RUN)
        assert held is not None
        assert held.owner == "the first"
        with pytest.raises(LeaseLostError):
            two.acquire(held, "two", "another", TTL_MS)
        wall.advance(TTL_MS)
        taken = two.acquire(held, "two", "another", TTL_MS)
        assert (taken.owner, taken.lease_version) == ("two", 2)


OWNER = """
import sys
from counterfoil.stores.postgres import open_heads
heads = open_heads(sys.argv[1], create=False)
heads.create("run-1", "0" * 64, "the first", "nonce", 10_000)
print("held", flush=True)
sys.stdin.read()
"""


def _killed_owner(url: str) -> None:
    """Let another process take the run, and kill it."""
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        process.kill()


@pytest.mark.parametrize("size", SIZES)
def test_of_two_who_believe_to_own_a_run_one_commits(postgres: LocalPostgres, size: int) -> None:
    with _pooled(postgres, size) as (url, wall), ExitStack() as stack:
        one, two = _worker(stack, url), _worker(stack, url)
        held = created(one)
        wall.advance(TTL_MS)
        taken = two.acquire(held, "two", "another", TTL_MS)
        joint = open_joint(url)
        stack.callback(joint.close)
        answers: list[Head | CounterfoilError] = []
        for head in (held, taken):
            row = checkpoint(1, salt=head.owner, lease_version=head.lease_version)
            answers += raced([lambda row=row, head=head: _committed(joint, row, head)])
        assert [type(answer) for answer in answers] == [LeaseLostError, Head]
        (count,) = execute(url, "SELECT count(*) FROM counterfoil.checkpoint")
        assert count == (1,)


def _committed(joint: Any, row: Any, head: Head) -> Head:
    (moved,) = joint.commit([row], [benches.advance_to(head, row.digest)])
    return moved


def test_a_session_keeps_nothing_from_one_transaction_to_the_next(
    postgres: LocalPostgres,
) -> None:
    with _pooled(postgres, ONE_FOR_ALL) as (url, _), ExitStack() as stack:
        store = open_store(url, create=False)
        stack.callback(store.close)
        heads = _worker(stack, url)
        head = created(heads)
        for number in range(1, 12):
            row = checkpoint(number)
            store.put([row])
            (head,) = heads.advance([benches.advance_to(head, row.digest)])
        store.prune(RUN, {}, 9)
        (kept,) = execute(
            url,
            "SELECT (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'), "
            "(SELECT count(*) FROM pg_prepared_statements), "
            "(SELECT count(*) FROM pg_listening_channels()), "
            "current_setting('lock_timeout'), current_setting('statement_timeout'), "
            "current_setting('synchronous_commit')",
        )
        assert kept == (0, 0, 0, "0", "0", "on")


@pytest.mark.parametrize(
    ("bench", "clause"),
    [
        pytest.param(bench, clause, id=f"{port} {clause.__name__.replace('_', ' ')}")
        for port, bench, clauses in (
            ("heads", benches.postgres_heads, HEAD_CLAUSES),
            ("joint", benches.postgres_joint, JOINT_CLAUSES),
        )
        for clause in clauses
    ],
)
def test_postgresql_behind_a_pooler_keeps(
    postgres: LocalPostgres, pooler: Pooler, bench: Any, clause: Callable[..., None]
) -> None:
    with bench(postgres, route=pooler.through) as made:
        clause(made)


@pytest.fixture(scope="module")
def pooler(postgres: LocalPostgres) -> Generator[Pooler]:
    with Pooler(postgres, ANOTHER_EACH_TIME) as pooler:
        yield pooler


def test_a_bell_behind_a_pooler_is_refused(postgres: LocalPostgres, pooler: Pooler) -> None:
    url = pooler.through(fresh_database(postgres))
    with pytest.raises(ConfigError, match="behind a pooler"):
        open_bell(url)
