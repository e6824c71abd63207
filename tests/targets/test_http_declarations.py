"""Declarations that promise what cannot be held, or that nobody could read, are refused."""

import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from counterfoil.adapters.http import (
    Endpoint,
    Fields,
    Question,
    Secret,
    Service,
    Watch,
    When,
    open_http,
)
from counterfoil.adapters.http.declare import Meaning
from counterfoil.core.errors import ConfigError
from counterfoil.core.words import Level, Risk
from tests.support.sources import ROOT

URL = "https://shop.example/orders"
ASKED = Question(url="https://shop.example/receipts/{key}")


RECEIPTS = "https://shop.example/counterfoil/receipts"
DAY_MS = 86_400_000
TOKEN = Secret(environment="TOKEN", form="Bearer {}")


def declared(**more: Any) -> Service:
    given: dict[str, Any] = {"name": "orders.create", "method": "POST", "url": URL} | more
    return Service(name="orders", endpoints=(Endpoint(**given),))


def behind(of_service: dict[str, Any] | None = None, **more: Any) -> Service:
    """Declare a service behind the middleware."""
    given = {"level": Level.TRANSACTIONAL, "key_retention_ms": DAY_MS} | more
    headers = {"Authorization": TOKEN, "X-Agent": "a"}
    return replace(
        declared(**given), receipts=RECEIPTS, **({"headers": headers} | (of_service or {}))
    )


