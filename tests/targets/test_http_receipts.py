"""Receipts of a service behind the middleware: who asks, who answers, and what is held."""

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace as changed
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from counterfoil.adapters.http import Meaning, Service, Watch, When
from counterfoil.adapters.http.adapter import HttpAdapter
from counterfoil.core.errors import (
    ConfigError,
    FrozenError,
    UnavailableError,
    UnknownOutcomeError,
)
from counterfoil.core.receipt import Answer
from counterfoil.core.review import CaseReason
from counterfoil.core.words import Level
from counterfoil.integrations.asgi import install_journal
from counterfoil.testing.adapter_bench import FENCE, KEY, RUN, AdapterBench, operation
from tests.support import http_ledger as ledger
from tests.support.http_bench import (
    ASGI,
    DAY_MS,
    Door,
    Shop,
    bench_at,
    door,
    from_environment,
    running,
    service,
)
from tests.support.http_proxy import said
from tests.support.http_scene import killed, order_once, shown, skus, staged

RECEIPTS = b"/counterfoil/receipts"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: Any) -> Iterator[Shop]:
    folder: Path = tmp_path_factory.mktemp("shop")
    with running(ASGI, folder) as opened:
        yield opened


@pytest.fixture(scope="module")
def apart(tmp_path_factory: Any) -> Iterator[Shop]:
    folder: Path = tmp_path_factory.mktemp("apart")
    with running(ASGI, folder, options=("apart",)) as opened:
        yield opened


@pytest.fixture
def at(shop: Shop) -> Iterator[Door]:
    opened = door(shop)
    yield opened
    opened.close()


def declared(at: Door, **more: Any) -> Service:
    return service(at.url, Level.TRANSACTIONAL, from_environment(at.tenant), **more)


def opened(at: Door, **more: Any) -> tuple[HttpAdapter, AdapterBench]:
    of_tenant = declared(at, **more)
    return at.open(of_tenant), bench_at(at, of_tenant)


def rotate(at: Door, number: int = 2) -> None:
    """Give a tenant another token, which makes it another client of the middleware."""
    from_environment(at.tenant)
    name = f"TOKEN_OF_{at.tenant.replace('-', '_').upper()}"
    os.environ[name] = f"token-of-{at.tenant}+{number}"


def finding(stage: Any) -> tuple[CaseReason, str]:
    case = shown(stage).case
    assert case is not None
    return case.reason, case.finding


# ---------------------------------------------------------------- who answers


def is_receipt(head: bytes) -> bool:
    return RECEIPTS + b"/" in head.split(b"\r\n", 1)[0]


NO_RECEIPT = '{"type": "urn:counterfoil:no-receipt", "title": "There is no receipt"}'
STALE = '{"type": "urn:counterfoil:stale-fence", "title": "The lease was taken over"}'
BLANK = '{"type": "about:blank", "title": "Not Found"}'
OTHERS = [
    pytest.param(said("404 Not Found", "<h1>nginx</h1>", "text/html"), id="404 of a proxy"),
    pytest.param(said("404 Not Found", '{"detail": "Not Found"}'), id="404 of another app"),
    pytest.param(said("404 Not Found", BLANK), id="404 with another problem"),
    pytest.param(said("404 Not Found", NO_RECEIPT, "text/plain"), id="404 that is no problem"),
    pytest.param(said("404 Not Found", ""), id="404 without a body"),
    pytest.param(said("502 Bad Gateway", NO_RECEIPT), id="502 with our problem"),
    pytest.param(said("410 Gone", BLANK), id="410"),
    pytest.param(said("200 OK", '{"forbidden": true}', "application/json"), id="no key forbidden"),
    pytest.param(
        said("200 OK", '{"key": "key-2", "forbidden": true}', "application/json"),
        id="another key forbidden",
    ),
    pytest.param(said("204 No Content", ""), id="204"),
]


@pytest.mark.parametrize("answer", OTHERS)
def test_absent_is_only_what_the_middleware_itself_says(answer: str, at: Door) -> None:
    adapter, _ = opened(at)
    at.proxy.arm(answer, is_receipt)
    assert adapter.look_up(RUN, KEY, "orders.create").answer is Answer.UNKNOWN
    assert adapter.look_up(RUN, KEY, "orders.create").answer is Answer.ABSENT


