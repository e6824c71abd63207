"""One run in a worker's hands: open it, call its program, judge how that ended."""

import asyncio
import inspect
import logging
import threading
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from counterfoil.core.errors import (
    CounterfoilError,
    IntegrityError,
    LostRaceError,
    UnavailableError,
    UnknownOutcomeError,
)
from counterfoil.core.run import head_status
from counterfoil.core.task import Task
from counterfoil.core.words import RunId
from counterfoil.engine import control
from counterfoil.engine.aio import AsyncSession
from counterfoil.engine.control import RunView
from counterfoil.engine.parts import Parts
from counterfoil.engine.session import Session

log = logging.getLogger("counterfoil.worker")

BACKOFF_MS = 1_000
BACKOFF_MS_MAX = 60_000
"""Pause after a first failure, doubled with each further one up to the bound."""

TRANSIENT_FACTOR = 12
"""How many more times a target may be away than a program may fail before it is parked."""

DEATHS_FACTOR = 4
"""How many more times its worker may die than a program may fail: machines also fail."""

LOST_MS = 1_000
"""How long a run that another worker took is left alone."""

NOT_OURS_MS = 60_000
"""How long a run whose task has no program here is left alone."""

BROKEN_MS = 600_000
"""How long a run that cannot be trusted or has ended is left alone."""

WAITS_MS = 600_000
"""How long a run that waits for a person and is not frozen is left alone by all."""

PROGRAM_ENDS = (Exception, SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError)
"""What a program may raise without ending its worker: signals reach the main thread alone."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Program:
    """What a worker calls for the runs of one task.

    Attributes:
        task: The task.
        function: Called with the session and the run's arguments; may be a coroutine
            function, which gets an `AsyncSession`.
    """

    task: Task
    function: Callable[..., Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What became of a run.

    Attributes:
        leave_alone_ms: How long this worker tries it no more.
    """

    leave_alone_ms: int = 0


class Labour:
    """Owns the sessions that are open; shared by the threads of a worker."""

    def __init__(
        self,
        parts: Parts,
        programs: Mapping[str, Program],
        open_session: Callable[[Program, RunId], Session],
        tries_max: int,
    ) -> None:
        self._parts = parts
        self._programs = programs
        self._open = open_session
        self._tries_max = tries_max
        self._sessions: dict[RunId, Session] = {}
        self._seen: dict[RunId, tuple[int, int]] = {}
        self._lock = threading.Lock()

    def ask_to_stop(self) -> None:
        """Have the next verb of each program raise."""
        with self._lock:
            for session in self._sessions.values():
                session.ask_to_stop()

    def work(self, run_id: RunId) -> Verdict:
        """Open a run and call its program; raises only what ends a process."""
        try:
            return self._worked(run_id)
        except LostRaceError as error:
            _note("lost", run_id, reason=error.message, **self._where(run_id))
            return Verdict(leave_alone_ms=LOST_MS)
        except (UnavailableError, UnknownOutcomeError) as error:
            pause_ms = self._patience_ms(run_id)
            facts = self._where(run_id)
            _note("unavailable", run_id, reason=error.message, pause_ms=pause_ms, **facts)
            return Verdict(leave_alone_ms=pause_ms)
        except CounterfoilError as error:
            facts = {"run": run_id, "reason": str(error), **self._where(run_id)}
            log.warning("refused", extra=facts)
            return Verdict(leave_alone_ms=BROKEN_MS)
        except PROGRAM_ENDS as error:  # a fault of ours must not end the loop that serves others
            facts = {"run": run_id, "reason": type(error).__name__, **self._where(run_id)}
            log.exception("broken", extra=facts)
            return Verdict(leave_alone_ms=BROKEN_MS)
        finally:
            self._seen.pop(run_id, None)

    def _where(self, run_id: RunId) -> dict[str, object]:
        """Return how far a run was when its session was closed, if there was one."""
        if run_id not in self._seen:
            return {}
        generation, lease_version = self._seen[run_id]
        return {"generation": generation, "lease": lease_version}

    def _patience_ms(self, run_id: RunId) -> int:
        """Return how long to leave a run alone that could not be opened."""
        with suppress(CounterfoilError):
            return _growing_ms(_openings(control.show(self._parts, run_id)))
        return BACKOFF_MS

    def _worked(self, run_id: RunId) -> Verdict:
        view = control.show(self._parts, run_id)
        if view.head.status == "terminal":
            return Verdict(leave_alone_ms=BROKEN_MS)
        program = self._programs.get(view.run.task_id)
        if program is None:
            _note("skipped", run_id, reason=f"no program for task {view.run.task_id}")
            return Verdict(leave_alone_ms=NOT_OURS_MS)
        if _goes_nowhere(view, self._tries_max):
            count = _openings(view)
            failure = control.park(
                self._parts, run_id, reason=f"opened {count} times, it got no further"
            )
            _note("parked", run_id, reason=failure.reason, failures=count)
            return Verdict(leave_alone_ms=LOST_MS)
        session = self._open(program, run_id)
        with self._lock:
            self._sessions[run_id] = session
        try:
            _tell("claimed", session)
            return self._called(session, program)
        finally:
            with self._lock:
                del self._sessions[run_id]
            self._seen[run_id] = (session.generation, session.lease_version)
            with suppress(CounterfoilError):  # the lease ends by itself at the latest
                session.close()

    def _called(self, session: Session, program: Program) -> Verdict:
        if session.state.phase.has_ended:
            return Verdict()
        try:
            _call(session, program)
        except (LostRaceError, IntegrityError):
            raise
        except PROGRAM_ENDS as error:
            return self._failed(session, error)
        return self._failed(session, None)

    def _failed(self, session: Session, error: BaseException | None) -> Verdict:
        """Judge a program that came back, with an error or without."""
        session.flush()
        run = session.state
        if run.phase.has_ended:
            _tell("ended", session, reason=run.phase.value)
            return Verdict()
        if head_status(run) == "frozen":
            _tell("waits", session, reason=_reason(error))
            return Verdict(leave_alone_ms=LOST_MS)
        if session.request is not None:
            _tell("waits", session, reason=_reason(error))
            session.close(pause_ms=WAITS_MS)
            return Verdict(leave_alone_ms=LOST_MS)
        is_transient = isinstance(error, UnavailableError | UnknownOutcomeError)
        tries_max = self._tries_max * (TRANSIENT_FACTOR if is_transient else 1)
        failure = session.stumble(_reason(error), tries_max=tries_max)
        pause_ms = _growing_ms(failure.count)
        if failure.is_parked:
            _tell("parked", session, error, reason=failure.reason, failures=failure.count)
            return Verdict(leave_alone_ms=LOST_MS)
        facts = {"reason": failure.reason, "failures": failure.count, "pause_ms": pause_ms}
        _tell("failed", session, error, **facts)
        session.close(pause_ms=pause_ms)
        return Verdict()