def opened(service: Service) -> None:
    open_http(service, now_ms=lambda: 0).close()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        pytest.param({"level": Level.DEDUPLICATING}, "key_retention_ms", id="no look-up"),
        pytest.param(
            {"level": Level.DEDUPLICATING, "key_retention_ms": DAY_MS, "key_form": "none"},
            "carries no key",
            id="no look-up and no key",
        ),
        pytest.param({"if_match": True}, "observes an ETag", id="If-Match without a watch"),
        pytest.param({"level": Level.QUERYABLE}, "cannot be asked", id="no look-up either"),
        pytest.param({"look_up": ASKED}, "more than blind", id="blind with a look-up"),
        pytest.param({"level": Level.CONDITIONAL, "look_up": ASKED}, "conditional", id="no fence"),
        pytest.param(
            {"level": Level.TRANSACTIONAL, "look_up": ASKED}, "receipts", id="no receipts"
        ),
        pytest.param(
            {"level": Level.DEDUPLICATING, "look_up": ASKED, "key_form": "none"},
            "carries no key",
            id="no key",
        ),
        pytest.param(
            {
                "level": Level.DEDUPLICATING,
                "look_up": Question(url=ASKED.url, linearizable=False),
            },
            "linearizable",
            id="a look-up that lags behind",
        ),
    ],
)
def test_a_level_that_cannot_be_held_is_refused(more: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        opened(declared(**more))


@pytest.mark.parametrize(
    ("service", "said"),
    [
        pytest.param(
            behind(key_retention_ms=None), "states no key_retention_ms", id="no retention"
        ),
        pytest.param(
            behind(key_retention_ms=None, level=Level.DEDUPLICATING),
            "states no key_retention_ms",
            id="no retention, deduplicating",
        ),
        pytest.param(behind(headers={"X-Key": TOKEN}), "header X-Key", id="a secret of its own"),
        pytest.param(behind(headers={"x-agent": "b"}), "header x-agent", id="another value"),
        pytest.param(
            behind({"headers": None}, headers={"authorization": "Bearer of-all-calls"}),
            "header authorization",
            id="a token of its own",
        ),
        pytest.param(
            behind(headers={"Cookie": "session=1"}), "header Cookie", id="a session of its own"
        ),
        pytest.param(behind({"account": "ada"}), "name the account", id="an account"),
        pytest.param(
            behind({"watch": Watch(url=URL, version="/v", account="/a")}),
            "name the account",
            id="an account by a look",
        ),
    ],
)
def test_receipts_that_would_be_asked_for_in_vain_are_refused(service: Service, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        opened(service)


@pytest.mark.parametrize(
    "service",
    [
        pytest.param(behind(), id="receipts"),
        pytest.param(behind(headers={"Prefer": "return=minimal"}), id="a header of the request"),
        pytest.param(declared(headers={"X-Key": TOKEN}), id="a secret without receipts"),
        pytest.param(
            declared(level=Level.DEDUPLICATING, key_retention_ms=DAY_MS), id="no look-up, a time"
        ),
    ],
)
def test_what_can_be_held_is_opened(service: Service) -> None:
    opened(service)


@pytest.mark.parametrize(
    "url",
    [
        "shop.example/orders",
        "ftp://shop.example/orders",
        "https://ada:secret@shop.example/orders",
        "https://Shop.example/orders",
        "https://shop.example/a/../orders",
        "https://shop.example//orders",
        "https://shop.example/%2e%2e/orders",
        "https://shop.example/orders#top",
        "https://shop.example/{id}/{id}",
        "https://shop.example/{ID}",
        "https://shop.example/{id",
        "https://{host}.example/orders",
        "https://shop.example/{body}",
        "https://shop.example/or ders",
        "https://127.1/orders",
        "https://2130706433/orders",
        "https://0x7f.1/orders",
        "https://[0:0::1]/orders",
        "https://[127.0.0.1]/orders",
        "https://shop..example/orders",
        "https://shop-.example/orders",
        "https://shop.-example/orders",
        f"https://{'a' * 64}.example/orders",
        f"https://{'a.' * 127}example/orders",
        "https://shop.example:0443/orders",
        "https://shop.example:65536/orders",
        "https://sh\u043ep.example/orders",
    ],
)
def test_an_address_has_one_spelling(url: str) -> None:
    with pytest.raises(ConfigError):
        opened(declared(url=url))


@pytest.mark.parametrize(
    ("more", "said"),
    [
        pytest.param({"method": "post"}, "method", id="a method in small letters"),
        pytest.param({"method": "GET"}, "method", id="a write by GET"),
        pytest.param({"method": "TRACE", "risk": Risk.READ_ONLY}, "method", id="a read by TRACE"),
        pytest.param({"risk": Risk.CONTROL}, "control", id="control"),
        pytest.param({"risk": Risk.VERIFICATION}, "passes", id="a verification without a rule"),
        pytest.param({"passes": When(status=200)}, "passes", id="a rule without a verification"),
        pytest.param({"query": ("body",)}, "one name", id="two bodies"),
        pytest.param({"method": "DELETE", "marks": {"/a": "key"}}, "no body", id="no body"),
        pytest.param({"marks": {"a": "key"}}, "JSON Pointer", id="no pointer"),
        pytest.param({"marks": {"": "key"}}, "no place", id="the whole body"),
        pytest.param({"marks": {"/a/b": "key"}, "body": "form"}, "no place", id="deep in a form"),
        pytest.param({"answer": "data"}, "JSON Pointer", id="no pointer to the receipt"),
        pytest.param({"fields": Fields(id="id")}, "JSON Pointer", id="no pointer to the id"),
        pytest.param(
            {"means": ((When(status=400, at="x"), Meaning.CONFLICT),)}, "JSON Pointer", id="means"
        ),
        pytest.param({"headers": {"Host": "other.example"}}, "may be set", id="another host"),
        pytest.param({"headers": {"X Y": "1"}}, "may be set", id="T26 a space in a name"),
        pytest.param({"headers": {"X-Y": "1\r\nZ: 2"}}, "no header can", id="T26 a line break"),
        pytest.param({"key_header": "Key: 1"}, "may be set", id="T26 a header in a name"),
        pytest.param({"headers": {"A": Secret()}}, "a secret has", id="no secret"),
        pytest.param(
            {"headers": {"A": Secret(environment="A", command=("b",))}}, "a secret has", id="two"
        ),
        pytest.param({"headers": {"A": Secret(environment="A", form="B")}}, "form", id="no place"),
        pytest.param({"call_ms": 0}, "call_ms", id="no time"),
        pytest.param({"name": "a\nb"}, "name", id="T26 a name of two lines"),
    ],
)
def test_an_endpoint_that_cannot_be_called_is_refused(more: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        opened(declared(**more))


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param(Question(url="https://shop.example/receipts"), id="no key"),
        pytest.param(Question(url="https://shop.example/{key}/{sku}"), id="something else"),
        pytest.param(Question(url="https://shop.example/{+key}"), id="several segments"),
        pytest.param(Question(url=ASKED.url, method="PUT"), id="a write"),
        pytest.param(Question(url=ASKED.url, receipt="data"), id="no pointer"),
        pytest.param(Question(url=ASKED.url, marks={"/a": "key"}), id="a body with GET"),
        pytest.param(
            Question(url=URL, method="POST", body={"a": 1}, marks={"/a": "key"}), id="taken"
        ),
        pytest.param(Question(url=URL, method="POST", marks={"/a": "digest"}), id="no digest"),
    ],
)
def test_a_look_up_asks_for_the_key_and_changes_nothing(asked: Question) -> None:
    with pytest.raises(ConfigError, match="look_up"):
        opened(declared(level=Level.QUERYABLE, look_up=asked))


@pytest.mark.parametrize(
    "service",
    [
        pytest.param(Service(name="", endpoints=()), id="no name"),
        pytest.param(Service(name="a", endpoints=(), ask_ms=0), id="no time"),
        pytest.param(Service(name="a", endpoints=(), instance="\n"), id="T26 a line break"),
        pytest.param(Service(name="a", endpoints=(), receipts="/receipts"), id="half an address"),
        pytest.param(Service(name="a", endpoints=(), receipts=f"{URL}/{{x}}"), id="a place"),
        pytest.param(
            Service(name="a", endpoints=(), watch=Watch(url=URL, version="v")), id="no pointer"
        ),
        pytest.param(
            Service(name="a", endpoints=(declared().endpoints[0],) * 2), id="an endpoint twice"
        ),
    ],
)
def test_a_service_that_cannot_be_reached_is_refused(service: Service) -> None:
    with pytest.raises(ConfigError):
        opened(service)


@pytest.mark.parametrize("networks", [("10.0.0.1/8",), ("shop.example",), ("10.0.0.0/33",)])
def test_a_network_is_written_as_a_network(networks: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match="networks"):
        open_http(declared(), now_ms=lambda: 0, networks=networks)


BLOCKED = """
import sys
sys.modules["httpx"] = None
import counterfoil
from counterfoil.adapters.http import Endpoint, Service, open_http
try:
    open_http(Service(name="a", endpoints=()), now_ms=lambda: 0)
except counterfoil.ConfigError as error:
    print(error)
"""


def test_the_extra_is_named_where_httpx_is_not_installed() -> None:
    answer = subprocess.run(
        [sys.executable, "-W", "error", "-c", BLOCKED],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    assert "httpx, which is not installed; install the extra" in answer.stdout
    assert "counterfoil[http]" in answer.stdout
