"""Real `Worker`s that claim one run on servers, each a process of its own.

Run as a program, as the nursery is. Orphans are left under a short term; whoever acts
while another is looked at holds a long one, so that no story rests on how fast it is.
"""

import select
import signal
import sys
from dataclasses import replace

from counterfoil.engine.session import Session
from counterfoil.keeper import Keeper
from counterfoil.ports import Head
from counterfoil.testing.mortal import Fate
from tests.support.nursery import Life, Worker, hire, opening, working
from tests.support.rivals import COMMITS, WAIT_MS, Task, lasting, main, told
from tests.support.workshop import (
    RUN_ID,
    TASK,
    Workshop,
    after_ordering,
    fulfil,
    order_only,
)

LOOKS_MAX = 1_500
LOOK_S = 0.02
"""Together half a minute: the server's clock, or the end of a lease, on a busy machine."""

CUTS = 3


def after_the_end(workshop: Workshop, held_before: str) -> dict[str, object]:
    """Hold a worker that has listed an orphan until another has done it, then let it go on."""
    _orphan(workshop)
    slow = _listed(workshop, held_before)
    first = hire(lasting(workshop), owner="first", life=working())
    code = first.run()
    slow.let_go()
    calls = slow.calls()
    story = told(workshop, [first, slow], [code, slow.end()])
    return {**story, "late calls": calls}


def after_a_release(workshop: Workshop, held_before: str) -> dict[str, object]:
    """Hold it until another has ordered and given the run up."""
    _orphan(workshop)
    slow = _listed(workshop, held_before)
    first = hire(lasting(workshop), owner="first", life=opening(order_only, wait_ms=WAIT_MS))
    code = first.run()
    slow.let_go()
    calls = slow.calls()
    story = told(workshop, [first, slow], [code, slow.end()])
    return {**story, "late calls": calls}


def meanwhile(workshop: Workshop, held_before: str) -> dict[str, object]:
    """Let it go on while another is about to act."""
    _orphan(workshop)
    slow = _listed(workshop, held_before)
    first = hire(lasting(workshop), owner="first", life=working())
    first.until("adapter.execute")
    slow.let_go()
    calls = slow.calls()
    late = slow.end()
    first.let_go()
    story = told(workshop, [first, slow], [first.run(), late])
    return {**story, "late calls": calls}


def by_itself(workshop: Workshop, owner: str) -> dict[str, object]:
    """Have the process that is running the run recover it as well, under the same name."""

    def live(keeper: Keeper, fate: Fate) -> None:
        def slow(run: Session) -> None:
            starting = Keeper(replace(keeper.parts, owner=owner))
            starting.program(TASK)(fulfil)
            worker = starting.worker(is_burst=True, concurrency=1, poll_ms=10)
            worker.run()
            worker._labour.work(RUN_ID)
            fulfil(run)

        working(slow)(keeper, fate)

    _orphan(workshop)
    _until_claimable(workshop)
    first = hire(lasting(workshop), owner="first", life=live)
    return told(workshop, [first], [first.run()])


def _orphan(workshop: Workshop) -> None:
    """Leave the run behind with an intent that nobody has sent."""
    dying = hire(workshop, owner="dying")
    dying.until("adapter.execute")
    dying.kill()


def _listed(workshop: Workshop, held_before: str) -> Worker:
    """Return a worker that has seen the run among those to claim, and has not claimed it."""
    _until_claimable(workshop)
    slow = hire(lasting(workshop), owner="slow", life=working())
    slow.until("heads.claimable")
    slow.let_go()
    slow.until(held_before)
    return slow


# ---------------------------------------------------------------- terms shorter than the work


def outlasted(workshop: Workshop, held_before: str) -> dict[str, object]:
    """Block a worker's heartbeat between its effects until another has taken over.

    Args:
        workshop: Where.
        held_before: "call" for its second effect, "checkpoint" for the commit before it.
    """
    submit(workshop)
    first = hire(workshop, owner="first", life=working())
    first.until("adapter.execute")
    first.let_go()
    first.until_one_of(("adapter.execute",) if held_before == "call" else COMMITS)
    return _overtaken(workshop, first)


