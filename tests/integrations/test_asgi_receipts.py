"""Receipts as clients read them, keys made impossible, and fences of runs."""

import base64
from typing import Any

import httpx
import pytest

from tests.support.asgi_bench import (
    RECEIPTS,
    Service,
    client_of,
    new_key,
    outcome,
    post,
    post_alone_in_thread,
    receipt_url,
    wait_until_reached,
)

pytest_plugins = ["tests.support.postgres", "tests.support.asgi_bench"]

Running = tuple[Service, httpx.Client]

CHECKPOINT = "c" * 64


def fence(run: str, version: int, nonce: str = "nonce") -> str:
    return f"{run};{version};{nonce}"


def take(client: httpx.Client, run: str, version: int, nonce: str = "nonce") -> httpx.Response:
    body = {"run": run, "lease_version": version, "nonce": nonce}
    return client.post(f"{RECEIPTS}/fences", json=body)


def forbid(client: httpx.Client, key: str, **headers: str) -> httpx.Response:
    return client.put(receipt_url(key), json={"forbid": True}, headers=headers)


def test_a_receipt_holds_the_answer_and_whose_it_is(running: Running) -> None:
    _, client = running
    key, run = new_key(), new_key()
    given = post(
        client,
        "orders",
        key,
        counterfoil_fence=fence(run, 3),
        counterfoil_served=f"7;{CHECKPOINT}",
        counterfoil_intent="i1:abc",
        counterfoil_statement="def",
    )
    found: dict[str, Any] = client.get(receipt_url(key)).json()
    wanted = {
        "id": given.headers["counterfoil-receipt"],
        "key": key,
        "status": 201,
        "body_base64": base64.b64encode(given.content).decode(),
        "committed_at_ms": int(given.headers["counterfoil-committed-at"]),
        "intent": "i1:abc",
        "run": run,
        "served": {"generation": 7, "checkpoint": CHECKPOINT},
        "statement": "def",
        "commits": "apart",
    }
    assert {name: found[name] for name in wanted} == wanted


def test_a_receipt_holds_the_headers_of_the_answer(running: Running) -> None:
    _, client = running
    key = new_key()
    given = post(client, "orders", key)
    headers = dict(client.get(receipt_url(key)).json()["headers"])
    assert headers["x-number"] == given.headers["x-number"]


def test_a_receipt_in_the_services_transaction_says_so(running: Running) -> None:
    _, client = running
    key = new_key()
    post(client, "transfers", key)
    assert client.get(receipt_url(key)).json()["commits"] == "together"


def test_a_key_that_was_never_used_has_no_receipt(running: Running) -> None:
    _, client = running
    assert outcome(client.get(receipt_url(new_key()))) == (404, "no-receipt")


def test_a_receipt_is_its_clients_own(running: Running) -> None:
    service, client = running
    key = new_key()
    post(client, "orders", key)
    with client_of(service, "eve") as other:
        assert outcome(other.get(receipt_url(key))) == (404, "no-receipt")


def test_a_request_under_way_has_no_receipt_yet(running: Running) -> None:
    service, client = running
    key = new_key()
    with post_alone_in_thread(service, "held", key) as first:
        wait_until_reached(service, key)
        found = client.get(receipt_url(key))
        (service.folder / f"{key}.go").touch()
        first.result()
    assert (outcome(found), client.get(receipt_url(key)).status_code) == ((409, "in-flight"), 200)


def test_a_service_says_what_holds_for_its_keys(running: Running) -> None:
    _, client = running
    found = client.get(RECEIPTS).json()
    found.pop("instance")
    found.pop("client")
    assert found == {
        "commits": None,
        "retention_ms": 24 * 60 * 60 * 1000,
        "key_chars_max": 255,
        "body_bytes_max": 1024 * 1024,
        "answer_bytes_max": 10_000,
    }


