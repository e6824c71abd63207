"""What single answers of a service mean, and what is kept of them; bounds, times and secrets."""

import json
import os
import select
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace as changed
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from counterfoil.adapters.http import (
    Endpoint,
    Fields,
    Meaning,
    Question,
    Secret,
    Service,
    When,
)
from counterfoil.adapters.http.asking import key_header, wire_key
from counterfoil.adapters.http.declare import KeyForm
from counterfoil.core.canonical import encode
from counterfoil.core.errors import (
    CounterfoilError,
    FencedError,
    IdempotencyConflictError,
    PermissionDeniedError,
    RefusedError,
    UnavailableError,
    UnknownOutcomeError,
)
from counterfoil.core.intent import EnvironmentState
from counterfoil.core.receipt import Answer, Receipt
from counterfoil.core.words import Key, Level, Risk, RunId
from counterfoil.engine import audit
from counterfoil.ports import Adapter, Operation
from counterfoil.testing.adapter_bench import (
    FENCE,
    KEY,
    NEWER,
    OTHER_RUN,
    RUN,
    AdapterBench,
    Call,
    operation,
)
from tests.support.http_bench import (
    ASGI,
    STDLIB,
    Door,
    Shop,
    bench_at,
    door,
    from_environment,
    running,
    service,
)
from tests.support.http_proxy import said
from tests.support.http_scene import order_once, shown, skus, staged

LONGEST_MS = 300
"""Longest that a call may take which is made to take too long."""

CALLS_MAX = 100
STATE = EnvironmentState(adapter="orders", instance="shop-1")


@pytest.fixture(scope="module")
def shop(tmp_path_factory: Any) -> Iterator[Shop]:
    folder: Path = tmp_path_factory.mktemp("shop")
    with running(STDLIB, folder) as opened:
        yield opened


@pytest.fixture(scope="module")
def asgi(tmp_path_factory: Any) -> Iterator[Shop]:
    folder: Path = tmp_path_factory.mktemp("asgi")
    with running(ASGI, folder) as opened:
        yield opened


@pytest.fixture
def at(shop: Shop) -> Iterator[Door]:
    opened = door(shop)
    yield opened
    opened.close()


@pytest.fixture
def behind(asgi: Shop) -> Iterator[Door]:
    opened = door(asgi)
    yield opened
    opened.close()


def opened(at: Door, level: Level, **more: Any) -> tuple[Adapter, AdapterBench]:
    declared = service(at.url, level, from_environment(at.tenant), is_watched=False, **more)
    return at.open(declared), bench_at(at, declared)


def called(adapter: Adapter, sent: Operation) -> Receipt:
    """Make a call, anew where its time was over before a byte of it was sent."""
    for _ in range(CALLS_MAX):
        with suppress(UnavailableError):
            return adapter.execute(sent)
    raise AssertionError(f"{CALLS_MAX} calls were not sent")


def held(at: Door) -> tuple[Operation, AdapterBench]:
    """Let the first call under a key be under way at the shop, and its caller be gone."""
    at.fault("hold")
    slow, bench = opened(at, Level.DEDUPLICATING, call_ms=LONGEST_MS)
    sent = operation(bench, slow, bench.write(1))
    while not at.is_begun():
        with pytest.raises(UnknownOutcomeError):
            called(slow, sent)
    return sent, bench


def read(at: Door, path: str, **more: Any) -> Any:
    """Return the result of a read of one place of the shop."""
    given: dict[str, Any] = {"risk": Risk.READ_ONLY} | more
    looked = Endpoint(name="look", method="GET", url=f"{at.url}/{path}", **given)
    token = from_environment(at.tenant)
    declared = Service(name="orders", endpoints=(looked,), headers={"Authorization": token})
    adapter = at.open(declared)
    call = Call(kind="look", arguments={})
    return adapter.execute(operation(bench_at(at, declared), adapter, call)).result


# ---------------------------------------------------------------- keys on the wire


