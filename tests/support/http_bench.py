"""Shops in processes of their own, and benches over them; each bench is a fresh tenant."""

import itertools
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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
from counterfoil.adapters.http.adapter import HttpAdapter
from counterfoil.adapters.http.kinds import kinds_of
from counterfoil.core.intent import KindSpec
from counterfoil.core.words import Level, Risk
from counterfoil.integrations.asgi import install_journal
from counterfoil.ports import Adapter
from counterfoil.testing.adapter_bench import AdapterBench, Call, Trait
from tests.support import http_ledger as ledger
from tests.support.http_proxy import HttpProxy
from tests.support.sources import ROOT

LOOPBACK = ("127.0.0.0/8",)
PATIENCE_SECONDS = 60
LOOKS_MAX = 3_000
PAUSE_SECONDS = 0.01
CALL_MS = 10_000
ASK_MS = 10_000
DAY_MS = 86_400_000
UNASKED: dict[str, Any] = {"look_up": None, "key_retention_ms": DAY_MS}
"""What makes a declaration that of a service that dedupes and cannot be asked."""

STDLIB, ASGI = "tests.support.http_shop", "tests.support.http_shop_asgi"
_tenants = itertools.count(1)


@dataclass(kw_only=True)
class Shop:
    """A shop on one socket, which outlives its processes: requests wait for the next one."""

    module: str
    place: str
    options: tuple[str, ...] = ()
    listener: socket.socket = field(
        default_factory=lambda: socket.create_server(("127.0.0.1", 0), backlog=256)
    )
    process: subprocess.Popen[bytes] | None = None

    @property
    def port(self) -> int:
        return int(self.listener.getsockname()[1])

    def start(self) -> None:
        fd = self.listener.fileno()
        flags = ["-O"] if sys.flags.optimize else []
        self.process = subprocess.Popen(
            [sys.executable, *flags, "-m", self.module, str(fd), self.place, *self.options],
            cwd=ROOT,
            pass_fds=[fd],
            stderr=subprocess.DEVNULL,
        )

    def fill(self) -> None:
        """Let no byte be written to any file, as on a disk that is full."""
        self._limit(0)

    def make_room(self) -> None:
        self._limit(resource.RLIM_INFINITY)

    def _limit(self, size_bytes: int) -> None:
        if self.process is not None:
            limits = (size_bytes, resource.RLIM_INFINITY)
            resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, limits)

    def kill(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait(PATIENCE_SECONDS)
            self.process = None

    def close(self) -> None:
        self.kill()
        self.listener.close()


@contextmanager
def running(module: str, folder: Path, **more: Any) -> Generator[Shop]:
    """A shop that runs."""
    place = str(folder / "shop.db")
    ledger.create(place)
    if module == ASGI:
        install_journal(place)
    shop = Shop(module=module, place=place, **more)
    try:
        shop.start()
        yield shop
    finally:
        shop.close()


@dataclass(kw_only=True)
class Door:
    """One tenant's way to a shop, with its proxy.

    Attributes:
        shop: The shop.
        tenant: Its bearer, who is a tenant of his own.
        proxy: Between adapter and shop.
    """

    shop: Shop
    tenant: str
    proxy: HttpProxy
    _opened: list[HttpAdapter] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.proxy.port}"

    def orders(self) -> list[dict[str, Any]]:
        with ledger.connected(self.shop.place) as db:
            return ledger.orders(db, self.tenant)

    def disturb(self) -> None:
        with ledger.connected(self.shop.place) as db:
            ledger.disturb(db, self.tenant)

    def fault(self, fault: str, tenant: str = "") -> None:
        with ledger.connected(self.shop.place) as db:
            ledger.set_fault(db, tenant or self.tenant, fault)

    def is_begun(self) -> bool:
        """Whether the shop has begun with a request of a key."""
        with ledger.connected(self.shop.place) as db:
            return ledger.claims(db, self.tenant) > 0

    def wait_for_order(self) -> None:
        """Wait until the shop has made an order."""
        for _ in range(LOOKS_MAX):
            if self.orders():
                return
            time.sleep(PAUSE_SECONDS)
        raise AssertionError("the shop makes no order")

    def open(self, service: Service, **more: Any) -> HttpAdapter:
        given: dict[str, Any] = {"now_ms": now_ms, "networks": LOOPBACK} | more
        adapter = open_http(service, **given)
        self._opened.append(adapter)
        return adapter

    def close(self) -> None:
        while self._opened:
            self._opened.pop().close()
        self.proxy.close()


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def door(shop: Shop) -> Door:
    return Door(shop=shop, tenant=f"tenant-{next(_tenants):04}", proxy=HttpProxy(shop.port))


