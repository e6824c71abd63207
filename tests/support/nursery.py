"""A process with one thread that forks workers, and stops or kills them by signal.

A worker says on a pipe which port call comes next and waits for leave, so that a signal
meets it at exactly that instant. Run as a program: the test process has threads, and a
fork of those would not be a worker as it is in life.
"""

import json
import logging
import os
import random
import select
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TypeVar

from counterfoil.core.errors import (
    CounterfoilError,
    IntegrityError,
    LostRaceError,
    UnavailableError,
    UnknownOutcomeError,
)
from counterfoil.core.run import Phase
from counterfoil.engine import audit, control
from counterfoil.engine.parts import Parts
from counterfoil.keeper import Keeper
from counterfoil.testing.mortal import Fate, mortal
from tests.support.workshop import (
    ARRIVED,
    CHANGED,
    IN_FLIGHT_MS,
    RUN_ID,
    TASK,
    TEXTS,
    Program,
    Workshop,
    fresh_workshop,
    fulfil,
)

_T = TypeVar("_T")
Life = Callable[[Keeper, Fate], None]
"""What a worker does with its keeper; its fate says so on the pipe and waits for leave."""

PATIENCE_S = 60
"""No worker is silent for longer, on however busy a machine."""

SESSIONS_MAX = 10
REACHES_MAX = 10
DONE, AGAIN, LOST, STOPPED, FAILED = 0, 3, 4, 5, 6
"""Exit codes of a worker."""

CALLS_MAX, KILLED_SHARE, DELAY_S_MAX = 40, 0.8, 0.004
"""Of kills by chance: calls before it, share of workers, and delay behind a call."""


class Asking(Fate):
    """Says on a pipe which call comes next, and waits for leave."""

    def __init__(self, up: int, down: int) -> None:
        super().__init__()
        self._up = up
        self._down = down

    def call(self, name: str, act: Callable[[], _T]) -> _T:
        os.write(self._up, f"{name}\n".encode())
        if os.read(self._down, 1) != b"g":
            os._exit(FAILED)
        return super().call(name, act)


@dataclass(kw_only=True)
class Worker:
    """A forked worker, and our ends of its pipes."""

    pid: int
    up: int
    down: int

    def next_call(self) -> str:
        """Return the call that the worker waits before; empty once it has ended."""
        ready, _, _ = select.select([self.up], [], [], PATIENCE_S)
        if not ready:
            raise TimeoutError("the worker is silent")
        return os.read(self.up, 1_000).decode().strip()

    def let_go(self) -> None:
        os.write(self.down, b"g")

    def until(self, name: str) -> None:
        """Let the worker go on until it waits before a call of this name."""
        self.until_one_of((name,))

    def until_one_of(self, names: tuple[str, ...]) -> None:
        """Let the worker go on until it waits before a call of one of these names."""
        while (call := self.next_call()) not in names:
            if not call:
                raise ValueError(f"the worker ended before {' or '.join(names)}")
            self.let_go()

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.end()

    def run(self) -> int:
        """Let the worker go on to its end, and return its exit code."""
        self.calls()
        return self.end()

    def calls(self) -> list[str]:
        """Let the worker go on to its last call, and return the names of all."""
        names: list[str] = []
        while name := self.next_call():
            names.append(name)
            self.let_go()
        return names

    def end(self) -> int:
        _, status = os.waitpid(self.pid, 0)
        os.close(self.up)
        os.close(self.down)
        return os.waitstatus_to_exitcode(status)


def opening(program: Program = fulfil, *, wait_ms: int = 0) -> Life:
    """Return the life of a worker that opens the run by itself."""

    def opened(keeper: Keeper, fate: Fate) -> None:
        with keeper.run(TASK, RUN_ID, wait_ms=wait_ms) as run:
            program(run)

    return opened


def working(program: Program = fulfil) -> Life:
    """Return the life of a real `Worker`, until nothing is due; one thread calls at a time."""

    def worked(keeper: Keeper, fate: Fate) -> None:
        keeper.program(TASK)(program)
        keeper.worker(is_burst=True, concurrency=1, poll_ms=10).run()

    return worked


def hire(
    workshop: Workshop,
    *,
    owner: str | None = None,
    wait_ms: int = 0,
    program: Program = fulfil,
    life: Life | None = None,
    stops_at_calls: bool = True,
) -> Worker:
    """Fork a worker on the workshop's run.

    Args:
        workshop: Where it works; it opens everything anew.
        owner: Its name; one of its own where there is none.
        wait_ms: How long it waits for another holder.
        program: What it does with the run.
        life: In place of opening the run and calling `program`.
        stops_at_calls: Whether it waits for leave before each port call.
    """
    life = life or opening(program, wait_ms=wait_ms)
    up_end, up = os.pipe()
    down, down_end = os.pipe()
    pid = os.fork()
    if pid:
        os.close(up)
        os.close(down)
        return Worker(pid=pid, up=up_end, down=down_end)
    os.close(up_end)
    os.close(down_end)
    code = FAILED
    try:
        code = live(workshop, Asking(up, down), owner, life, stops_at_calls=stops_at_calls)
    finally:
        os._exit(code)


def live(
    workshop: Workshop, fate: Fate, owner: str | None, life: Life, *, stops_at_calls: bool = True
) -> int:
    """Be a worker to its end, and return its exit code."""
    logging.getLogger("counterfoil.worker").addHandler(_Telling(workshop))
    logging.getLogger("counterfoil.worker").setLevel(logging.INFO)
    try:
        parts = workshop.parts(owner=owner)
        _reach(parts)
        life(Keeper(mortal(parts, fate) if stops_at_calls else parts), fate)
    except CounterfoilError as error:
        workshop.say(os.getpid(), f"{type(error).__name__}, exit {error.exit_code}: {error}")
        return _code_of(error)
    return DONE


