"""What a look for runs to claim reads in etcd, in which order it finds them, and by whose clock."""

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

import httpx
import pytest
from msgspec.structs import replace

from counterfoil.core.errors import StaleHeadError
from counterfoil.core.words import RunId
from counterfoil.local.etcd import LocalEtcd
from counterfoil.ports import Head
from counterfoil.stores.etcd import EtcdHeads
from counterfoil.stores.etcd_gateway import Gateway
from counterfoil.stores.etcd_wire import Txn, names
from counterfoil.testing.store_bench import OTHER_RUN, RUN, created, move
from tests.support.etcd import fresh_prefix, gateway_to, opened, wait_for_etcd

pytest_plugins = ["tests.support.etcd"]

LONG_MS = 600_000
HOUR_MS = 3_600_000
SHORT_MS = 1_000
NOW_MS = 1_700_000_000_000


class Scene:
    """A register that several workers open, each by a clock of its own."""

    def __init__(self, server: LocalEtcd, stack: ExitStack) -> None:
        self.prefix = fresh_prefix()
        self.gateway = gateway_to(server, self.prefix)
        stack.callback(self.gateway.close)
        self._server, self._stack = server, stack

    def worker(self, now_ms: Callable[[], int] = lambda: NOW_MS) -> EtcdHeads:
        heads = opened(self._server, self.prefix, now_ms=now_ms)
        self._stack.callback(heads.close)
        return heads


@pytest.fixture
def scene(etcd: LocalEtcd) -> Generator[Scene]:
    with ExitStack() as stack:
        yield Scene(etcd, stack)


@contextmanager
def counted(heads: EtcdHeads) -> Iterator[list[int]]:
    """Collect the size of each answer, in bytes."""
    sizes: list[int] = []

    def count(answer: httpx.Response) -> None:
        sizes.append(len(answer.read()))

    heads._gateway._client.event_hooks = {"response": [count]}
    yield sizes
    heads._gateway._client.event_hooks = {}


def looked_bytes(heads: EtcdHeads) -> tuple[int, list[RunId]]:
    """Return how much a look reads, and what it finds."""
    with counted(heads) as sizes:
        found = named(heads)
    return sum(sizes), found


def named(heads: EtcdHeads, limit: int = 9) -> list[RunId]:
    return [head.run_id for head in heads.claimable(limit)]


def paused(heads: EtcdHeads, run_id: RunId, pause_ms: int = LONG_MS) -> Head:
    """Return a run as a worker leaves it that failed."""
    heads.release(created(heads, run_id), pause_ms)
    return present(heads, run_id)


def present(heads: EtcdHeads, run_id: RunId = RUN) -> Head:
    head = heads.read(run_id)
    assert head is not None
    return head


def keys_left(gateway: Gateway) -> list[str]:
    """Return what is there of any run, without the register's prefix."""
    prefix = gateway.address.prefix
    rows = gateway.ask(Txn(success=(names(f"{prefix}/".encode(), f"{prefix}0".encode()),)))
    found = [row.key.decode().removeprefix(f"{prefix}/") for row in rows.ranges[0].kvs]
    return [name for name in found if name.startswith(("active/", "hold/"))]


# ---------------------------------------------------------------- what is read


def test_a_look_reads_the_same_however_many_runs_are_paused(scene: Scene) -> None:
    heads = scene.worker()
    heads.release(created(heads, RunId("free")))
    few = looked_bytes(heads)
    for number in range(150):
        paused(heads, RunId(f"paused {number}"))
    many = looked_bytes(heads)
    assert many[1] == few[1] == ["free"]
    assert abs(many[0] - few[0]) < 20  # revisions have a digit more


def test_a_look_reads_the_same_however_many_runs_wait_for_a_person(scene: Scene) -> None:
    heads = scene.worker()
    heads.release(created(heads, RunId("free")))
    few = looked_bytes(heads)
    for number in range(50):
        head = created(heads, RunId(f"waits {number}"))
        (frozen,) = heads.advance([move(head, status="frozen")])
        heads.release(frozen)
    assert abs(looked_bytes(heads)[0] - few[0]) < 20


def test_a_look_that_finds_nothing_asks_once(scene: Scene) -> None:
    heads = scene.worker()
    paused(heads, RUN)
    with counted(heads) as sizes:
        assert named(heads) == []
    assert len(sizes) == 1


# ---------------------------------------------------------------- the order of claims


