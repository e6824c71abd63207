"""Histories of concurrent calls on each head register have an order that explains them."""

import math
import select
import time
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from counterfoil.core.words import Digest, RunId
from counterfoil.local.etcd import LocalEtcd
from counterfoil.local.postgres import LocalPostgres
from counterfoil.ports import Advance, Head, HeadRegister
from counterfoil.stores import postgres as postgres_stores
from counterfoil.stores import sqlite
from counterfoil.stores.memory import MemoryHeads
from counterfoil.testing import saboteur_heads as commits
from counterfoil.testing import saboteur_leases as leases
from counterfoil.testing import saboteur_lists as lists
from tests.support.etcd import fresh_prefix, opened
from tests.support.histories import (
    QUICK,
    RUNS,
    Pace,
    Server,
    recorded,
    recorded_by_processes,
)
from tests.support.linearizable import UNKNOWN, Call, SearchError, Terms, explained, unexplained
from tests.support.outages import Network
from tests.support.postgres import READY_FOR_QUERY, fresh_database

pytest_plugins = ["tests.support.postgres", "tests.support.etcd"]

INCARNATION = "5eed" * 8
SEEDS_MAX = 40
"""Histories until a broken register has shown it; one in three does."""

LOSING = 0.08
PAUSE_SECONDS = 0.002
EXACT = Terms(early_us=0, late_us=0)


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


def memory_heads() -> MemoryHeads:
    return MemoryHeads(now_ms=wall_ms, incarnation=INCARNATION)


def judged(calls: Sequence[Call], pace: Pace) -> Counter[str]:
    """Refuse a history that no order explains; return how often each thing happened."""
    without_order = unexplained(calls, pace.terms)
    assert without_order == []
    seen = Counter(f"{call.kind} {call.answer}" for call in calls)
    seen["takeover"] = sum(
        call.kind == "acquire"
        and call.head is not None
        and bool(call.expected and call.expected.nonce)
        for call in calls
    )
    seen["overlap"] = sum(
        one.run_id == other.run_id
        and one.client != other.client
        and one.invoked_us < other.answered_us
        and other.invoked_us < one.answered_us
        for one in calls
        for other in calls
    )
    return seen


def is_busy(seen: Counter[str]) -> bool:
    """Return whether enough happened that an order was worth looking for."""
    wanted = ("create done", "acquire done", "advance done", "takeover", "overlap")
    return all(seen[each] for each in (*wanted, "acquire LeaseLostError", "create StaleHeadError"))


def is_silent_at_times(seen: Counter[str]) -> bool:
    """Return whether answers to writes were lost."""
    return any(seen[f"{kind} {UNKNOWN}"] for kind in ("create", "acquire", "renew", "advance"))


# ---------------------------------------------------------------- registers


class Unhurried(commits.Passing):
    """Takes its time before and after each call, so that calls overlap."""

    def read(self, run_id: RunId) -> Head | None:
        with self._pauses():
            return super().read(run_id)

    def acquire(self, expected: Head, owner: str, nonce: str, ttl_ms: int) -> Head:
        with self._pauses():
            return super().acquire(expected, owner, nonce, ttl_ms)

    def advance(self, batch: Sequence[Advance]) -> tuple[Head, ...]:
        with self._pauses():
            return super().advance(batch)

    @contextmanager
    def _pauses(self) -> Generator[None]:
        select.select([], [], [], PAUSE_SECONDS)
        yield
        select.select([], [], [], PAUSE_SECONDS)


def test_calls_of_the_register_in_memory_have_an_order() -> None:
    heads = Unhurried(memory_heads(), wall_ms)
    calls = recorded(lambda: heads, QUICK, seed=1, clients=6, calls=60)
    is_worth_it = is_busy(judged(calls, QUICK))
    assert is_worth_it


