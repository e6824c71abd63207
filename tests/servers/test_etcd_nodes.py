"""Nodes of etcd die, stand still and come back, and a register keeps what it acknowledged."""

import subprocess
import threading
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from counterfoil.core.errors import (
    LeaseLostError,
    StaleHeadError,
    UnavailableError,
    UnknownOutcomeError,
)
from counterfoil.core.words import RunId
from counterfoil.local.etcd import LocalEtcd
from counterfoil.ports import Head, HeadRegister
from counterfoil.stores.etcd import EtcdHeads, Patience, open_heads
from counterfoil.stores.etcd_leases import BY_CONSENSUS
from counterfoil.stores.etcd_wire import Txn, get
from counterfoil.testing.store_bench import RUN, created, move
from tests.support.etcd import fresh_prefix, gateway_to, opened, wait_for_end, wait_for_etcd

LONG_MS = 600_000
HOUR_MS = 3_600_000
TRIES_MAX = 50
MOVES_MAX = 2_000
HURRY = Patience(connect=0.5, ask=1.0, act=1.5, bound=2.0)
"""Short enough to see a register give up, and longer than an election."""


@pytest.fixture(scope="module")
def nodes() -> Generator[LocalEtcd]:
    with LocalEtcd(3) as server:
        yield server


@pytest.fixture
def cluster(nodes: LocalEtcd) -> Iterator[LocalEtcd]:
    """Three nodes, all of which run before the test and after it."""
    yield nodes
    nodes.start()


def certain(heads: HeadRegister, head: Head) -> Head:
    """Move a head on as a session does: read what is unknown, and send again what is not there."""
    wanted = move(head, ttl_ms=LONG_MS)
    for _ in range(TRIES_MAX):
        try:
            (moved,) = heads.advance([wanted])
        except UnavailableError:
            continue
        except (UnknownOutcomeError, StaleHeadError):
            present = read(heads, head.run_id)
            if present.checkpoint == wanted.checkpoint:
                return present
            assert present == head
        else:
            return moved
    raise TimeoutError("the head does not move")


def read(heads: HeadRegister, run_id: RunId) -> Head:
    for _ in range(TRIES_MAX):
        try:
            present = heads.read(run_id)
        except UnavailableError:
            continue
        assert present is not None
        return present
    raise TimeoutError("the head cannot be read")


def walked(heads: EtcdHeads, head: Head, steps: int, started: threading.Barrier) -> Head:
    """Move a head on step by step; no acknowledged step is ever missing."""
    for step in range(steps):
        if step == 5:
            started.wait()
        moved = certain(heads, head)
        assert moved.generation == head.generation + 1
        assert read(heads, head.run_id).generation == moved.generation
        head = moved
    return head


def test_nothing_that_was_acknowledged_is_lost_with_the_leader(cluster: LocalEtcd) -> None:
    heads = opened(cluster, fresh_prefix())
    runs = [created(heads, RunId(f"run {n}"), ttl_ms=LONG_MS) for n in range(4)]
    started = threading.Barrier(len(runs) + 1)
    with ThreadPoolExecutor(len(runs)) as pool:
        walks = [pool.submit(walked, heads, head, 40, started) for head in runs]
        started.wait()
        cluster.kill(cluster.leader())
        ends = [walk.result() for walk in walks]
    assert [(head.generation, head.lease_version) for head in ends] == [(40, 1)] * len(runs)
    assert heads.heads("", 9) == tuple(ends)
    heads.close()


def test_a_register_without_a_quorum_says_so_and_goes_on_with_one(cluster: LocalEtcd) -> None:
    heads, head = hurrying(cluster)
    for node in (0, 1):
        cluster.kill(node)
    for _ in range(2):
        with pytest.raises((UnavailableError, UnknownOutcomeError)):
            heads.advance([move(head, ttl_ms=LONG_MS)])
        with pytest.raises(UnavailableError):
            heads.read(RUN)
        with pytest.raises(UnavailableError):
            heads.claimable(9)
    with pytest.raises(UnavailableError):
        opened(cluster, fresh_prefix(), patience=HURRY)
    cluster.restart(0)
    moved = certain(heads, read(heads, RUN))
    cluster.restart(1)
    assert read(heads, RUN) == moved
    heads.close()


def test_a_node_that_stands_still_is_passed_by(cluster: LocalEtcd) -> None:
    heads, head = hurrying(cluster)
    for node in range(3):
        cluster.pause(node)
        head = certain(heads, read(heads, RUN))
        cluster.resume(node)
    assert head.generation == 3
    heads.close()


def test_a_node_that_is_gone_is_passed_by(cluster: LocalEtcd) -> None:
    heads = opened(cluster, fresh_prefix())
    head = created(heads, ttl_ms=LONG_MS)
    cluster.kill(0)
    head = certain(heads, head)
    other = open_heads(cluster.url(heads._keys.prefix), create=False)
    assert other.read(RUN) == head
    other.close()
    heads.close()


def test_a_lease_outlives_a_change_of_leaders(cluster: LocalEtcd) -> None:
    """And its holder is told of a term only when the new leader has it."""
    heads = opened(cluster, fresh_prefix())
    head = created(heads, ttl_ms=LONG_MS)
    for _ in range(3):
        hand_on_the_lead(cluster)
        (head,) = heads.advance([move(head, ttl_ms=LONG_MS)])
        head = heads.renew(head, LONG_MS)
    assert (head.generation, head.lease_version) == (3, 1)
    with pytest.raises(LeaseLostError):
        heads.acquire(head, "two", "other", LONG_MS)
    heads.close()