@pytest.mark.parametrize("answer", OTHERS)
def test_nothing_is_forbidden_unless_the_middleware_itself_says_so(answer: str, at: Door) -> None:
    adapter, _ = opened(at)
    at.proxy.arm(answer, is_receipt)
    assert adapter.forbid(RUN, KEY, "orders.create", FENCE).answer is Answer.UNKNOWN
    assert adapter.forbid(RUN, KEY, "orders.create", FENCE).answer is Answer.ABSENT


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(said("412 Precondition Failed", BLANK), id="412 of another"),
        pytest.param(said("409 Conflict", STALE), id="409 with our problem"),
        pytest.param(said("200 OK", '{"served": null}', "application/json"), id="no fence"),
        pytest.param(
            said(
                "200 OK",
                '{"run": "run-1", "lease_version": 1, "nonce": "another", "served": null}',
                "application/json",
            ),
            id="another fence",
        ),
        pytest.param(said("404 Not Found", BLANK), id="404"),
    ],
)
def test_a_fence_stands_or_falls_only_by_the_middleware_itself(answer: str, at: Door) -> None:
    adapter, _ = opened(at)
    at.proxy.arm(answer, is_receipt)
    with pytest.raises(UnavailableError):
        adapter.take(RUN, FENCE)
    assert adapter.take(RUN, FENCE) is None


def test_a_404_of_a_proxy_after_a_lost_answer_is_no_second_order(shop: Shop) -> None:
    with staged(shop, Level.TRANSACTIONAL, program=order_once) as (stage, at):
        killed(stage, "adapter.execute")
        at.proxy.arm(said("404 Not Found", BLANK), is_receipt_of_a_key)
        with pytest.raises(UnknownOutcomeError):
            stage.work(stage.parts())
        stage.work(stage.parts())
        assert (skus(at), at.proxy.writes()) == (("A-1",), 1)


def is_receipt_of_a_key(head: bytes) -> bool:
    return head.startswith(b"GET ") and is_receipt(head)


# ---------------------------------------------------------------- who asks


def test_the_client_that_the_service_knows_is_the_account(at: Door) -> None:
    adapter, bench = opened(at)
    before = adapter.observe(bench.scope).state
    assert len(before.account) == 64
    rotate(at)
    after = adapter.observe(bench.scope).state
    assert after.account not in ("", before.account)
    assert after.instance == before.instance


def test_who_is_not_named_has_no_receipts(at: Door) -> None:
    nameless = changed(declared(at), headers=None)
    adapter = at.open(nameless)
    with pytest.raises(UnavailableError, match="400 urn:counterfoil:missing-client"):
        adapter.observe({})
    assert adapter.look_up(RUN, KEY, "orders.create").answer is Answer.UNKNOWN


def test_a_receipt_is_of_the_account_that_was_observed(at: Door) -> None:
    adapter, bench = opened(at)
    sent = operation(bench, adapter, bench.write(1))
    receipt = adapter.execute(sent)
    found = adapter.look_up(RUN, KEY, "orders.create").receipt
    assert found is not None
    assert receipt.poststate.account == found.poststate.account == sent.prestate.account


@pytest.mark.parametrize("is_after", [False, True], ids=["before the order", "after the order"])
def test_a_token_that_was_rotated_while_no_worker_lived_is_for_a_person(
    is_after: bool, shop: Shop
) -> None:
    with staged(shop, Level.TRANSACTIONAL, program=order_once) as (stage, at):
        killed(stage, "adapter.execute", is_after=is_after)
        rotate(at)
        with pytest.raises(FrozenError):
            stage.work(stage.parts())
        assert finding(stage)[0] is CaseReason.ENVIRONMENT_DRIFT
        assert "account" in finding(stage)[1]
        assert len(skus(at)) == is_after


def test_a_token_that_is_rotated_before_a_second_call_makes_no_second_order(shop: Shop) -> None:
    with staged(shop, Level.TRANSACTIONAL, program=order_once) as (stage, at):
        at.proxy.arm("", rotating(at))
        at.proxy.arm("late")
        with pytest.raises(FrozenError):
            stage.work(stage.parts())
        at.proxy.arrive()
        assert "account" in finding(stage)[1]
        assert (skus(at), at.proxy.writes()) == (("A-1",), 2)


