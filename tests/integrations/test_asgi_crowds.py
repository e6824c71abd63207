"""Sixty-four clients at once, and a service that is killed while it serves them."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, Event, Lock

import httpx
import pytest

from tests.support import asgi_ledger as ledger
from tests.support.asgi_bench import (
    POSTGRES,
    SQLITE,
    Service,
    client_of,
    fresh_place,
    new_key,
    post,
    receipt_url,
    serving,
)

pytest_plugins = ["tests.support.postgres", "tests.support.asgi_bench"]

CLIENTS = 64
CLIENTS_OF_A_KEY = 4
ROUNDS = 2
KILLS_AFTER = (8, 50, 90)
"""Kills come when so many of all 128 answers are there, so always in the midst."""

LEASE_MS = 500
TRIES = 5_000
PAUSE_SECONDS = 0.02

Given = tuple[int, bytes, str]


class Crowd:
    """Clients that ask until each of their keys is answered, several with each key."""

    def __init__(self, service: Service, route: str) -> None:
        self._service = service
        self._route = route
        self._lock = Lock()
        self._start = Barrier(CLIENTS)
        self._progress = Event()
        self.keys = [[new_key() for _ in range(CLIENTS // CLIENTS_OF_A_KEY)] for _ in range(ROUNDS)]
        self.answers: list[tuple[str, Given]] = []
        self.unknown: set[str] = set()
        self.kills = 0

    def run(self) -> None:
        with ThreadPoolExecutor(CLIENTS + 1) as threads:
            killer = threads.submit(self._kill)
            clients = [threads.submit(self._ask, number) for number in range(CLIENTS)]
            for client in clients:
                client.result()
            killer.result()

    def _ask(self, number: int) -> None:
        self._start.wait()
        with client_of(self._service) as client:
            for keys in self.keys:
                key = keys[number // CLIENTS_OF_A_KEY]
                self._settle(client, key)

    def _settle(self, client: httpx.Client, key: str) -> None:
        waits = Event()
        for _ in range(TRIES):
            try:
                answer = post(client, self._route, key)
            except httpx.TransportError:
                continue
            if "counterfoil-receipt" in answer.headers:
                given = (answer.status_code, answer.content, answer.headers["counterfoil-receipt"])
                self._note(key, given)
                return
            if answer.json()["type"] == "urn:counterfoil:outcome-unknown":
                self._note(key, None)
                return
            waits.wait(PAUSE_SECONDS)
        raise AssertionError("a key was never answered")

    def _note(self, key: str, given: Given | None) -> None:
        with self._lock:
            if given is None:
                self.unknown.add(key)
            else:
                self.answers.append((key, given))
            self._progress.set()

    def _kill(self) -> None:
        for count in KILLS_AFTER:
            while len(self.answers) + len(self.unknown) * CLIENTS_OF_A_KEY < count:
                self._progress.wait(PAUSE_SECONDS)
                self._progress.clear()
            self._service.kill()
            self.kills += 1
            self._service.start()

    def answers_of_keys(self) -> dict[str, set[Given]]:
        """Return the different answers to each key that was answered."""
        found: dict[str, set[Given]] = {}
        for key, given in self.answers:
            found.setdefault(key, set()).add(given)
        return found

    def effects(self) -> tuple[Counter[int], Counter[int]]:
        """Return how many keys had how many effects: those that were answered, and others.

        Effects are counted where they are, in the tables of the service.
        """
        found = dict(ledger.counted(self._service.place))
        answered, others = set(self.answers_of_keys()), {key for keys in self.keys for key in keys}
        others -= answered

        def counted(keys: set[str]) -> Counter[int]:
            return Counter(found.get((self._route, key), 0) for key in keys)

        return counted(answered), counted(others)


@pytest.mark.parametrize(
    ("framework", "kind"),
    [
        pytest.param("starlette", SQLITE, id="starlette on sqlite"),
        pytest.param("fastapi", POSTGRES, id="fastapi on postgres"),
    ],
)
def test_each_key_has_one_effect_and_one_answer(
    request: pytest.FixtureRequest, tmp_path: Path, framework: str, kind: str
) -> None:
    place = fresh_place(request, tmp_path, kind)
    with serving(framework, place, tmp_path, lease_ms=LEASE_MS) as (service, _):
        crowd = Crowd(service, "transfers")
        crowd.run()
        answers = crowd.answers_of_keys()
        every = ROUNDS * CLIENTS // CLIENTS_OF_A_KEY
        assert (crowd.kills, len(crowd.answers)) == (len(KILLS_AFTER), CLIENTS * ROUNDS)
        assert {status for _, (status, _, _) in crowd.answers} == {201}
        assert [len(given) for given in answers.values()] == [1] * every
        assert crowd.effects() == (Counter({1: every}), Counter())


@pytest.mark.parametrize(
    ("framework", "kind"),
    [
        pytest.param("bare", SQLITE, id="C07 no framework on sqlite"),
        pytest.param("bare", POSTGRES, id="C07 no framework on postgres"),
    ],
)
def test_a_key_without_the_services_transaction_never_has_two_effects(
    request: pytest.FixtureRequest, tmp_path: Path, framework: str, kind: str
) -> None:
    place = fresh_place(request, tmp_path, kind)
    with serving(framework, place, tmp_path, lease_ms=LEASE_MS) as (service, client):
        crowd = Crowd(service, "orders")
        crowd.run()
        answers = crowd.answers_of_keys()
        receipts = {client.get(receipt_url(key)).json()["status"] for key in answers}
        answered, others = crowd.effects()
        assert crowd.kills == len(KILLS_AFTER)
        assert {status for _, (status, _, _) in crowd.answers} == receipts == {201}
        assert {len(given) for given in answers.values()} == {1}
        assert answered == Counter({1: len(answers)})
        assert set(others) <= {0, 1}