def test_calls_of_the_register_in_sqlite_have_an_order(tmp_path: Path) -> None:
    path = tmp_path / "state" / "heads.db"
    sqlite.open_heads(path, create=True, now_ms=wall_ms, incarnation=lambda: INCARNATION).close()
    calls = recorded_by_processes(Server.SQLITE, [str(path)] * 2, seed=1, clients=3, calls=100)
    is_worth_it = is_busy(judged(calls, Server.SQLITE.pace))
    assert is_worth_it


def test_calls_of_the_register_in_postgresql_have_an_order(postgres: LocalPostgres) -> None:
    url = fresh_database(postgres)
    postgres_stores.open_heads(url, create=True).close()
    calls = recorded_by_processes(Server.POSTGRES, [url] * 2, seed=1, clients=3, calls=100)
    is_worth_it = is_busy(judged(calls, Server.POSTGRES.pace))
    assert is_worth_it


def test_calls_of_postgresql_whose_answers_are_lost_have_an_order(
    postgres: LocalPostgres,
) -> None:
    url = fresh_database(postgres)
    postgres_stores.open_heads(url, create=True).close()
    with Network(postgres.port, losing=LOSING, seed=1, quiet_until=READY_FOR_QUERY) as network:
        places = [url, network.through(url)]
        calls = recorded_by_processes(Server.POSTGRES, places, seed=2, clients=3, calls=100)
    seen = judged(calls, Server.POSTGRES.pace)
    is_worth_it = is_busy(seen) and is_silent_at_times(seen)
    assert is_worth_it


def test_calls_of_the_register_in_etcd_have_an_order(etcd: LocalEtcd) -> None:
    prefix = fresh_prefix()
    opened(etcd, prefix).close()
    calls = recorded_by_processes(Server.ETCD, [etcd.url(prefix)] * 2, seed=1, clients=3, calls=40)
    is_worth_it = is_busy(judged(calls, Server.ETCD.pace))
    assert is_worth_it


def test_calls_of_etcd_whose_answers_are_lost_have_an_order(etcd: LocalEtcd) -> None:
    prefix = fresh_prefix()
    opened(etcd, prefix).close()
    url = etcd.url(prefix)
    port = int(etcd.endpoints[0].rpartition(":")[2])
    with Network(port, losing=LOSING, seed=1) as network:
        places = [url, network.through(url)]
        calls = recorded_by_processes(Server.ETCD, places, seed=2, clients=3, calls=40)
    seen = judged(calls, Server.ETCD.pace)
    is_worth_it = is_busy(seen) and is_silent_at_times(seen)
    assert is_worth_it


# ---------------------------------------------------------------- broken registers

BROKEN: tuple[Callable[..., HeadRegister], ...] = (
    lists.StaleReads,
    leases.EverybodyWins,
    commits.AdvancesTwice,
    commits.IgnoresTheLease,
    commits.ReleasedCommits,
    commits.ForgetsTheStatus,
    leases.CreateOverwrites,
    leases.TakesStandingLeases,
    leases.TakesFromAnOldHead,
    leases.KeepsTheVersion,
    leases.RenewsForAnybody,
    leases.ReleasesForAnybody,
)


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.__name__)
def test_a_broken_register_has_a_history_that_no_order_explains(
    broken: Callable[..., HeadRegister],
) -> None:
    for seed in range(SEEDS_MAX):
        heads = memory_heads()
        calls = recorded(
            lambda heads=heads: broken(heads, wall_ms), QUICK, seed=seed, clients=6, calls=40
        )
        if unexplained(calls, QUICK.terms):
            return
    raise AssertionError(f"{SEEDS_MAX} histories of {broken.__name__} have an order")


# ---------------------------------------------------------------- histories made by hand

RUN = RUNS[0]
TTL_MS = 10
TTL_US = TTL_MS * 1_000


def head(
    generation: int = 0, *, owner: str = "a", version: int = 1, nonce: str | None = None
) -> Head:
    return Head(
        run_id=RUN,
        generation=generation,
        checkpoint=Digest(f"{generation}"),
        owner=owner,
        nonce=f"{owner}{version}" if nonce is None else nonce,
        lease_version=version,
        incarnation=INCARNATION,
    )