@pytest.mark.parametrize(
    ("form", "sent"),
    [
        pytest.param("quoted", b'Idempotency-Key: "key-1"', id="a string of the draft"),
        pytest.param("bare", b"Idempotency-Key: key-1", id="a bare token"),
        pytest.param("none", None, id="no header"),
    ],
)
def test_the_key_travels_as_the_service_wants_it(
    form: KeyForm, sent: bytes | None, at: Door
) -> None:
    adapter, bench = opened(at, Level.QUERYABLE, key_form=form)
    adapter.execute(operation(bench, adapter, bench.write(1)))
    (request,) = (seen for seen in at.proxy.seen if seen.startswith(b"POST"))
    lines = request.split(b"\r\n\r\n")[0].split(b"\r\n")
    found = [line for line in lines if line.lower().startswith(b"idempotency-key")]
    assert found == ([sent] if sent else [])


def test_the_key_has_another_header_where_the_service_names_one(at: Door) -> None:
    adapter, bench = opened(at, Level.QUERYABLE, key_form="bare", key_header="X-Request-Id")
    adapter.execute(operation(bench, adapter, bench.write(1)))
    assert b"X-Request-Id: key-1\r\n" in b"".join(at.proxy.seen)


@pytest.mark.parametrize(
    "key",
    ["a b", "ä", "a/b", "../a", ".", "..", 'a"b', "a\\b", "a,b", "-a", "sha256-00", "k/" * 99],
)
def test_a_key_that_would_not_arrive_as_it_is_travels_as_its_digest(key: str) -> None:
    sent = wire_key(Key(key))
    assert sent.startswith("sha256-")
    assert sent != key
    assert key_header(Key(key), "quoted") == f'"{sent}"'


@pytest.mark.parametrize("key", ["a", "A", "order-42", "0", "k" * 200, "a.b_c~d:e-f"])
def test_a_plain_key_travels_as_it_is(key: str) -> None:
    assert wire_key(Key(key)) == key


@pytest.mark.parametrize(
    "run_id",
    [
        pytest.param(text, id=f"T26 {name}")
        for name, text in (
            ("statement", "r'); DROP TABLE orders;--"),
            ("separators", "a/../b;2;c%2F"),
            ("quotes", "\"a'b`"),
            ("other scripts", "\u0440\u0443\u043d \U0001f9fe"),
        )
    ],
)
def test_a_run_of_any_name_is_kept_by_the_service_as_it_is(run_id: str, behind: Door) -> None:
    adapter, bench = opened(behind, Level.TRANSACTIONAL)
    run = RunId(run_id)
    assert adapter.take(run, FENCE) is None
    receipt = adapter.execute(operation(bench, adapter, bench.write(1), run_id=run))
    said = adapter.look_up(run, KEY, "orders.create")
    assert (said.answer, said.receipt) == (Answer.FOUND, receipt)


def test_two_calls_of_one_intent_are_the_same_bytes(at: Door) -> None:
    adapter, bench = opened(at, Level.DEDUPLICATING)
    sent = operation(bench, adapter, bench.write(1))
    adapter.execute(sent)
    adapter.execute(replace(sent, fence=NEWER))
    assert at.proxy.seen[0] == at.proxy.seen[1]


# ---------------------------------------------------------------- what answers mean


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        pytest.param("instead:429", UnavailableError, id="429 is put off"),
        pytest.param("instead:401", PermissionDeniedError, id="401 is refused"),
        pytest.param("instead:400-conflict", RefusedError, id="400 is refused"),
        pytest.param("instead:503", UnknownOutcomeError, id="503 says nothing"),
        pytest.param("instead:507", UnknownOutcomeError, id="507, a full service, says nothing"),
        pytest.param("instead:307", UnknownOutcomeError, id="307 says nothing"),
        pytest.param("instead:hang-up", UnknownOutcomeError, id="no answer says nothing"),
        pytest.param("503-after", UnknownOutcomeError, id="503 after the effect says nothing"),
        pytest.param("cut", UnknownOutcomeError, id="half an answer says nothing"),
    ],
)
def test_only_what_says_that_nothing_happened_is_taken_so(
    fault: str, error: type[CounterfoilError], at: Door
) -> None:
    at.fault(fault)
    adapter, bench = opened(at, Level.DEDUPLICATING)
    with pytest.raises(error):
        adapter.execute(operation(bench, adapter, bench.write(1)))
    assert at.proxy.writes() == 1


