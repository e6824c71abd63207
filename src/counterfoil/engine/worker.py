"""A worker: claim runs that are due, call their programs, let go of what must wait.

Due is what nobody holds and no pause keeps: new runs, runs whose worker died, runs whose
pause after a failure is over. Runs that wait for a person are frozen in the register and
cost nothing until a statement arrives. A run is claimed by opening it, so that of many
workers one wins, and what the others saw before does not count.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from hashlib import sha256

from counterfoil.core.errors import ConfigError, CounterfoilError
from counterfoil.core.words import RunId
from counterfoil.engine.labour import BROKEN_MS, Labour, Program, Verdict
from counterfoil.engine.parts import Parts
from counterfoil.engine.session import Session

log = logging.getLogger("counterfoil.worker")

POLL_MS = 500
"""Pause between two looks for work: an expired lease is seen this late at most."""

GRACE_MS = 10_000
"""How long programs go on undisturbed after `stop`, and again to come to an end."""

SLICE_S = 0.2
"""How often a worker that waits looks whether it is to stop, in seconds."""

ARRIVALS_PAGE = 64
ARRIVAL_MS = 5_000
"""How long a run that has a statement is left alone at most."""

NOTES_MAX = 10_000
"""Runs that a worker remembers to leave alone for a while; the oldest are forgotten."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerOptions:
    """How a worker works.

    Attributes:
        concurrency: Runs at once, 1 or more.
        tries_max: Failures in a row at one position before a run is parked.
        poll_ms: Pause between two looks for work.
        grace_ms: See `GRACE_MS`.
        is_burst: Whether to stop when nothing is due, instead of waiting for more.
    """

    concurrency: int = 4
    tries_max: int = 5
    poll_ms: int = POLL_MS
    grace_ms: int = GRACE_MS
    is_burst: bool = False


def checked_options(options: WorkerOptions) -> WorkerOptions:
    """Return options that a worker can work with.

    Raises:
        ConfigError: A number is below 1; the message names it.
    """
    for name in ("concurrency", "tries_max", "poll_ms", "grace_ms"):
        if getattr(options, name) < 1:
            raise ConfigError(f"{name} of a worker is at least 1")
    return options


@dataclass(frozen=True, kw_only=True, slots=True)
class _Note:
    """Since when a run is left alone, and until when."""

    since_ms: int
    until_ms: int

    def is_over(self, now_ms: int, longest_ms: int) -> bool:
        return now_ms >= min(self.until_ms, self.since_ms + longest_ms)


class Worker:
    """Owns a pool of threads, each on one run; `stop` may be called from anywhere."""

    def __init__(
        self,
        parts: Parts,
        programs: Mapping[str, Program],
        open_session: Callable[[Program, RunId], Session],
        options: WorkerOptions,
    ) -> None:
        self._parts = parts
        self._options = options
        self._labour = Labour(parts, programs, open_session, options.tries_max)
        self._busy: dict[RunId, Future[Verdict]] = {}
        self._left_alone: dict[RunId, _Note] = {}
        self._is_stopping = False

    def stop(self) -> None:
        """Claim nothing more; let programs end, then ask them to, then leave.

        Takes no lock, so that a handler of signals may call it.
        """
        self._is_stopping = True

    def run(self) -> int:
        """Work until `stop` is called, or until nothing is due if it is a burst.

        Returns:
            How many programs did not come to an end. Their threads still run, and keep
            the process from ending in good order.
        """
        log.info("started", extra={"concurrency": self._options.concurrency})
        pool = ThreadPoolExecutor(self._options.concurrency, thread_name_prefix="counterfoil-run")
        try:
            while not self._is_stopping:
                self._collect()
                claimed = self._claim(pool)
                if self._options.is_burst and not claimed and not self._busy:
                    break
                self._rest(has_work=claimed)
            self._drain()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            log.info("stopped", extra={"left": len(self._busy)})
        return len(self._busy)

    def _claim(self, pool: ThreadPoolExecutor) -> bool:
        free = self._options.concurrency - len(self._busy)
        if free <= 0:
            return False
        try:
            due = self._due(free)
        except CounterfoilError as error:
            log.warning("unavailable", extra={"reason": f"cannot look for work: {error.message}"})
            return False
        for run_id in due:
            self._busy[run_id] = pool.submit(self._labour.work, run_id)
        return bool(due)

    def _due(self, limit: int) -> list[RunId]:
        """Return runs to try, each worker in an order of its own."""
        now_ms = self._parts.clock.monotonic_ms()
        more = limit + len(self._busy) + len(self._left_alone)
        claimable = [head.run_id for head in self._parts.heads.claimable(more)]
        claimable.sort(key=lambda run_id: sha256(f"{self._parts.owner} {run_id}".encode()).digest())
        due: dict[RunId, None] = {}
        listed = ((self._arrivals(), ARRIVAL_MS), (claimable, BROKEN_MS))
        for runs, longest_ms in listed:
            for run_id in runs:
                if len(due) == limit:
                    break
                note = self._left_alone.get(run_id)
                is_over = note is None or note.is_over(now_ms, longest_ms)
                if run_id not in self._busy and is_over:
                    due[run_id] = None
        return list(due)

    def _arrivals(self) -> Iterator[RunId]:
        inbox, after = self._parts.inbox, ""
        while inbox is not None and (page := inbox.arrivals(after, ARRIVALS_PAGE)):
            yield from page
            after = page[-1]

    def _collect(self) -> None:
        """Take note of what became of runs that were worked on."""
        now_ms = self._parts.clock.monotonic_ms()
        for run_id in [run_id for run_id, future in self._busy.items() if future.done()]:
            verdict = self._busy.pop(run_id).result()
            if verdict.leave_alone_ms:
                note = _Note(since_ms=now_ms, until_ms=now_ms + verdict.leave_alone_ms)
                self._left_alone[run_id] = note
        over = [run for run, note in self._left_alone.items() if note.is_over(now_ms, BROKEN_MS)]
        if len(self._left_alone) > NOTES_MAX:
            over = over or list(self._left_alone)[: NOTES_MAX // 2]
        for run_id in over:
            del self._left_alone[run_id]

    def _rest(self, *, has_work: bool) -> None:
        """Wait until a run is done, something may be due, or the pause is over."""
        options = self._options
        if len(self._busy) >= options.concurrency or (options.is_burst and self._busy):
            wait(self._busy.values(), options.poll_ms / 1000, return_when=FIRST_COMPLETED)
        elif has_work:
            return
        elif self._parts.bell is not None:
            self._parts.bell.wait(options.poll_ms)
        else:
            ends_at = time.monotonic() + options.poll_ms / 1000
            while not self._is_stopping and (left := ends_at - time.monotonic()) > 0:
                time.sleep(min(left, SLICE_S))

    def _drain(self) -> None:
        for asks in (False, True):
            if asks:
                self._labour.ask_to_stop()
            if self._busy:
                log.info("draining", extra={"left": len(self._busy), "asks": asks})
            ends_at = time.monotonic() + self._options.grace_ms / 1000
            while self._busy and time.monotonic() < ends_at:
                wait(self._busy.values(), self._options.poll_ms / 1000)
                self._collect()
