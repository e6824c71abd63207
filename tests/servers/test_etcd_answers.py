"""Whatever becomes of an answer of etcd, a caller is told what it may believe."""

import base64
import os
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from counterfoil.core.errors import (
    ConfigError,
    FormatError,
    HeadMissingError,
    LeaseLostError,
    StaleHeadError,
    UnavailableError,
    UnknownOutcomeError,
    UsageError,
)
from counterfoil.local.etcd import LocalEtcd
from counterfoil.ports import Head
from counterfoil.stores.etcd import BATCH_MAX, EtcdHeads, open_heads
from counterfoil.stores.etcd_gateway import KEEPS_MAX
from counterfoil.testing.store_bench import OTHER_RUN, RUN, TTL_MS, created, digest_of, move
from tests.support.etcd import (
    TTL_MS as SHORT_MS,
)
from tests.support.etcd import (
    fresh_prefix,
    gateway_to,
    left_s,
    opened,
    wait_for_etcd,
)
from tests.support.etcd_proxy import Answer, EtcdProxy, Fate, on, writes

pytest_plugins = ["tests.support.etcd"]

LONG_MS = 1_000_000
GRANT, KEEP, REVOKE = "/v3/lease/grant", "/v3/lease/keepalive", "/v3/lease/revoke"


class Scene:
    """A register reached through a proxy, and the same one reached without."""

    def __init__(self, server: LocalEtcd, proxy: EtcdProxy, stack: ExitStack) -> None:
        self.prefix = fresh_prefix()
        self.proxy = proxy
        self.direct = opened(server, self.prefix)
        stack.callback(self.direct.close)
        self.heads = open_heads(proxy.through(server.url(self.prefix)), create=False)
        stack.callback(self.heads.close)
        self.gateway = gateway_to(server, self.prefix)
        stack.callback(self.gateway.close)

    def present(self) -> Head:
        head = self.direct.read(RUN)
        assert head is not None
        return head


@pytest.fixture
def scene(etcd: LocalEtcd) -> Generator[Scene]:
    with ExitStack() as stack, EtcdProxy(etcd.endpoints[0]) as proxy:
        yield Scene(etcd, proxy, stack)


def advance(heads: EtcdHeads, head: Head) -> object:
    return heads.advance([move(head)])


def renew(heads: EtcdHeads, head: Head) -> object:
    return heads.renew(head, TTL_MS)


def release(heads: EtcdHeads, head: Head) -> object:
    return heads.release(head)


def create(heads: EtcdHeads, head: Head) -> object:
    return created(heads, OTHER_RUN)


def acquire(heads: EtcdHeads, head: Head) -> object:
    heads.release(head)
    free = heads.read(RUN)
    assert free is not None
    return heads.acquire(free, "two", "other", TTL_MS)


CALLS = [advance, renew, release, create]


def named(call: Callable[..., object]) -> str:
    return call.__name__


# ---------------------------------------------------------------- lost, cut and odd


@pytest.mark.parametrize("fate", [Fate.LOSE_REQUEST, Fate.LOSE_ANSWER, Fate.CUT_ANSWER])
@pytest.mark.parametrize("call", CALLS, ids=named)
def test_a_write_whose_answer_does_not_come_is_unknown(
    scene: Scene, call: Callable[..., object], fate: Fate
) -> None:
    head = created(scene.heads)
    scene.proxy.arm(fate)
    with pytest.raises(UnknownOutcomeError):
        call(scene.heads, head)


def test_a_commit_whose_answer_was_lost_is_there_to_be_read(scene: Scene) -> None:
    head = created(scene.heads)
    scene.proxy.arm(Fate.LOSE_ANSWER)
    with pytest.raises(UnknownOutcomeError):
        scene.heads.advance([move(head)])
    present = scene.heads.read(RUN)
    assert present is not None
    assert (present.generation, present.checkpoint) == (1, move(head).checkpoint)
    with pytest.raises(StaleHeadError):
        scene.heads.advance([move(head)])


