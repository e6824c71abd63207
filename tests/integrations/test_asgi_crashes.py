"""Services that die at one boundary of a request, and what the next request finds."""

from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack
from functools import cache
from typing import Any

import httpx
import pytest

from counterfoil.integrations.asgi import Answer, open_journal
from tests.support.asgi_bench import (
    KINDS,
    LOOKS,
    Service,
    client_of,
    fresh_place,
    new_key,
    outcome,
    post,
    receipt_url,
    serving,
)

pytest_plugins = ["tests.support.postgres", "tests.support.asgi_bench"]

LEASE_MS = 300
"""Short, so that a killed request soon counts as dead; one that lives longer is superseded."""

LATER_MS = 10**15
"""A moment, in milliseconds, at which every lease is over."""

IN_THE_SERVICE = ("before-effect", "before-receipt", "before-commit", "after-commit")


@pytest.fixture(scope="module")
def mortals(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Generator[Callable[[str], Service]]:
    """Makes one service for each kind of database."""
    with ExitStack() as stack:

        @cache
        def of(kind: str) -> Service:
            folder = tmp_path_factory.mktemp("service")
            place = fresh_place(request, folder, kind)
            service, _ = stack.enter_context(serving("bare", place, folder, lease_ms=LEASE_MS))
            return service

        yield of


@pytest.fixture
def mortal(request: pytest.FixtureRequest, mortals: Callable[[str], Service]) -> Service:
    return mortals(request.param)


def at(where: str) -> Any:
    return pytest.param(where, id=where)


def at_instants(names: str, both: Sequence[Any], one: Sequence[Any]) -> pytest.MarkDecorator:
    """Strike the instants `both` on each database, and those of `one` on one of them in turn."""
    rows: list[Any] = [(kind, row) for kind in KINDS for row in both]
    rows += [(KINDS[number % len(KINDS)], row) for number, row in enumerate(one)]
    return pytest.mark.parametrize(
        f"mortal, {names}",
        [pytest.param(kind, *row.values, id=f"{row.id} on {kind}") for kind, row in rows],
        indirect=["mortal"],
    )


def die(service: Service, route: str, key: str, where: str) -> None:
    """Let the first request of a key end its process, and start another one."""
    headers = {}
    if where in IN_THE_SERVICE:
        headers["x_death"] = where
    else:
        (service.folder / "death").write_text(where)
    with client_of(service) as client, pytest.raises(httpx.TransportError):
        post(client, route, key, **headers)
    service.wait()
    service.start()


def settled(client: httpx.Client, route: str, key: str) -> httpx.Response:
    """Ask again until the answer is not that the first request is under way."""
    for _ in range(LOOKS):
        answer = post(client, route, key)
        if answer.status_code != 409 or outcome(answer) != (409, "in-flight"):
            return answer
    raise AssertionError("the first request is under way for ever")


@at_instants(
    "where",
    both=[at("before-commit"), at("after-commit")],
    one=[
        at("before claim"),
        at("after claim"),
        at("before-receipt"),
        at("before-effect"),
        at("before read"),
        at("after read"),
    ],
)
def test_a_receipt_in_the_services_transaction_is_exact(mortal: Service, where: str) -> None:
    key = new_key()
    die(mortal, "transfers", key, where)
    with client_of(mortal) as client:
        answer = settled(client, "transfers", key)
        again = post(client, "transfers", key)
    assert (answer.status_code, again.content, mortal.effects("transfers", key)) == (
        201,
        answer.content,
        1,
    )


@at_instants(
    "where, status, kind",
    both=[pytest.param("before-commit", 404, "no-receipt", id="before the commit")],
    one=[pytest.param("before read", 200, "", id="after the commit")],
)
def test_a_look_up_of_a_dead_request_is_exact_too(
    mortal: Service, where: str, status: int, kind: str
) -> None:
    key = new_key()
    die(mortal, "transfers", key, where)
    with client_of(mortal) as client:
        for _ in range(LOOKS):
            answer = client.get(receipt_url(key))
            if answer.status_code != 409:
                break
    assert (answer.status_code, answer.json().get("type", "")) == (
        status,
        f"urn:counterfoil:{kind}" if kind else "",
    )


@at_instants(
    "where, effects",
    both=[],
    one=[
        pytest.param("after claim", 0, id="C07 before the effect, nobody can tell"),
        pytest.param("before-effect", 0, id="C07 at the effect, nobody can tell"),
        pytest.param("after-commit", 1, id="C07 after the effect, nobody can tell"),
        pytest.param("before finish", 1, id="C07 before the answer is kept, nobody can tell"),
    ],
)
def test_a_key_whose_request_died_is_unknown(mortal: Service, where: str, effects: int) -> None:
    key = new_key()
    die(mortal, "orders", key, where)
    with client_of(mortal) as client:
        answers = [outcome(settled(client, "orders", key)) for _ in range(2)]
        found = outcome(client.get(receipt_url(key)))
    assert ({*answers, found}, mortal.effects("orders", key)) == (
        {(409, "outcome-unknown")},
        effects,
    )


@at_instants("where", both=[at("after finish")], one=[])
def test_a_key_whose_answer_was_kept_is_known(mortal: Service, where: str) -> None:
    key = new_key()
    die(mortal, "orders", key, where)
    with client_of(mortal) as client:
        answer = post(client, "orders", key)
    assert (answer.status_code, answer.headers["idempotent-replayed"]) == (201, "true")


@at_instants("where", both=[], one=[at("before claim")])
def test_a_key_that_was_never_claimed_is_free(mortal: Service, where: str) -> None:
    key = new_key()
    die(mortal, "orders", key, where)
    with client_of(mortal) as client:
        assert (post(client, "orders", key).status_code, mortal.effects("orders", key)) == (201, 1)


@at_instants("where", both=[at("after-commit")], one=[])
def test_what_is_repeatable_is_executed_again(mortal: Service, where: str) -> None:
    key = new_key()
    die(mortal, "repeats", key, where)
    with client_of(mortal) as client:
        answer = settled(client, "repeats", key)
        again = post(client, "repeats", key)
    assert (answer.status_code, again.content, mortal.effects("repeats", key)) == (
        201,
        answer.content,
        2,
    )


@at_instants(
    "answer, status, effects",
    both=[],
    one=[
        pytest.param(Answer(status_code=201, body=b"it did"), 201, 1, id="C07 it happened"),
        pytest.param(None, 201, 1, id="C07 nothing happened"),
    ],
)
def test_an_operator_settles_an_unknown_key(
    mortal: Service, answer: Answer | None, status: int, effects: int
) -> None:
    key = new_key()
    die(mortal, "orders", key, "after-commit" if answer else "before-effect")
    with client_of(mortal) as client:
        settled(client, "orders", key)
        journal = open_journal(mortal.place)
        row = next(row for row in journal.unsettled(now_ms=LATER_MS) if row.key == key)
        journal.settle(row, answer, now_ms=LATER_MS)
        journal.close()
        given = post(client, "orders", key)
    assert (given.status_code, mortal.effects("orders", key)) == (status, effects)
