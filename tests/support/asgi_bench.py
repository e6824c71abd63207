"""Starts the service under test as a process, kills it, and talks to it."""

import multiprocessing
import os
import socket
import ssl
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from threading import Event
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from counterfoil.integrations.asgi import install_journal
from counterfoil.local.postgres import LocalPostgres
from tests.support import asgi_ledger as ledger
from tests.support import asgi_service
from tests.support.postgres import fresh_database

SQLITE, POSTGRES = "sqlite", "postgres"
KINDS = (SQLITE, POSTGRES)
PATIENCE_SECONDS = 60
LOOKS = 3_000
"""At what is soon so: far more than the slowest machine needs."""

UNUSED = ssl.create_default_context()
"""Nothing here is encrypted, and to make one for each client takes longer than its requests."""

PROCESSES = multiprocessing.get_context("forkserver")
"""Makes each process of a service from one that has imported everything, and never ran a line
of it: that takes a hundredth of a second."""
PROCESSES.set_forkserver_preload(
    ["fastapi", "starlette.applications", "uvicorn.protocols.http.auto", asgi_service.__name__]
)

RECEIPTS = "/counterfoil/receipts"
DOCUMENTATION = "https://service.example/keys"


class Service:
    """One service on one socket, which outlives its processes: requests wait for the next one."""

    def __init__(self, framework: str, place: str, folder: Path, rules: dict[str, Any]) -> None:
        self.place = place
        self.folder = folder
        self._settings = {
            "framework": framework,
            "place": place,
            "folder": str(folder),
            "rules": rules,
        }
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self._process: ForkServerProcess | None = None
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def start(self) -> None:
        self._process = PROCESSES.Process(
            target=asgi_service.serve, args=(self._listener, self._settings)
        )
        self._process.start()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self.wait()

    def wait(self) -> None:
        """Wait until the process has ended by itself."""
        assert self._process is not None
        self._process.join(PATIENCE_SECONDS)
        self._process.close()
        self._process = None

    def close(self) -> None:
        self.kill()
        self._listener.close()

    def effects(self, route: str, name: str) -> int:
        return ledger.effects(self.place, route, name)


@contextmanager
def serving(
    framework: str, place: str, folder: Path, **rules: Any
) -> Generator[tuple[Service, httpx.Client]]:
    """A service that runs, and a client of it."""
    install_journal(place)
    ledger.create(place)
    service = Service(framework, place, folder, rules)
    try:
        service.start()
        with client_of(service) as client:
            yield service, client
    finally:
        service.close()


def client_of(service: Service, name: str = "ada") -> httpx.Client:
    return httpx.Client(
        base_url=service.url,
        headers={"authorization": f"Bearer {name}"},
        timeout=PATIENCE_SECONDS,
        trust_env=False,
        verify=UNUSED,
    )


def new_key() -> str:
    return os.urandom(12).hex()


def post(client: httpx.Client, route: str, key: str, **headers: str) -> httpx.Response:
    """Send the one request of a key, whose effects are counted under its name."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return client.post(
        f"/{route}", json={"name": key}, headers={"idempotency-key": f'"{key}"', **named}
    )


@contextmanager
def post_alone_in_thread(
    service: Service, route: str, key: str, **headers: str
) -> Generator[Future[httpx.Response]]:
    """Send a request on a connection of its own, beside what the test does meanwhile."""
    with ThreadPoolExecutor(1) as threads, client_of(service) as client:
        yield threads.submit(post, client, route, key, **headers)


def wait_until_reached(service: Service, key: str) -> None:
    """Wait until the service has begun with a request that it holds."""
    waits = Event()
    for _ in range(LOOKS):
        if (service.folder / f"{key}.reached").exists():
            return
        waits.wait(0.01)
    raise AssertionError("the request never arrived")


def receipt_url(key: str) -> str:
    return f"{RECEIPTS}/{quote(key, safe='')}"


def outcome(answer: httpx.Response) -> tuple[int, str]:
    """Return status and type of a refusal."""
    return answer.status_code, answer.json()["type"].removeprefix("urn:counterfoil:")


def fresh_place(request: pytest.FixtureRequest, folder: Path, kind: str = "") -> str:
    """Return where an empty database of a kind is, by default the fixture's own."""
    if (kind or request.param) == SQLITE:
        return str(folder / "service.db")
    server: LocalPostgres = request.getfixturevalue("postgres")
    return fresh_database(server)


@pytest.fixture(scope="session")
def emptied(postgres: LocalPostgres) -> Generator[Callable[[], str]]:
    """Empties one database again and again, which is less work than to make one."""
    place = fresh_database(postgres)
    with ledger.connected(place) as connection:

        def empty() -> str:
            connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
            return place

        yield empty


@pytest.fixture
def postgres_place(emptied: Callable[[], str]) -> str:
    """An empty database of PostgreSQL."""
    return emptied()


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of each kind."""
    if request.param == SQLITE:
        return fresh_place(request, tmp_path, SQLITE)
    found: str = request.getfixturevalue("postgres_place")
    return found


PAIRS = ("starlette on sqlite", "fastapi on postgres", "bare on postgres")
"""Each framework and each database; they meet nowhere but in the middleware."""


@pytest.fixture(scope="session", params=PAIRS)
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Generator[tuple[Service, httpx.Client]]:
    """A service of each of `PAIRS`, and a client of it."""
    framework, _, kind = request.param.partition(" on ")
    folder = tmp_path_factory.mktemp("service")
    at = fresh_place(request, folder, kind)
    with serving(framework, at, folder, documentation=DOCUMENTATION) as found:
        yield found
