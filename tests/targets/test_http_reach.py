"""Where calls may go: scope, addresses, names that change, redirects, certificates."""

import ssl
from collections.abc import Iterator
from contextlib import closing, suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from counterfoil.adapters.http import Endpoint, Resolve, Service, open_http
from counterfoil.adapters.http.adapter import HttpAdapter
from counterfoil.adapters.http.address import is_public
from counterfoil.adapters.http.kinds import kinds_of
from counterfoil.core.errors import (
    ContractError,
    PermissionDeniedError,
    RefusedError,
    UnavailableError,
    UnknownOutcomeError,
)
from counterfoil.core.receipt import Answer
from counterfoil.core.words import Key, Level, Risk
from counterfoil.keeper import Keeper
from counterfoil.local.certificates import make_certificates
from counterfoil.testing.adapter_bench import RUN, AdapterBench, Call, operation
from tests.support.http_bench import (
    LOOPBACK,
    STDLIB,
    Door,
    Shop,
    bench_at,
    door,
    from_environment,
    now_ms,
    running,
    service,
)
from tests.support.http_scene import skus, staged

PUBLIC = "93.184.215.14"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: Any) -> Iterator[Shop]:
    folder: Path = tmp_path_factory.mktemp("shop")
    with running(STDLIB, folder) as opened:
        yield opened


@pytest.fixture
def at(shop: Shop) -> Iterator[Door]:
    opened = door(shop)
    yield opened
    opened.close()


def names(*answers: tuple[str, ...]) -> tuple[Resolve, list[str]]:
    """Return a resolver whose answers follow one another, and what it was asked."""
    asked: list[str] = []

    def resolve(host: str, port: int) -> tuple[str, ...]:
        asked.append(host)
        return answers[min(len(asked), len(answers)) - 1]

    return resolve, asked


def to(at: Door, url: str, **more: Any) -> tuple[HttpAdapter, AdapterBench]:
    """Return an adapter of the shop under another address."""
    token = from_environment(at.tenant)
    declared = service(url, Level.DEDUPLICATING, token, is_watched=False)
    given: dict[str, Any] = {"now_ms": now_ms, "networks": LOOPBACK} | more
    bench = bench_at(at, declared)
    host = url.partition("://")[2]
    scope = {**bench.scope, "hosts": (*bench.scope["hosts"], host)}
    return open_http(declared, **given), AdapterBench(
        open=bench.open, write=bench.write, count=bench.count, close=bench.close, scope=scope
    )


def ordered(adapter: HttpAdapter, bench: AdapterBench) -> Any:
    return adapter.execute(operation(bench, adapter, bench.write(1)))


# ---------------------------------------------------------------- addresses

