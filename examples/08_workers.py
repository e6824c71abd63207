"""Submit runs, and let workers do them; one program fails and is parked."""

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


keeper = cf.open()


@keeper.program(task)  # `counterfoil worker --app MODULE:keeper` finds it here
def restock(run: cf.Session, sku: str) -> None:
    run.do("shop.order", sku=sku)
    if sku == "B-2":
        raise LookupError(sku)
    run.verify()
    run.finish()


if __name__ == "__main__":
    with keeper:
        for sku in ("A-1", "B-2", "A-1"):
            print(sku, "is new:", keeper.submit(task, f"restock-{sku}", {"sku": sku}))
        keeper.worker(concurrency=2, tries_max=1, is_burst=True).run()
        print("orders:", ", ".join(sorted(orders.values())))
        for head in keeper.parts.heads.heads("", 9):
            print(head.run_id, "is", head.status)
    # Mend what failed, then: counterfoil unpark restock-B-2 --reason "the shelf is found"

# output:
# A-1 is new: True
# B-2 is new: True
# A-1 is new: False
# orders: A-1, B-2
# restock-A-1 is terminal
# restock-B-2 is frozen
