"""Two workers on one run at once, in every interleaving that a seed can think of.

Run as a program, as the nursery is. Where it is given urls, checkpoints and heads lie on
servers; there nobody sees that a holder is dead, and its lease ends by the server's clock.
"""

import json
import random
import select
import shutil
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from counterfoil.core.trace import Outcome
from counterfoil.engine import audit, control
from counterfoil.keeper import Keeper
from tests.support.nursery import DONE, PATIENCE_S, Worker, hire
from tests.support.workshop import (
    RUN_ID,
    Program,
    Workshop,
    fresh_workshop,
    fulfil,
    order_only,
    ship_only,
    write_only,
)

SHORT_TTL_MS = 1_000
SHORT_CALL_MS = 200
WAIT_MS = LONG_MS = 30_000
COMMITS = ("heads.advance", "joint.commit")
"""Calls that move a head on: of one workshop, the one or the other."""

SENT = (Outcome.EXECUTED, Outcome.RECONCILED)
"""Outcomes of effects, each once in a trace."""

PROGRAMS = {"order": order_only, "ship": ship_only, "write": write_only, "all": fulfil}


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


def at_once(
    workshop: Workshop, seed: str, *, owners: tuple[str | None, str | None], wait_ms: int = 0
) -> dict[str, object]:
    """Open one new run from two workers at once."""
    workers = [hire(workshop, owner=owner, wait_ms=wait_ms) for owner in owners]
    return told(workshop, workers, race(workers, int(seed)))


def copied_state(workshop: Workshop, seed: str) -> dict[str, object]:
    """Let a worker go on with a copy of the state folder, beside one with the original."""
    _kill_under_way(workshop)
    shutil.copytree(workshop.place / workshop.state, workshop.place / "copy")
    return _beside(workshop, replace(workshop, state="copy"), seed)


def copied_project(workshop: Workshop, seed: str) -> dict[str, object]:
    """Let a worker of the same name go on with a copy of all that is not on a server."""
    _kill_under_way(workshop)
    if not workshop.store_url:
        shutil.copytree(workshop.place / workshop.project, workshop.place / "copy")
    return _beside(workshop, replace(workshop, project="copy"), seed, owner="worker")


def _kill_under_way(workshop: Workshop) -> None:
    first = hire(workshop, owner="worker" if workshop.heads_url else None)
    first.until("adapter.execute")
    first.kill()


def _beside(
    workshop: Workshop, copy: Workshop, seed: str, *, owner: str | None = None
) -> dict[str, object]:
    wait_ms = WAIT_MS if workshop.heads_url else 0
    workers = [hire(lasting(each), owner=owner, wait_ms=wait_ms) for each in (workshop, copy)]
    codes = race(workers, int(seed))
    return told(copy if codes[0] != DONE else workshop, workers, codes)


def paused(workshop: Workshop, call: str, program: Program = order_only) -> dict[str, object]:
    """Stop a worker before a call for longer than its lease, and wake it afterwards."""
    sleeper = hire(workshop, owner=_name(workshop, "sleeper"), program=program)
    sleeper.until("adapter.observe")
    sleeper.let_go()
    sleeper.until("adapter.take")
    sleeper.let_go()
    sleeper.until(call)
    return _followed(workshop, sleeper, program)


def late(workshop: Workshop, kind: str) -> dict[str, object]:
    """Stop a worker that has its result, and has not committed it, for longer than its lease."""
    sleeper = hire(workshop, owner=_name(workshop, "sleeper"), program=PROGRAMS[kind])
    sleeper.until("adapter.execute")
    sleeper.let_go()
    sleeper.until_one_of(COMMITS)
    return _followed(workshop, sleeper, PROGRAMS[kind])


def _followed(workshop: Workshop, sleeper: Worker, program: Program) -> dict[str, object]:
    sleeper.signal(signal.SIGSTOP)
    successor = hire(workshop, owner=_name(workshop, "successor"), wait_ms=WAIT_MS, program=program)
    code = successor.run()
    sleeper.signal(signal.SIGCONT)
    sleeper.let_go()
    return told(workshop, [sleeper, successor], [sleeper.run(), code])


def lasting(workshop: Workshop) -> Workshop:
    """Return the same workshop for workers that nobody waits for: fast or slow, they keep it."""
    return replace(workshop, ttl_ms=LONG_MS)