RANGES = (
    ("0.0.0.0", "0.255.255.255"),  # noqa: S104 - the first address of a range
    ("10.0.0.0", "10.255.255.255"),
    ("100.64.0.0", "100.127.255.255"),
    ("127.0.0.0", "127.255.255.255"),
    ("169.254.0.0", "169.254.255.255"),
    ("172.16.0.0", "172.31.255.255"),
    ("192.0.0.0", "192.0.0.255"),
    ("192.0.2.0", "192.0.2.255"),
    ("192.31.196.0", "192.31.196.255"),
    ("192.52.193.0", "192.52.193.255"),
    ("192.88.99.0", "192.88.99.255"),
    ("192.168.0.0", "192.168.255.255"),
    ("192.175.48.0", "192.175.48.255"),
    ("198.18.0.0", "198.19.255.255"),
    ("198.51.100.0", "198.51.100.255"),
    ("203.0.113.0", "203.0.113.255"),
    ("224.0.0.0", "239.255.255.255"),
    ("240.0.0.0", "255.255.255.255"),
    ("::", "::ffff:ffff"),
    ("::ffff:0.0.0.0", "::ffff:255.255.255.255"),
    ("::ffff:8.8.8.8", "::ffff:8.8.8.8"),
    ("64:ff9b::127.0.0.1", "64:ff9b::127.255.255.255"),
    ("64:ff9b::169.254.169.254", "64:ff9b::192.88.99.1"),
    ("64:ff9b:1::", "64:ff9b:1:ffff:ffff:ffff:ffff:ffff"),
    ("100::", "100::ffff:ffff:ffff:ffff"),
    ("100:0:0:1::", "100::1:ffff:ffff:ffff:ffff"),
    ("2001::", "2001:0:ffff:ffff:ffff:ffff:ffff:ffff"),
    ("2001:1::1", "2001:1::3"),
    ("2001:2::", "2001:2:0:ffff:ffff:ffff:ffff:ffff"),
    ("2001:3::", "2001:3:ffff:ffff:ffff:ffff:ffff:ffff"),
    ("2001:4:112::", "2001:4:112:ffff:ffff:ffff:ffff:ffff"),
    ("2001:10::", "2001:1f:ffff:ffff:ffff:ffff:ffff:ffff"),
    ("2001:20::", "2001:3f:ffff:ffff:ffff:ffff:ffff:ffff"),
    ("2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff"),
    ("2002::", "2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
    ("2002:808:808::1", "2002:7f00:1::1"),
    ("2620:4f:8000::", "2620:4f:8000:ffff:ffff:ffff:ffff:ffff"),
    ("3fff::", "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff"),
    ("5f00::", "5f00:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
    ("fc00::", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
    ("fe80::", "febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
    ("fec0::", "feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
    ("ff00::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
)
"""First and last of each range in IANA's registries, and of what stands for an address in one."""


@pytest.mark.parametrize(
    "address",
    [
        pytest.param(address, id=f"T27 {ends[0]} {which}")
        for ends in RANGES
        for which, address in zip(("first", "last"), ends, strict=True)
    ],
)
def test_no_range_with_a_purpose_of_its_own_is_public(address: str) -> None:
    assert not is_public(ip_address(address))


@pytest.mark.parametrize(
    "address",
    [
        "1.0.0.0",
        "8.8.8.8",
        "9.255.255.255",
        "11.0.0.0",
        "100.128.0.0",
        "172.32.0.0",
        "192.0.1.0",
        "192.88.98.255",
        "198.20.0.0",
        "203.0.114.0",
        "223.255.255.255",
        "2001:200::",
        "2001:4860:4860::8888",
        "2620:4f:8001::",
        "2a00::1",
        "3ffe::1",
        "64:ff9b::8.8.8.8",
    ],
)
def test_the_neighbours_of_those_ranges_are_public(address: str) -> None:
    assert is_public(ip_address(address))


NOT_PUBLIC = (
    "127.0.0.1",
    "127.1.2.3",
    "0.0.0.0",  # noqa: S104 - an address that must not be called
    "10.0.0.1",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "192.0.2.1",
    "198.18.0.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::1",
    "::",
    "fe80::1",
    "fe80::1%lo",
    "fc00::1",
    "fec0::1",
    "192.88.99.1",
    "ff02::1",
    "2001:db8::1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe",
    "2002:7f00:1::1",
    "2002:c0a8:101::1",
)


@pytest.mark.parametrize("address", [pytest.param(a, id=f"T27 {a}") for a in NOT_PUBLIC])
def test_an_address_that_is_not_public_is_not_called(address: str, at: Door) -> None:
    resolve, _ = names((address,))
    url = f"https://shop.example:{at.proxy.port}"
    adapter, bench = to(at, url, networks=(), resolve=resolve)
    with closing(adapter), pytest.raises(PermissionDeniedError, match="no public address"):
        ordered(adapter, bench)
    assert at.proxy.seen == []


@pytest.mark.parametrize(
    "place",
    [pytest.param(number, id=f"T27 the private one comes {number + 1}.") for number in (0, 1, 2)],
)
def test_one_private_address_among_public_ones_is_enough_to_refuse(place: int, at: Door) -> None:
    addresses = [PUBLIC, "93.184.215.15"]
    addresses.insert(place, "127.0.0.1")
    resolve, _ = names(tuple(addresses))
    adapter, bench = to(at, f"https://shop.example:{at.proxy.port}", networks=(), resolve=resolve)
    with closing(adapter), pytest.raises(PermissionDeniedError, match="no public address"):
        ordered(adapter, bench)
    assert at.proxy.seen == []


@pytest.mark.parametrize(
    "host",
    [pytest.param(host, id=f"T27 {host}") for host in ("localhost", "127.0.0.1", "[::1]")],
)
def test_no_spelling_of_this_machine_is_called_unless_it_is_allowed(host: str, at: Door) -> None:
    adapter, bench = to(at, f"https://{host}:{at.proxy.port}", networks=())
    with closing(adapter), pytest.raises(PermissionDeniedError, match="no public address"):
        ordered(adapter, bench)
    assert at.proxy.seen == []


@pytest.mark.parametrize("row", [pytest.param("", id="T27 DNS that changes")])
def test_a_name_is_resolved_once_and_the_checked_address_is_called(row: str, at: Door) -> None:
    resolve, asked = names(("127.0.0.1",), ("127.0.0.9",))
    adapter, bench = to(
        at, f"http://shop.example:{at.proxy.port}", networks=("127.0.0.1/32",), resolve=resolve
    )
    with closing(adapter):
        receipt = ordered(adapter, bench)
        assert asked == ["shop.example"]
        with pytest.raises(PermissionDeniedError, match=r"127\.0\.0\.9"):
            adapter.execute(operation(bench, adapter, bench.write(2), key=Key("key-2")))
    assert receipt.id
    assert (skus(at), len(at.proxy.seen)) == (("A-1",), 1)
    assert f"Host: shop.example:{at.proxy.port}".encode() in at.proxy.seen[0]


@pytest.mark.parametrize("row", [pytest.param("", id="T27 look-ups too")])
def test_a_look_up_that_may_not_go_where_it_leads_is_unknown(row: str, at: Door) -> None:
    resolve, _ = names(("10.0.0.1",))
    adapter, _ = to(at, f"https://shop.example:{at.proxy.port}", networks=(), resolve=resolve)
    with closing(adapter):
        said = adapter.look_up(RUN, Key("key-1"), "orders.create")
    assert said.answer is Answer.UNKNOWN
    assert "no public address" in said.reason


def test_nothing_is_sent_without_tls_to_an_address_that_nobody_named(at: Door) -> None:
    resolve, _ = names((PUBLIC,))
    adapter, bench = to(at, f"http://shop.example:{at.proxy.port}", networks=(), resolve=resolve)
    with closing(adapter), pytest.raises(PermissionDeniedError, match="without TLS"):
        ordered(adapter, bench)


@pytest.mark.parametrize(
    "resolve",
    [
        pytest.param(lambda host, port: (), id="no address"),
        pytest.param(lambda host, port: ("127.0.0.1",) * 100, id="too many addresses"),
    ],
)
def test_a_name_without_an_address_is_unavailable(resolve: Any, at: Door) -> None:
    adapter, bench = to(at, f"http://shop.example:{at.proxy.port}", resolve=resolve)
    with closing(adapter), pytest.raises(UnavailableError, match=r"shop\.example"):
        ordered(adapter, bench)


def test_proxies_and_passwords_of_the_machine_are_not_used(
    at: Door, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login ada password from-netrc\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    adapter, bench = to(at, at.url)
    with closing(adapter):
        ordered(adapter, bench)
    assert skus(at) == ("A-1",)


# ---------------------------------------------------------------- redirects


@pytest.mark.parametrize("row", [pytest.param("", id="T27 a redirect of a write")])
def test_a_redirected_write_is_unknown_and_not_posted_elsewhere(row: str, at: Door) -> None:
    at.fault("instead:307")
    adapter, bench = to(at, at.url)
    with closing(adapter), pytest.raises(UnknownOutcomeError, match="status 307"):
        ordered(adapter, bench)
    assert len(at.proxy.seen) == 1


@pytest.mark.parametrize("row", [pytest.param("", id="T27 a redirect of a read")])
def test_a_redirected_read_is_refused(row: str, at: Door) -> None:
    moved = Endpoint(name="moved", method="GET", url=f"{at.url}/moved", risk=Risk.READ_ONLY)
    adapter = at.open(Service(name="orders", endpoints=(moved,)))
    bench = bench_at(at, Service(name="orders", endpoints=(moved,)))
    with pytest.raises(PermissionDeniedError, match="redirected"):
        adapter.execute(operation(bench, adapter, Call(kind="moved", arguments={})))
    assert len(at.proxy.seen) == 1


# ---------------------------------------------------------------- scope

ANYWHERE = Endpoint(
    name="page", method="GET", url="http://{host}/{+path}", risk=Risk.READ_ONLY, query=("q",)
)


@pytest.mark.parametrize(
    ("lists", "outside"),
    [
        pytest.param({"hosts": ("other.example",)}, "hosts", id="T14 T27 a host"),
        pytest.param({"hosts": ()}, "hosts", id="T14 no host at all"),
        pytest.param({"methods": ("GET",)}, "methods", id="T14 a method"),
        pytest.param({"paths": ("keyed/orders/more", "key/")}, "paths", id="T14 a path"),
    ],
)
def test_what_is_outside_the_scope_is_refused_before_anything_is_durable(
    lists: dict[str, tuple[str, ...]], outside: str, shop: Shop
) -> None:
    with staged(shop, Level.DEDUPLICATING) as (stage, at):
        scope = {**stage.task.policy.scope["orders"], **lists}
        policy = type(stage.task.policy)(
            permissions=stage.task.policy.permissions, scope={"orders": scope}
        )
        stage.task = replace(stage.task, policy=policy)
        with Keeper(stage.parts()).run(stage.task, stage.run_id) as run:
            before = run.state
            with pytest.raises(PermissionDeniedError, match=outside):
                run.do("orders.create", body={"sku": "A-1"})
            assert (run.state.pending, run.state.cursor) == (None, before.cursor)
            (adapter,) = stage.adapters()
            bench = bench_at(at, None)  # type: ignore[arg-type] # - only its scope is used
            sent = operation(bench, adapter, bench.write(1))
            with pytest.raises(PermissionDeniedError, match=outside):
                adapter.execute(replace(sent, scope=scope))
        assert at.proxy.writes() == 0


@pytest.mark.parametrize(
    ("host", "path"),
    [
        pytest.param(host, path, id=f"T14 T27 {host} {path}"[:60])
        for host, path in (
            ("user@shop.example", "a"),
            ("shop.example/a", "b"),
            ("shop.example#", "b"),
            ("SHOP.example", "b"),
            ("shop.example.", "b"),
            ("shop.example:80", "b"),
            ("shop..example", "b"),
            ("shop-.example", "b"),
            ("-shop.example", "b"),
            ("shop.example:65536", "b"),
            ("a" * 64, "b"),
            ("a." * 127 + "a", "b"),
            ("[::1]", "b"),
            ("127.1", "b"),
            ("0177.0.0.1", "b"),
            ("2130706433", "b"),
            ("0x7f.0.0.0x1", "b"),
            ("sho\u0440.example", "b"),
            ("shop.example\r\nX: y", "b"),
            ("", "b"),
            ("shop.example", "../b"),
            ("shop.example", "a/../b"),
            ("shop.example", "a//b"),
            ("shop.example", "/a"),
            ("shop.example", "a\\b"),
            ("shop.example", "a\x00b"),
            ("shop.example", ""),
        )
    ],
)
def test_a_host_or_path_has_one_spelling(host: str, path: str) -> None:
    spec = kinds_of(Service(name="web", endpoints=(ANYWHERE,)))["page"].spec
    with pytest.raises(ContractError, match=r"arguments\.(host|path)"):
        spec.normalise({"host": host, "path": path})


@pytest.mark.parametrize(
    "host",
    [
        pytest.param(host, id=f"T14 T27 {host!r}")
        for host in (2130706433, 127, True, None, 1.5, ["shop.example"], {}, b"shop.example")
    ],
)
def test_a_host_is_text(host: Any) -> None:
    spec = kinds_of(Service(name="web", endpoints=(ANYWHERE,)))["page"].spec
    with pytest.raises(ContractError, match=r"arguments\.host is no host"):
        spec.normalise({"host": host, "path": "a"})


@pytest.mark.parametrize("host", ["shop.example", "a", "127.0.0.1:8080", "xn--e1afmkfd.example"])
def test_a_strict_host_name_is_taken(host: str) -> None:
    spec = kinds_of(Service(name="web", endpoints=(ANYWHERE,)))["page"].spec
    assert spec.normalise({"host": host, "path": 7})["host"] == host


@pytest.mark.parametrize(
    ("path", "query", "sent"),
    [
        pytest.param("echo", "a&b=c", "/echo?q=a%26b%3Dc", id="T28 a query in a query"),
        pytest.param("echo", "a#b", "/echo?q=a%23b", id="T28 a fragment"),
        pytest.param("echo", "--x=1;y", "/echo?q=--x%3D1%3By", id="T28 an option"),
        pytest.param("echo", "a b\n", "/echo?q=a+b%0A", id="T28 white space"),
        pytest.param("%2e%2e/echo?x", "1", "/%252e%252e/echo%3Fx?q=1", id="T28 an encoded path"),
    ],
)
def test_a_value_is_never_more_than_the_text_of_its_place(
    path: str, query: str, sent: str, at: Door
) -> None:
    declared = Service(name="orders", endpoints=(ANYWHERE,))
    adapter, bench = at.open(declared), bench_at(at, declared)
    host = f"127.0.0.1:{at.proxy.port}"
    call = Call(kind="page", arguments={"host": host, "path": path, "q": query})
    with suppress(RefusedError):  # the service knows only one of these paths
        adapter.execute(operation(bench, adapter, call))
    assert at.proxy.seen[0].split(b" ")[1].decode() == sent


# ---------------------------------------------------------------- certificates


@pytest.fixture(scope="module")
def secure(tmp_path_factory: Any) -> Iterator[tuple[Shop, ssl.SSLContext]]:
    folder: Path = tmp_path_factory.mktemp("secure")
    made = make_certificates(folder / "certificates")
    pair = (f"{made.server},{made.server_key}",)
    with running(STDLIB, folder, options=pair) as opened:
        yield opened, ssl.create_default_context(cafile=str(made.ca))


def echoing(shop: Shop, host: str, tls: ssl.SSLContext | None) -> tuple[HttpAdapter, Any]:
    echo = Endpoint(
        name="echo", method="GET", url=f"https://{host}:{shop.port}/echo", risk=Risk.READ_ONLY
    )
    resolve, _ = names(("127.0.0.1",))
    adapter = open_http(
        Service(name="orders", endpoints=(echo,)),
        now_ms=now_ms,
        networks=LOOPBACK,
        tls=tls,
        resolve=resolve,
    )
    at = Door(shop=shop, tenant="", proxy=None)  # type: ignore[arg-type] # - nothing in between
    bench = AdapterBench(
        open=lambda: adapter,
        write=lambda _: Call(kind="echo", arguments={}),
        count=lambda: len(at.orders()),
        close=adapter.close,
        scope={"hosts": (f"{host}:{shop.port}",), "methods": ("GET",), "paths": (".",)},
    )
    return adapter, operation(bench, adapter, Call(kind="echo", arguments={}))


def test_host_and_server_name_are_the_services_own_though_an_address_is_called(
    secure: tuple[Shop, ssl.SSLContext],
) -> None:
    shop, tls = secure
    adapter, sent = echoing(shop, "localhost", tls)
    with closing(adapter):
        shown = adapter.execute(sent).result
    assert (shown["headers"]["Host"], shown["sni"]) == (f"localhost:{shop.port}", ["localhost"])


@pytest.mark.parametrize("host", ["other.example", "localhost"])
def test_nothing_is_sent_to_a_service_whose_certificate_is_not_its_own(
    host: str, secure: tuple[Shop, ssl.SSLContext]
) -> None:
    shop, tls = secure
    adapter, sent = echoing(shop, host, tls if host == "other.example" else None)
    with closing(adapter), pytest.raises(UnavailableError, match="before it was sent"):
        adapter.execute(sent)