def rotating(at: Door) -> Callable[[bytes], bool]:
    """Rotate the token right after what is looked at between a look-up and the next call."""
    asked: list[bytes] = []

    def fits(head: bytes) -> bool:
        if is_receipt_of_a_key(head):
            asked.append(head)
        elif asked and head.startswith(b"GET " + RECEIPTS):
            rotate(at)
        return False

    return fits


def test_a_call_of_another_client_than_was_observed_is_not_executed(at: Door) -> None:
    adapter, bench = opened(at)
    sent = operation(bench, adapter, bench.write(1))
    rotate(at)
    with pytest.raises(UnknownOutcomeError, match="status 412"):
        adapter.execute(sent)
    assert (skus(at), at.proxy.writes()) == ((), 1)


def test_a_key_is_not_forbidden_among_the_receipts_of_another_client(at: Door) -> None:
    adapter, bench = opened(at)
    adapter.observe(bench.scope)
    rotate(at)
    assert adapter.forbid(RUN, KEY, "orders.create", FENCE).answer is Answer.UNKNOWN


# ---------------------------------------------------------------- which journal


def named(of_tenant: Service) -> Service:
    return changed(of_tenant, instance="shop-1")


def watching(of_tenant: Service) -> Service:
    url = of_tenant.endpoints[1].url
    return changed(of_tenant, watch=Watch(url=url, version="/orders", instance="/instance"))


FORMS: dict[str, Callable[[Service], Service]] = {
    "no instance by hand": lambda of_tenant: of_tenant,
    "an instance by hand": named,
    "an instance by a look": watching,
    "both": lambda of_tenant: watching(named(of_tenant)),
}


@pytest.mark.parametrize("of", FORMS.values(), ids=FORMS.keys())
def test_an_order_of_an_instance_by_any_name_is_found_again(of: Any, shop: Shop) -> None:
    with staged(shop, Level.TRANSACTIONAL, of=of) as (stage, at):
        killed(stage, "adapter.execute")
        stage.work(stage.parts())
        assert skus(at) == ("A-1", "B-2")


@pytest.mark.timeout(120)
def test_a_journal_that_was_set_up_anew_is_another_instance_by_any_name(tmp_path: Path) -> None:
    with running(ASGI, tmp_path) as shop:
        at = door(shop)
        adapters = [at.open(form(declared(at))) for form in FORMS.values()]
        before = [adapter.observe({}).state.instance for adapter in adapters]
        shop.kill()
        for file in tmp_path.iterdir():
            file.unlink()
        ledger.create(shop.place)
        install_journal(shop.place)
        shop.start()
        after = [adapter.observe({}).state.instance for adapter in adapters]
        at.close()
    assert not {*before} & {*after}


# ---------------------------------------------------------------- what is held


def test_receipts_that_are_kept_for_less_than_declared_are_refused_at_opening(shop: Shop) -> None:
    more: dict[str, Any] = {"key_retention_ms": DAY_MS + 1}
    with staged(shop, Level.TRANSACTIONAL, program=order_once, **more) as (stage, at):
        with pytest.raises(ConfigError, match=f"key_retention_ms={DAY_MS + 1}, .* {DAY_MS} ms"):
            stage.work(stage.parts())
        assert at.proxy.writes() == 0


def test_receipts_that_are_kept_for_longer_than_declared_are_taken(shop: Shop) -> None:
    more: dict[str, Any] = {"key_retention_ms": DAY_MS - 1}
    with staged(shop, Level.TRANSACTIONAL, program=order_once, **more) as (stage, at):
        stage.work(stage.parts())
        assert skus(at) == ("A-1",)


def test_a_call_alone_does_not_go_past_what_the_service_holds(at: Door) -> None:
    adapter, bench = opened(at)
    sent = operation(bench, adapter, bench.write(1))
    short, _ = opened(at, key_retention_ms=DAY_MS + 1)
    with pytest.raises(ConfigError, match="key_retention_ms"):
        short.execute(sent)
    assert at.proxy.writes() == 0


def test_a_service_that_commits_receipts_apart_is_refused_at_opening(apart: Shop) -> None:
    with staged(apart, Level.TRANSACTIONAL, program=order_once) as (stage, at):
        with pytest.raises(ConfigError, match="commits effect and receipt 'apart', not together"):
            stage.work(stage.parts())
        assert at.proxy.writes() == 0


