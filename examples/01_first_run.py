"""One order and one file, each made once, however often this program is started."""

import counterfoil as cf

shop: dict[str, dict[str, object]] = {}  # stands for a shop that keeps orders by key


@cf.effect("orders.create", level="deduplicating", look_up=shop.get)
def create_order(call: cf.Call, *, sku: str, quantity: int) -> dict[str, object]:
    return shop.setdefault(call.key, {"id": 1 + len(shop), "sku": sku, "quantity": quantity})


@cf.effect("orders.check", risk="verification")
def check_orders(call: cf.Call) -> dict[str, object]:
    return {"passed": len(shop) == 1}


task = cf.Task(
    id="restock",
    goal="Order what is missing, once, and note it in a file.",
    policy=cf.Policy(
        permissions=("orders.create", "orders.check", "files.write"),
        scope={"files": {"paths": ("orders/",)}},
    ),
    verifier=cf.Verification(kind="orders.check"),
)

with cf.open() as keeper:
    for attempt in ("first", "second"):
        with keeper.run(task, run_id="restock-42") as run:
            stock = run.remember("stock", lambda: {"missing": 3})
            order = run.do("orders.create", sku="A-7", quantity=stock["missing"])
            run.do("files.write", path="orders/42.json", content=order)
            run.verify()
            ended = run.finish()
        print(f"{attempt} start: {ended.phase}, order {order['id']}, {len(shop)} in the shop")

# output:
# first start: completed, order 1, 1 in the shop
# second start: completed, order 1, 1 in the shop