def call(kind: str, begin: int, end: int, **fields: Any) -> Call:
    given: dict[str, Any] = {"ttl_ms": TTL_MS, **fields}
    return Call(client=1, kind=kind, run_id=RUN, invoked_us=begin, answered_us=end, **given)


def create(begin: int, end: int, owner: str = "a", **fields: Any) -> Call:
    made = head(owner=owner)
    given: dict[str, Any] = {
        "owner": owner,
        "nonce": made.nonce,
        "checkpoint": made.checkpoint,
        "head": made,
    }
    return call("create", begin, end, **given | fields)


def advance(begin: int, end: int, before: Head, after: Head | None, **fields: Any) -> Call:
    checkpoint = Digest(f"{before.generation + 1}")
    given: dict[str, Any] = {"expected": before, "checkpoint": checkpoint, "head": after}
    return call("advance", begin, end, **given | fields)


def acquire(begin: int, end: int, before: Head, after: Head | None, **fields: Any) -> Call:
    owner = after.owner if after else "b"
    nonce = after.nonce if after else f"b{before.lease_version + 1}"
    given: dict[str, Any] = {"expected": before, "owner": owner, "nonce": nonce, "head": after}
    return call("acquire", begin, end, **given | fields)


def read(begin: int, end: int, seen: Head | None) -> Call:
    return call("read", begin, end, head=seen)


FREE = head(owner="", nonce="")
RELEASED = call("release", 2, 3, expected=head())
LOST: dict[str, Any] = {"answer": "LeaseLostError"}
STALE: dict[str, Any] = {"answer": "StaleHeadError"}
SILENCE: dict[str, Any] = {"answer": UNKNOWN, "head": None}