def _reach(parts: Parts) -> None:
    """Get through to the servers before the story begins, however long they let us wait."""
    for _ in range(REACHES_MAX):
        with suppress(UnavailableError):
            parts.heads.read(RUN_ID)
            parts.store.marked(RUN_ID)
            return


def _code_of(error: CounterfoilError) -> int:
    match error:
        case UnknownOutcomeError() | UnavailableError():
            return AGAIN
        case LostRaceError():
            return LOST
        case IntegrityError():
            return STOPPED
        case _:
            traceback.print_exception(error)
            return FAILED


class _Telling(logging.Handler):
    """Keeps what a real `Worker` logs about runs."""

    def __init__(self, workshop: Workshop) -> None:
        super().__init__()
        self._workshop = workshop

    def emit(self, record: logging.LogRecord) -> None:
        reason = getattr(record, "reason", "")
        self._workshop.say(os.getpid(), f"{record.getMessage()}: {reason}")


# ---------------------------------------------------------------- kills


@dataclass(kw_only=True)
class Report:
    """What is printed at the end, as JSON."""

    calls: int = 0
    kills: int = 0
    faults: list[str] = field(default_factory=list[str])

    def judge(
        self, workshop: Workshop, code: int, story: str, *, counts_changes: bool = True
    ) -> None:
        parts = workshop.parts(joins=False)
        with Keeper(parts):
            view = control.show(parts, RUN_ID)
            checks = {
                "it ends": code == DONE,
                "it completes": view.run.phase is Phase.COMPLETED,
                "four writes are counted": view.run.writes == 4,
                "no budget is lost or given back": view.run.spent.proposals == 6,
                f"the shop has {workshop.arrived()}": workshop.arrived() == ARRIVED,
                f"the folder has {workshop.changed()}": not counts_changes
                or workshop.changed() == CHANGED,
                "the texts are right": workshop.texts() == TEXTS,
            }
            try:
                audit.audit(parts, RUN_ID)
            except CounterfoilError as error:
                checks[f"the audit passes: {error!r}"] = False
        self.faults += [f"{story}: not so: {what}" for what, holds in checks.items() if not holds]


def kill_everywhere(folder: Path, *, merges: bool, share: float, seed: int) -> Report:
    """Kill a worker before each call and at its end, and then its successor too."""
    report, chance = Report(), random.Random(seed)
    rehearsal = fresh_workshop(folder, "rehearsal", merges=merges)
    report.calls = count_calls(rehearsal)
    report.judge(rehearsal, DONE, "unharmed")
    for first in range(report.calls + 1):
        workshop = fresh_workshop(folder, f"{first}", merges=merges)
        _kill_at(workshop, first, report)
        calls = _recover(workshop, report, f"killed at {first}")
        for second in range(calls + 1):
            if chance.random() >= share:
                continue
            twice = fresh_workshop(folder, f"{first}_{second}", merges=merges)
            _kill_at(twice, first, report)
            _kill_at(twice, second, report)
            _recover(twice, report, f"killed at {first}, then at {second}")
    return report


def count_calls(workshop: Workshop) -> int:
    """Return how many port calls an unharmed worker makes."""
    worker = hire(workshop)
    calls = worker.calls()
    worker.end()
    return len(calls)


def _kill_at(workshop: Workshop, number: int, report: Report) -> None:
    worker = hire(workshop)
    for _ in range(number):
        if not worker.next_call():
            break
        worker.let_go()
    worker.next_call()
    worker.kill()
    report.kills += 1


def _recover(workshop: Workshop, report: Report, story: str) -> int:
    """Hire workers until the run has ended; return the calls of the first one."""
    calls, code = 0, AGAIN
    for session in range(SESSIONS_MAX):
        worker = hire(workshop)
        count = len(worker.calls())
        code = worker.end()
        calls = calls if session else count
        if code != AGAIN:
            break
        select.select([], [], [], 2 * IN_FLIGHT_MS / 1000)
    report.judge(workshop, code, story)
    return calls


def kill_at_random(folder: Path, *, runs: int, seed: int) -> Report:
    """Kill workers at whatever instant a chance delay ends, also within a call."""
    report, chance = Report(), random.Random(seed)
    for number in range(runs):
        workshop = fresh_workshop(folder, f"{number}", merges=bool(number % 2))
        code = AGAIN
        while code == AGAIN:
            worker = hire(workshop)
            for _ in range(chance.randrange(CALLS_MAX)):
                if not worker.next_call():
                    break
                worker.let_go()
            if chance.random() < KILLED_SHARE:
                select.select([], [], [], chance.random() * DELAY_S_MAX)
                worker.kill()
                report.kills += 1
            else:
                code = worker.run()
        report.judge(workshop, code, f"run {number} of seed {seed}", counts_changes=False)
    return report


def main(task: str, place: str, *rest: str) -> None:
    """Do one task and print its report."""
    match task:
        case "everywhere":
            form, share, seed = rest
            report = kill_everywhere(
                Path(place), merges=form == "merged", share=float(share), seed=int(seed)
            )
        case _:
            runs, seed = rest
            report = kill_at_random(Path(place), runs=int(runs), seed=int(seed))
    sys.stdout.write(json.dumps(asdict(report)))


if __name__ == "__main__":
    main(*sys.argv[1:])
