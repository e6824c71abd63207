"""A real etcd for tests: one for each test process, a prefix of its own for each bench."""

import itertools
import os
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from counterfoil.local.etcd import LocalEtcd
from counterfoil.ports import HeadRegister
from counterfoil.stores.etcd import EtcdHeads, open_heads
from counterfoil.stores.etcd_address import PASSWORD_VARIABLE, parse_address
from counterfoil.stores.etcd_gateway import Gateway, open_gateway
from counterfoil.stores.etcd_wire import Txn, page
from counterfoil.testing.store_bench import HeadBench

TTL_MS = 1_000
"""The shortest term that a throwaway etcd grants."""

LOOKS_MAX = 600
LOOK_SECONDS = 0.05
NUMBERS = itertools.count()

Wrap = Callable[..., Any]


@pytest.fixture(scope="session")
def etcd() -> Generator[LocalEtcd]:
    """One node of this test process; a test that stops it starts it again."""
    with LocalEtcd() as server:
        yield server


def fresh_prefix() -> str:
    """Return a prefix that nobody used before."""
    return f"test-{os.getpid()}-{next(NUMBERS)}"


def opened(
    server: LocalEtcd, prefix: str = "counterfoil", *, user: str = "", **more: Any
) -> EtcdHeads:
    """Open a register, which is set up if it is not there."""
    environment = {PASSWORD_VARIABLE: server.password}
    more = {"create": True, "environment": environment, **more}
    return open_heads(server.url(prefix, user=user), **more)


def gateway_to(server: LocalEtcd, prefix: str = "counterfoil") -> Gateway:
    """Return a client of the server, as registers use it."""
    return open_gateway(parse_address(server.url(prefix), {}))


def wait_for_etcd(gateway: Gateway, ms: int) -> None:
    """Let time pass, and wait until etcd has ended every lease that is over by then."""
    prefix = gateway.address.prefix
    holds = gateway.ask(
        Txn(success=(page(f"{prefix}/hold/".encode(), f"{prefix}/hold0".encode(), 0),))
    ).ranges[0]
    leases = {int(row.lease): row.key for row in holds.kvs}
    ending = [lease for lease in leases if left_s(gateway, lease) * 1000 < ms]
    time.sleep(ms / 1000)
    for lease in ending:
        wait_for_end(gateway, lease)


def wait_for_end(gateway: Gateway, lease_id: int) -> None:
    """Wait until etcd has ended a lease."""
    for _ in range(LOOKS_MAX):
        if left_s(gateway, lease_id) < 0:
            return
        time.sleep(LOOK_SECONDS)
    raise TimeoutError("etcd does not end a lease")


def left_s(gateway: Gateway, lease_id: int) -> int:
    """Return the whole seconds that are left of a lease; negative when it has ended."""
    answer = gateway._client.post(
        f"{gateway.address.endpoints[0]}/v3/lease/timetolive", json={"ID": str(lease_id)}
    )
    return int(answer.json().get("TTL", 0))


@contextmanager
def etcd_heads(server: LocalEtcd, wrap: Wrap | None = None) -> Generator[HeadBench]:
    """A fresh register, whose clock is etcd's: moving it forward is waiting."""
    prefix = fresh_prefix()
    with ExitStack() as stack:
        gateway = gateway_to(server, prefix)
        stack.callback(gateway.close)

        def open_one() -> HeadRegister:
            heads = opened(server, prefix)
            stack.callback(heads.close)
            return heads if wrap is None else wrap(heads, lambda: time.time_ns() // 1_000_000)

        yield HeadBench(
            open=open_one, advance_clock=lambda ms: wait_for_etcd(gateway, ms), ttl_ms=TTL_MS
        )
