"""What the IETF's draft asks of a service, request by request, and what it leaves open.

Source: draft-ietf-httpapi-idempotency-key-header, 2.1 to 2.7.
"""

from typing import Any

import httpx
import pytest

from tests.support.asgi_bench import (
    DOCUMENTATION,
    LOOKS,
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

STORED = (
    "content-type",
    "x-number",
    "counterfoil-receipt",
    "counterfoil-committed-at",
    "counterfoil-commits",
)


def kept(answer: httpx.Response) -> tuple[int, bytes, list[str | None]]:
    """Return what must be the same in each answer to one key."""
    return answer.status_code, answer.content, [answer.headers.get(name) for name in STORED]


@pytest.mark.parametrize("route", ["orders", "transfers", "repeats"])
def test_a_first_request_is_executed(running: Running, route: str) -> None:
    service, client = running
    key = new_key()
    answer = post(client, route, key)
    assert (answer.status_code, service.effects(route, key)) == (201, 1)


def test_a_first_answer_is_not_called_a_replay(running: Running) -> None:
    _, client = running
    answer = post(client, "orders", new_key())
    assert "idempotent-replayed" not in answer.headers


@pytest.mark.parametrize(
    ("route", "status"),
    [
        pytest.param("orders", 201, id="success"),
        pytest.param("transfers", 201, id="success in the service's own transaction"),
        pytest.param("repeats", 201, id="success of what is repeatable"),
        pytest.param("refused", 503, id="an answer of 5xx"),
        pytest.param("failing", 500, id="an exception"),
        pytest.param("large", 500, id="an answer beyond its bound"),
        pytest.param("missing", 404, id="a path that nobody serves"),
    ],
)
def test_a_retry_gets_the_first_answer(running: Running, route: str, status: int) -> None:
    _, client = running
    key = new_key()
    first, second = post(client, route, key), post(client, route, key)
    assert (first.status_code, kept(second)) == (status, kept(first))


@pytest.mark.parametrize("route", ["orders", "transfers", "repeats", "refused", "failing", "large"])
def test_a_retry_has_no_effect(running: Running, route: str) -> None:
    service, client = running
    key = new_key()
    for _ in range(3):
        post(client, route, key)
    assert service.effects(route, key) == 1


def test_a_retry_is_called_a_replay(running: Running) -> None:
    _, client = running
    key = new_key()
    post(client, "orders", key)
    assert post(client, "orders", key).headers["idempotent-replayed"] == "true"


@pytest.mark.parametrize(
    "route",
    [
        pytest.param("forgetful", id="no receipt was written"),
        pytest.param("undone", id="its transaction was undone"),
    ],
)
def test_a_success_that_was_not_committed_is_none(running: Running, route: str) -> None:
    _, client = running
    key = new_key()
    answers = [outcome(post(client, route, key)) for _ in range(2)]
    assert answers == [(500, "not-committed")] * 2


def test_a_request_during_the_first_one_is_a_conflict(running: Running) -> None:
    service, client = running
    key = new_key()
    with post_alone_in_thread(service, "held", key) as first:
        wait_until_reached(service, key)
        second = post(client, "held", key)
        (service.folder / f"{key}.go").touch()
        status = first.result().status_code
    assert (outcome(second), second.headers["retry-after"], status) == (
        (409, "in-flight"),
        "1",
        201,
    )


def test_a_request_after_a_conflict_gets_the_first_answer(running: Running) -> None:
    service, client = running
    key = new_key()
    with post_alone_in_thread(service, "held", key) as first:
        wait_until_reached(service, key)
        post(client, "held", key)
        (service.folder / f"{key}.go").touch()
        answer = first.result()
    assert (kept(post(client, "held", key)), service.effects("held", key)) == (kept(answer), 1)


def test_a_client_that_leaves_does_not_stop_its_request(running: Running) -> None:
    service, client = running
    key = new_key()
    with client_of(service) as impatient, pytest.raises(httpx.ReadTimeout):
        impatient.post(
            "/held",
            json={"name": key},
            headers={"idempotency-key": f'"{key}"'},
            timeout=httpx.Timeout(60, read=0.3),
        )
    wait_until_reached(service, key)
    (service.folder / f"{key}.go").touch()
    for _ in range(LOOKS):
        answer = post(client, "held", key)
        if answer.status_code != 409:
            break
    assert (answer.status_code, service.effects("held", key)) == (201, 1)


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"json": {"name": "another"}}, id="body"),
        pytest.param({"url": "/transfers"}, id="path"),
        pytest.param({"params": {"dry": "1"}}, id="query"),
        pytest.param({"method": "PUT"}, id="method"),
        pytest.param({"headers": {"content-type": "text/plain"}}, id="content type"),
        pytest.param({"headers": {"content-encoding": "identity"}}, id="content encoding"),
        pytest.param({"headers": {"counterfoil-intent": "i1:other"}}, id="intent"),
        pytest.param({"headers": {"counterfoil-fence": "r;1;n"}}, id="run"),
    ],
)
def test_a_key_is_not_for_another_request(running: Running, changed: dict[str, Any]) -> None:
    service, client = running
    key = new_key()
    request: dict[str, Any] = {"method": "POST", "url": "/orders", "json": {"name": key}}
    key_header = {"idempotency-key": f'"{key}"'}
    first = client.request(**request, headers=key_header)
    headers = key_header | changed.get("headers", {})
    second = client.request(**(request | changed | {"headers": headers}))
    third = client.request(**request, headers=key_header)
    assert (outcome(second), kept(third), service.effects("orders", key)) == (
        (422, "other-payload"),
        kept(first),
        1,
    )