def in_doubt(workshop: Workshop, held_before: str) -> dict[str, object]:
    """Block it right before a call that its target neither fences nor finds again."""
    submit(workshop)
    first = hire(workshop, owner="first", life=working())
    first.until("adapter.execute")
    return _overtaken(workshop, first)


def _overtaken(workshop: Workshop, first: Worker) -> dict[str, object]:
    first.signal(signal.SIGSTOP)
    _until_claimable(workshop)
    second = hire(lasting(workshop), owner="second", life=working())
    code = second.run()
    first.signal(signal.SIGCONT)
    first.let_go()
    return told(workshop, [first, second], [first.run(), code])


def beating(workshop: Workshop, seed: str) -> dict[str, object]:
    """Let a worker rest between its effects for longer than a term, while its heart beats."""
    submit(workshop)
    first = hire(
        replace(workshop, runs_background=True),
        owner="first",
        life=_resting(),
        stops_at_calls=False,
    )
    first.until("program.rest")
    _until_outlived(workshop)
    idle = hire(workshop, owner="idle", life=working())
    claims = idle.calls()
    rival = hire(workshop, owner="rival")
    codes = [idle.end(), rival.run()]
    first.let_go()
    story = told(workshop, [first, idle, rival], [first.run(), *codes])
    return {**story, "late calls": claims}


def _resting() -> Life:
    def live(keeper: Keeper, fate: Fate) -> None:
        def slow(run: Session) -> None:
            run.do("shop.order", sku="A-7")
            fate.call("program.rest", lambda: None)
            after_ordering(run)

        working(slow)(keeper, fate)

    return live


def cut(workshop: Workshop, seed: str) -> dict[str, object]:
    """Kill workers by a time limit, each after the first effect and before the second."""
    submit(workshop)
    for number in range(CUTS):
        _until_claimable(workshop)
        worker = hire(workshop, owner="cut", life=working())
        worker.until("adapter.execute")
        if number == 0:
            worker.let_go()
            worker.until("adapter.execute")
        worker.kill()
    _until_claimable(workshop)
    last = hire(lasting(workshop), owner="last", life=working())
    return told(workshop, [last], [last.run()])


def submit(workshop: Workshop) -> None:
    """Leave the run to whichever worker is free."""
    parts = workshop.parts(owner="submitter", joins=False)
    with Keeper(parts) as keeper:
        keeper.submit(TASK, RUN_ID)


def _until_claimable(workshop: Workshop) -> None:
    """Wait until the register says that nobody holds the run."""
    heads = workshop.heads()
    try:
        for _ in range(LOOKS_MAX):
            if heads.claimable(1):
                return
            select.select([], [], [], LOOK_S)
    finally:
        heads.close()
    raise TimeoutError("the register does not let go of the run")


def _until_outlived(workshop: Workshop) -> None:
    """Wait until the holder's lease stands for longer than it was first granted."""
    heads = workshop.heads()
    try:
        first: Head | None = None
        for _ in range(LOOKS_MAX):
            head = heads.read(RUN_ID)
            first = first or head
            if head and first and head.expires_at_ms > first.expires_at_ms + workshop.ttl_ms:
                return
            select.select([], [], [], LOOK_S)
    finally:
        heads.close()
    raise TimeoutError("nobody keeps the lease")


TASKS: dict[str, Task] = {
    "after the end": after_the_end,
    "after a release": after_a_release,
    "meanwhile": meanwhile,
    "by itself": by_itself,
    "outlasted": outlasted,
    "in doubt": in_doubt,
    "beating": beating,
    "cut": cut,
}

if __name__ == "__main__":
    main(TASKS, *sys.argv[1:])
