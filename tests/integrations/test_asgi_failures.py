"""Databases that are down, slow or full, and applications that break the rules of ASGI."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, StreamingResponse

from counterfoil.core.errors import UsageError
from counterfoil.integrations.asgi import (
    Answer,
    Commits,
    Journal,
    ReceiptMiddleware,
    Rules,
    install_journal,
    open_journal,
    receipt_of,
)
from counterfoil.local.postgres import LocalPostgres
from tests.support import asgi_ledger as ledger
from tests.support.asgi_bench import new_key, outcome, post, receipt_url, serving

pytest_plugins = ["tests.support.postgres", "tests.support.asgi_bench"]

App = Callable[..., Awaitable[None]]

HEADERS = [(b"idempotency-key", b'"k"'), (b"authorization", b"Bearer ada")]
START: dict[str, Any] = {"type": "http.response.start", "status": 201, "headers": []}


@pytest.fixture
def journal(tmp_path: Path) -> Generator[Journal]:
    place = tmp_path / "service.db"
    install_journal(place)
    ledger.create(str(place))
    opened = open_journal(place)
    yield opened
    opened.close()


def asked(app: App, journal: Journal, *, key: str = '"key"', **rules: Any) -> httpx.Response:
    """Send one request to an application in this process."""
    guarded = ReceiptMiddleware(app, journal=journal, rules=Rules(**rules))

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(guarded, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
            headers = {"idempotency-key": key, "authorization": "Bearer ada"}
            return await client.post("/things", content=b"body", headers=headers)

    return asyncio.run(ask())


async def served(scope: Any, receive: Any, send: Any) -> None:
    await send(START)
    await send({"type": "http.response.body", "body": b"made"})


# ---------------------------------------------------------------- databases


def test_a_service_without_its_database_executes_nothing(
    fragile: LocalPostgres, tmp_path: Path
) -> None:
    place = fragile.create_database(f"db_{new_key()}")
    with serving("bare", place, tmp_path) as (service, client):
        post(client, "orders", new_key())
        fragile.crash()
        key = new_key()
        refused = [post(client, "orders", key), client.get(receipt_url(key))]
        fragile.start()
        answer = post(client, "orders", key)
        assert ([outcome(each) for each in refused], answer.status_code) == (
            [(503, "unavailable")] * 2,
            201,
        )
        assert service.effects("orders", key) == 1


def test_receipts_outlive_a_crash_of_the_server(fragile: LocalPostgres, tmp_path: Path) -> None:
    place = fragile.create_database(f"db_{new_key()}")
    with serving("bare", place, tmp_path) as (service, client):
        keys = [new_key() for _ in range(3)]
        first = [post(client, "transfers", key).content for key in keys]
        fragile.crash()
        fragile.start()
        again = [post(client, "transfers", key).content for key in keys]
        assert (again, [service.effects("transfers", key) for key in keys]) == (first, [1, 1, 1])


@contextmanager
def silent(server: LocalPostgres) -> Generator[None]:
    """A server that is there and says nothing, neither old sessions nor to new ones."""
    os.kill(server.pid, signal.SIGSTOP)  # first and last: no child of it is gone meanwhile
    children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
    for child in map(int, children):
        os.kill(child, signal.SIGSTOP)
    try:
        yield
    finally:
        for child in map(int, children):
            os.kill(child, signal.SIGCONT)
        os.kill(server.pid, signal.SIGCONT)


def test_a_server_that_says_nothing_stops_a_request_before_it_is_executed(
    fragile: LocalPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = fragile.create_database(f"db_{new_key()}")
    install_journal(place)
    opened = open_journal(place)
    with silent(fragile), monkeypatch.context() as patch:
        patch.setattr("counterfoil.integrations.asgi.postgres.SILENCE_SECONDS", 0.3)
        patch.setattr("counterfoil.integrations.asgi.postgres.CONNECT_SECONDS", 2)
        refused = asked(served, opened)
    answer = asked(served, opened)
    opened.close()
    assert (outcome(refused), answer.status_code) == ((503, "unavailable"), 201)


@contextmanager
def full(journal: Journal) -> Generator[None]:
    """A file that cannot grow, as on a disk that is full."""
    connection = journal._database._connection
    pages = connection.pragma("page_count")
    connection.pragma("max_page_count", pages)
    yield
    connection.pragma("max_page_count", 1_000_000)


def test_a_full_disk_stops_a_request_before_it_is_executed(journal: Journal) -> None:
    calls: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        calls.append("called")
        await served(scope, receive, send)

    with full(journal):
        answers = [asked(app, journal, key=f'"{"k" * 200}{n}"') for n in range(60)]
    refused = [answer for answer in answers if answer.status_code != 201]
    assert ({outcome(answer) for answer in refused}, len(calls)) == (
        {(503, "unavailable")},
        len(answers) - len(refused),
    )


def test_an_answer_that_cannot_be_kept_is_not_sent(journal: Journal) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        with full(journal):
            await send(START)
            await send({"type": "http.response.body", "body": b"x" * 500_000})

    answer = asked(app, journal)
    assert (outcome(answer), "counterfoil-receipt" in answer.headers) == (
        (503, "outcome-unknown"),
        False,
    )


def test_a_key_whose_answer_could_not_be_kept_is_not_executed_again(journal: Journal) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        with full(journal):
            await send(START)
            await send({"type": "http.response.body", "body": b"x" * 500_000})

    asked(app, journal, lease_ms=1)
    assert outcome(asked(served, journal, lease_ms=1)) == (409, "outcome-unknown")


# ---------------------------------------------------------------- applications


def test_an_application_sees_the_whole_body_once(journal: Journal) -> None:
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(await receive())
        await served(scope, receive, send)
        seen.append(await receive())

    asked(app, journal)
    assert seen == [
        {"type": "http.request", "body": b"body", "more_body": False},
        {"type": "http.disconnect"},
    ]


def test_an_answer_in_parts_is_kept_whole(journal: Journal) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(START)
        for part in (b"one ", b"two ", b"three"):
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body"})

    first, again = asked(app, journal), asked(app, journal)
    assert first.content == again.content == b"one two three"


def test_what_comes_after_an_answer_is_not_part_of_it(journal: Journal) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await served(scope, receive, send)
        await send({"type": "http.response.body", "body": b"more"})

    assert asked(app, journal).content == b"made"


def test_an_answer_is_sent_before_what_an_application_does_after_it(journal: Journal) -> None:
    events: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await served(scope, receive, send)
        events.append("afterwards")

    async def outer() -> None:
        async def send(message: Any) -> None:
            events.append(message["type"])

        async def receive() -> Any:
            return {"type": "http.request", "body": b""}

        guarded = ReceiptMiddleware(app, journal=journal)
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/",
            "headers": HEADERS,
        }
        await guarded(scope, receive, send)

    asyncio.run(outer())
    assert events == ["http.response.start", "http.response.body", "afterwards"]


def test_an_application_that_fails_after_its_answer_has_answered(journal: Journal) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await served(scope, receive, send)
        raise RuntimeError("too late")

    asked(app, journal)
    assert asked(app, journal).content == b"made"


@pytest.mark.parametrize("spec_version", ["2.0", "2.4"])
def test_an_answer_of_starlette_in_parts_is_kept_whole(journal: Journal, spec_version: str) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        scope["asgi"] = {"version": "3.0", "spec_version": spec_version}
        parts = iter([b"one ", b"two"])
        await StreamingResponse(parts)(scope, receive, send)

    first, again = asked(app, journal), asked(app, journal)
    assert first.content == again.content == b"one two"


def test_a_middleware_of_starlette_may_stand_inside(journal: Journal) -> None:
    class Naming(BaseHTTPMiddleware):
        async def dispatch(self, request: Request, call_next: Any) -> Any:
            body = await request.body()
            response = await call_next(request)
            response.headers["x-inside"] = body.decode()
            return response

    async def app(scope: Any, receive: Any, send: Any) -> None:
        request = Request(scope, receive)
        await PlainTextResponse(await request.body())(scope, receive, send)

    first, again = asked(Naming(app), journal), asked(Naming(app), journal)
    assert [each.headers["x-inside"] for each in (first, again)] == ["body", "body"]


def test_a_body_without_a_start_is_no_answer(journal: Journal) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.body", "body": b"made"})

    assert outcome(asked(app, journal)) == (500, "unanswered")


def test_a_refusal_does_not_say_where_receipts_are(journal: Journal) -> None:
    journal.close()
    answer = asked(served, journal)
    assert (answer.status_code, "service.db" in answer.text) == (503, False)


@pytest.mark.parametrize("parts", [0, 1], ids=["nothing", "half an answer"])
def test_an_application_that_ends_without_an_answer_has_failed(
    journal: Journal, parts: int
) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        for message in [START, {**START, "type": "http.response.body", "more_body": True}][:parts]:
            await send(message)

    answers = [outcome(asked(app, journal)) for _ in range(2)]
    assert answers == [(500, "unanswered")] * 2


def test_a_client_that_leaves_within_its_body_has_sent_nothing(journal: Journal) -> None:
    calls: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        calls.append("called")

    async def outer() -> None:
        messages = iter(
            [
                {"type": "http.request", "body": b"ha", "more_body": True},
                {"type": "http.disconnect"},
            ]
        )

        async def receive() -> Any:
            return next(messages)

        async def send(message: Any) -> None:
            calls.append(message["type"])

        scope = {
            "type": "http",
            "method": "POST",
            "path": "/",
            "headers": HEADERS,
        }
        await ReceiptMiddleware(app, journal=journal)(scope, receive, send)

    asyncio.run(outer())
    assert calls == []


@pytest.mark.parametrize("kind", ["websocket", "lifespan"])
def test_what_is_not_http_is_passed_on(journal: Journal, kind: str) -> None:
    seen: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["type"])

    guarded: Any = ReceiptMiddleware(app, journal=journal)
    asyncio.run(guarded({"type": kind}, None, None))
    assert seen == [kind]


def test_ways_to_send_past_the_middleware_are_not_offered(journal: Journal) -> None:
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(dict(scope["extensions"]))
        await served(scope, receive, send)

    async def outer() -> Any:
        async def receive() -> Any:
            return {"type": "http.request", "body": b""}

        async def send(message: Any) -> None:
            seen.append(message["type"])

        scope = {
            "type": "http",
            "method": "POST",
            "path": "/",
            "headers": HEADERS,
            "extensions": {"http.response.pathsend": {}},
        }
        await ReceiptMiddleware(app, journal=journal)(scope, receive, send)
        return scope["extensions"]

    left = asyncio.run(outer())
    assert (seen[0], left) == ({}, {"http.response.pathsend": {}})


# ---------------------------------------------------------------- receipts in a transaction


def test_a_request_without_a_key_has_no_receipt(journal: Journal) -> None:
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(receipt_of(scope))
        await served(scope, receive, send)

    async def ask() -> None:
        guarded = ReceiptMiddleware(app, journal=journal)
        transport = httpx.ASGITransport(guarded)
        async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
            await client.put("/things")

    asyncio.run(ask())
    assert seen == [None]


class Streamed:
    status_code = 200
    raw_headers = ()


@pytest.mark.parametrize(
    ("commits", "answer", "message"),
    [
        pytest.param(Commits.APART, Answer(status_code=201), "Commits.TOGETHER", id="undeclared"),
        pytest.param(Commits.TOGETHER, Answer(status_code=101), "101", id="no final status"),
        pytest.param(
            Commits.TOGETHER, Answer(status_code=201, body=b"x" * 11), "the bound is 10", id="long"
        ),
        pytest.param(Commits.TOGETHER, Streamed(), "streamed", id="streamed"),
    ],
)
def test_a_receipt_that_cannot_be_committed_is_refused(
    journal: Journal, tmp_path: Path, commits: Commits, answer: Any, message: str
) -> None:
    failures: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        receipt = receipt_of(scope)
        assert receipt is not None
        with ledger.connected(str(tmp_path / "service.db")) as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                receipt.commit_in(connection, answer)
            except UsageError as error:
                failures.append(str(error))
            connection.execute("ROLLBACK")
        await served(scope, receive, send)

    asked(app, journal, commits=commits, answer_bytes_max=10)
    assert [message in failure for failure in failures] == [True]


def test_a_service_that_answers_before_it_commits_is_found_out(
    journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal._database._connection.pragma("busy_timeout", 50)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        receipt = receipt_of(scope)
        assert receipt is not None
        with ledger.connected(str(tmp_path / "service.db")) as connection:
            connection.execute("BEGIN IMMEDIATE")
            receipt.commit_in(connection, Answer(status_code=201, body=b"made"))
            await served(scope, receive, send)
            connection.execute("COMMIT")

    early = asked(app, journal, commits=Commits.TOGETHER)
    late = asked(app, journal, commits=Commits.TOGETHER)
    assert (outcome(early), late.content) == ((503, "outcome-unknown"), b"made")