def test_a_lease_that_an_earlier_leader_may_have_kept_is_kept_again(cluster: LocalEtcd) -> None:
    """A node that learns of another leader meanwhile may have asked the one before it."""
    heads = opened(cluster, fresh_prefix())
    head = created(heads, ttl_ms=LONG_MS)
    lease_id = heads._leases.id_of(RUN, head.nonce, 1, LONG_MS)
    assert heads._leases.keep((lease_id,)).term > 0
    hand_on_the_lead(cluster)
    kept = [heads._leases.keep((lease_id,)) for _ in range(2)]
    assert [each.term > 0 for each in kept] == [False, True]
    assert [each.ttls[lease_id] for each in kept] == [LONG_MS // 1000] * 2
    heads.close()


def test_a_write_whose_lease_is_gone_when_it_is_looked_at_is_unknown(cluster: LocalEtcd) -> None:
    heads = opened(cluster, fresh_prefix())
    head = created(heads, ttl_ms=LONG_MS)
    hold, lease_id = heads._keys.hold(RUN), heads._leases.id_of(RUN, head.nonce, 1, LONG_MS)
    written = heads._gateway.ask(Txn(success=(get(hold),)))
    for term in (written.term, BY_CONSENSUS, 0):
        heads._leases.confirm({hold: lease_id}, term, written)
    heads.release(head)
    with pytest.raises(UnknownOutcomeError, match="cannot be confirmed"):
        heads._leases.confirm({hold: lease_id}, 0, written)
    heads.close()


def test_where_etcd_has_no_space_left_nothing_is_believed_to_have_happened_or_not() -> None:
    """It says so after it has applied a transaction, too."""
    with LocalEtcd(flags=("--quota-backend-bytes=65536",)) as server:
        heads = opened(server, fresh_prefix())
        head = created(heads, ttl_ms=LONG_MS)
        head, error = walked_until_unknown(heads, head)
        assert "space exceeded" in error.message
        present = heads.read(RUN)
        assert present is not None
        assert (present.generation, present.checkpoint) in {
            (head.generation, head.checkpoint),
            (head.generation + 1, move(head).checkpoint),
        }
        with pytest.raises(UnavailableError, match="space exceeded"):
            created(heads, RunId("another"), ttl_ms=LONG_MS)
        heads.close()


def hurrying(server: LocalEtcd) -> tuple[EtcdHeads, Head]:
    """Return a register that soon gives up, and a head that was made without hurry."""
    prefix = fresh_prefix()
    calm, heads = opened(server, prefix), opened(server, prefix, patience=HURRY)
    head = created(calm, ttl_ms=LONG_MS)
    calm.close()
    return heads, head


def walked_until_unknown(heads: EtcdHeads, head: Head) -> tuple[Head, UnknownOutcomeError]:
    """Return the last head that was acknowledged, and what was said then."""
    for _ in range(MOVES_MAX):
        try:
            (head,) = heads.advance([move(head, ttl_ms=LONG_MS)])
        except UnknownOutcomeError as error:
            return head, error
    raise TimeoutError("etcd does not run out of space")


def hand_on_the_lead(cluster: LocalEtcd) -> None:
    before = cluster.leader()
    after = (before + 1) % 3
    status = cluster._status(after)
    assert status is not None
    subprocess.run(
        [
            *("etcdctl", f"--endpoints={cluster.endpoints[before]}"),
            *("move-leader", f"{int(status[0]):x}"),
        ],
        check=True,
        capture_output=True,
    )


# ---------------------------------------------------------------- whose clock counts


@pytest.mark.parametrize("wrong_ms", [HOUR_MS, -HOUR_MS])
def test_a_wrong_clock_takes_no_lease_and_keeps_none(nodes: LocalEtcd, wrong_ms: int) -> None:
    """A worker whose wall clock is an hour off is told what every other is told."""
    prefix = fresh_prefix()
    right, gateway = opened(nodes, prefix), gateway_to(nodes, prefix)
    wrong = opened(nodes, prefix, now_ms=partial(off_by, wrong_ms))
    theirs = created(right, ttl_ms=LONG_MS)
    with pytest.raises(LeaseLostError, match=r"in [1-9][0-9]* ms"):
        wrong.acquire(theirs, "two", "other", LONG_MS)
    assert wrong.claimable(9) == ()
    right.release(theirs)
    (free,) = wrong.claimable(9)
    held = wrong.acquire(free, "two", "short", 1_000)
    wait_for_etcd(gateway, 1_000)
    with pytest.raises(LeaseLostError, match=r"ended [0-9]+ ms ago"):
        wrong.advance([move(held)])
    taken = right.acquire(held, "three", "third", LONG_MS)
    right.advance([move(taken, ttl_ms=LONG_MS)])
    for each in (right, wrong, gateway):
        each.close()


def off_by(wrong_ms: int) -> int:
    return 1_700_000_000_000 + wrong_ms


def test_a_holder_that_renews_keeps_its_lease_for_many_terms(nodes: LocalEtcd) -> None:
    prefix = fresh_prefix()
    heads, gateway = opened(nodes, prefix), gateway_to(nodes, prefix)
    head = created(heads, ttl_ms=3_000)
    lease = heads._leases.id_of(RUN, head.nonce, 1, 3_000)
    for _ in range(6):
        wait_for_etcd(gateway, 1_000)
        head = heads.renew(head, 3_000)
    heads.advance([move(head, ttl_ms=3_000)])
    heads.renew(head, 1)
    heads.release(head)
    wait_for_end(gateway, lease)
    heads.close()
    gateway.close()