@pytest.mark.parametrize(
    ("meaning", "error"),
    [
        pytest.param(Meaning.REFUSED, RefusedError, id="refused"),
        pytest.param(Meaning.UNAVAILABLE, UnavailableError, id="unavailable"),
        pytest.param(Meaning.CONFLICT, IdempotencyConflictError, id="conflict"),
        pytest.param(Meaning.UNKNOWN, UnknownOutcomeError, id="unknown"),
    ],
)
def test_a_declared_meaning_comes_before_that_of_the_status(
    meaning: Meaning, error: type[CounterfoilError], at: Door
) -> None:
    at.fault("instead:503")
    means = ((When(status=503, at="/title", equals="not now"), meaning),)
    adapter, bench = opened(at, Level.DEDUPLICATING, means=means)
    with pytest.raises(error):
        adapter.execute(operation(bench, adapter, bench.write(1)))


def test_a_declared_meaning_of_another_body_does_not_count(at: Door) -> None:
    at.fault("instead:503")
    means = ((When(status=503, at="/title", equals="never"), Meaning.REFUSED),)
    adapter, bench = opened(at, Level.DEDUPLICATING, means=means)
    with pytest.raises(UnknownOutcomeError):
        adapter.execute(operation(bench, adapter, bench.write(1)))


def test_a_refusal_names_the_problem_and_not_what_was_sent(at: Door) -> None:
    at.fault("instead:401")
    adapter, bench = opened(at, Level.DEDUPLICATING)
    with pytest.raises(PermissionDeniedError, match="status 401, 'not now'") as caught:
        adapter.execute(operation(bench, adapter, bench.write(1)))
    assert "A-1" not in str(caught.value)


def test_a_replay_can_be_told_by_the_body_alone(at: Door) -> None:
    mark = When(status=201, at="/again", equals=True)
    adapter, bench = opened(at, Level.QUERYABLE, replayed=mark)
    call = Call(kind="orders.create", arguments={"body": {"sku": "A-1", "again": True}})
    assert adapter.execute(operation(bench, adapter, call)).replayed
    assert not adapter.execute(operation(bench, adapter, bench.write(2), key=Key("k2"))).replayed


def test_while_the_first_call_is_under_way_it_is_asked_for_and_not_sent_again(at: Door) -> None:
    sent, _ = held(at)
    writes = at.proxy.writes()
    pauses: list[float] = []

    def let_go(seconds: float) -> None:
        pauses.append(seconds)
        at.fault("go", f"{at.tenant}/go")

    declared = service(at.url, Level.DEDUPLICATING, from_environment(at.tenant), is_watched=False)
    adapter = at.open(declared, pause=let_go)
    receipt = adapter.execute(replace(sent, timeout_ms=60_000))
    assert receipt.replayed
    assert (skus(at), at.proxy.writes()) == (("A-1",), writes + 1)
    assert pauses