def test_a_commit_that_was_lost_on_its_way_is_made_by_the_same_call(scene: Scene) -> None:
    head = created(scene.heads)
    scene.proxy.arm(Fate.LOSE_REQUEST)
    with pytest.raises(UnknownOutcomeError):
        scene.heads.advance([move(head)])
    assert scene.heads.read(RUN) == head
    (moved,) = scene.heads.advance([move(head)])
    assert scene.present() == moved


def test_a_write_that_is_lost_is_sent_once(scene: Scene) -> None:
    head = created(scene.heads)
    before = len(scene.proxy.seen)
    scene.proxy.arm(Fate.LOSE_REQUEST)
    with pytest.raises(UnknownOutcomeError):
        scene.heads.advance([move(head)])
    assert scene.proxy.seen[before:] == [KEEP, "/v3/kv/txn"]


def test_a_commit_that_arrives_after_a_takeover_changes_nothing(scene: Scene) -> None:
    head = created(scene.heads, ttl_ms=SHORT_MS)
    scene.proxy.arm(Fate.DELIVER_LATE)
    with pytest.raises(UnknownOutcomeError):
        scene.heads.advance([move(head, ttl_ms=SHORT_MS)])
    wait_for_etcd(scene.gateway, SHORT_MS)
    taken = scene.direct.acquire(head, "two", "other", TTL_MS)
    scene.proxy.deliver()
    assert scene.present() == taken


def test_a_commit_that_arrives_late_counts_while_nobody_took_over(scene: Scene) -> None:
    head = created(scene.heads)
    scene.proxy.arm(Fate.DELIVER_LATE)
    with pytest.raises(UnknownOutcomeError):
        scene.heads.advance([move(head)])
    assert scene.heads.read(RUN) == head
    scene.proxy.deliver()
    with pytest.raises(StaleHeadError):
        scene.heads.advance([move(head)])
    assert scene.present().checkpoint == move(head).checkpoint


@pytest.mark.parametrize(
    ("call", "refusal"),
    [
        pytest.param(advance, StaleHeadError, id="advance"),
        pytest.param(create, StaleHeadError, id="create"),
        pytest.param(release, None, id="release"),
        pytest.param(renew, None, id="renew"),
    ],
)
def test_a_write_that_the_network_doubles_is_made_once(
    scene: Scene, call: Callable[..., object], refusal: type[Exception] | None
) -> None:
    head = created(scene.heads)
    scene.proxy.arm(Fate.DELIVER_TWICE)
    if refusal is None:
        call(scene.heads, head)
    else:
        with pytest.raises(refusal):
            call(scene.heads, head)
    assert scene.present().generation == (1 if call is advance else 0)
    run_ids = [each.run_id for each in scene.direct.heads("", 9)]
    assert run_ids == ([RUN, OTHER_RUN] if call is create else [RUN])


def test_a_refused_creation_leaves_the_lease_of_the_one_before(scene: Scene) -> None:
    scene.proxy.arm(Fate.DELIVER_TWICE)
    with pytest.raises(StaleHeadError):
        created(scene.heads)
    scene.direct.advance([move(scene.present())])


def test_a_release_that_the_network_doubles_pauses_the_run(etcd: LocalEtcd, scene: Scene) -> None:
    """Also for who looks at it before the pause is over, whose clock is ahead."""
    head = created(scene.heads)
    scene.proxy.arm(Fate.DELIVER_TWICE)
    scene.heads.release(head, LONG_MS)
    assert scene.present().nonce == ""
    ahead = opened(etcd, scene.prefix, now_ms=lambda: 2**60)
    assert ahead.claimable(9) == ()
    ahead.close()


