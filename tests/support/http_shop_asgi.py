"""The shop behind Counterfoil's middleware: `python -m tests.support.http_shop_asgi FD PLACE`.

Order and receipt are one transaction. Each bearer of a token is a tenant of its own.
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
from tests.support import http_ledger as ledger

JSON = ((b"content-type", b"application/json"),)


def tenant_of(request: Request) -> str:
    return request.headers.get("authorization", "").removeprefix("Bearer token-of-")


def placed(place: str, tenant: str, body: bytes, receipt: PromisedReceipt | None) -> Answer:
    wanted = json.loads(body or b"{}")
    if wanted.get("sku") == "unknown":
        return Answer(status_code=400, raw_headers=JSON, body=b'{"error": "no such sku"}')
    if wanted.get("sku") == "broken":
        raise RuntimeError("this order breaks the shop")
    with ledger.connected(place) as db, db:
        shown = ledger.order(db, tenant, "", wanted)
        answer = Answer(status_code=201, raw_headers=JSON, body=json.dumps(shown).encode())
        if receipt is not None:
            receipt.commit_in(db, answer)
    return answer


def build(place: str) -> Starlette:
    async def order(request: Request) -> Response:
        body = await request.body()
        act = partial(placed, place, tenant_of(request), body, receipt_of(request.scope))
        answer = await asyncio.to_thread(act)
        headers = {name.decode(): value.decode() for name, value in answer.raw_headers}
        return Response(answer.body, status_code=answer.status_code, headers=headers)

    async def state(request: Request) -> Response:
        with ledger.connected(place) as db:
            return JSONResponse({"orders": len(ledger.orders(db, tenant_of(request)))})

    rules = Rules(commits=Commits.TOGETHER)
    middleware: Any = Middleware(ReceiptMiddleware, journal=open_journal(place), rules=rules)
    routes = [Route("/orders", order, methods=["POST"]), Route("/state", state)]
    return Starlette(routes=routes, middleware=[middleware])


def main() -> None:
    uvicorn.run(build(sys.argv[2]), fd=int(sys.argv[1]), log_level="critical", lifespan="off")


if __name__ == "__main__":
    main()
