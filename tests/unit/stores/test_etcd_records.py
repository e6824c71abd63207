"""What lies in etcd has one spelling, and what is judged by it follows from it alone."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from counterfoil.core.errors import (
    FormatError,
    HeadMissingError,
    LeaseLostError,
    StaleHeadError,
    UsageError,
)
from counterfoil.core.words import RunId
from counterfoil.ports import Advance, Head
from counterfoil.stores.etcd_heads import BATCH_MAX
from counterfoil.stores.etcd_judging import Present, batch_refusal, plan_of
from counterfoil.stores.etcd_leases import TTL_S_MAX, seconds
from counterfoil.stores.etcd_records import (
    Due,
    Keys,
    decode_head,
    decode_incarnation,
    encode_head,
    encode_until,
    handed_steps,
    hold_value,
    moved_steps,
)
from counterfoil.stores.etcd_wire import TXN_OPERATIONS_MAX, Row, Txn, TxnAnswer, get, put
from counterfoil.testing.store_bench import OTHER_RUN, RUN, TTL_MS, digest_of, move

KEYS = Keys(prefix="p")
NOW_MS = 1_700_000_000_000
HEAD = Head(
    run_id=RUN,
    generation=3,
    checkpoint=digest_of("3"),
    owner="one",
    nonce="nonce",
    lease_version=2,
    expires_at_ms=NOW_MS + TTL_MS,
    incarnation="incarnation",
)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=40)


@given(
    owner=TEXTS,
    nonce=TEXTS,
    incarnation=TEXTS.filter(bool),
    generation=st.integers(0, 2**53 - 1),
    expires_at_ms=st.integers(0, 2**62),
    status=st.sampled_from(["active", "frozen", "terminal"]),
)
def test_a_head_comes_back_as_it_was(**fields: object) -> None:
    head = replace(HEAD, **fields)
    until = encode_until(head.expires_at_ms)
    assert decode_head(RUN, encode_head(head), until) == head


def test_the_spelling_of_a_head_is_this_one() -> None:
    """Whoever changes it makes every head of every register unmovable."""
    assert encode_head(HEAD) == (
        b'{"checkpoint":"' + HEAD.checkpoint.encode() + b'","generation":3,'
        b'"incarnation":"incarnation","lease_version":2,"nonce":"nonce","owner":"one",'
        b'"status":"active"}'
    )
    assert hold_value("nonce", 2) == b'{"lease_version":2,"nonce":"nonce"}'
    assert (KEYS.register, KEYS.of("head", RUN)) == (b"p/register", b"p/head/run-1")
    assert KEYS.hold(RUN) == b"p/hold/0000000000000000000/run-1"
    assert KEYS.active(RUN, NOW_MS) == b"p/active/0000001700000000000/run-1"


@given(first=TEXTS, second=TEXTS)
def test_keys_are_in_the_order_of_code_points(first: str, second: str) -> None:
    one, two = KEYS.of("head", first), KEYS.of("head", second)
    assert (one < two) == (first < second)
    assert one < KEYS.end("head")
    assert KEYS.run_of("head", one) == first
    assert not KEYS.of("head", "") <= KEYS.of("hold", second) < KEYS.end("head")


@given(name=TEXTS.filter(bool), other=TEXTS)
def test_a_page_goes_on_right_behind_a_run(name: str, other: str) -> None:
    assert (KEYS.of("head", other) >= KEYS.after("head", name)) == (other > name)


@pytest.mark.parametrize("key", [b"q/head/x", b"p/hold/x", b"p/head/\xff"])
def test_a_key_of_another_kind_is_damage(key: bytes) -> None:
    with pytest.raises(FormatError):
        KEYS.run_of("head", key)


@given(run_id=TEXTS, due_ms=st.integers(0, 2**62), now_ms=st.integers(-(2**62), 2**62))
def test_a_run_is_looked_at_from_the_moment_on_that_its_key_names(
    run_id: RunId, due_ms: int, now_ms: int
) -> None:
    key = KEYS.active(run_id, due_ms)
    first, end = KEYS.looked_at("active", now_ms)
    assert (first <= key < end) == (due_ms <= max(now_ms, 1))
    assert KEYS.active("", 0) <= key < KEYS.end("active")
    assert KEYS.due_of("active", key) == Due(run_id=run_id, due_ms=due_ms)


@pytest.mark.parametrize("key", [b"p/hold/x", b"p/hold/000000000000000000/x", b"p/active/x"])
def test_a_key_that_does_not_say_when_its_run_is_due_is_damage(key: bytes) -> None:
    with pytest.raises(FormatError):
        KEYS.due_of("hold", key)


@pytest.mark.parametrize("value", [b"", b"two words", "ä".encode(), b"x" * 201])
def test_an_odd_name_of_a_register_is_damage(value: bytes) -> None:
    with pytest.raises(FormatError):
        decode_incarnation(Row(key=b"", value=value))


@pytest.mark.parametrize(
    ("ttl_ms", "ttl_s"),
    [
        pytest.param(1, 1, id="the shortest term is a second"),
        pytest.param(1_000, 1, id="a second is one"),
        pytest.param(1_001, 2, id="terms are rounded up"),
    ],
)
def test_a_lease_is_never_shorter_than_was_asked(ttl_ms: int, ttl_s: int) -> None:
    assert seconds(ttl_ms, RUN) == ttl_s


def test_a_term_beyond_what_etcd_grants_is_refused() -> None:
    with pytest.raises(UsageError):
        seconds(TTL_S_MAX * 1_000 + 1, RUN)


# ---------------------------------------------------------------- batches


def test_a_batch_of_the_bound_fits_one_transaction_in_every_case() -> None:
    """A hold that moves to a longer lease is one operation more."""
    frozen = replace(HEAD, status="frozen")
    for before, after in ((HEAD, HEAD), (HEAD, frozen), (frozen, HEAD)):
        assert (len(moved_steps(KEYS, before, after)) + 1) * BATCH_MAX <= TXN_OPERATIONS_MAX


PAUSED = replace(HEAD, owner="", nonce="", expires_at_ms=NOW_MS)
FREE = replace(PAUSED, expires_at_ms=0)


@pytest.mark.parametrize(
    ("before", "after", "lease_id"),
    [
        pytest.param(HEAD, HEAD, 1, id="created"),
        pytest.param(FREE, HEAD, 1, id="taken"),
        pytest.param(PAUSED, HEAD, 1, id="taken out of a pause"),
        pytest.param(HEAD, FREE, None, id="given up"),
        pytest.param(HEAD, PAUSED, 1, id="given up with a pause"),
        pytest.param(PAUSED, FREE, None, id="its pause ended"),
        pytest.param(PAUSED, PAUSED, 1, id="paused anew"),
    ],
)
def test_handing_over_sets_each_key_once_and_leaves_one_mark(
    before: Head, after: Head, lease_id: int | None
) -> None:
    """Etcd refuses a transaction that names a key twice."""
    steps: Any = handed_steps(KEYS, before, after, lease_id)
    named = [(kind, field["key"]) for step in steps for kind, field in step.items()]
    assert len({key for _, key in named}) == len(named) <= 6
    marks = [key for kind, key in named if kind == "request_put" and key.startswith(b"p/active/")]
    assert marks == [KEYS.active(RUN, 0 if after.nonce else after.expires_at_ms)]


def test_moves_of_one_run_are_folded_into_one() -> None:
    first = move(HEAD)
    middle = replace(HEAD, generation=4, checkpoint=first.checkpoint)
    plan = plan_of([first, move(middle, status="terminal", ttl_ms=TTL_MS * 2)], NOW_MS)
    assert plan.is_sound
    assert [head.generation for head in plan.heads] == [4, 5]
    assert plan.before == {RUN: HEAD}
    assert plan.after == {RUN: plan.heads[1]}
    assert plan.ttls_ms == {RUN: TTL_MS * 2}
    assert plan.heads[1].expires_at_ms == NOW_MS + TTL_MS * 2


def test_moves_against_each_other_are_not() -> None:
    assert not plan_of([move(HEAD), move(HEAD, salt="rival")], NOW_MS).is_sound


HOLD = Row(key=b"p/hold/run-1")
OTHER = replace(HEAD, run_id=OTHER_RUN)


@pytest.mark.parametrize("wall_ms", [0, NOW_MS, 2**50])
@pytest.mark.parametrize(
    ("batch", "present", "kind"),
    [
        pytest.param([move(HEAD)], {RUN: (HEAD, HOLD)}, None, id="held"),
        pytest.param([move(HEAD)], {RUN: (HEAD, None)}, LeaseLostError, id="over"),
        pytest.param([move(HEAD)], {RUN: (None, None)}, HeadMissingError, id="gone"),
        pytest.param(
            [move(replace(HEAD, generation=2))], {RUN: (HEAD, HOLD)}, StaleHeadError, id="stale"
        ),
        pytest.param(
            [move(replace(HEAD, nonce="x"))], {RUN: (HEAD, HOLD)}, LeaseLostError, id="foreign"
        ),
        pytest.param(
            [move(OTHER), move(HEAD)],
            {RUN: (None, None), OTHER_RUN: (OTHER, None)},
            LeaseLostError,
            id="the first that is refused is told",
        ),
    ],
)
def test_what_etcd_says_of_a_lease_decides_whatever_the_wall_clock_says(
    wall_ms: int,
    batch: list[Advance],
    present: dict[RunId, tuple[Head | None, Row | None]],
    kind: type[Exception] | None,
) -> None:
    found = {run_id: Present(head=head, hold=hold) for run_id, (head, hold) in present.items()}
    refusal = batch_refusal(batch, found, wall_ms)
    assert type(refusal) is (kind or type(None))


def test_an_answer_to_other_operations_fits_no_transaction() -> None:
    header = {"cluster_id": "1", "member_id": "1", "revision": "1", "raft_term": "1"}

    def answered(*kinds: str, succeeded: bool) -> TxnAnswer:
        body = {
            "header": header,
            "succeeded": succeeded,
            "responses": [{f"response_{kind}": {}} for kind in kinds],
        }
        return msgspec.json.decode(msgspec.json.encode(body), type=TxnAnswer)

    txn = Txn(success=(put(b"a", b""), get(b"a")), failure=(get(b"a"),))
    assert answered("put", "range", succeeded=True).fits(txn)
    assert answered("range", succeeded=False).fits(txn)
    assert not answered("range", "put", succeeded=True).fits(txn)
    assert not answered("put", succeeded=True).fits(txn)
    assert not answered(succeeded=False).fits(txn)
