"""The shop behind Counterfoil's middleware: `python -m tests.support.http_shop_asgi FD PLACE`.

Order and receipt are one transaction at `/orders`, and two at `/apart/orders`. A third word
says how the service commits, for all routes. Each bearer of a token is a tenant of its own,
whatever stands behind a plus.
"""

import asyncio
import json
import sys
from functools import partial
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from counterfoil.integrations.asgi import (
    Answer,
    Commits,
    PromisedReceipt,
    ReceiptMiddleware,
    Rules,
    open_journal,
    receipt_of,
)
from counterfoil.integrations.asgi.rules import Scope
from tests.support import http_ledger as ledger

JSON = ((b"content-type", b"application/json"),)


def tenant_of(request: Request) -> str:
    token = request.headers.get("authorization", "").removeprefix("Bearer token-of-")
    return token.partition("+")[0]


def by_route(scope: Scope) -> Commits:
    return Commits.APART if scope["path"].startswith("/apart") else Commits.TOGETHER


def placed(
    place: str, tenant: str, body: bytes, receipt: PromisedReceipt | None, *, is_together: bool
) -> Answer:
    wanted = json.loads(body or b"{}")
    if wanted.get("sku") == "unknown":
        return Answer(status_code=400, raw_headers=JSON, body=b'{"error": "no such sku"}')
    if wanted.get("sku") == "broken":
        raise RuntimeError("this order breaks the shop")
    with ledger.connected(place) as db, db:
        shown = ledger.order(db, tenant, "", wanted)
        answer = Answer(status_code=201, raw_headers=JSON, body=json.dumps(shown).encode())
        if receipt is not None and is_together:
            receipt.commit_in(db, answer)
    return answer


def build(place: str, commits: Commits | None) -> Starlette:
    rules = Rules(commits=commits or by_route)

    async def order(request: Request) -> Response:
        body = await request.body()
        act = partial(
            placed,
            place,
            tenant_of(request),
            body,
            receipt_of(request.scope),
            is_together=rules.commits_of(request.scope) is Commits.TOGETHER,
        )
        answer = await asyncio.to_thread(act)
        headers = {name.decode(): value.decode() for name, value in answer.raw_headers}
        return Response(answer.body, status_code=answer.status_code, headers=headers)

    async def state(request: Request) -> Response:
        with ledger.connected(place) as db:
            count = len(ledger.orders(db, tenant_of(request)))
            return JSONResponse({"orders": count, "instance": "shop-1"})

    middleware: Any = Middleware(ReceiptMiddleware, journal=open_journal(place), rules=rules)
    routes = [
        Route("/orders", order, methods=["POST"]),
        Route("/apart/orders", order, methods=["POST"]),
        Route("/state", state),
    ]
    return Starlette(routes=routes, middleware=[middleware])


def main() -> None:
    app = build(sys.argv[2], Commits(sys.argv[3]) if sys.argv[3:] else None)
    uvicorn.run(app, fd=int(sys.argv[1]), log_level="critical", lifespan="off")


if __name__ == "__main__":
    main()
