"""The target holds another effect under our key: the run freezes until a reviewer decides."""

import logging
import subprocess
import sys
import tempfile
from pathlib import Path

import counterfoil as cf

OTHER_INTENT = "i1:" + 64 * "0"
bank: dict[str, cf.Found] = {}  # stands for a bank that keeps each payment with its intent


@cf.effect("bank.pay", level="deduplicating", look_up=bank.get)
def pay(call: cf.Call, *, cents: int) -> cf.Found:
    if not bank:  # a gateway on the way garbles the first payment, and the line goes dead
        bank[call.key] = cf.Found(id="payment 1", digest=OTHER_INTENT, result=10 * cents)
        raise ConnectionError
    return bank.setdefault(call.key, cf.Found(id="payment 2", digest=call.digest, result=cents))


task = cf.Task(id="pay", policy=cf.Policy(permissions=("bank.pay",)))


def work() -> None:
    with cf.open() as keeper, keeper.run(task, run_id="pay-1") as run:
        try:
            print("paid", run.do("bank.pay", cents=8_200))
        except cf.FrozenError as error:
            print("frozen:", error.message)


def counterfoil(*words: str) -> str:
    command = [Path(sys.executable).with_name("counterfoil"), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


logging.getLogger("counterfoil").addHandler(logging.NullHandler())  # we print it ourselves
counterfoil("init")
key = str(Path(tempfile.mkdtemp()) / "rita.pem")
public = counterfoil("keygen", key).split("--public ")[1].strip()
counterfoil("trust", "add", "rita", "--role", "reviewer", "--public", public)

work()
shown = counterfoil("review", "show", "pay-1").splitlines()
print("what differs is", *(line.split()[1] for line in shown if line.startswith("≠")))

counterfoil("review", "decide", "pay-1", "--verdict", "replan", "--key", key, "--yes")
work()
print(len(bank), "payments at the bank, each under a key of its own")
print(counterfoil("review", "list", "--closed").splitlines()[-1].split("closed: ")[1])

# output:
# frozen: intent_conflict: the key holds another effect: digest
# what differs is receipt.digest
# paid 8200
# 2 payments at the bank, each under a key of its own
# resolved by rita, replan
