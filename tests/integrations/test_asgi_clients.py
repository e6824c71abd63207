"""Who a client is, what it is told before it calls, and conditions that it calls under."""

import asyncio
import json
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from counterfoil.integrations.asgi import (
    Commits,
    Journal,
    ReceiptMiddleware,
    Rules,
    install_journal,
    open_journal,
)
from counterfoil.integrations.asgi.rules import Scope
from tests.support.asgi_bench import (
    RECEIPTS,
    UNUSED,
    Service,
    client_of,
    new_key,
    outcome,
    post,
    receipt_url,
)

pytest_plugins = ["tests.support.postgres", "tests.support.asgi_bench"]

Running = tuple[Service, httpx.Client]

FENCE = {"run": "run", "lease_version": 1, "nonce": "nonce"}
ACCOUNTS = {b"Bearer old": "ada", b"Bearer new": "ada", b"Bearer other": "eve"}


class Inside:
    """A service in this process, which counts what it executes."""

    def __init__(self, journal: Journal, **rules: Any) -> None:
        self._app = ReceiptMiddleware(self._serve, journal=journal, rules=Rules(**rules))
        self.effects = 0

    async def _serve(self, scope: Any, receive: Any, send: Any) -> None:
        self.effects += 1
        await send({"type": "http.response.start", "status": 201, "headers": []})
        await send({"type": "http.response.body", "body": b"%d" % self.effects})

    def ask(self, method: str, url: str, token: str = "", **headers: str) -> httpx.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if token:
            named["authorization"] = f"Bearer {token}"

        async def asked() -> httpx.Response:
            transport = httpx.ASGITransport(self._app)
            async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
                return await client.request(method, url, headers=named)

        return asyncio.run(asked())

    def post(self, token: str = "") -> httpx.Response:
        return self.ask("POST", "/", token, idempotency_key='"key"')


@pytest.fixture
def journal(tmp_path: Path) -> Generator[Journal]:
    opened = fresh(tmp_path / "one.db")
    yield opened
    opened.close()


def fresh(path: Path) -> Journal:
    install_journal(path)
    return open_journal(path)


def stranger_of(service: Service, headers: Sequence[tuple[str, str]] = ()) -> httpx.Client:
    return httpx.Client(base_url=service.url, headers=list(headers), trust_env=False, verify=UNUSED)


def account(scope: Scope) -> str:
    return ACCOUNTS.get(dict(scope["headers"]).get(b"authorization", b""), "")


def described(client: httpx.Client) -> dict[str, Any]:
    found: dict[str, Any] = client.get(RECEIPTS).json()
    return found


# ---------------------------------------------------------------- who asks


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param([], id="no header"),
        pytest.param([("authorization", "")], id="an empty one"),
        pytest.param([("authorization", "Bearer a"), ("authorization", "Bearer b")], id="two"),
    ],
)
def test_strangers_are_not_one_client(running: Running, headers: list[tuple[str, str]]) -> None:
    service, client = running
    key = new_key()
    post(client, "orders", key)
    with stranger_of(service, headers) as stranger:
        answers = [
            post(stranger, "orders", key),
            post(stranger, "orders", new_key()),
            stranger.get(receipt_url(key)),
            stranger.put(receipt_url(key), json={"forbid": True}),
            stranger.post(f"{RECEIPTS}/fences", json=FENCE),
            stranger.get(RECEIPTS),
        ]
    assert ({outcome(answer) for answer in answers}, service.effects("orders", key)) == (
        {(400, "missing-client")},
        1,
    )


def test_a_stranger_is_refused_as_a_problem(running: Running) -> None:
    service, _ = running
    with stranger_of(service) as stranger:
        answer = post(stranger, "orders", new_key())
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_stranger_may_do_what_needs_no_receipt(running: Running) -> None:
    service, _ = running
    key = new_key()
    with stranger_of(service) as stranger:
        answer = stranger.put("/orders", json={"name": key})
    assert (answer.status_code, service.effects("orders", key)) == (201, 1)


def test_a_service_of_one_client_says_so_in_its_rules(journal: Journal) -> None:
    service = Inside(journal, client=None)
    answers = [service.post(), service.post("any"), service.post("other")]
    assert ({answer.text for answer in answers}, service.effects) == ({"1"}, 1)


def test_a_client_that_a_function_does_not_know_is_a_stranger(journal: Journal) -> None:
    service = Inside(journal, client=account)
    assert (outcome(service.post("unknown")), service.effects) == ((400, "missing-client"), 0)


# ---------------------------------------------------------------- what a client is told


def test_a_client_learns_under_which_name_its_receipts_are(running: Running) -> None:
    _, client = running
    key = new_key()
    post(client, "orders", key)
    receipt = client.get(receipt_url(key)).json()
    assert (described(client)["client"], len(receipt["client"])) == (receipt["client"], 64)


def test_another_token_is_another_client(running: Running) -> None:
    service, client = running
    with client_of(service, "rotated") as other:
        assert described(other)["client"] != described(client)["client"]