def test_an_acquisition_whose_answer_was_lost_is_the_callers_by_its_nonce(scene: Scene) -> None:
    head = created(scene.direct)
    scene.direct.release(head)
    free = scene.present()
    scene.proxy.arm(Fate.LOSE_ANSWER)
    with pytest.raises(UnknownOutcomeError):
        scene.heads.acquire(free, "two", "other", TTL_MS)
    held = scene.present()
    assert (held.owner, held.nonce, held.lease_version) == ("two", "other", 2)
    with pytest.raises(LeaseLostError):
        scene.heads.acquire(free, "two", "other", TTL_MS)
    scene.heads.advance([move(held)])


ODD = {
    "no JSON": b"<html>",
    "another shape": b"[]",
    "no header": b'{"succeeded":true}',
    "a number for a text": b'{"header":{"cluster_id":1,"member_id":"1","revision":"1"}}',
    "no answers": b'{"header":{"cluster_id":"1","member_id":"1","revision":"9","raft_term":"1"}}',
    "half a character": b'{"header":"\xff"}',
    "nothing": b"",
}


@pytest.mark.parametrize("body", ODD.values(), ids=ODD)
def test_an_odd_answer_leaves_a_write_unknown(scene: Scene, body: bytes) -> None:
    head = created(scene.heads)
    scene.proxy.arm(Answer(200, body, asks_node=True))
    with pytest.raises(UnknownOutcomeError):
        scene.heads.advance([move(head)])
    assert scene.heads.read(RUN) == scene.present() != head


@pytest.mark.parametrize("body", ODD.values(), ids=ODD)
def test_an_odd_answer_is_no_reading(scene: Scene, body: bytes) -> None:
    created(scene.heads)
    scene.proxy.arm(Answer(200, body), on("/v3/kv/txn"))
    with pytest.raises(FormatError):
        scene.heads.read(RUN)


def test_the_answer_of_another_cluster_is_not_believed(scene: Scene) -> None:
    created(scene.heads)
    header = b'"header":{"cluster_id":"1","member_id":"1","revision":"99999999","raft_term":"2"}'
    nothing = b'{"response_range":{}}'
    body = b"{" + header + b',"succeeded":true,"responses":[' + b",".join([nothing] * 3) + b"]}"
    scene.proxy.arm(Answer(200, body), on("/v3/kv/txn"))
    with pytest.raises(FormatError, match="two clusters"):
        scene.heads.read(RUN)


# ---------------------------------------------------------------- refusals and what only seems one


CERTAIN = {
    "no right": (
        403,
        b'{"error":"x","message":"etcdserver: permission denied","code":7}',
        ConfigError,
    ),
    "a lease that ended": (
        404,
        b'{"error":"x","message":"etcdserver: requested lease not found","code":5}',
        LeaseLostError,
    ),
    "no gateway": (404, b"Not Found\n", ConfigError),
    "smaller transactions": (
        400,
        b'{"error":"x","message":"etcdserver: too many operations in txn request","code":3}',
        ConfigError,
    ),
    "damage": (
        500,
        b'{"error":"x","message":"etcdserver: corrupt cluster","code":15}',
        FormatError,
    ),
}


@pytest.mark.parametrize(("status", "body", "kind"), CERTAIN.values(), ids=CERTAIN)
def test_what_etcd_refuses_before_it_applies_it_has_not_happened(
    scene: Scene, status: int, body: bytes, kind: type[Exception]
) -> None:
    head = created(scene.heads)
    scene.proxy.arm(Answer(status, body), writes)
    with pytest.raises(kind):
        scene.heads.advance([move(head)])
    scene.heads.advance([move(head)])


DOUBTFUL = {
    "no leader": (503, b'{"error":"x","message":"etcdserver: no leader","code":14}'),
    "timed out": (503, b'{"error":"x","message":"etcdserver: request timed out","code":14}'),
    "no space": (
        429,
        b'{"error":"x","message":"etcdserver: mvcc: database space exceeded","code":8}',
    ),
    "a proxy": (502, b"Bad Gateway"),
    "a redirection": (307, b""),
    "nobody knows": (500, b'{"error":"x","message":"x","code":2}'),
}


