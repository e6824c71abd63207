"""The thread that submits runs while a drill lasts, and knows which are still open."""

import threading
import time

from counterfoil.core.errors import (
    CounterfoilError,
    LostRaceError,
    UnavailableError,
    UnknownOutcomeError,
)
from counterfoil.drill.plan import STEPS
from counterfoil.drill.program import TASK
from counterfoil.keeper import Keeper

LOOK_SECONDS = 0.1
PAGE = 200


class Submitter:
    """Owns a thread that keeps a number of runs open; safe to ask from another.

    Attributes:
        open_runs: Runs whose end is not in the register yet; a new tuple each time.
        submitted: Runs so far; an answer that was lost counts, since it may be there.
        error: What the thread died of; None while it lives.
    """

    def __init__(self, keeper: Keeper, *, open_max: int) -> None:
        self._keeper = keeper
        self._open_max = open_max
        self._open: dict[str, None] = {}
        self._ceased, self._stopped = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="drill-submitter", daemon=True)
        self.open_runs: tuple[str, ...] = ()
        self.submitted = 0
        self.error: CounterfoilError | None = None

    def start(self) -> None:
        """Begin to submit."""
        self._thread.start()

    def cease(self) -> None:
        """Submit no more; go on to look which runs are open."""
        self._ceased.set()

    def is_settled(self) -> bool:
        """Return whether the last run has ended, and no other will come."""
        return self._ceased.is_set() and self._stopped.is_set()

    def stop(self) -> None:
        """Come to an end, and wait for it."""
        self._ceased.set()
        self._stopped.set()
        self._thread.join()

    def runs(self) -> tuple[str, ...]:
        """Return the ids of all runs so far."""
        return tuple(_run_id(number) for number in range(self.submitted))

    def _run(self) -> None:
        try:
            while not self._stopped.is_set():
                if not self._ceased.is_set() and len(self._open) < self._open_max:
                    self._submit()
                    continue
                self._stopped.wait(LOOK_SECONDS)
                self._look()
                if self._ceased.is_set() and not self._open:
                    self._stopped.set()
        except CounterfoilError as error:
            self.error = error

    def _submit(self) -> None:
        """Submit one run, again and again until the answer is there."""
        run_id = _run_id(self.submitted)
        self._open[run_id] = None
        self.open_runs = tuple(self._open)
        self.submitted += 1
        while not self._stopped.is_set():
            try:
                self._keeper.submit(TASK, run_id, {"steps": STEPS})
                return
            except (LostRaceError, UnavailableError, UnknownOutcomeError):
                time.sleep(LOOK_SECONDS)

    def _look(self) -> None:
        """Strike off the runs that have ended; ids are in order, so no page is read twice."""
        after = ""
        try:
            while self._open and after < max(self._open):
                first = min(run_id for run_id in self._open if run_id > after)
                before = _run_id(int(first.rpartition("-")[2]) - 1) if first > _run_id(0) else ""
                page = self._keeper.parts.heads.heads(max(before, after), PAGE)
                if not page:
                    break
                for head in page:
                    if head.status == "terminal":
                        self._open.pop(head.run_id, None)
                after = page[-1].run_id
        except UnavailableError:
            return
        finally:
            self.open_runs = tuple(self._open)


def _run_id(number: int) -> str:
    return f"drill-{number:06}"
