"""Starts the service under test as a process, kills it, and talks to it."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from counterfoil.integrations.asgi import install_journal
from tests.support import asgi_ledger as ledger
from tests.support.sources import ROOT

FRAMEWORKS = ("starlette", "fastapi", "bare")
PATIENCE_SECONDS = 60
RECEIPTS = "/counterfoil/receipts"


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
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def start(self, *, death: tuple[str, str] | None = None) -> None:
        fd = self._listener.fileno()
        settings = self._settings | ({"death": death} if death else {})
        flags = ["-O"] if sys.flags.optimize else []
        self._process = subprocess.Popen(
            [
                sys.executable,
                *flags,
                "-m",
                "tests.support.asgi_service",
                str(fd),
                json.dumps(settings),
            ],
            cwd=ROOT,
            pass_fds=[fd],
            stderr=subprocess.DEVNULL,
        )

    def kill(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self.wait()

    def wait(self) -> int:
        """Return how the process ended, by itself."""
        assert self._process is not None
        code = self._process.wait(PATIENCE_SECONDS)
        self._process = None
        return code

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


def client_of(service: Service, token: str = "ada") -> httpx.Client:
    return httpx.Client(
        base_url=service.url,
        headers={"authorization": f"Bearer {token}"},
        timeout=PATIENCE_SECONDS,
        trust_env=False,
    )


def new_key() -> str:
    return os.urandom(12).hex()


def post(client: httpx.Client, route: str, key: str, **headers: str) -> httpx.Response:
    """Send the one request of a key, whose effects are counted under its name."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return client.post(
        f"/{route}", json={"name": key}, headers={"idempotency-key": f'"{key}"', **named}
    )


def outcome(answer: httpx.Response) -> tuple[int, str]:
    """Return status and type of a refusal."""
    return answer.status_code, answer.json()["type"].removeprefix("urn:counterfoil:")