def test_a_header_that_is_not_chosen_does_not_make_another_request(running: Running) -> None:
    _, client = running
    key = new_key()
    first = post(client, "orders", key, user_agent="one")
    assert kept(post(client, "orders", key, user_agent="two")) == kept(first)


def test_a_key_is_its_clients_own(running: Running) -> None:
    service, client = running
    key = new_key()
    ours = post(client, "orders", key)
    with client_of(service, "eve") as other:
        theirs = post(other, "orders", key)
    assert (theirs.status_code, theirs.content != ours.content) == (201, True)


@pytest.mark.parametrize("method", ["POST", "PATCH"])
def test_a_request_without_a_key_is_refused(running: Running, method: str) -> None:
    service, client = running
    key = new_key()
    answer = client.request(method, "/orders", json={"name": key})
    assert (outcome(answer), service.effects("orders", key)) == ((400, "missing-key"), 0)


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
def test_a_request_that_needs_no_key_is_executed_without(running: Running, method: str) -> None:
    service, client = running
    key = new_key()
    for _ in range(2):
        answer = client.request(method, "/orders", json={"name": key})
    assert (answer.headers.get("counterfoil-receipt"), service.effects("orders", key)) == (None, 2)


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH"])
def test_a_key_counts_with_every_method_that_writes(running: Running, method: str) -> None:
    service, client = running
    key = new_key()
    headers = {"idempotency-key": f'"{key}"'}
    for _ in range(2):
        answer = client.request(method, "/orders", json={"name": key}, headers=headers)
    assert (answer.headers["idempotent-replayed"], service.effects("orders", key)) == ("true", 1)


def test_a_key_means_nothing_to_a_method_that_reads(running: Running) -> None:
    service, client = running
    key = new_key()
    for _ in range(2):
        client.request("GET", "/orders", json={"name": key}, headers={"idempotency-key": "no key"})
    assert service.effects("orders", key) == 2


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param([b"bare-token"], id="without quotes"),
        pytest.param([b'""'], id="empty"),
        pytest.param([b""], id="nothing"),
        pytest.param([b'"' + b"k" * 256 + b'"'], id="too long"),
        pytest.param([b'"one"', b'"two"'], id="two fields"),
        pytest.param([b'"one", "two"'], id="a list"),
        pytest.param([b'"open'], id="a quote that is not closed"),
        pytest.param([b'"a\\b"'], id="an escape that is none"),
        pytest.param([b'"caf\xe9"'], id="beyond ASCII"),
        pytest.param([b"17"], id="a number"),
        pytest.param([b":aGk=:"], id="bytes"),
    ],
)
def test_a_key_that_is_no_string_is_refused(running: Running, fields: list[bytes]) -> None:
    service, client = running
    name = new_key()
    headers: list[tuple[bytes, bytes]] = [(b"idempotency-key", field) for field in fields]
    answer = client.post("/orders", json={"name": name}, headers=headers)
    assert (outcome(answer), service.effects("orders", name)) == ((400, "invalid-key"), 0)


def test_a_key_of_the_longest_kind_is_taken(running: Running) -> None:
    _, client = running
    key = new_key().ljust(255, "k")
    assert post(client, "orders", key).status_code == 201


def test_parameters_of_a_key_say_nothing(running: Running) -> None:
    service, client = running
    key = new_key()
    for field in (f'"{key}"', f'"{key}";v=1;note="a; \\"b\\""'):
        client.post("/orders", json={"name": key}, headers={"idempotency-key": field})
    assert service.effects("orders", key) == 1


def test_a_body_beyond_its_bound_is_refused(running: Running) -> None:
    service, client = running
    key = new_key()
    answer = client.post(
        "/orders",
        json={"name": key, "filling": "x" * 1024 * 1024},
        headers={"idempotency-key": f'"{key}"'},
    )
    assert (outcome(answer), service.effects("orders", key)) == ((413, "body-too-large"), 0)


def test_a_refusal_is_a_problem_with_a_link(running: Running) -> None:
    _, client = running
    answer = client.post("/orders", json={})
    names = ("content-type", "content-language", "link")
    assert [answer.headers[name] for name in names] == [
        "application/problem+json",
        "en",
        f'<{DOCUMENTATION}>; rel="describedby"; type="text/html"',
    ]


def test_a_refusal_names_type_title_status_and_detail(running: Running) -> None:
    _, client = running
    assert sorted(client.post("/orders", json={}).json()) == ["detail", "status", "title", "type"]


def test_a_refusal_is_no_receipt(running: Running) -> None:
    _, client = running
    assert "counterfoil-receipt" not in client.post("/orders", json={}).headers


@pytest.mark.parametrize(
    "key",
    [
        pytest.param("'; DROP TABLE counterfoil_receipts; --", id="T26 sql"),
        pytest.param("a/../b/%2e%2e", id="T26 a path"),
        pytest.param('quote " and \\ back', id="T26 quotes"),
        pytest.param("%s ? {at} $1", id="T26 placeholders"),
    ],
)
def test_a_key_is_data(running: Running, key: str) -> None:
    service, client = running
    key += new_key()
    field = key.replace("\\", "\\\\").replace('"', '\\"')
    headers = {"idempotency-key": f'"{field}"'}
    for _ in range(2):
        client.post("/orders", json={"name": key}, headers=headers)
    found = client.get(receipt_url(key)).json()
    assert (found["key"], service.effects("orders", key)) == (key, 1)