def test_a_first_call_that_does_not_end_leaves_the_second_unknown(at: Door) -> None:
    sent, _ = held(at)
    adapter, _ = opened(at, Level.DEDUPLICATING, call_ms=LONGEST_MS)
    writes = at.proxy.writes()
    with pytest.raises(UnknownOutcomeError):
        called(adapter, sent)
    assert (skus(at), at.proxy.writes()) == ((), writes + 1)


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        pytest.param(
            {"url": "/orders?reference={key}", "receipt": "/data/0"}, Answer.ABSENT, id="empty"
        ),
        pytest.param({"url": "/receipts/{key}"}, Answer.ABSENT, id="404"),
        pytest.param({"url": "/receipts/{key}", "absent": ()}, Answer.UNKNOWN, id="404 undeclared"),
        pytest.param(
            {"url": "/orders?reference={key}", "receipt": "/rows/0"},
            Answer.UNKNOWN,
            id="another form",
        ),
        pytest.param({"url": "/state?key={key}"}, Answer.UNKNOWN, id="no receipt of this key"),
        pytest.param({"url": "/huge?key={key}"}, Answer.UNKNOWN, id="T30 without end"),
        pytest.param({"url": "/moved?key={key}"}, Answer.UNKNOWN, id="T27 a redirect"),
        pytest.param({"url": "/drip?key={key}"}, Answer.UNKNOWN, id="T20 one byte at a time"),
    ],
)
def test_absent_is_only_what_is_said_in_so_many_words(
    question: dict[str, Any], answer: Answer, at: Door
) -> None:
    asked = Question(**(question | {"url": f"{at.url}{question['url']}"}))
    more = {"call_ms": LONGEST_MS} if "drip" in asked.url else {}
    adapter, _ = opened(at, Level.QUERYABLE, look_up=asked, **more)
    assert adapter.look_up(RUN, KEY, "orders.create").answer is answer


def test_a_look_up_can_be_posted(at: Door) -> None:
    asked = Question(
        url=f"{at.url}/elsewhere",
        method="POST",
        body={"filter": {"kind": "order"}},
        marks={"/filter/reference": "key", "/filter/run": "run"},
        receipt="/data/0",
    )
    adapter, _ = opened(at, Level.QUERYABLE, look_up=asked)
    adapter.look_up(RUN, KEY, "orders.create")
    sent = json.loads(at.proxy.seen[0].partition(b"\r\n\r\n")[2])
    assert sent == {"filter": {"kind": "order", "reference": "key-1", "run": "run-1"}}


def test_a_form_carries_the_key_as_a_business_id(at: Door) -> None:
    adapter, bench = opened(
        at,
        Level.QUERYABLE,
        body="form",
        marks={"/reference": "key"},
        fields=Fields(id="/id", key="/reference"),
    )
    call = Call(kind="orders.create", arguments={"body": {"sku": "a&b=c", "paid": True}})
    receipt = adapter.execute(operation(bench, adapter, call))
    said = adapter.look_up(RUN, KEY, "orders.create")
    assert said.receipt is not None
    assert said.receipt.id == receipt.id
    (order,) = at.orders()
    assert (order["sku"], order["paid"], order["reference"]) == ("a&b=c", "true", "key-1")


@pytest.mark.parametrize(
    ("form", "moment"),
    [
        pytest.param(1_700_000_000_123, 1_700_000_000_123, id="milliseconds"),
        pytest.param(1_700_000_000, 1_700_000_000_000, id="seconds"),
        pytest.param("2023-11-14T22:13:20Z", 1_700_000_000_000, id="text"),
        pytest.param("2023-11-14T22:13:20", 0, id="text without a zone"),
        pytest.param(True, 0, id="a truth value"),
        pytest.param(-5, 0, id="before 1970"),
    ],
)
def test_a_moment_is_read_in_the_forms_that_services_use(
    form: object, moment: int, at: Door
) -> None:
    fields = Fields(id="/id", key="/reference", committed_at="/when")
    adapter, bench = opened(at, Level.QUERYABLE, fields=fields)
    call = Call(kind="orders.create", arguments={"body": {"sku": "A-1", "when": form}})
    adapter.execute(operation(bench, adapter, call))
    said = adapter.look_up(RUN, KEY, "orders.create")
    assert said.receipt is not None
    assert said.receipt.committed_at_ms == moment


# ---------------------------------------------------------------- the service's own receipts