def test_a_pause_that_is_over_leaves_a_run_where_its_release_put_it(scene: Scene) -> None:
    """However long the pause was, and by whatever clock its end was told."""
    heads, ahead = scene.worker(), scene.worker(lambda: NOW_MS + 400)
    heads.release(created(heads, RunId("first")))
    paused(ahead, RunId("second"), SHORT_MS)
    heads.release(created(heads, RunId("third")))
    paused(heads, RunId("fourth"), SHORT_MS // 2)
    heads.release(created(heads, RunId("fifth")))
    later = scene.worker(lambda: NOW_MS + 2 * SHORT_MS)
    assert named(later) == ["first", "third", "fifth"]
    wait_for_etcd(scene.gateway, SHORT_MS)
    assert named(later) == ["first", "second", "third", "fourth", "fifth"]
    assert named(later, 2) == ["first", "second"]


def test_those_that_are_due_and_still_paused_hide_none_that_is_free(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("counterfoil.stores.etcd_listing.SPARE", 2)
    heads = scene.worker()
    for number in range(12):
        paused(heads, RunId(f"paused {number}"))
    heads.release(created(heads, RunId("free")))
    assert named(scene.worker(lambda: NOW_MS + LONG_MS), 1) == ["free"]


# ---------------------------------------------------------------- when a pause is over


def test_a_pause_is_over_when_etcd_says_so_and_not_before(scene: Scene) -> None:
    heads = scene.worker()
    told = paused(heads, RUN, SHORT_MS)
    assert told.expires_at_ms == NOW_MS + SHORT_MS
    late = scene.worker(lambda: NOW_MS + HOUR_MS)
    assert named(late) == []
    wait_for_etcd(scene.gateway, SHORT_MS)
    assert late.claimable(9) == (told,)


@pytest.mark.parametrize("wrong_ms", [HOUR_MS, -HOUR_MS, -NOW_MS - HOUR_MS])
def test_a_worker_alone_sees_its_own_pauses_end_whatever_its_clock_says(
    scene: Scene, wrong_ms: int
) -> None:
    moment = [NOW_MS + wrong_ms]
    heads = scene.worker(lambda: moment[0])
    paused(heads, RUN, SHORT_MS)
    assert named(heads) == []
    wait_for_etcd(scene.gateway, SHORT_MS)
    moment[0] += SHORT_MS
    assert named(heads) == [RUN]


def test_a_clock_that_is_behind_makes_a_run_seen_late_by_its_own_worker_alone(
    scene: Scene,
) -> None:
    right = scene.worker(partial(since, time.monotonic(), 0))
    behind = scene.worker(partial(since, time.monotonic(), -HOUR_MS))
    paused(right, RUN, SHORT_MS)
    paused(behind, OTHER_RUN, SHORT_MS)
    wait_for_etcd(scene.gateway, SHORT_MS)
    assert named(right) == [RUN, OTHER_RUN]
    assert named(behind) == [OTHER_RUN]
    assert named(scene.worker(lambda: NOW_MS + HOUR_MS)) == [RUN, OTHER_RUN]


def since(began_s: float, wrong_ms: int) -> int:
    """Return the moment by a clock that goes, and is wrong."""
    return NOW_MS + wrong_ms + int((time.monotonic() - began_s) * 1000)


# ---------------------------------------------------------------- taking and giving up


@pytest.mark.parametrize("status", ["active", "frozen"])
def test_of_a_pause_nothing_is_left_when_its_run_is_taken(scene: Scene, status: str) -> None:
    heads = scene.worker()
    (head,) = heads.advance([move(created(heads), status=status)])
    heads.release(head, LONG_MS)
    held = heads.acquire(present(heads), "two", "other", LONG_MS)
    zero = f"{0:019}/{RUN}"
    marks = [f"active/{zero}"] if status == "active" else []
    assert keys_left(scene.gateway) == [*marks, f"hold/{zero}"]
    heads.release(held)
    assert keys_left(scene.gateway) == marks


def test_a_free_head_of_another_pause_is_not_the_one_that_was_expected(scene: Scene) -> None:
    heads = scene.worker()
    head = paused(heads, RUN)
    for end_ms in (0, head.expires_at_ms + 1):
        with pytest.raises(StaleHeadError):
            heads.acquire(replace(head, expires_at_ms=end_ms), "two", "other", LONG_MS)
    assert present(heads) == head
    heads.acquire(head, "two", "other", LONG_MS)


@pytest.mark.parametrize("step_ms", [0, 5])
def test_a_paused_run_may_be_paused_anew(scene: Scene, step_ms: int) -> None:
    """As often as one likes: the last pause is the one that counts."""
    moment = [NOW_MS]
    heads = scene.worker(lambda: moment[0])
    head = paused(heads, RUN)
    for _ in range(3):
        moment[0] += step_ms
        heads.release(head, LONG_MS)
        head = present(heads)
        assert head.expires_at_ms == moment[0] + LONG_MS
        name = f"{head.expires_at_ms:019}/{RUN}"
        assert keys_left(scene.gateway) == [f"active/{name}", f"hold/{name}"]
    heads.release(head)
    assert named(heads) == [RUN]


def test_a_run_that_was_paused_anew_since_it_was_listed_is_not_claimable(scene: Scene) -> None:
    heads = scene.worker()
    heads.release(created(heads))
    asks = heads._gateway.ask
    between = [lambda: heads.release(present(heads), LONG_MS)]

    def ask(txn: Txn, run_id: str = "") -> object:
        answer = asks(txn, run_id)
        if between:
            between.pop()()
        return answer

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(heads._gateway, "ask", ask)
        assert heads.claimable(9) == ()