def _openings(view: RunView) -> int:
    """Return how often a run was opened since it last got further: each raises the lease."""
    return view.head.lease_version - view.header.lease_version


def _goes_nowhere(view: RunView, tries_max: int) -> bool:
    """Return whether a run is opened again and again, and its program ends its process.

    A run that waits for a person is opened now and then, and is none.
    """
    pending = view.run.pending
    if pending is not None and pending.approvals_required:
        return False
    factor = DEATHS_FACTOR if view.head.nonce else TRANSIENT_FACTOR
    return _openings(view) >= tries_max * factor


def _growing_ms(count: int) -> int:
    """Return the pause after a failure that was the `count`-th in a row."""
    return min(BACKOFF_MS << min(max(count, 1) - 1, 16), BACKOFF_MS_MAX)


def _call(session: Session, program: Program) -> None:
    function, arguments = program.function, session.arguments
    if inspect.iscoroutinefunction(function):
        asyncio.run(_awaited(session, function, arguments))
    else:
        function(session, **arguments)


async def _awaited(
    session: Session, function: Callable[..., Any], arguments: dict[str, Any]
) -> None:
    async with AsyncSession(lambda: session, closes=False) as run:
        await function(run, **arguments)


def _reason(error: BaseException | None) -> str:
    """Return how a program ended; of a stranger's error only its type and place."""
    if error is None:
        return "the program returned, and the run has not ended"
    if isinstance(error, CounterfoilError):
        return f"{type(error).__name__}: {error.message}"
    frames = traceback.extract_tb(error.__traceback__)
    where = f" at {frames[-1].name}, line {frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{where}"


def _tell(
    event: str, session: Session, error: BaseException | None = None, **facts: object
) -> None:
    """Log an event of an open run; of a stranger's error with its traceback."""
    log.info(
        event,
        exc_info=None if isinstance(error, CounterfoilError) else error,
        extra={
            "run": session.run_id,
            "generation": session.generation,
            "lease": session.lease_version,
            **facts,
        },
    )


def _note(event: str, run_id: RunId, **facts: object) -> None:
    log.info(event, extra={"run": run_id, **facts})
