"""Submit runs, and let workers do them; one program fails and is parked."""

from collections.abc import Callable
from typing import Any

import counterfoil as cf

orders: dict[str, str] = {}  # stands for a shop that keeps one order per key


@cf.effect("shop.order", level="deduplicating", look_up=orders.get)
def order(call: cf.Call, *, sku: str) -> str:
    orders[call.key] = sku
    return sku


@cf.effect("shop.check", risk="verification")
def check(call: cf.Call) -> dict[str, bool]:
    return {"passed": bool(orders)}


task = cf.Task(
    id="restock",
    policy=cf.Policy(permissions=("shop.order", "shop.check")),
    verifier=cf.Verification(kind="shop.check"),
)


def restock(run: cf.Session, sku: str) -> None:
    run.do("shop.order", sku=sku)
    if sku == "B-2":
        raise LookupError(sku)
    run.verify()
    run.finish()


def shown(keeper: cf.Keeper, submit: Callable[..., Any]) -> None:
    for sku in ("A-1", "B-2", "C-3"):
        print(sku, "is new:", submit(task, f"restock-{sku}", {"sku": sku}))
    print("A-1 again:", submit(task, "restock-A-1", {"sku": "A-1"}))
    keeper.worker(concurrency=2, tries_max=1, is_burst=True).run()
    print("orders:", ", ".join(sorted(orders.values())))


if __name__ == "__main__":
    with cf.open() as keeper:
        keeper.program(task)(restock)
        shown(keeper, keeper.submit)
        for sku in ("A-1", "B-2"):
            head = keeper.parts.heads.read(f"restock-{sku}")
            print(sku, head.status)

# output:
# A-1 is new: True
# B-2 is new: True
# C-3 is new: True
# A-1 again: False
# orders: A-1, B-2, C-3
# A-1 terminal
# B-2 frozen