def test_the_receipt_that_is_found_is_in_all_the_one_that_was_given(behind: Door) -> None:
    adapter, bench = opened(behind, Level.TRANSACTIONAL)
    sent = replace(operation(bench, adapter, bench.write(1)), statement="a" * 64)
    receipt = adapter.execute(sent)
    said = adapter.look_up(RUN, KEY, "orders.create")
    again = adapter.execute(sent)
    assert said.receipt == receipt
    assert again == replace(receipt, replayed=True)


def test_the_same_request_of_another_run_is_a_conflict(behind: Door) -> None:
    adapter, bench = opened(behind, Level.TRANSACTIONAL)
    adapter.execute(operation(bench, adapter, bench.write(1)))
    with pytest.raises(IdempotencyConflictError):
        adapter.execute(operation(bench, adapter, bench.write(1), run_id=OTHER_RUN))
    assert skus(behind) == ("A-1",)


def test_a_late_call_of_a_former_holder_is_refused_by_the_service(behind: Door) -> None:
    adapter, bench = opened(behind, Level.TRANSACTIONAL)
    behind.proxy.arm("late")
    with pytest.raises(UnknownOutcomeError):
        adapter.execute(operation(bench, adapter, bench.write(1)))
    adapter.take(RUN, NEWER)
    behind.proxy.arrive()
    assert skus(behind) == ()
    with pytest.raises(FencedError):
        adapter.execute(operation(bench, adapter, bench.write(1), fence=FENCE))


def test_a_late_call_under_a_key_that_was_given_up_does_nothing(behind: Door) -> None:
    adapter, bench = opened(behind, Level.TRANSACTIONAL)
    behind.proxy.arm("late")
    with pytest.raises(UnknownOutcomeError):
        adapter.execute(operation(bench, adapter, bench.write(1)))
    said = adapter.forbid(RUN, KEY, "orders.create", FENCE)
    behind.proxy.arrive()
    assert (said.answer, skus(behind)) == (Answer.ABSENT, ())


def test_a_success_that_is_on_no_record_is_unknown(at: Door) -> None:
    declared = service(at.url, Level.TRANSACTIONAL, from_environment(at.tenant))
    elsewhere = changed(declared.endpoints[0], url=f"{at.url}/plain/orders")
    declared = changed(declared, endpoints=(elsewhere,))
    adapter, bench = at.open(declared), bench_at(at, declared)
    place = '{"instance": "a", "client": "b", "retention_ms": 86400000, "commits": null}'
    at.proxy.arm(said("200 OK", place, "application/json"), lambda head: b"/receipts " in head)
    with pytest.raises(UnknownOutcomeError, match="status 201"):
        adapter.execute(operation(bench, adapter, bench.write(1), prestate=STATE))


# ---------------------------------------------------------------- the state it is built on


def watching(at: Door) -> tuple[Adapter, AdapterBench]:
    token = from_environment(at.tenant)
    declared = service(at.url, Level.DEDUPLICATING, token, if_match=True)
    return at.open(declared), bench_at(at, declared)


def test_the_etag_that_was_observed_is_what_the_service_compares(at: Door) -> None:
    adapter, bench = watching(at)
    adapter.execute(operation(bench, adapter, bench.write(1)))
    (request,) = (seen for seen in at.proxy.seen if seen.startswith(b"POST"))
    assert b'If-Match: "v0"\r\n' in request


@pytest.mark.parametrize("form", ["weak", "untagged"])
def test_a_state_that_the_service_shows_without_a_strong_etag_is_not_sent(
    form: str, at: Door
) -> None:
    at.fault("shown", f"{at.tenant}/{form}")
    adapter, bench = watching(at)
    with pytest.raises(RefusedError, match="nothing was sent"):
        adapter.execute(operation(bench, adapter, bench.write(1)))
    assert at.proxy.writes() == 0


