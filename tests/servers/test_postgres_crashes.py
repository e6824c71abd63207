"""The server crashes and comes back: what was acknowledged is there, and nothing is made up."""

import threading
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import pytest

from counterfoil.core.errors import UnavailableError, UnknownOutcomeError
from counterfoil.core.words import Digest, RunId
from counterfoil.local.postgres import LocalPostgres
from counterfoil.ports import Advance, Head
from counterfoil.stores.postgres import (
    PostgresHeads,
    PostgresJoint,
    PostgresStore,
    open_heads,
    open_joint,
    open_store,
)
from counterfoil.testing.store_bench import RUN, checkpoint, created, digest_of, move
from tests.support.postgres import execute, fresh_database

pytest_plugins = ["tests.support.postgres"]

Opened = tuple[PostgresStore, PostgresHeads, PostgresJoint]
LONG_MS = 1_000_000
RUNS = 6


@contextmanager
def _opened(url: str) -> Generator[Opened]:
    with ExitStack() as stack:
        store = open_store(url, create=True)
        stack.callback(store.close)
        heads = open_heads(url, create=True)
        stack.callback(heads.close)
        joint = open_joint(url)
        stack.callback(joint.close)
        yield store, heads, joint


@contextmanager
def _running_again(server: LocalPostgres) -> Generator[None]:
    """Leave the server running, whatever a test did to it."""
    try:
        yield
    finally:
        server.start()


@pytest.mark.parametrize("synchronous_commit", ["on", "off"])
def test_what_was_acknowledged_survives_a_crash(
    fragile: LocalPostgres, synchronous_commit: str
) -> None:
    url = fresh_database(fragile)
    name = url.rpartition("/")[2]
    execute(url, f"ALTER DATABASE {name} SET synchronous_commit = {synchronous_commit}")
    with _opened(url) as (store, heads, joint), _running_again(fragile):
        head, rows = created(heads), [checkpoint(n) for n in range(1, 5)]
        store.put(rows[:2])
        for row in rows[:2]:
            (head,) = heads.advance([_to(head, row.digest)])
        for row in rows[2:]:
            (head,) = joint.commit([row], [_to(head, row.digest)])
        fragile.crash()
        fragile.start()
        assert heads.read(RUN) == head
        assert store.trace(RUN, -1, 9) == tuple(rows)


def test_while_the_server_is_down_nothing_happens_and_then_all_goes_on(
    fragile: LocalPostgres,
) -> None:
    url = fresh_database(fragile)
    with _opened(url) as (store, heads, _), _running_again(fragile):
        head = created(heads)
        fragile.stop()
        with pytest.raises(UnavailableError):
            heads.advance([move(head)])
        with pytest.raises(UnavailableError):
            open_store(f"{url}?application_name=another", create=False)
        fragile.start()
        assert heads.read(RUN) == head
        (moved,) = heads.advance([move(head)])
        store.put([checkpoint(1)])
        assert heads.read(RUN) == moved


def test_a_crash_amid_commits_loses_none_that_was_acknowledged(fragile: LocalPostgres) -> None:
    url = fresh_database(fragile)
    with _opened(url) as opened, _running_again(fragile):
        store, heads, _ = opened
        first = [
            heads.create(RunId(f"run {n}"), digest_of("0"), "one", "nonce", LONG_MS)
            for n in range(RUNS)
        ]
        has_begun = threading.Barrier(RUNS + 1)
        with ThreadPoolExecutor(max_workers=RUNS) as pool:
            walks = [pool.submit(_walk, opened, head, has_begun.wait) for head in first]
            has_begun.wait()
            fragile.crash()
            ends = [walk.result() for walk in walks]
        fragile.start()
        for last, tried, is_unknown in ends:
            present = heads.read(last.run_id)
            assert present is not None
            assert present == last or (is_unknown and present.checkpoint == tried)
            rows = store.trace(last.run_id, -1, 10_000)
            assert [row.generation for row in rows] == list(range(1, present.generation + 1))
            assert rows[-1].digest == present.checkpoint


def _walk(opened: Opened, head: Head, began: Callable[[], object]) -> tuple[Head, Digest, bool]:
    """Commit until the server is gone; say the last head, and what was tried then."""
    for number in range(1, 10_000):
        row = checkpoint(number, run_id=head.run_id)
        try:
            (head,) = opened[2].commit([row], [_to(head, row.digest)])
        except (UnknownOutcomeError, UnavailableError) as error:
            return head, row.digest, isinstance(error, UnknownOutcomeError)
        if number == 3:
            began()
    raise AssertionError("the server is gone by now")


def _to(head: Head, digest: Digest) -> Advance:
    return Advance(expected=head, checkpoint=digest, status="active", ttl_ms=LONG_MS)