@pytest.mark.parametrize(
    ("method", "path"),
    [
        pytest.param("DELETE", f"{RECEIPTS}/k", id="delete a receipt"),
        pytest.param("POST", f"{RECEIPTS}/k", id="post to a receipt"),
        pytest.param("PUT", RECEIPTS, id="put to all"),
    ],
)
def test_receipts_have_no_other_method(running: Running, method: str, path: str) -> None:
    _, client = running
    assert outcome(client.request(method, path)) == (405, "no-method")


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b'{"forbid": false}', id="not forbidden"),
        pytest.param(b'{"forbid": true, "forbid": true}', id="a member twice"),
        pytest.param(b'{"forbid": true, "more": 1}', id="another member"),
        pytest.param(b"[" * 5_000, id="too long"),
    ],
)
def test_a_body_that_forbids_is_of_one_form(running: Running, body: bytes) -> None:
    _, client = running
    assert client.put(receipt_url(new_key()), content=body).status_code in (400, 413)


def test_a_forbidden_key_is_never_executed(running: Running) -> None:
    service, client = running
    key = new_key()
    answer = forbid(client, key)
    refused = post(client, "orders", key)
    assert (answer.json()["forbidden"], outcome(refused), service.effects("orders", key)) == (
        True,
        (403, "forbidden-key"),
        0,
    )


def test_a_forbidden_key_is_shown_as_such(running: Running) -> None:
    _, client = running
    key = new_key()
    tombstone = forbid(client, key).json()
    assert client.get(receipt_url(key)).json() == tombstone == forbid(client, key).json()


def test_a_key_that_is_done_cannot_be_forbidden(running: Running) -> None:
    _, client = running
    key = new_key()
    given = post(client, "orders", key)
    found = forbid(client, key).json()
    assert (found["id"], post(client, "orders", key).content) == (
        given.headers["counterfoil-receipt"],
        given.content,
    )


def test_a_key_under_way_cannot_be_forbidden(running: Running) -> None:
    service, client = running
    key = new_key()
    with post_alone_in_thread(service, "held", key) as first:
        wait_until_reached(service, key)
        refused = forbid(client, key)
        (service.folder / f"{key}.go").touch()
        first.result()
    assert outcome(refused) == (409, "in-flight")


def test_a_key_under_way_in_the_services_transaction_can_be_forbidden(running: Running) -> None:
    service, client = running
    key = new_key()
    with post_alone_in_thread(service, "slow", key) as first:
        wait_until_reached(service, key)
        answer = forbid(client, key)
        (service.folder / f"{key}.go").touch()
        late = first.result()
    assert (answer.json()["forbidden"], outcome(late), service.effects("slow", key)) == (
        True,
        (409, "superseded"),
        0,
    )


def test_a_fence_is_raised_once_for_a_version(running: Running) -> None:
    _, client = running
    run = new_key()
    answers = [take(client, run, version).status_code for version in (1, 2, 2, 3)]
    assert answers == [200] * 4


@pytest.mark.parametrize(
    ("version", "nonce"),
    [pytest.param(1, "nonce", id="older"), pytest.param(2, "other", id="equal with other nonce")],
)
def test_a_stale_fence_is_refused_everywhere(running: Running, version: int, nonce: str) -> None:
    service, client = running
    run, key = new_key(), new_key()
    take(client, run, 2)
    stale = fence(run, version, nonce)
    answers = [
        take(client, run, version, nonce),
        post(client, "orders", key, counterfoil_fence=stale),
        forbid(client, key, **{"counterfoil-fence": stale}),
    ]
    assert ({outcome(answer) for answer in answers}, service.effects("orders", key)) == (
        {(412, "stale-fence")},
        0,
    )


def test_a_stale_fence_is_refused_even_for_a_replay(running: Running) -> None:
    _, client = running
    run, key = new_key(), new_key()
    post(client, "orders", key, counterfoil_fence=fence(run, 1))
    take(client, run, 2)
    again = post(client, "orders", key, counterfoil_fence=fence(run, 1))
    assert outcome(again) == (412, "stale-fence")


def test_a_request_raises_the_fence(running: Running) -> None:
    _, client = running
    run = new_key()
    post(client, "orders", new_key(), counterfoil_fence=fence(run, 5))
    assert outcome(take(client, run, 4)) == (412, "stale-fence")


def test_a_replay_under_a_newer_lease_is_the_same_request(running: Running) -> None:
    _, client = running
    run, key = new_key(), new_key()
    given = post(client, "orders", key, counterfoil_fence=fence(run, 1))
    again = post(client, "orders", key, counterfoil_fence=fence(run, 2, "newer"))
    assert again.content == given.content


def test_fences_of_runs_are_apart(running: Running) -> None:
    _, client = running
    take(client, new_key(), 9)
    assert take(client, new_key(), 1).status_code == 200


