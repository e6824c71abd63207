"""Two workers on one run at once, in every interleaving that a seed can think of.

Run as a program, as the nursery is.
"""

import json
import random
import select
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from tests.support.nursery import DONE, PATIENCE_S, Worker, hire
from tests.support.workshop import Workshop, order_only

SHORT_TTL_MS = 1_000
SHORT_CALL_MS = 200
WAIT_MS = 30_000


def race(workers: list[Worker], seed: int) -> list[int]:
    """Let the workers go on in an order that the seed chooses; return their exit codes."""
    chance, codes = random.Random(seed), dict[int, int]()
    waiting = {worker.up: worker for worker in workers}
    while waiting:
        ready, _, _ = select.select(list(waiting), [], [], PATIENCE_S)
        worker = waiting[chance.choice(ready)]
        if worker.next_call():
            worker.let_go()
        else:
            del waiting[worker.up]
            codes[worker.pid] = worker.end()
    return [codes[worker.pid] for worker in workers]


def at_once(folder: Path, seed: int, *, owner: str | None, wait_ms: int) -> dict[str, object]:
    """Open one new run from two workers at once."""
    workshop = _fresh(folder, seed)
    workers = [hire(workshop, owner=owner, wait_ms=wait_ms) for _ in range(2)]
    return _told(workshop, race(workers, seed))


def copied_state(folder: Path, seed: int) -> dict[str, object]:
    """Let a worker go on with a copy of the state folder, beside one with the original."""
    workshop = _fresh(folder, seed)
    first = hire(workshop)
    first.until("adapter.execute")
    first.kill()
    shutil.copytree(workshop.place / "state", workshop.place / "copy")
    copy = Workshop(place=workshop.place, state="copy")
    return _told(workshop, race([hire(workshop), hire(copy)], seed))


def paused(folder: Path, call: str) -> dict[str, object]:
    """Stop a worker before a call for longer than its lease, and wake it afterwards."""
    workshop = Workshop(place=folder / call, ttl_ms=SHORT_TTL_MS, call_ms=SHORT_CALL_MS)
    workshop.set_up()
    sleeper = hire(workshop, program=order_only)
    sleeper.until("adapter.observe")
    sleeper.let_go()
    sleeper.until("adapter.take")
    sleeper.let_go()
    sleeper.until(call)
    sleeper.signal(signal.SIGSTOP)
    successor = hire(workshop, wait_ms=WAIT_MS, program=order_only).run()
    sleeper.signal(signal.SIGCONT)
    sleeper.let_go()
    return _told(workshop, [sleeper.run(), successor])


def _fresh(folder: Path, seed: int) -> Workshop:
    workshop = Workshop(place=folder / f"{seed}")
    workshop.set_up()
    return workshop


def _told(workshop: Workshop, codes: list[int]) -> dict[str, object]:
    return {
        "codes": codes,
        "done": codes.count(DONE),
        "arrived": workshop.arrived(),
        "changed": workshop.changed(),
    }


TASKS: dict[str, Callable[[Path, str], dict[str, object]]] = {
    "one gives way": lambda place, seed: at_once(place, int(seed), owner=None, wait_ms=0),
    "one waits": lambda place, seed: at_once(place, int(seed), owner=None, wait_ms=WAIT_MS),
    "one name": lambda place, seed: at_once(place, int(seed), owner="worker", wait_ms=0),
    "copied state": lambda place, seed: copied_state(place, int(seed)),
    "paused": paused,
}

if __name__ == "__main__":
    task, folder, *rest = sys.argv[1:]
    sys.stdout.write(json.dumps([TASKS[task](Path(folder), each) for each in rest]))
