"""A program asks and ends; a person signs on another machine; a later process acts, once."""

import multiprocessing
import subprocess
import sys
import tempfile
from pathlib import Path

import counterfoil as cf

ELSEWHERE = Path(tempfile.mkdtemp())  # stands for another machine: it has no project and no store
PRICES = Path("prices.txt")

task = cf.Task(
    id="prices",
    policy=cf.Policy(
        permissions=("files.write",),
        scope={"files": {"paths": ("prices.txt",)}},
        approval_kinds=("files.write",),
    ),
)


def work() -> None:
    with cf.open() as keeper, keeper.run(task, run_id="prices-1") as run:
        try:
            run.do("files.write", path="prices.txt", content="tea 4\nmilk 2\n")
            print("the program goes on:", run.state.cursor, "action settled", flush=True)
        except cf.ApprovalError as error:
            print("the program ends,", error.message, flush=True)


def process() -> None:
    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    child.join()


def counterfoil(*words: str) -> str:
    command = [Path(sys.executable).with_name("counterfoil"), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    PRICES.write_text("tea 3\nmilk 2\n")
    counterfoil("init")
    key, request = str(ELSEWHERE / "ada.pem"), str(ELSEWHERE / "request.json")
    public = counterfoil("keygen", key).split("--public ")[1].strip()
    counterfoil("trust", "add", "ada", "--role", "approver", "--public", public)

    process()
    shown = counterfoil("requests", "prices-1", "--export", request)
    print("\n".join(line for line in shown.splitlines() if line.startswith(("+", "-"))), flush=True)

    counterfoil("sign", request, "--key", key, "--expires", "1d", "--yes")
    print("signed, and nothing has happened:", PRICES.read_text().split("\n")[0], flush=True)

    counterfoil("submit", str(ELSEWHERE / "request.signed.json"))
    process()
    print("what was approved:", PRICES.read_text().split("\n")[0])

# output:
# the program ends, it waits for a person: it has 0 of 1 approvals
# --- prices.txt
# +++ prices.txt
# -tea 3
# +tea 4
# signed, and nothing has happened: tea 3
# the program goes on: 1 action settled
# what was approved: tea 4