def test_a_service_that_commits_receipts_apart_is_deduplicating(apart: Shop) -> None:
    def lowered(of_tenant: Service) -> Service:
        write = changed(of_tenant.endpoints[0], level=Level.DEDUPLICATING)
        return changed(of_tenant, endpoints=(write, *of_tenant.endpoints[1:]))

    with staged(apart, Level.TRANSACTIONAL, of=lowered) as (stage, at):
        at.proxy.arm("lose")
        stage.work(stage.parts())
        assert (skus(at), at.proxy.writes()) == (("A-1", "B-2"), 2)


def elsewhere(of_tenant: Service) -> Service:
    """Declare the route whose receipts are committed apart."""
    write = of_tenant.endpoints[0]
    write = changed(write, url=write.url.replace("/orders", "/apart/orders"))
    return changed(of_tenant, endpoints=(write, *of_tenant.endpoints[1:]))


def test_a_route_that_commits_its_receipt_apart_executes_nothing(shop: Shop) -> None:
    with staged(shop, Level.TRANSACTIONAL, program=order_once, of=elsewhere) as (stage, at):
        with pytest.raises(ConfigError, match=r"orders\.create is transactional, and the service"):
            stage.work(stage.parts())
        assert (skus(at), at.proxy.writes()) == ((), 1)


@pytest.mark.parametrize("fate", ["answered", "lost"])
def test_a_receipt_that_was_committed_apart_is_for_a_person(fate: str, shop: Shop) -> None:
    """A proxy that drops conditions it does not know leaves the receipt to show it."""
    with staged(shop, Level.TRANSACTIONAL, program=order_once, of=elsewhere) as (stage, at):
        at.proxy.arm("bare")
        if fate == "lost":
            killed(stage, "adapter.execute")
        with pytest.raises(FrozenError):
            stage.work(stage.parts())
        assert "level" in finding(stage)[1]
        assert skus(at) == ("A-1",)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param('{"instance": "a", "retention_ms": 86400000}', id="no client"),
        pytest.param('{"instance": "a", "client": "b", "commits": null}', id="no retention"),
        pytest.param('{"client": "b", "retention_ms": 1, "commits": null}', id="no journal"),
        pytest.param('{"status": "ok"}', id="another app"),
        *(
            pytest.param(
                json.dumps({"instance": "a", "client": name, "retention_ms": 1, "commits": None}),
                id=f"T26 a client named {name[:9]!r}",
            )
            for name in ("", "a\r\nX-Other: 1", "a b", "\u00e4", "a" * 201)
        ),
    ],
)
def test_what_does_not_describe_receipts_is_no_environment(body: str, at: Door) -> None:
    adapter, bench = opened(at)
    at.proxy.arm(said("200 OK", body, "application/json"), lambda head: RECEIPTS in head)
    with pytest.raises(UnavailableError, match="do not describe"):
        adapter.observe(bench.scope)


def test_a_declared_meaning_does_not_come_before_what_the_middleware_says(at: Door) -> None:
    means = ((When(status=412), Meaning.REFUSED),)
    adapter, bench = opened(at, means=means)
    sent = operation(bench, adapter, bench.write(1))
    other = replace(sent, prestate=replace(sent.prestate, account="0" * 64))
    with pytest.raises(UnknownOutcomeError):
        adapter.execute(other)


# ---------------------------------------------------------------- expiry


@pytest.mark.parametrize(
    ("age_ms", "writes"),
    [
        pytest.param(DAY_MS - 60_000, 1, id="while receipts are kept"),
        pytest.param(DAY_MS - 60_000 + 1, 0, id="after that"),
    ],
)
def test_absent_proves_nothing_once_the_receipt_may_have_expired(
    age_ms: int, writes: int, shop: Shop
) -> None:
    with staged(shop, Level.TRANSACTIONAL, program=order_once) as (stage, at):
        killed(stage, "adapter.execute", is_after=False)
        stage.backend.clock.advance(age_ms - 30_001)
        if writes:
            stage.work(stage.parts())
        else:
            with pytest.raises(FrozenError):
                stage.work(stage.parts())
            assert finding(stage)[0] is CaseReason.OUTCOME_UNKNOWN
        assert at.proxy.writes() == writes
