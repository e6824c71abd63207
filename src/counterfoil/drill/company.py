"""The workers as the drill has them: who is alive, who sleeps, who must be replaced."""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from counterfoil.core.errors import UnavailableError
from counterfoil.drill.chronicle import Chronicle
from counterfoil.drill.family import Child
from counterfoil.drill.faults import Action, Fault
from counterfoil.drill.lines import Born, FromCrew, Gone, Hire, Stands, now_ns
from counterfoil.drill.plan import Plan

HIRE_AGAIN_SECONDS = 0.1
FUTILE_HIRES_MAX = 20
"""Workers in a row that may end by themselves, without a kill, before the drill gives up."""


class Company:
    """Owns the crew's program, and with it all workers.

    Attributes:
        chronicle: What was heard and done so far.
    """

    def __init__(self, plan: Plan, *, project: Path, port: int, log: Path) -> None:
        self._wanted = plan.workers
        self._crew = Child(
            "counterfoil.drill.crew",
            [
                *("--project", str(project), "--port", str(port), "--seed", str(plan.seed)),
                *("--call-ms", str(plan.call_ms), "--parent", str(os.getpid())),
            ],
            log=log,
        )
        self._alive: dict[int, None] = {}
        self._killed: set[int] = set()
        self._wakes_at: dict[int, float] = {}
        self._hired = 0
        self._expected = 0
        self._futile = 0
        self._hires_at = 0.0
        self._armed: Fault | None = None
        self.chronicle = Chronicle()

    def attend(self, seconds: float) -> None:
        """Hear workers out, wake sleepers, replace the dead; take about so long.

        Raises:
            UnavailableError: Workers end by themselves, one after the other.
        """
        now = time.monotonic()
        for pid in [pid for pid, at in self._wakes_at.items() if at <= now]:
            self._wake(pid)
        if self._expected + len(self._alive) < self._wanted and now >= self._hires_at:
            self._hire()
        next_at = min((*self._wakes_at.values(), now + seconds))
        for line in self._crew.lines(min(seconds, max(0.0, next_at - now))):
            self._hear(msgspec.json.decode(line, type=FromCrew))

    def strike(self, fault: Fault) -> None:
        """Have a fault happen: at once, or to whoever stands at a port next."""
        waiting, self._armed = self._armed, fault if fault.waits_for_a_call else None
        for due in (waiting, None if fault.waits_for_a_call else fault):
            if due is not None:
                self._strike_somebody(due)

    def cease(self) -> None:
        """Strike nobody any more, and wake everybody."""
        self._armed = None
        for pid in tuple(self._wakes_at):
            self._wake(pid)

    def dismiss(self, seconds: float) -> None:
        """Have all workers drain and leave; those that stay longer are killed."""
        self._wanted = 0
        self.cease()
        ends_at = time.monotonic() + seconds
        for pid in self._alive:
            _signal(pid, signal.SIGTERM)
        while self._alive and time.monotonic() < ends_at:
            self.attend(0.1)
        self.close()

    def close(self) -> None:
        """Kill all workers, whatever they do, and end the crew."""
        for pid in self._alive:
            _signal(pid, signal.SIGKILL)
        self._alive.clear()
        self._crew.close()

    def _hire(self) -> None:
        self._hired += 1
        self._expected += 1
        self._crew.send(msgspec.json.encode(Hire(serial=self._hired)) + b"\n")

    def _hear(self, line: FromCrew) -> None:
        match line:
            case Born():
                self._expected -= 1
                self._alive[line.pid] = None
            case Gone():
                self._bury(line)
            case Stands():
                self._meet(line)
            case _:
                self.chronicle.hear(line)

    def _meet(self, stands: Stands) -> None:
        """Strike a worker that stands at a port, if a fault waits for one like it."""
        fault = self._armed
        if fault is not None and fault.suits(stands) and stands.pid in self._awake():
            self._armed = None
            self._strike(stands.pid, fault)

    def _bury(self, line: Gone) -> None:
        if line.pid in self._alive:
            del self._alive[line.pid]
        else:
            self._expected -= 1
        self._wakes_at.pop(line.pid, None)
        if line.pid in self._killed:
            self._killed.discard(line.pid)
            self._futile = 0
            return
        self._futile += self._wanted > 0
        self._hires_at = time.monotonic() + HIRE_AGAIN_SECONDS
        if self._futile > FUTILE_HIRES_MAX:
            first = (
                f"; the first alarm: {self.chronicle.alarms[0]}" if self.chronicle.alarms else ""
            )
            raise UnavailableError(f"workers end by themselves with {line.status}{first}")

    def _awake(self) -> list[int]:
        still = self._killed | set(self._wakes_at)
        return [pid for pid in self._alive if pid not in still]

    def _strike_somebody(self, fault: Fault) -> None:
        awake = self._awake()
        if awake:
            self._strike(awake[int(fault.luck * len(awake))], fault)

    def _strike(self, pid: int, fault: Fault) -> None:
        """Kill or pause a worker; the last one that is awake is not paused."""
        if fault.action is Action.KILL:
            self._killed.add(pid)
            self.chronicle.strike(pid, fault.action, now_ns())
            _signal(pid, signal.SIGKILL)
            return
        if len(self._awake()) < 2:
            return
        self.chronicle.strike(pid, fault.action, now_ns())
        _signal(pid, signal.SIGSTOP)
        self._wakes_at[pid] = time.monotonic() + fault.pause_s

    def _wake(self, pid: int) -> None:
        del self._wakes_at[pid]
        _signal(pid, signal.SIGCONT)


def _signal(pid: int, number: signal.Signals) -> None:
    """Signal a worker and all of its process group, which it leads."""
    with suppress(ProcessLookupError):
        os.killpg(pid, number)
