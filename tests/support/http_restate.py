"""Starts Restate with a shop behind it, and declares its ingress as a service.

Its server is a package of npm, which `make test` installs into `.cache/restate`.
"""

import os
import platform
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from counterfoil.adapters.http import Endpoint, Fields, Question, Service, When
from counterfoil.core.task import Policy, Task
from counterfoil.core.words import Level
from tests.support.http_proxy import HttpProxy
from tests.support.sources import ROOT

ARCHITECTURE = {"x86_64": "x64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
PACKAGE = f"@restatedev/restate-server-linux-{ARCHITECTURE}"
SERVER = ROOT / ".cache/restate/node_modules" / PACKAGE / "bin/restate-server"
PATIENCE_SECONDS = 60
DAY_MS = 86_400_000


@dataclass(frozen=True, kw_only=True)
class Restate:
    """A Restate that runs, with its shop.

    Attributes:
        port: Of the ingress.
        folder: Of the shop.
    """

    port: int
    folder: Path

    def orders(self) -> tuple[str, ...]:
        """Return what was ordered, in order: the effects."""
        place = self.folder / "orders"
        return tuple(place.read_text().split()) if place.exists() else ()


@contextmanager
def restate(folder: Path) -> Generator[Restate]:
    """A fresh Restate with a shop."""
    if not SERVER.exists():
        raise FileNotFoundError(f"{SERVER} is missing: `make test` installs it")
    ingress, admin, node = _free_ports(3)
    listener = socket.create_server(("127.0.0.1", 0))
    fd = str(listener.fileno())
    program = "tests.support.http_restate_shop:app"
    shop = _started(
        [sys.executable, "-m", "uvicorn", "--fd", fd, "--log-level", "error", program],
        {"SHOP_FOLDER": str(folder)},
        listener.fileno(),
    )
    settings = {
        "RESTATE_INGRESS__BIND_PORT": ingress,
        "RESTATE_ADMIN__BIND_PORT": admin,
        "RESTATE_BIND_PORT": node,
        "RESTATE_BIND_IP": "127.0.0.1",
        "RESTATE_LISTEN_MODE": "tcp",
        "DO_NOT_TRACK": "1",
    }
    arguments = [str(SERVER), "--no-logo", "--base-dir", str(folder / "restate")]
    server = _started(arguments, {name: str(value) for name, value in settings.items()})
    try:
        _register(admin, f"http://127.0.0.1:{listener.getsockname()[1]}")
        yield Restate(port=ingress, folder=folder)
    finally:
        for process in (server, shop):
            process.send_signal(signal.SIGKILL)
            process.wait(PATIENCE_SECONDS)
        listener.close()


def _started(
    arguments: list[str], settings: dict[str, str], *sockets: int
) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        arguments,
        cwd=ROOT,
        env={**os.environ, **settings},
        pass_fds=sockets,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _register(admin: int, shop: str) -> None:
    """Tell Restate of the shop, as soon as both are up."""
    until = time.monotonic() + PATIENCE_SECONDS
    with httpx.Client(trust_env=False, timeout=PATIENCE_SECONDS) as client:
        while True:
            try:
                body = {"uri": shop, "use_http_11": True}
                answer = client.post(f"http://127.0.0.1:{admin}/deployments", json=body)
                if answer.status_code == 201:
                    return
            except httpx.TransportError:
                pass
            if time.monotonic() > until:
                raise TimeoutError("Restate does not come up")


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports


def declared(proxy: HttpProxy, **more: Any) -> Service:
    """Declare the ingress: bare keys, kept for a day, and asked for by their own path."""
    url = f"http://127.0.0.1:{proxy.port}"
    given: dict[str, Any] = {"call_ms": 10_000} | more
    order = Endpoint(
        name="shop.order",
        method="POST",
        url=f"{url}/shop/order",
        level=Level.DEDUPLICATING,
        key_form="bare",
        marks={"/metadata/intent": "digest", "/metadata/run": "run"},
        look_up=Question(url=f"{url}/restate/invocation/shop/order/{{key}}/output"),
        fields=Fields(id="/id", digest="/metadata/intent", run="/metadata/run"),
        replayed=When(header="Idempotency-Expires"),
        key_retention_ms=DAY_MS,
        **given,
    )
    return Service(name="shop", endpoints=(order,), instance="restate")


def task_of(proxy: HttpProxy) -> Task:
    scope = {
        "hosts": (f"127.0.0.1:{proxy.port}",),
        "methods": ("POST",),
        "paths": ("shop/order",),
    }
    return Task(id="restock", policy=Policy(permissions=("shop.order",), scope={"shop": scope}))