# ---------------------------------------------------------------- declarations

KEPT = Fields(
    id="/id",
    key="/reference",
    digest="/metadata/intent",
    run="/metadata/run",
    committed_at="/created",
)
MARKS: dict[str, Any] = {
    "/reference": "key",
    "/metadata/intent": "digest",
    "/metadata/run": "run",
}


def create(url: str, level: Level, **more: Any) -> Endpoint:
    """Declare `orders.create` as its level needs it, changed by `more`."""
    keyed = {
        "url": f"{url}/keyed/orders",
        "marks": MARKS,
        "fields": KEPT,
        "look_up": Question(url=f"{url}/receipts/{{key}}"),
    }
    declared: dict[Level, dict[str, Any]] = {
        Level.DEDUPLICATING: keyed,
        Level.QUERYABLE: {
            "url": f"{url}/plain/orders",
            "key_form": "none",
            "marks": MARKS,
            "fields": KEPT,
            "look_up": Question(url=f"{url}/orders?reference={{key}}", receipt="/data/0"),
        },
        Level.BLIND: {"url": f"{url}/plain/orders", "key_form": "none"},
        Level.TRANSACTIONAL: {"url": f"{url}/orders", "key_retention_ms": DAY_MS},
    }
    given = {"call_ms": CALL_MS} | declared[level] | more
    return Endpoint(name="orders.create", method="POST", level=level, **given)


def service(
    url: str, level: Level, token: Secret, *, is_watched: bool = True, **more: Any
) -> Service:
    """Declare the shop with `orders.create` at a level, a read and a verification."""
    looks = (
        Endpoint(name="orders.state", method="GET", url=f"{url}/state", risk=Risk.READ_ONLY),
        Endpoint(
            name="orders.check",
            method="GET",
            url=f"{url}/{{place}}",
            query=("about",),
            risk=Risk.VERIFICATION,
            passes=When(status=200),
        ),
    )
    has_receipts = level is Level.TRANSACTIONAL
    watch = Watch(url=f"{url}/state", version="/version", instance="/instance", account="/account")
    return Service(
        name="orders",
        endpoints=(create(url, level, **more), *looks),
        receipts=f"{url}/counterfoil/receipts" if has_receipts else "",
        watch=watch if is_watched and not has_receipts else None,
        headers={"Authorization": token},
        ask_ms=ASK_MS,
    )


def from_environment(tenant: str) -> Secret:
    """Return a reference that costs no process, and set it."""
    name = f"TOKEN_OF_{tenant.replace('-', '_').upper()}"
    os.environ[name] = f"token-of-{tenant}"
    return Secret(environment=name, form="Bearer {}")


# ---------------------------------------------------------------- benches


def scope_of(at: Door) -> dict[str, tuple[str, ...]]:
    return {
        "hosts": (f"127.0.0.1:{at.proxy.port}",),
        "methods": ("GET", "POST"),
        "paths": (".",),
    }