def test_a_fence_is_its_clients_own(running: Running) -> None:
    service, client = running
    run = new_key()
    with client_of(service, "eve") as other:
        take(other, run, 9)
    assert take(client, run, 1).status_code == 200


def test_a_new_holder_learns_what_was_served_last(running: Running) -> None:
    _, client = running
    run = new_key()
    first = take(client, run, 1).json()["served"]
    for generation in (4, 5):
        served = f"{generation};{CHECKPOINT}"
        headers = {"counterfoil_fence": fence(run, 1), "counterfoil_served": served}
        post(client, "orders", new_key(), **headers)
    assert (first, take(client, run, 2).json()["served"]) == (
        None,
        {"generation": 5, "checkpoint": CHECKPOINT},
    )


def test_a_replay_is_served_too(running: Running) -> None:
    _, client = running
    run, key = new_key(), new_key()
    for generation in (4, 5):
        served = f"{generation};{CHECKPOINT}"
        headers = {"counterfoil_fence": fence(run, 1), "counterfoil_served": served}
        post(client, "orders", key, **headers)
    assert take(client, run, 2).json()["served"]["generation"] == 5


def test_an_older_checkpoint_does_not_hide_a_newer_one(running: Running) -> None:
    _, client = running
    run = new_key()
    for generation in (5, 4):
        served = f"{generation};{CHECKPOINT}"
        headers = {"counterfoil_fence": fence(run, 1), "counterfoil_served": served}
        post(client, "orders", new_key(), **headers)
    assert take(client, run, 2).json()["served"]["generation"] == 5


def test_a_refused_request_was_not_served(running: Running) -> None:
    _, client = running
    run, key = new_key(), new_key()
    post(client, "orders", key)
    headers = {"counterfoil_fence": fence(run, 1), "counterfoil_served": f"9;{CHECKPOINT}"}
    refused = post(client, "orders", key, **headers)
    assert (outcome(refused), take(client, run, 2).json()["served"]) == (
        (422, "other-payload"),
        None,
    )


def test_a_new_holder_settles_what_is_under_way(running: Running) -> None:
    service, client = running
    run, key = new_key(), new_key()
    headers = {"counterfoil_fence": fence(run, 1)}
    with post_alone_in_thread(service, "slow", key, **headers) as first:
        wait_until_reached(service, key)
        take(client, run, 2)
        found = client.get(receipt_url(key))
        (service.folder / f"{key}.go").touch()
        late = first.result()
    assert (outcome(found), outcome(late), service.effects("slow", key)) == (
        (404, "no-receipt"),
        (409, "superseded"),
        0,
    )


def test_any_run_has_a_fence(running: Running) -> None:
    _, client = running
    run = "läufe; 1/2 %"
    post(client, "orders", new_key(), counterfoil_fence="l%C3%A4ufe%3B%201%2F2%20%25;3;n%3B1")
    assert take(client, run, 3, "n;1").json()["run"] == run


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param("counterfoil-fence", "run;1", id="a fence of two parts"),
        pytest.param("counterfoil-fence", "run;one;nonce", id="a version that is no number"),
        pytest.param("counterfoil-fence", "run;0;nonce", id="version 0"),
        pytest.param("counterfoil-fence", "run;9007199254740992;nonce", id="version 2^53"),
        pytest.param("counterfoil-fence", ";1;nonce", id="a fence without a run"),
        pytest.param("counterfoil-fence", "run;1;", id="a fence without a nonce"),
        pytest.param("counterfoil-fence", "r%FF;1;nonce", id="a run that is not UTF-8"),
        pytest.param("counterfoil-fence", "r%0A;1;nonce", id="a run with a line feed"),
        pytest.param("counterfoil-served", "5", id="served of one part"),
        pytest.param("counterfoil-served", "x;c", id="a generation that is no number"),
        pytest.param("counterfoil-intent", "i" * 201, id="an intent that is too long"),
        pytest.param("counterfoil-statement", "s" * 201, id="a statement that is too long"),
    ],
)
def test_a_header_of_ours_is_of_its_form(running: Running, name: str, value: str) -> None:
    service, client = running
    key = new_key()
    answer = post(client, "orders", key, **{name: value})
    assert (outcome(answer), service.effects("orders", key)) == ((400, "invalid-header"), 0)