@pytest.mark.parametrize(("status", "body"), DOUBTFUL.values(), ids=DOUBTFUL)
def test_what_may_have_been_applied_is_unknown(scene: Scene, status: int, body: bytes) -> None:
    head = created(scene.heads)
    scene.proxy.arm(Answer(status, body, asks_node=True))
    with pytest.raises(UnknownOutcomeError):
        scene.heads.advance([move(head)])
    assert scene.heads.read(RUN) == scene.present() != head


@pytest.mark.parametrize(("status", "body"), DOUBTFUL.values(), ids=DOUBTFUL)
def test_a_reading_that_is_refused_so_is_made_again(scene: Scene, status: int, body: bytes) -> None:
    head = created(scene.heads)
    scene.proxy.arm(Answer(status, body), on("/v3/kv/txn"))
    assert scene.heads.read(RUN) == head
    assert scene.proxy.has_struck.is_set()


@pytest.mark.parametrize("fate", [Fate.LOSE_REQUEST, Fate.LOSE_ANSWER, Fate.CUT_ANSWER])
@pytest.mark.parametrize("path", [GRANT, KEEP, "/v3/kv/txn"])
def test_what_only_asks_or_lengthens_is_asked_again(scene: Scene, path: str, fate: Fate) -> None:
    head = created(scene.direct)
    scene.direct.release(head)
    scene.proxy.arm(fate, lambda asked, body: asked == path and not writes(asked, body))
    free = scene.heads.read(RUN)
    assert free is not None
    held = scene.heads.acquire(free, "two", "other", TTL_MS)
    scene.heads.advance([move(held)])
    assert scene.proxy.has_struck.is_set()


def test_a_lease_that_cannot_be_ended_ends_by_itself(scene: Scene) -> None:
    head = created(scene.heads)
    for _ in range(100):
        scene.proxy.arm(Answer(503, b""), on(REVOKE))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("counterfoil.stores.etcd_gateway.ROUNDS_MAX", 2)
        scene.heads.release(head)
    assert scene.present().nonce == ""


# ---------------------------------------------------------------- what lies there


@contextmanager
def tampered(etcd: LocalEtcd, scene: Scene, key: str, value: bytes | None) -> Generator[None]:
    """Write to etcd past the register."""
    name = base64.b64encode(f"{scene.prefix}/{key}".encode()).decode()
    base = scene.gateway.address.endpoints[0]
    call = "deleterange" if value is None else "put"
    body: dict[str, Any] = {"key": name}
    if value is not None:
        body["value"] = base64.b64encode(value).decode()
    answer = scene.gateway._client.post(f"{base}/v3/kv/{call}", json=body)
    assert answer.is_success
    yield


SOUND = (
    b'{"checkpoint":"%s","generation":0,"incarnation":"i","lease_version":1,"nonce":"n",'
    b'"owner":"o","status":"active"}' % (b"a" * 64)
)
DAMAGED = {
    "no JSON": ("head", b"x"),
    "a field more": ("head", SOUND[:-1] + b',"z":1}'),
    "a field less": ("head", SOUND.replace(b'"owner":"o",', b"")),
    "another spelling": ("head", SOUND.replace(b":0", b": 0")),
    "another status": ("head", SOUND.replace(b"active", b"done")),
    "no digest": ("head", SOUND.replace(b"a" * 64, b"a" * 63)),
    "a negative number": ("head", SOUND.replace(b'"generation":0', b'"generation":-1')),
    "no incarnation": ("head", SOUND.replace(b'"incarnation":"i"', b'"incarnation":""')),
    "an end that is no number": ("until", b"soon"),
    "no head": ("head", None),
    "no end": ("until", None),
}