@pytest.mark.parametrize(
    "fingerprint",
    ["", "v1", 'W/"v1"', '"v1', 'v1"', '"v1", "v2"', '"a b"', '"\u00e4"', '"a"b"', "*", '"a\r\n"'],
)
def test_only_a_strong_etag_is_sent_with_if_match(fingerprint: str, at: Door) -> None:
    adapter, bench = watching(at)
    sent = operation(bench, adapter, bench.write(1))
    sent = replace(sent, prestate=replace(sent.prestate, fingerprint=fingerprint))
    with pytest.raises(RefusedError, match="which If-Match does not compare"):
        adapter.execute(sent)
    assert at.proxy.writes() == 0


# ---------------------------------------------------------------- reads


def test_a_read_returns_what_the_service_shows(at: Door) -> None:
    assert read(at, "state")["version"] == 0


@pytest.mark.parametrize(
    ("path", "error"),
    [
        pytest.param("nowhere", RefusedError, id="404"),
        pytest.param("huge", UnavailableError, id="T30 an answer without end"),
        pytest.param("drip", UnavailableError, id="T30 one byte at a time"),
    ],
)
def test_a_read_that_fails_says_how(path: str, error: type[CounterfoilError], at: Door) -> None:
    with pytest.raises(error):
        read(at, path, **({"call_ms": LONGEST_MS} if path == "drip" else {}))


@pytest.mark.parametrize(
    ("when", "passed"),
    [
        pytest.param(When(status=200, at="/version", equals=0), True, id="the value"),
        pytest.param(When(status=200, at="/version", equals=1), False, id="another value"),
        pytest.param(When(status=200, at="/version", equals=False), False, id="of another type"),
        pytest.param(When(status=200, at="/nowhere"), False, id="no value"),
        pytest.param(When(status=204), False, id="another status"),
        pytest.param(When(at="/instance"), True, id="any success, any value"),
    ],
)
def test_a_verification_passes_by_what_was_declared(when: When, passed: bool, at: Door) -> None:
    result = read(at, "state", risk=Risk.VERIFICATION, passes=when)
    assert result["passed"] is passed


def test_a_preview_shows_the_request_and_no_header(at: Door) -> None:
    adapter: Any = opened(at, Level.DEDUPLICATING)[0]
    text = adapter.preview("orders.create", {"body": {"sku": "A-1"}})
    assert text == f'POST {at.url}/keyed/orders\n\n{{"sku":"A-1"}}'


# ---------------------------------------------------------------- time


@pytest.mark.parametrize("fault", ["drip", "hold"])
def test_a_call_ends_with_its_time_however_slow_the_service_is(fault: str, at: Door) -> None:
    at.fault(fault)
    adapter, bench = opened(at, Level.DEDUPLICATING, call_ms=LONGEST_MS)
    with pytest.raises(UnknownOutcomeError):
        called(adapter, operation(bench, adapter, bench.write(1)))


def test_without_any_time_nothing_is_sent(at: Door) -> None:
    adapter, bench = opened(at, Level.DEDUPLICATING)
    sent = replace(operation(bench, adapter, bench.write(1)), timeout_ms=0)
    with pytest.raises(UnavailableError):
        adapter.execute(sent)
    assert at.proxy.writes() == 0


# ---------------------------------------------------------------- secrets


