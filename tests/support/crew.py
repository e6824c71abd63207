"""Four workers on one run: one is stopped at an instant, the others race for what it held.

Run as a program, as the nursery is, on servers: there a lease ends by release or by the
server's clock, so every story waits a term where somebody held one.
"""

import json
import random
import select
import signal
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.support.nursery import (
    AGAIN,
    DONE,
    LOST,
    PATIENCE_S,
    SESSIONS_MAX,
    Report,
    Worker,
    count_calls,
    hire,
)
from tests.support.rivals import WAIT_MS
from tests.support.workshop import Workshop, fresh_workshop

RIVALS = 3
TURNS_MAX = 80
"""Turns of the others, once one of them holds the run, before a sleeper wakes: from the
first call of the successor to long after the end."""

HOLDS = "adapter.take"
"""Who makes this call has taken the lease: whoever held it before does so no longer."""


@dataclass(kw_only=True)
class CrewReport(Report):
    """What is printed at the end, as JSON.

    Attributes:
        woken: Sleepers that were woken.
        refused: Of those, how many were told that another worker has the run.
        kept: Of those, how many found the run done.
        late: Calls that the shop refused under an old token.
    """

    woken: int = 0
    refused: int = 0
    kept: int = 0
    late: int = 0
    names: list[str] = field(default_factory=list[str])

    def note(self, workshop: Workshop, sleeper: Worker, code: int, story: str) -> None:
        """Judge how a sleeper ended that has gone on."""
        self.woken += 1
        self.refused += code == LOST
        self.kept += code == DONE
        self.late += len(workshop.refused())
        if code not in (LOST, DONE):
            self.faults.append(f"{story}: the sleeper ends with {code}")
        if code == LOST and "LeaseLostError" not in " ".join(workshop.words(sleeper.pid)):
            said = workshop.words(sleeper.pid)
            if not any("FencedError" in words for words in said):
                self.faults.append(f"{story}: the sleeper says {said}")


def stop_everywhere(
    folder: Path, how: str, *, stride: int, first: int, seed: int, **fields: object
) -> Report:
    """Stop a worker before each port call, and let three others race for the run.

    Args:
        folder: Holds all workshops.
        how: "kill" for SIGKILL; "sleep" for SIGSTOP until another worker holds the run.
        stride: One instant in so many is tried.
        first: The first one that is.
        seed: Chooses the order of the race, and when the sleeper wakes.
        **fields: Those of `Workshop`.
    """
    report, chance = CrewReport(), random.Random(seed)
    rehearsal = fresh_workshop(folder, "rehearsal", **fields)
    report.calls = count_calls(rehearsal)
    report.judge(rehearsal, DONE, "unharmed")
    for at in range(first, report.calls, stride):
        workshop = fresh_workshop(folder, f"{how}_{at}", **fields)
        _stop_at(workshop, at, how, chance, report)
    return report


def _stop_at(
    workshop: Workshop, at: int, how: str, chance: random.Random, report: CrewReport
) -> None:
    sleeper = hire(workshop, owner="sleeper")
    name = advance(sleeper, at)
    sleeps = how == "sleep" and name != ""
    story = f"{how} before call {at}, {name}"
    report.names.append(name)
    report.kills += 1
    if sleeps:
        sleeper.signal(signal.SIGSTOP)
    else:
        sleeper.kill()
    rivals = [hire(workshop, owner=f"rival-{n}", wait_ms=WAIT_MS) for n in range(RIVALS)]
    codes = contend(rivals, sleeper if sleeps else None, chance)
    if sleeps:
        report.note(workshop, sleeper, codes.pop(sleeper.pid), story)
    report.judge(workshop, ended(workshop, list(codes.values())), story)
    if list(workshop.leases()) != sorted(workshop.leases()):
        report.faults.append(f"{story}: two hands acted in turn: {workshop.leases()}")


def advance(worker: Worker, calls: int) -> str:
    """Let a worker make some calls; return the next one, or "" if it has ended by then."""
    for _ in range(calls):
        if not worker.next_call():
            return ""
        worker.let_go()
    return worker.next_call()


def contend(rivals: list[Worker], sleeper: Worker | None, chance: random.Random) -> dict[int, int]:
    """Let rivals go on in an order by chance, and wake a sleeper when one holds the run.

    Returns:
        The exit code of each process.
    """
    waiting, codes = {worker.up: worker for worker in rivals}, dict[int, int]()
    turns: int | None = None
    while waiting:
        worker = _whose_turn(waiting, chance)
        call = worker.next_call()
        if call:
            worker.let_go()
        else:
            del waiting[worker.up]
            codes[worker.pid] = worker.end()
        if sleeper is None:
            continue
        if turns is not None:
            turns -= 1
        elif call in (HOLDS, ""):
            turns = chance.randrange(TURNS_MAX)
        if turns == 0 or not waiting:
            sleeper.signal(signal.SIGCONT)
            sleeper.let_go()
            waiting[sleeper.up], sleeper = sleeper, None
    return codes


def _whose_turn(waiting: dict[int, Worker], chance: random.Random) -> Worker:
    ready, _, _ = select.select(list(waiting), [], [], PATIENCE_S)
    if not ready:
        raise TimeoutError("all workers are silent")
    return waiting[chance.choice(ready)]


def ended(workshop: Workshop, codes: list[int]) -> int:
    """Return DONE, if need be after more workers: on a busy machine all may lose their term.

    What is not a lost race or a target that must be asked again is returned as it is.
    """
    for _ in range(SESSIONS_MAX):
        if any(code not in (DONE, LOST, AGAIN) for code in codes):
            return max(codes)
        if DONE in codes:
            return DONE
        codes = [hire(workshop, owner="late", wait_ms=WAIT_MS).run()]
    return max(codes)


def main(how: str, folder: str, fields: str, *numbers: str) -> None:
    """Do one task and print its report; the numbers are stride, first instant and seed."""
    stride, first, seed = map(int, numbers)
    report = stop_everywhere(
        Path(folder), how, stride=stride, first=first, seed=seed, **json.loads(fields)
    )
    sys.stdout.write(json.dumps(asdict(report)))


if __name__ == "__main__":
    main(*sys.argv[1:])
