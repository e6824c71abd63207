"""A service with receipts, as a process: Starlette, FastAPI, or no framework at all."""

import asyncio
import json
import os
import socket
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn

from counterfoil.integrations.asgi import (
    Answer,
    Commits,
    Journal,
    PromisedReceipt,
    ReceiptMiddleware,
    Rules,
    open_journal,
    receipt_of,
)
from tests.support import asgi_ledger as ledger

ROUTES = (
    "orders",
    "transfers",
    "repeats",
    "refused",
    "failing",
    "large",
    "held",
    "slow",
    "forgetful",
    "undone",
    "silent",
    "streamed",
    "misdeclared",
)
METHODS = ["POST", "PUT", "PATCH", "DELETE", "GET"]
TOGETHER = ("transfers", "slow", "forgetful", "undone")
ANSWER_BYTES_MAX = 10_000
HELD_LOOKS = 3_000


def commits_of(scope: Any) -> Commits:
    route = scope["path"].strip("/")
    if route in TOGETHER:
        return Commits.TOGETHER
    return Commits.REPEATABLE if route == "repeats" else Commits.APART


class Service:
    """What the routes do, whatever framework calls them."""

    def __init__(self, place: str, folder: Path) -> None:
        self._place = place
        self._folder = folder

    async def act(self, route: str, scope: Any, body: bytes, death: str) -> Answer:
        name = json.loads(body)["name"]
        receipt = receipt_of(scope)
        match route:
            case "transfers" if receipt and ledger.is_postgres(self._place):
                return await ledger.transfer_async(self._place, receipt, name, death)
            case "transfers" if receipt:
                work = partial(ledger.transfer, self._place, receipt, name, death)
                return await asyncio.to_thread(work)
            case "held":
                return await self._held(name)
            case "slow" if receipt:
                await self._hold(name)
                return await asyncio.to_thread(self._slow, receipt, name)
            case "undone" if receipt:
                return await asyncio.to_thread(self._undone, receipt)
            case "misdeclared" if receipt:
                with ledger.connected(self._place) as connection:
                    receipt.commit_in(connection, Answer(status_code=200))
        work = partial(ledger.order, self._place, route, name, death)
        answer = await asyncio.to_thread(work)
        if route == "failing":
            raise RuntimeError("this route fails after its effect")
        if route == "refused":
            return Answer(status_code=503, raw_headers=answer.raw_headers, body=answer.body)
        if route == "large":
            return Answer(status_code=201, body=b"x" * (ANSWER_BYTES_MAX + 1))
        return answer

    async def _held(self, name: str) -> Answer:
        answer = await asyncio.to_thread(ledger.order, self._place, "held", name, "")
        await self._hold(name)
        return answer

    async def _hold(self, name: str) -> None:
        (self._folder / f"{name}.reached").touch()
        for _ in range(HELD_LOOKS):
            if (self._folder / f"{name}.go").exists():
                break
            await asyncio.sleep(0.01)

    def _slow(self, receipt: PromisedReceipt, name: str) -> Answer:
        return ledger.transfer(self._place, receipt, name, "", route="slow")

    def _undone(self, receipt: PromisedReceipt) -> Answer:
        answer = ledger.created(0)
        with ledger.connected(self._place) as connection:
            connection.execute("BEGIN")
            receipt.commit_in(connection, answer)
            connection.execute("ROLLBACK")
        return answer


def bare(service: Service) -> Any:
    """Return an application of no framework."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        route = scope["path"].strip("/")
        headers = dict(scope["headers"])
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body", False):
                break
        if route == "silent":
            return
        if route not in ROUTES:
            await send({"type": "http.response.start", "status": 404})
            await send({"type": "http.response.body"})
            return
        answer = await service.act(route, scope, body, headers.get(b"x-death", b"").decode())
        await send(
            {
                "type": "http.response.start",
                "status": answer.status_code,
                "headers": list(answer.raw_headers),
            }
        )
        half = len(answer.body) // 2
        await send({"type": "http.response.body", "body": answer.body[:half], "more_body": True})
        await send({"type": "http.response.body", "body": answer.body[half:]})

    return app


def _plain(answer: Answer, kind: Callable[..., Any]) -> Any:
    headers = {name.decode(): value.decode() for name, value in answer.raw_headers}
    return kind(answer.body, status_code=answer.status_code, headers=headers)


def starlette(service: Service, **given: Any) -> Any:
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    async def serve(request: Request) -> Response:
        route = request.path_params["route"]
        if route not in ROUTES:
            return Response(status_code=404)
        death = request.headers.get("x-death", "")
        return _plain(await service.act(route, request, await request.body(), death), Response)

    return Starlette(
        routes=[Route("/{route}", serve, methods=METHODS)],
        middleware=[Middleware(ReceiptMiddleware, **given)],
    )


def fastapi(service: Service, **given: Any) -> Any:
    from fastapi import FastAPI, Request, Response

    app = FastAPI()
    app.add_middleware(ReceiptMiddleware, **given)

    async def serve(route: str, request: Request) -> Response:
        if route not in ROUTES:
            return Response(status_code=404)
        death = request.headers.get("x-death", "")
        answer = await service.act(route, request, await request.body(), death)
        return _plain(answer, Response)

    app.add_api_route("/{route}", serve, methods=METHODS)
    return app


class Mortal:
    """A journal that ends its process before or after a call, when a file names it."""

    def __init__(self, inner: Journal, folder: Path) -> None:
        self._inner = inner
        self._sentence = folder / "death"

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found):
            return found

        def call(*given: Any, **named: Any) -> Any:
            self._die(f"before {name}")
            answer = found(*given, **named)
            self._die(f"after {name}")
            return answer

        return call

    def _die(self, boundary: str) -> None:
        if self._sentence.exists() and self._sentence.read_text() == boundary:
            self._sentence.unlink()
            ledger.die(boundary, boundary)


def build(settings: dict[str, Any]) -> Any:
    place: str = settings["place"]
    journal: Any = Mortal(open_journal(place), Path(settings["folder"]))
    rules = Rules(
        commits=commits_of, answer_bytes_max=ANSWER_BYTES_MAX, **settings.get("rules", {})
    )
    service = Service(place, Path(settings["folder"]))
    match settings["framework"]:
        case "starlette":
            return starlette(service, journal=journal, rules=rules)
        case "fastapi":
            return fastapi(service, journal=journal, rules=rules)
        case _:
            return ReceiptMiddleware(bare(service), journal=journal, rules=rules)


def serve(listener: socket.socket, settings: dict[str, Any]) -> None:
    """Serve on an open socket, as settings say: framework, place, folder and rules."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    config = uvicorn.Config(build(settings), log_level="error", lifespan="off")
    # With its protocol unsaid, asyncio takes a socket for a local one, and delays what it sends.
    uvicorn.Server(config).run(sockets=[socket.socket(fileno=listener.detach())])