def test_a_client_has_another_name_in_each_journal(tmp_path: Path) -> None:
    journals = [fresh(tmp_path / name) for name in ("one.db", "two.db", "one.db")]
    names = [Inside(journal).ask("GET", RECEIPTS, "token").json()["client"] for journal in journals]
    for journal in journals:
        journal.close()
    assert (names[0] == names[2], names[0] == names[1]) == (True, False)


def test_what_names_are_made_with_is_not_told(journal: Journal) -> None:
    service = Inside(journal)
    service.post("token")
    said = [service.ask("GET", url, "token").text for url in (RECEIPTS, f"{RECEIPTS}/key")]
    assert [journal.secret in text for text in (*said, journal.instance)] == [False] * 3


def test_receipts_of_an_account_outlive_a_rotation_of_its_token(journal: Journal) -> None:
    service = Inside(journal, client=account)
    answers = [service.post(token) for token in ("old", "new", "other")]
    names = {
        token: service.ask("GET", RECEIPTS, token).json()["client"] for token in ("old", "new")
    }
    assert ([answer.text for answer in answers], len(set(names.values()))) == (["1", "1", "2"], 1)


@pytest.mark.parametrize("commits", Commits)
def test_a_service_that_commits_in_one_way_says_which(journal: Journal, commits: Commits) -> None:
    service = Inside(journal, commits=commits)
    assert service.ask("GET", RECEIPTS, "token").json()["commits"] == commits.value


@pytest.mark.parametrize(
    ("route", "commits"),
    [
        ("orders", "apart"),
        ("transfers", "together"),
        ("repeats", "repeatable"),
        pytest.param("forgetful", "apart", id="no receipt was committed with the effect"),
        pytest.param("undone", "apart", id="its transaction was undone"),
    ],
)
def test_each_answer_says_how_its_receipt_was_committed(
    running: Running, route: str, commits: str
) -> None:
    _, client = running
    key = new_key()
    answers = [post(client, route, key) for _ in range(2)]
    said = {answer.headers["counterfoil-commits"] for answer in answers}
    assert (said, client.get(receipt_url(key)).json()["commits"]) == ({commits}, commits)


# ---------------------------------------------------------------- conditions of a call


def test_a_call_of_the_client_that_it_names_is_executed(running: Running) -> None:
    service, client = running
    key = new_key()
    answer = post(client, "orders", key, counterfoil_client=described(client)["client"])
    assert (answer.status_code, service.effects("orders", key)) == (201, 1)


@pytest.mark.parametrize("name", ["f" * 64, ""], ids=["another client", "nobody"])
def test_a_call_of_another_client_than_it_names_does_nothing(running: Running, name: str) -> None:
    service, client = running
    key = new_key()
    condition = {"counterfoil-client": name}
    answers = [
        post(client, "orders", key, **condition),
        client.put(receipt_url(key), json={"forbid": True}, headers=condition),
    ]
    assert ({outcome(answer) for answer in answers}, service.effects("orders", key)) == (
        {(412, "other-client")},
        0,
    )
    assert outcome(client.get(receipt_url(key))) == (404, "no-receipt")


def test_another_clients_fence_is_not_raised_by_a_call(running: Running) -> None:
    _, client = running
    run = new_key()
    headers = {"counterfoil-client": "f" * 64, "counterfoil-fence": f"{run};9;nonce"}
    post(client, "orders", new_key(), **headers)
    taken = client.post(f"{RECEIPTS}/fences", json={**FENCE, "run": run})
    assert taken.status_code == 200


@pytest.mark.parametrize(
    ("route", "listed", "is_taken"),
    [
        ("transfers", "together", True),
        ("orders", "together, apart", True),
        ("orders", "together,apart", True),
        ("repeats", "repeatable", True),
        ("orders", "together", False),
        ("repeats", "together, apart", False),
        ("transfers", "apart", False),
        ("transfers", "togetherness", False),
        ("orders", "", False),
    ],
)
def test_a_call_is_executed_only_where_receipts_commit_as_it_asks(
    running: Running, route: str, listed: str, *, is_taken: bool
) -> None:
    service, client = running
    key = new_key()
    answer = post(client, route, key, counterfoil_commits=listed)
    kind = json.loads(answer.content).get("type")
    assert (kind, service.effects(route, key)) == (
        (None, 1) if is_taken else ("urn:counterfoil:other-commits", 0)
    )
    assert client.get(receipt_url(key)).status_code == (200 if is_taken else 404)


@pytest.mark.parametrize("name", ["counterfoil-client", "counterfoil-commits"])
def test_a_condition_is_there_once(running: Running, name: str) -> None:
    service, client = running
    key = new_key()
    headers = [("idempotency-key", f'"{key}"'), (name, "together"), (name, "together")]
    answer = client.post("/orders", json={"name": key}, headers=headers)
    assert (outcome(answer), service.effects("orders", key)) == ((400, "invalid-header"), 0)