def test_a_secret_is_in_no_record_though_the_service_shows_it(shop: Shop) -> None:
    with staged(shop, Level.DEDUPLICATING, program=order_once) as (stage, at):
        at.fault("echo")
        stage.work(stage.parts())
        token = f"token-of-{at.tenant}"
        assert any(token.encode() in seen for seen in at.proxy.seen)
        events = [encode(event) for _, event in audit.events(stage.parts(), stage.run_id)]
        kept = b"".join([*events, encode(shown(stage))])
        assert b"[hidden]" in kept
        assert token.encode() not in kept


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        pytest.param("lose", UnknownOutcomeError, id="the answer is lost"),
        pytest.param("drop", UnknownOutcomeError, id="the request is lost"),
        pytest.param("instead:401", PermissionDeniedError, id="it is refused"),
        pytest.param("instead:503", UnknownOutcomeError, id="the service errs"),
    ],
)
def test_a_secret_is_in_no_error_and_no_form_that_is_shown(
    fault: str, error: type[CounterfoilError], at: Door
) -> None:
    adapter, bench = opened(at, Level.DEDUPLICATING)
    if fault.startswith("instead"):
        at.fault(fault)
    else:
        at.proxy.arm(fault)
    with pytest.raises(error) as caught:
        adapter.execute(operation(bench, adapter, bench.write(1)))
    texts = [str(caught.value), repr(caught.value), repr(adapter), repr(adapter.kinds)]
    cause: BaseException | None = caught.value
    while cause is not None:
        texts.append(repr(cause))
        cause = cause.__cause__
    assert not any(f"token-of-{at.tenant}" in text for text in texts)


SECRETS = [
    pytest.param(Secret(environment="COUNTERFOIL_NO_SUCH_VARIABLE"), id="no such variable"),
    pytest.param(Secret(environment="COUNTERFOIL_SHORT"), id="too short"),
    pytest.param(Secret(environment="COUNTERFOIL_LINES"), id="T26 a line in it"),
    pytest.param(Secret(command=("/no/such/command",)), id="no such command"),
    pytest.param(Secret(command=("false",)), id="a command that fails"),
    pytest.param(Secret(command=("sleep", "60")), id="a command that waits"),
    pytest.param(Secret(command=("yes",)), id="T30 a command without end"),
    pytest.param(
        Secret(command=(sys.executable, "-c", "print('x' * 10_000)")), id="T30 a long line"
    ),
]


@pytest.mark.parametrize("secret", SECRETS)
def test_without_its_secret_nothing_is_sent(
    secret: Secret, at: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COUNTERFOIL_SHORT", "1234567")
    monkeypatch.setenv("COUNTERFOIL_LINES", "12345678\r\nX-Other: 1")
    more = {"call_ms": LONGEST_MS} if secret.command == ("sleep", "60") else {}
    declared = service(at.url, Level.DEDUPLICATING, secret, is_watched=False, **more)
    adapter, bench = at.open(declared), bench_at(at, declared)
    with pytest.raises(UnavailableError) as caught:
        adapter.execute(operation(bench, adapter, bench.write(1)))
    assert "1234567" not in str(caught.value)
    assert at.proxy.seen == []


def test_a_secret_is_read_anew_for_each_call(at: Door) -> None:
    command = ("cat", str(at.shop.place) + f".{at.tenant}")
    place = Path(command[1])
    secret = Secret(command=command, form="Bearer {}")
    declared = service(at.url, Level.DEDUPLICATING, secret, is_watched=False)
    adapter, bench = at.open(declared), bench_at(at, declared)
    for number in (1, 2):
        place.write_text(f"token-of-{at.tenant}-{number}\nthe second line is for people\n")
        key = Key(f"key-{number}")
        adapter.execute(operation(bench, adapter, bench.write(number), key=key))
    sent = b"".join(at.proxy.seen)
    assert f"Bearer token-of-{at.tenant}-1\r".encode() in sent
    assert f"Bearer token-of-{at.tenant}-2\r".encode() in sent


def test_a_command_that_is_ended_leaves_no_process(at: Door, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    secret = Secret(command=("sh", "-c", f"sleep 61 & echo $! > {note}; wait"))
    declared = service(at.url, Level.DEDUPLICATING, secret, is_watched=False, call_ms=LONGEST_MS)
    adapter, bench = at.open(declared), bench_at(at, declared)
    with pytest.raises(UnavailableError):
        adapter.execute(operation(bench, adapter, bench.write(1)))
    with suppress(ProcessLookupError):
        ended = os.pidfd_open(int(note.read_text()))
        assert select.select([ended], [], [], 30)[0] == [ended]
        os.close(ended)