GARBLED = (
    Call(kind="orders.create", arguments={"body": {"sku": b"raw"}}),
    Call(kind="orders.create", arguments={"sku": "A-1"}),
    Call(kind="orders.create", arguments={"body": {}, "about": "a"}),
    Call(kind="orders.state", arguments={"body": {}}),
    Call(kind="orders.check", arguments={}),
    Call(kind="orders.check", arguments={"place": ""}),
    Call(kind="orders.check", arguments={"place": ".."}),
    Call(kind="orders.check", arguments={"place": "a/b"}),
    Call(kind="orders.check", arguments={"place": "a\\b"}),
    Call(kind="orders.check", arguments={"place": "a\r\nHost: b"}),
    Call(kind="orders.check", arguments={"place": ["state"]}),
    Call(kind="orders.check", arguments={"place": "state", "about": {"deep": 1}}),
    Call(kind="orders.check", arguments={"place": "state", "about": "a" * 9_000}),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """A declaration that must pass.

    Attributes:
        name: For the test id.
        module: Which shop.
        level: Level of `orders.create`.
        traits: What its bench can do, and what else is known of it.
        more: How `orders.create` differs.
        is_watched: Whether the environment is observed.
    """

    name: str
    module: str
    level: Level
    traits: frozenset[Trait]
    more: dict[str, Any] = field(default_factory=dict)
    is_watched: bool = True


SEEN = frozenset({Trait.DISTURBS, Trait.LOSES_ANSWERS, Trait.CUTS_OFF})
CANDIDATES = (
    Candidate(
        name="deduplicating",
        module=STDLIB,
        level=Level.DEDUPLICATING,
        traits=SEEN | {Trait.CHECKS_PRESTATE},
        more={"if_match": True},
    ),
    Candidate(
        name="deduplicating, shared bare keys, unwatched",
        module=STDLIB,
        level=Level.DEDUPLICATING,
        traits=frozenset({Trait.LOSES_ANSWERS, Trait.SHARED_KEYS}),
        more={"marks": None, "fields": Fields(id="/id"), "key_form": "bare"},
        is_watched=False,
    ),
    Candidate(
        name="deduplicating, never asked",
        module=STDLIB,
        level=Level.DEDUPLICATING,
        traits=SEEN,
        more=UNASKED,
    ),
    Candidate(name="queryable", module=STDLIB, level=Level.QUERYABLE, traits=SEEN),
    Candidate(name="blind", module=STDLIB, level=Level.BLIND, traits=SEEN),
    Candidate(
        name="transactional",
        module=ASGI,
        level=Level.TRANSACTIONAL,
        traits=frozenset({Trait.LOSES_ANSWERS, Trait.CUTS_OFF}),
    ),
)


def bench_of(
    candidate: Candidate,
    shop: Shop,
    wrap: Callable[[Adapter], Adapter] = lambda adapter: adapter,
) -> AdapterBench:
    """Return a fresh tenant of a shop, reached through adapters that `wrap` may spoil."""
    at = door(shop)
    declared = service(
        at.url,
        candidate.level,
        from_environment(at.tenant),
        is_watched=candidate.is_watched,
        **candidate.more,
    )
    return bench_at(at, declared, candidate.traits, wrap)


def bench_at(
    at: Door,
    declared: Service,
    traits: frozenset[Trait] = frozenset(),
    wrap: Callable[[Adapter], Adapter] = lambda adapter: adapter,
) -> AdapterBench:
    """Return the bench of a tenant with a declaration."""
    return AdapterBench(
        open=lambda: wrap(at.open(declared)),
        write=lambda number: Call(
            kind="orders.create", arguments={"body": {"sku": f"A-{number}", "lines": [1, "two"]}}
        ),
        count=lambda: len(at.orders()),
        close=at.close,
        reads=(
            Call(kind="orders.state", arguments={}),
            Call(kind="orders.check", arguments={"place": "state", "about": True}),
        ),
        garbled=GARBLED,
        scope=scope_of(at),
        traits=traits,
        disturb=at.disturb,
        lose_answer=lambda: at.proxy.arm("lose"),
        cut_off=at.proxy.close,
    )


def spec_of(candidate: Candidate) -> KindSpec:
    """Return what a candidate declares of `orders.create`, without any shop."""
    declared = service(
        "http://127.0.0.1:9", candidate.level, Secret(environment="NONE"), **candidate.more
    )
    return kinds_of(declared)["orders.create"].spec