def _name(workshop: Workshop, name: str) -> str | None:
    """Return a name for people on servers, and one that says who is alive in files."""
    return name if workshop.heads_url else None


def one_generation(workshop: Workshop, seed: str) -> dict[str, object]:
    """Bring two workers to the commit of the same generation, and let both go at once."""
    chance = random.Random(int(seed))
    first = hire(workshop, owner="first")
    for _ in range(chance.randrange(1, 4)):
        first.until_one_of(COMMITS)
        first.let_go()
    first.until_one_of(COMMITS)
    first.signal(signal.SIGSTOP)
    second = hire(lasting(workshop), owner="second", wait_ms=WAIT_MS)
    second.until_one_of(COMMITS)
    first.signal(signal.SIGCONT)
    pair = [first, second]
    for worker in chance.sample(pair, 2):
        worker.let_go()
    return told(workshop, pair, race(pair, int(seed)))


def one_receipt(workshop: Workshop, seed: str) -> dict[str, object]:
    """Have two workers find the receipt of a dead one, each before it can commit it."""
    dying = hire(workshop, owner="dying")
    dying.until("adapter.execute")
    dying.let_go()
    dying.next_call()
    dying.kill()
    first = hire(workshop, owner="first", wait_ms=WAIT_MS)
    _until_found(first)
    first.signal(signal.SIGSTOP)
    second = hire(lasting(workshop), owner="second", wait_ms=WAIT_MS)
    _until_found(second)
    first.signal(signal.SIGCONT)
    pair = [first, second]
    for worker in random.Random(int(seed)).sample(pair, 2):
        worker.let_go()
    return told(workshop, pair, race(pair, int(seed)))


def _until_found(worker: Worker) -> None:
    """Let a worker ask for the receipt, and stop before it commits what it found."""
    worker.until("adapter.look_up")
    worker.let_go()
    worker.until_one_of(COMMITS)


def told(workshop: Workshop, workers: list[Worker], codes: list[int]) -> dict[str, object]:
    """Return how the workers ended, and what target and trace hold."""
    parts = workshop.parts(joins=False)
    with Keeper(parts):
        events = [event for _, event in audit.events(parts, RUN_ID)]
        view = control.show(parts, RUN_ID)
        audit.audit(parts, RUN_ID)
    return {
        "codes": codes,
        "done": codes.count(DONE),
        "words": [workshop.words(worker.pid) for worker in workers],
        "arrived": workshop.arrived(),
        "leases": workshop.leases(),
        "refused": workshop.refused(),
        "changed": workshop.changed(),
        "texts": workshop.texts(),
        "phase": view.run.phase,
        "lease": view.head.lease_version,
        "sent": [event.key for event in events if event.outcome in SENT],
        "receipts": [
            (event.outcome, event.receipt.id) for event in events if event.receipt is not None
        ],
    }


Task = Callable[[Workshop, str], dict[str, object]]
NAMED = ("ann", "ben")
TASKS: dict[str, Task] = {
    "one gives way": lambda shop, seed: at_once(shop, seed, owners=(None, None)),
    "one waits": lambda shop, seed: at_once(shop, seed, owners=(None, None), wait_ms=WAIT_MS),
    "one name": lambda shop, seed: at_once(shop, seed, owners=("worker", "worker")),
    "two names": lambda shop, seed: at_once(shop, seed, owners=NAMED),
    "copied state": copied_state,
    "copied project": copied_project,
    "paused": paused,
    "late call": lambda shop, kind: paused(shop, "adapter.execute", PROGRAMS[kind]),
    "late": late,
    "one generation": one_generation,
    "one receipt": one_receipt,
}
SLOW = {"paused": {"ttl_ms": SHORT_TTL_MS, "call_ms": SHORT_CALL_MS}}


def main(tasks: dict[str, Task], task: str, folder: str, *rest: str) -> None:
    """Do one task for each of what is left, and print what is told; urls come first."""
    fields: dict[str, Any] = SLOW.get(task, {})
    if rest[0].startswith("{"):
        fields, rest = json.loads(rest[0]), rest[1:]
    stories = (
        tasks[task](fresh_workshop(Path(folder), f"{number}", **fields), each)
        for number, each in enumerate(rest)
    )
    sys.stdout.write(json.dumps(list(stories)))


if __name__ == "__main__":
    main(TASKS, *sys.argv[1:])
