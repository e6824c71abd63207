"""A worker: claim runs that are due, call their programs, let go of what must wait.

Due is what nobody holds and no pause keeps: new runs, runs whose worker died, runs whose
pause after a failure is over. Runs that wait for a person are frozen in the register and
cost nothing until a statement arrives. A run is claimed by opening it, so that of many
workers one wins, and what the others saw before does not count.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from hashlib import sha256

from counterfoil.core.errors import ConfigError, CounterfoilError
from counterfoil.core.words import RunId
from counterfoil.engine.labour import Labour, Program, Verdict
from counterfoil.engine.parts import Parts
from counterfoil.engine.session import Session

log = logging.getLogger("counterfoil.worker")

POLL_MS = 500
"""Pause between two looks for work: an expired lease is seen this late at most."""

GRACE_MS = 10_000
"""How long programs go on undisturbed after `stop`, and again to come to an end."""

ARRIVALS_PAGE = 64
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
        self._left_alone: dict[RunId, int] = {}
        self._stopping = threading.Event()

    def stop(self) -> None:
        """Claim nothing more; let programs end, then ask them to, then leave."""
        self._stopping.set()

    def run(self) -> None:
        """Work until `stop` is called, or until nothing is due if it is a burst."""
        log.info("started", extra={"concurrency": self._options.concurrency})
        pool = ThreadPoolExecutor(self._options.concurrency, thread_name_prefix="counterfoil-run")
        try:
            while not self._stopping.is_set():
                self._collect()
                claimed = self._claim(pool)
                if self._options.is_burst and not claimed and not self._busy:
                    return
                self._rest(has_work=claimed)
            self._drain()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            log.info("stopped", extra={"left": len(self._busy)})

    def _claim(self, pool: ThreadPoolExecutor) -> bool:
        free = self._options.concurrency - len(self._busy)
        if free <= 0:
            return False
        try:
            due = self._due(free)
        except CounterfoilError as error:
            log.warning("cannot look for work: %s", error)
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
        for run_id in (*self._arrivals(), *claimable):
            if run_id not in self._busy and self._left_alone.get(run_id, 0) <= now_ms:
                due[run_id] = None
            if len(due) == limit:
                break
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
            self._left_alone.pop(run_id, None)
            if verdict.leave_alone_ms:
                self._left_alone[run_id] = now_ms + verdict.leave_alone_ms
        if len(self._left_alone) > NOTES_MAX:
            over = [run for run, until_ms in self._left_alone.items() if until_ms <= now_ms]
            for run_id in over or list(self._left_alone)[: NOTES_MAX // 2]:
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
            self._stopping.wait(options.poll_ms / 1000)

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
