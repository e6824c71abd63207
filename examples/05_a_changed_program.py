"""A program that changed is refused where it departs from the record, with both intents."""

import counterfoil as cf

paid: dict[str, int] = {}


@cf.effect("bank.pay", level="deduplicating", look_up=paid.get)
def pay(call: cf.Call, *, cents: int) -> int:
    return paid.setdefault(call.key, cents)


task = cf.Task(id="pay", policy=cf.Policy(permissions=("bank.pay",)))

with cf.open() as keeper:
    with keeper.run(task, run_id="pay-1") as run:
        print("paid", run.do("bank.pay", cents=8_200))
    with keeper.run(task, run_id="pay-1") as run:
        try:
            run.do("bank.pay", cents=82_000)
        except cf.IdempotencyConflictError as error:
            print("refused:", error.message.split(" (")[0])
    print(len(paid), "payment")

# output:
# paid 8200
# refused: position 0 is settled as bank.pay {"cents":8200}
# 1 payment