@pytest.mark.parametrize(("key", "value"), DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_head_is_not_read(
    etcd: LocalEtcd, scene: Scene, key: str, value: bytes | None
) -> None:
    created(scene.heads)
    with tampered(etcd, scene, f"{key}/{RUN}", value):
        for read in (lambda: scene.heads.read(RUN), lambda: scene.heads.heads("", 9)):
            with pytest.raises(FormatError):
                read()


def test_a_register_that_was_taken_away_makes_no_run_look_new(
    etcd: LocalEtcd, scene: Scene
) -> None:
    with tampered(etcd, scene, "register", None):
        with pytest.raises(HeadMissingError, match="taken away"):
            scene.heads.read(RUN)
        with pytest.raises(HeadMissingError, match="taken away"):
            created(scene.heads)
        assert scene.gateway.address.prefix == scene.prefix


def test_a_register_that_was_replaced_makes_no_run_look_new(etcd: LocalEtcd, scene: Scene) -> None:
    with tampered(etcd, scene, "register", b"another"), pytest.raises(HeadMissingError):
        scene.heads.read(RUN)


def test_heads_without_a_register_are_not_taken_for_a_new_one(
    etcd: LocalEtcd, scene: Scene
) -> None:
    created(scene.heads)
    with (
        tampered(etcd, scene, "register", None),
        pytest.raises(HeadMissingError, match="no head register"),
    ):
        opened(etcd, scene.prefix)


def test_a_register_is_set_up_only_when_asked_to(etcd: LocalEtcd) -> None:
    prefix = fresh_prefix()
    with pytest.raises(HeadMissingError, match="no head register below"):
        opened(etcd, prefix, create=False)
    opened(etcd, prefix).close()
    opened(etcd, prefix, create=False).close()


def test_the_name_of_a_register_is_given_once(etcd: LocalEtcd) -> None:
    prefix = fresh_prefix()
    first = opened(etcd, prefix, incarnation=lambda: "first")
    second = opened(etcd, prefix, incarnation=lambda: "second")
    assert (first.incarnation, second.incarnation) == ("first", "first")
    first.close()
    second.close()


def test_a_register_whose_naming_was_not_answered_has_the_name_that_is_there(
    etcd: LocalEtcd,
) -> None:
    prefix = fresh_prefix()
    with EtcdProxy(etcd.endpoints[0]) as proxy:
        proxy.arm(Fate.LOSE_ANSWER)
        heads = open_heads(
            proxy.through(etcd.url(prefix)), create=True, incarnation=lambda: "first"
        )
        assert heads.incarnation == "first"
        heads.close()


# ---------------------------------------------------------------- bounds, forks and ends


def test_a_batch_may_be_as_long_as_its_bound_and_not_longer(scene: Scene) -> None:
    names = [f"run {number}" for number in range(BATCH_MAX + 1)]
    heads = [created(scene.heads, name, ttl_ms=LONG_MS) for name in names]
    with pytest.raises(UsageError, match=str(BATCH_MAX)):
        scene.heads.advance([move(head) for head in heads])
    moves = [move(head, status="frozen", ttl_ms=LONG_MS * 2) for head in heads[:BATCH_MAX]]
    moved = scene.heads.advance(moves)
    assert [head.generation for head in moved] == [1] * BATCH_MAX
    assert scene.direct.heads("", BATCH_MAX + 9)[-1].generation in {0, 1}
    assert scene.heads.batch_max == BATCH_MAX


def test_many_leases_are_kept_alive_however_much_of_the_request_is_read(scene: Scene) -> None:
    gateway = scene.gateway
    lease_ids = tuple(2**62 + number for number in range(KEEPS_MAX * 4))
    for lease_id in lease_ids:
        gateway.grant(lease_id, 60)
    for _ in range(30):
        assert gateway.keep(lease_ids).ttls == dict.fromkeys(lease_ids, 60)
    gone = (*lease_ids, 2**61)
    for lease_id in lease_ids:
        gateway.revoke(lease_id)
    assert gateway.keep(gone).ttls == dict.fromkeys(gone, 0)


def test_a_longer_term_is_another_lease_and_a_shorter_one_is_not(scene: Scene) -> None:
    head = created(scene.heads, ttl_ms=SHORT_MS)
    longer = scene.heads.renew(head, TTL_MS)
    (moved,) = scene.heads.advance([move(longer, ttl_ms=1)])
    wait_for_etcd(scene.gateway, SHORT_MS * 3)
    scene.direct.advance([move(moved)])


@pytest.mark.parametrize("call", [advance, renew], ids=named)
def test_the_lease_that_is_kept_alive_is_the_one_that_the_hold_is_on(
    scene: Scene, call: Callable[..., object]
) -> None:
    """A shorter term is asked for while the lease that the hold was on before is alive, too."""
    head = created(scene.heads)
    longer = scene.heads.renew(head, TTL_MS * 2)
    lease_id = scene.heads._leases.id_of(RUN, head.nonce, 1, TTL_MS * 2)
    wait_for_etcd(scene.gateway, SHORT_MS * 2)
    before = left_s(scene.gateway, lease_id)
    call(scene.heads, longer)
    assert left_s(scene.gateway, lease_id) > before


def test_one_thread_may_renew_while_another_asks_for_longer_terms(scene: Scene) -> None:
    head = created(scene.heads, ttl_ms=SHORT_MS)
    (moved,) = scene.heads.advance([move(head, ttl_ms=TTL_MS)])
    renewed = scene.direct.renew(head, SHORT_MS)
    assert renewed == replace(moved, expires_at_ms=renewed.expires_at_ms)
    scene.heads.advance([move(moved, ttl_ms=TTL_MS * 2)])


def test_a_term_longer_than_etcd_grants_is_refused(scene: Scene) -> None:
    with pytest.raises(UsageError, match="longer than etcd grants"):
        created(scene.heads, ttl_ms=2**50)


def test_a_run_id_that_has_no_bytes_is_refused(scene: Scene) -> None:
    with pytest.raises(UsageError):
        scene.heads.read("\ud800")


def test_many_runs_are_listed_and_claimed_past_those_that_are_held(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("counterfoil.stores.etcd_listing.PAGE_MAX", 7)
    monkeypatch.setattr("counterfoil.stores.etcd_listing.SPARE", 2)
    heads = [created(scene.heads, f"run {number:03}", ttl_ms=LONG_MS) for number in range(24)]
    for head in heads[5:]:
        scene.heads.release(head)
    assert [head.run_id for head in scene.heads.heads("", 99)] == [h.run_id for h in heads]
    assert [head.run_id for head in scene.heads.heads("", 15)] == [h.run_id for h in heads[:15]]
    claimed = [head.run_id for head in scene.heads.claimable(16)]
    assert claimed == [head.run_id for head in heads[5:21]]


def test_a_register_is_not_used_across_a_fork(scene: Scene) -> None:
    head = created(scene.heads)
    child = os.fork()
    if child == 0:  # pragma: no cover - the child's lines are counted by nobody
        code = 1
        try:
            scene.heads.read(RUN)
        except UsageError:
            scene.heads.close()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    scene.heads.advance([move(head)])


def test_a_closed_register_is_refused_in_our_words(scene: Scene) -> None:
    scene.heads.close()
    scene.heads.close()
    with pytest.raises(UsageError, match="closed"):
        scene.heads.read(RUN)


def test_nothing_is_sent_where_nobody_listens() -> None:
    url = "etcd://127.0.0.1:1,127.0.0.1:2/counterfoil"
    with pytest.raises(UnavailableError, match=r"127\.0\.0\.1:1, 127\.0\.0\.1:2"):
        open_heads(url, create=False)


def test_a_head_of_another_owner_is_not_the_one_that_was_expected(scene: Scene) -> None:
    head = created(scene.heads)
    with pytest.raises(StaleHeadError):
        scene.heads.advance([move(replace(head, owner="another"))])
    other = created(scene.heads, OTHER_RUN)
    batch = [move(head), move(replace(head, generation=1, checkpoint=digest_of("no"))), move(other)]
    with pytest.raises(StaleHeadError):
        scene.heads.advance(batch)
    assert scene.present() == head
