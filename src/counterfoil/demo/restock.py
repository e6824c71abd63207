"""The task of the demo, written as any user writes one.

`declare_shop` says what can be done at the shop and how to ask for it again; `restock`
is the program. Nothing here knows that it is going to be killed.
"""

import json
from collections.abc import Sequence
from http import HTTPStatus
from http.client import HTTPConnection, HTTPResponse
from typing import Any
from urllib.parse import quote

import counterfoil as cf
from counterfoil.demo.plan import Item
from counterfoil.demo.shop import HOST

CALL_SECONDS = 5


def task_of(items: Sequence[Item]) -> cf.Task:
    """Return the task: what for, what is allowed, what proves that it is done."""
    return cf.Task(
        id="restock",
        goal="Order what the warehouse lacks, and keep each order as a file.",
        policy=cf.Policy(
            permissions=("shop.order", "shop.check", "files.write"),
            scope={"files": {"paths": ("orders/",)}},
        ),
        verifier=cf.Verification(
            kind="shop.check", arguments={"skus": [item.sku for item in items]}
        ),
    )


def restock(keeper: cf.Keeper, run_id: str, items: Sequence[Item]) -> None:
    """Order each item once, and file each order once, through any crash."""
    with keeper.run(task_of(items), run_id) as run:
        missing = run.remember("missing", lambda: [[item.sku, item.quantity] for item in items])
        for sku, quantity in missing:
            order = run.do("shop.order", sku=sku, quantity=quantity)
            run.do("files.write", path=f"orders/{sku}.json", content=order)
        run.verify()
        run.finish()


def declare_shop(port: int, *, is_sabotaged: bool = False) -> cf.Effects:
    """Declare what the shop can do.

    Args:
        port: Where the shop listens.
        is_sabotaged: Lie: call every key absent, and hide what the shop looks like.
    """
    shop = cf.Effects()

    @shop.observer("shop")
    def _state() -> cf.State:
        seen = call_shop(port, "GET", "/state")[1]
        if is_sabotaged:
            return cf.State(instance=seen["instance"])
        return cf.State(**seen)

    def find_order(key: str) -> cf.Found | None:
        status, order = call_shop(port, "GET", f"/orders/{quote(key, safe='')}")
        return None if is_sabotaged or status == HTTPStatus.NOT_FOUND else _found(order)

    @shop.effect(
        "shop.order",
        level="deduplicating",
        look_up=find_order,
        bounds=cf.Bounds(call_ms=1_000 * CALL_SECONDS),
    )
    def _order(call: cf.Call, *, sku: str, quantity: int) -> cf.Found:
        asked = {"key": call.key, "run_id": call.run_id, "digest": call.digest}
        status, order = call_shop(
            port, "POST", "/orders", asked | {"sku": sku, "quantity": quantity}
        )
        if status == HTTPStatus.CONFLICT:
            raise cf.IdempotencyConflictError(order["error"], call.run_id, call.key)
        return _found(order, replayed=status == HTTPStatus.OK)

    @shop.effect("shop.check", risk="verification")
    def _check(call: cf.Call, *, skus: list[str]) -> dict[str, object]:
        orders = call_shop(port, "GET", "/orders")[1]
        ours = {order["sku"] for order in orders if order["run_id"] == call.run_id}
        return {"passed": ours >= set(skus), "ordered": sorted(ours)}

    return shop


def _found(order: dict[str, Any], *, replayed: bool = False) -> cf.Found:
    return cf.Found(
        id=f"order-{order['number']}",
        result={"number": order["number"], "sku": order["sku"], "quantity": order["quantity"]},
        digest=order["digest"],
        run_id=order["run_id"],
        committed_at_ms=order["at_ms"],
        replayed=replayed,
    )


def call_shop(port: int, method: str, path: str, asked: object = None) -> tuple[int, Any]:
    """Return status and JSON of one call.

    Raises:
        UnavailableError: The shop does not listen; nothing was sent.
        OSError: The call ended without an answer.
    """
    connection = HTTPConnection(HOST, port, timeout=CALL_SECONDS)
    try:
        connection.connect()
    except OSError as error:
        raise cf.UnavailableError("the shop does not listen") from error
    try:
        connection.request(method, path, None if asked is None else json.dumps(asked))
        answer: HTTPResponse = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()
