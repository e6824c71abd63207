"""A bell rings when something may be due, and at nothing else."""

import threading
from collections.abc import Generator

import pytest

from counterfoil.core.errors import UnavailableError
from counterfoil.core.words import RunId
from counterfoil.local.postgres import LocalPostgres
from counterfoil.stores.postgres import (
    PostgresBell,
    PostgresHeads,
    PostgresInbox,
    open_bell,
    open_heads,
    open_inbox,
    open_store,
)
from counterfoil.testing.store_bench import RUN, TTL_MS, checkpoint, created, move
from tests.support.postgres import fresh_database

pytest_plugins = ["tests.support.postgres"]

LONG_MS = 60_000
"""Longer than any test waits for a ring that comes."""

SHORT_MS = 100
"""What a test waits for a ring that must not come."""

Rung = tuple[str, PostgresBell, PostgresHeads, PostgresInbox]


@pytest.fixture
def rung(fragile: LocalPostgres) -> Generator[Rung]:
    url = fresh_database(fragile)
    heads, inbox = open_heads(url, create=True), open_inbox(url, create=True)
    bell = open_bell(url)
    yield url, bell, heads, inbox
    for port in (bell, heads, inbox):
        port.close()


def test_a_bell_rings_when_a_statement_arrives(rung: Rung) -> None:
    _, bell, _, inbox = rung
    inbox.put(RUN, b"statement")
    assert bell.wait(LONG_MS)
    assert not bell.wait(0)


def test_a_bell_rings_when_a_run_is_released(rung: Rung) -> None:
    _, bell, heads, _ = rung
    heads.release(created(heads))
    assert bell.wait(LONG_MS)


def test_a_bell_rings_for_whoever_waits_already(rung: Rung) -> None:
    _, bell, _, inbox = rung
    answers: list[bool] = []
    waiting = threading.Thread(target=lambda: answers.append(bell.wait(LONG_MS)))
    waiting.start()
    inbox.put(RUN, b"statement")
    waiting.join()
    assert answers == [True]


def test_many_rings_are_one(rung: Rung) -> None:
    _, bell, _, inbox = rung
    for number in range(20):
        inbox.put(RUN, b"%d" % number)
    rings = sum(bell.wait(SHORT_MS) for _ in range(20))
    assert rings < 20


def test_nothing_rings_at_what_makes_nothing_due(rung: Rung) -> None:
    url, bell, heads, inbox = rung
    store = open_store(url, create=True)
    head = created(heads)
    store.put([checkpoint(1)])
    (head,) = heads.advance([move(head)])
    heads.renew(head, TTL_MS)
    heads.release(head, 5_000)
    ended = created(heads, RunId("ended"))
    heads.release(*heads.advance([move(ended, status="terminal")]))
    inbox.discard(RUN, b"not there")
    assert not bell.wait(SHORT_MS)
    store.close()


def test_a_statement_that_is_there_rings_no_second_time(rung: Rung) -> None:
    _, bell, _, inbox = rung
    inbox.put(RUN, b"statement")
    assert bell.wait(LONG_MS)
    inbox.put(RUN, b"statement")
    assert not bell.wait(SHORT_MS)


def test_a_bell_of_one_schema_is_not_heard_in_another(rung: Rung) -> None:
    url, bell, _, inbox = rung
    other = open_bell(f"{url}?schema=other")
    inbox.put(RUN, b"statement")
    assert bell.wait(LONG_MS)
    assert not other.wait(SHORT_MS)
    other.close()


def test_a_bell_survives_the_server(fragile: LocalPostgres, rung: Rung) -> None:
    _, bell, _, inbox = rung
    for ending in (fragile.stop, fragile.crash):
        ending()
        assert not bell.wait(SHORT_MS)
        fragile.start()
        assert bell.wait(LONG_MS), "one that was lost may have been missed"
        assert not bell.wait(SHORT_MS)
        inbox.put(RUN, ending.__name__.encode())
        assert bell.wait(LONG_MS)


def test_closing_ends_every_wait(rung: Rung) -> None:
    _, bell, _, _ = rung
    answers: list[bool] = []
    waiting = [
        threading.Thread(target=lambda: answers.append(bell.wait(LONG_MS))) for _ in range(2)
    ]
    for thread in waiting:
        thread.start()
    bell.close()
    for thread in waiting:
        thread.join()
    bell.close()
    assert answers == [False, False]
    assert not bell.wait(LONG_MS)


def test_a_bell_on_a_server_that_is_down_is_not_opened(fragile: LocalPostgres, rung: Rung) -> None:
    url, *_ = rung
    fragile.stop()
    try:
        with pytest.raises(UnavailableError):
            open_bell(url)
    finally:
        fragile.start()
