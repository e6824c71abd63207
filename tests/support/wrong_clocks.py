"""Machines whose wall clocks are wrong: workers' by `faketime`, and a server's that jumps.

Run as a program with a task, as the nursery is; or as one worker whose clock is wrong.
"""

import json
import os
import random
import select
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from counterfoil.engine.clock import SystemClock
from tests.support.crew import advance, ended
from tests.support.nursery import DONE, LOST, Asking, Report, Worker, hire, live, opening
from tests.support.rivals import WAIT_MS, Task, lasting, main, race, told
from tests.support.workshop import Workshop

HOUR_S = 3_600
SHARED_MEMORY = Path("/dev/shm")
CALLS = 24
"""Calls of an unharmed worker, about: where one is stopped by chance."""

WARP_FILE = "COUNTERFOIL_TEST_WARP_FILE"
"""Variable that names the file with the offset of a server's clock."""


def faketime(*flags: str) -> dict[str, str]:
    """Return the variables that `faketime` starts programs with."""
    answer = subprocess.run(
        ["faketime", *flags, "-f", "+0", "env", "-0"], check=True, capture_output=True, text=True
    )
    given = dict(line.partition("=")[::2] for line in answer.stdout.split("\0"))
    return {"LD_PRELOAD": given["LD_PRELOAD"], "FAKETIME_DONT_FAKE_MONOTONIC": "1"}


def sweep() -> None:
    """Remove what `faketime` leaves in shared memory of processes that have ended."""
    for left in SHARED_MEMORY.glob("*faketime_*"):
        pid = left.name.rpartition("_")[2]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            left.unlink(missing_ok=True)


# ---------------------------------------------------------------- workers


def hire_with_clock(workshop: Workshop, ahead_s: int, *, owner: str, wait_ms: int = 0) -> Worker:
    """Start a worker in a process whose wall clock is wrong from its beginning."""
    up_end, up = os.pipe()
    down, down_end = os.pipe()
    for end in (up, down):
        os.set_inheritable(end, True)
    fields = json.dumps(asdict(workshop) | {"place": str(workshop.place)})
    truth_ms = str(SystemClock().now_ms())
    words = ["be", str(up), str(down), fields, owner, str(wait_ms), str(ahead_s), truth_ms]
    pid = os.posix_spawn(
        sys.executable,
        [sys.executable, "-m", "tests.support.wrong_clocks", *words],
        {**os.environ, **faketime("-m"), "FAKETIME": f"{ahead_s:+d}"},
    )
    os.close(up)
    os.close(down)
    return Worker(pid=pid, up=up_end, down=down_end)


def be(up: str, down: str, fields: str, owner: str, wait_ms: str, *clock: str) -> int:
    """Be such a worker, having seen that the clock is wrong."""
    ahead_s, truth_ms = map(int, clock)
    if abs(SystemClock().now_ms() - int(truth_ms)) < abs(ahead_s) * 500:
        raise ValueError("the clock is right")
    # Under `faketime` an absolute sleep on the true monotonic clock is refused as invalid.
    time.sleep = lambda seconds: select.select([], [], [], seconds)
    given = json.loads(fields)
    workshop = Workshop(**{**given, "place": Path(given["place"])})
    return live(workshop, Asking(int(up), int(down)), owner, opening(wait_ms=int(wait_ms)))


def ahead(workshop: Workshop, ahead_s: str) -> dict[str, object]:
    """Let a worker whose clock is wrong ask for a lease that stands."""
    holder = hire(lasting(workshop), owner="holder")
    holder.until("adapter.execute")
    wrong = hire_with_clock(workshop, int(ahead_s), owner="wrong")
    code = wrong.run()
    holder.let_go()
    return told(workshop, [holder, wrong], [holder.run(), code])


def behind(workshop: Workshop, ahead_s: str) -> dict[str, object]:
    """Let a worker whose clock is wrong wait for the lease of a dead one."""
    holder = hire(workshop, owner="holder")
    holder.until("adapter.execute")
    holder.kill()
    wrong = hire_with_clock(lasting(workshop), int(ahead_s), owner="wrong", wait_ms=WAIT_MS)
    return told(workshop, [wrong], [wrong.run()])


def holding(workshop: Workshop, ahead_s: str) -> dict[str, object]:
    """Let a worker whose clock is wrong hold the lease, and die."""
    wrong = hire_with_clock(workshop, int(ahead_s), owner="wrong")
    wrong.until("adapter.execute")
    wrong.kill()
    heir = hire(lasting(workshop), owner="heir", wait_ms=WAIT_MS)
    return told(workshop, [heir], [heir.run()])


# ---------------------------------------------------------------- a server


@contextmanager
def warped(file: Path) -> Generator[None]:
    """Have what is started meanwhile live by the true time and the offset in a file."""
    warp(file, 0)
    more = {**faketime(), "FAKETIME_TIMESTAMP_FILE": str(file), "FAKETIME_NO_CACHE": "1"}
    before = {name: os.environ.get(name) for name in more}
    os.environ.update(more)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def warp(file: Path, ahead_s: int) -> None:
    """Set the clock of all that lives by this file."""
    fresh = file.with_suffix(".new")
    fresh.write_text(f"{ahead_s:+d}\n", encoding="ascii")
    fresh.chmod(0o644)
    fresh.rename(file)


def jumps(workshop: Workshop, seed: str) -> dict[str, object]:
    """Let the register's clock jump twice while one worker stands still, and then another."""
    file, chance, report = Path(os.environ[WARP_FILE]), random.Random(int(seed)), Report()
    warp(file, 0)
    order = chance.sample([HOUR_S, -HOUR_S], 2)
    first = hire(workshop, owner="first")
    reached = [advance(first, chance.randrange(CALLS))]
    warp(file, order[0])
    second = hire(workshop, owner="second")
    reached.append(advance(second, chance.randrange(CALLS)))
    warp(file, order[1])
    for worker, call in zip((first, second), reached, strict=True):
        if call:
            worker.let_go()
    codes = race([first, second], int(seed))
    story = f"seed {seed}, {order}, from {reached}"
    warp(file, 2 * HOUR_S)
    report.judge(workshop, ended(workshop, codes), f"{story}, {codes}")
    warp(file, 0)
    leases = workshop.leases()
    if list(leases) != sorted(leases):
        report.faults.append(f"{story}: two hands acted in turn: {leases}")
    return {"faults": report.faults, "codes": codes, "is_overtaken": codes == [LOST, DONE]}


TASKS: dict[str, Task] = {
    "ahead": ahead,
    "behind": behind,
    "holding": holding,
    "jumps": jumps,
}

if __name__ == "__main__":
    if sys.argv[1] == "be":
        sys.exit(be(*sys.argv[2:]))
    try:
        main(TASKS, *sys.argv[1:])
    finally:
        sweep()