ORDERED: dict[str, list[Call]] = {
    "nothing happened": [],
    "a read beside a create sees either": [create(0, 9), read(1, 2, head()), read(3, 4, head())],
    "a read beside a create sees none": [create(0, 9), read(1, 2, None)],
    "the second of two creates is refused": [
        create(0, 9),
        create(1, 5, "b", answer="StaleHeadError", head=None),
    ],
    "a move is seen as soon as it is made": [
        create(0, 1),
        advance(2, 9, head(), head(1)),
        read(3, 4, head()),
        read(5, 6, head(1)),
    ],
    "a move whose answer was lost happened": [
        create(0, 1),
        advance(2, 3, head(), None, **SILENCE),
        read(4, 5, head(1)),
    ],
    "a move whose answer was lost never happened": [
        create(0, 1),
        advance(2, 3, head(), None, **SILENCE),
        read(4, 5, head()),
        advance(6, 7, head(), head(1)),
    ],
    "a move whose answer was lost happened late": [
        create(0, 1),
        advance(2, 3, head(), None, **SILENCE),
        read(4, 5, head()),
        read(6, 7, head(1)),
    ],
    "a lease is taken over when its term may be over": [
        create(0, 1),
        acquire(TTL_US, TTL_US + 1, head(), head(owner="b", version=2)),
    ],
    "a lease that was given up is taken": [
        create(0, 1),
        RELEASED,
        acquire(4, 5, FREE, head(owner="b", version=2)),
    ],
    "a move lengthens the lease": [
        create(0, 1),
        advance(5_000, 5_001, head(), head(1)),
        advance(TTL_US + 500, TTL_US + 501, head(1), head(2)),
    ],
    "a repeated move is refused": [
        create(0, 1),
        advance(2, 3, head(), head(1)),
        advance(4, 5, head(), None, **STALE),
    ],
    "a late worker's move is refused": [
        create(0, 1),
        acquire(TTL_US, TTL_US + 1, head(), head(owner="b", version=2)),
        advance(TTL_US + 2, TTL_US + 3, head(), None, **LOST),
    ],
    "a lease that a lost answer granted stands": [
        create(0, 1, answer=UNKNOWN, head=None),
        read(2, 3, head()),
        advance(4, 5, head(), head(1)),
    ],
}
UNORDERED: dict[str, list[Call]] = {
    "a read goes back": [
        create(0, 1),
        advance(2, 9, head(), head(1)),
        read(3, 4, head(1)),
        read(5, 6, head()),
    ],
    "a read does not see what was acknowledged": [create(0, 1), read(2, 3, None)],
    "a read sees what nobody wrote": [create(0, 1), read(2, 3, head(1))],
    "a head is lost": [create(0, 1), read(2, 3, head()), read(4, 5, None)],
    "two create": [create(0, 9), create(1, 5, "b")],
    "a create is refused where there is none": [
        create(0, 1, answer="StaleHeadError", head=None),
        create(2, 3),
    ],
    "two take one lease": [
        create(0, 1),
        RELEASED,
        acquire(4, 9, FREE, head(owner="b", version=2)),
        acquire(5, 8, FREE, head(owner="c", version=2)),
    ],
    "a standing lease is taken": [
        create(0, 1),
        acquire(2, 3, head(), head(owner="b", version=2)),
    ],
    "a lease is over too early": [
        create(0, 1),
        acquire(TTL_US - 9, TTL_US - 1, head(), head(owner="b", version=2)),
    ],
    "a lease stands too long": [
        create(0, 1),
        advance(TTL_US + 2, TTL_US + 3, head(), head(1)),
    ],
    "a lease stands again that was called over": [
        create(0, 500),
        advance(TTL_US, TTL_US + 1, head(), None, **LOST),
        advance(TTL_US + 2, TTL_US + 3, head(), head(1)),
    ],
    "a refusal has no reason": [create(0, 1), advance(2, 3, head(), None, **LOST)],
    "two moves from one head": [
        create(0, 1),
        advance(2, 9, head(), head(1)),
        advance(3, 8, head(), head(1)),
    ],
    "an acknowledged move is undone": [
        create(0, 1),
        advance(2, 3, head(), head(1)),
        read(4, 5, head()),
    ],
    "a late worker moves the head": [
        create(0, 1),
        acquire(TTL_US, TTL_US + 1, head(), head(owner="b", version=2)),
        advance(TTL_US + 2, TTL_US + 3, head(), head(1)),
    ],
    "a lost answer explains one move only": [
        create(0, 1),
        advance(2, 3, head(), None, **SILENCE),
        read(4, 5, head(2)),
    ],
    "a lost answer does not come back": [
        create(0, 1),
        advance(2, 3, head(), None, **SILENCE),
        read(4, 5, head(1)),
        read(6, 7, head()),
    ],
    "a version is given twice": [
        create(0, 1),
        RELEASED,
        acquire(4, 5, FREE, head(owner="b", version=1)),
    ],
    "a release frees nothing": [create(0, 1), RELEASED, read(4, 5, head())],
}


@pytest.mark.parametrize("calls", ORDERED.values(), ids=ORDERED)
def test_a_history_with_an_order_is_explained(calls: list[Call]) -> None:
    assert explained(calls, EXACT)


@pytest.mark.parametrize("calls", UNORDERED.values(), ids=UNORDERED)
def test_a_history_without_an_order_is_not_explained(calls: list[Call]) -> None:
    assert not explained(calls, EXACT)


def test_where_nobody_promises_when_a_lease_ends_it_may_stand_longer() -> None:
    late = UNORDERED["a lease stands too long"]
    assert explained(late, Terms(early_us=0, late_us=math.inf))


def test_a_search_that_would_not_end_is_given_up() -> None:
    silent = [
        call("renew", 2, 3, expected=head(), ttl_ms=number + 1, **SILENCE) for number in range(40)
    ]
    with pytest.raises(SearchError):
        explained([create(0, 1), *silent, read(4, 5, head(7))], EXACT, 500)
