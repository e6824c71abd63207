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
from counterfoil.engine.parts import Parts
from counterfoil.engine.session import Session

log = logging.getLogger("counterfoil.worker")

BACKOFF_MS = 1_000
BACKOFF_MS_MAX = 60_000
"""Pause after a first failure, doubled with each further one up to the bound."""

TRANSIENT_FACTOR = 12
"""How many more times a target may be away than a program may fail before it is parked."""

LOST_MS = 1_000
"""How long a run that another worker took is left alone."""

NOT_OURS_MS = 60_000
"""How long a run whose task has no program here is left alone."""

BROKEN_MS = 600_000
"""How long a run that cannot be trusted or has ended is left alone."""

WAITS_MS = 600_000
"""How long a run that waits for a person and is not frozen is left alone by all."""


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
            _note("lost", run_id, reason=error.message)
            return Verdict(leave_alone_ms=LOST_MS)
        except (UnavailableError, UnknownOutcomeError) as error:
            _note("unavailable", run_id, reason=error.message)
            return Verdict(leave_alone_ms=BACKOFF_MS)
        except CounterfoilError as error:
            log.warning("refused", extra={"run": run_id, "reason": str(error)})
            return Verdict(leave_alone_ms=BROKEN_MS)
        except Exception as error:  # a fault of ours must not end the loop that serves others
            log.exception("broken", extra={"run": run_id, "reason": type(error).__name__})
            return Verdict(leave_alone_ms=BROKEN_MS)

    def _worked(self, run_id: RunId) -> Verdict:
        view = control.show(self._parts, run_id)
        if view.head.status == "terminal":
            return Verdict(leave_alone_ms=BROKEN_MS)
        program = self._programs.get(view.run.task_id)
        if program is None:
            _note("skipped", run_id, reason=f"no program for task {view.run.task_id}")
            return Verdict(leave_alone_ms=NOT_OURS_MS)
        session = self._open(program, run_id)
        with self._lock:
            self._sessions[run_id] = session
        try:
            _tell("claimed", session)
            return self._called(session, program)
        finally:
            with self._lock:
                del self._sessions[run_id]
            with suppress(CounterfoilError):  # the lease ends by itself at the latest
                session.close()

    def _called(self, session: Session, program: Program) -> Verdict:
        if session.state.phase.has_ended:
            return Verdict()
        try:
            _call(session, program)
        except (LostRaceError, IntegrityError):
            raise
        except (Exception, SystemExit) as error:  # a program may not end its worker
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
        pause_ms = min(BACKOFF_MS << min(failure.count - 1, 16), BACKOFF_MS_MAX)
        if failure.is_parked:
            _tell("parked", session, reason=failure.reason, failures=failure.count)
            return Verdict(leave_alone_ms=LOST_MS)
        _tell("failed", session, reason=failure.reason, failures=failure.count, pause_ms=pause_ms)
        session.close(pause_ms=pause_ms)
        return Verdict()


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


def _tell(event: str, session: Session, **facts: object) -> None:
    log.info(
        event,
        extra={
            "run": session.run_id,
            "generation": session.generation,
            "lease": session.lease_version,
            **facts,
        },
    )


def _note(event: str, run_id: RunId, **facts: object) -> None:
    log.info(event, extra={"run": run_id, **facts})
