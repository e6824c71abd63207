"""What every kind of session is: a run held under a lease, one verb at a time."""

import threading
from contextlib import suppress
from types import TracebackType
from typing import Self

from msgspec import UnsetType

from counterfoil.core.errors import (
    CounterfoilError,
    FrozenError,
    IntegrityError,
    InvariantError,
    LeaseLostError,
    LostRaceError,
    TerminalError,
    UsageError,
)
from counterfoil.core.inputs import Input, Rules, Step, Stumbled
from counterfoil.core.machine import apply
from counterfoil.core.run import Failure, Phase, Run, standing_failure
from counterfoil.core.task import Task
from counterfoil.core.words import Json
from counterfoil.engine.observing import check_environments
from counterfoil.engine.pulse import Pulse
from counterfoil.engine.recovery import Opening
from counterfoil.engine.settling import Settler
from counterfoil.engine.statements import take_statements


class HeldRun:
    """Owns the lease, the lock and the end of a session.

    After an `IntegrityError`, a `LostRaceError` or a failed commit every verb raises that
    error again, and so does leaving the context: a framework that swallowed it cannot
    go on.
    """

    def __init__(self, *, opening: Opening, task: Task) -> None:
        self._ledger = opening.ledger
        self._parts = opening.ledger.parts
        self._task = task
        self._holds_lease = opening.holds_lease
        self._position = 0
        self._settler = Settler(ledger=self._ledger, task=task, is_fenced=not opening.is_new)
        self._lock = threading.RLock()
        self._fatal: CounterfoilError | None = None
        self._is_closed = False
        self._is_asked_to_stop = False
        self._pulse: Pulse | None = None

    def start(self, *, is_new: bool) -> Self:
        """Compare the world with the checkpoint, hear people, and begin to keep the lease.

        Raises:
            UnavailableError: The world cannot be looked at; the lease is given up.
        """
        if self._holds_lease and not is_new:
            try:
                self._look_around()
            except FrozenError:
                pass  # the case is open and durable; every verb says so
            except CounterfoilError:
                with suppress(CounterfoilError):  # the lease ends by itself at the latest
                    self.close()
                raise
        if self._holds_lease and self._parts.runs_background:
            self._pulse = Pulse(ledger=self._ledger, lock=self._lock)
            self._pulse.start()
        return self

    def _look_around(self) -> None:
        if self.state.phase is Phase.RUNNING:
            check_environments(self._ledger, self._task, self._rules())
        else:
            take_statements(self._ledger, self._task, self._rules())

    @property
    def state(self) -> Run:
        """The run as this session knows it; frozen."""
        return self._ledger.run

    @property
    def run_id(self) -> str:
        """Name of the run."""
        return self._ledger.run.run_id

    def flush(self) -> None:
        """Make everything that happened durable."""
        with self._verb():
            self._ledger.flush()

    @property
    def lease_version(self) -> int:
        """Version of the lease that this session holds, or held."""
        return self._ledger.head.lease_version

    @property
    def generation(self) -> int:
        """Number of the newest checkpoint that this session knows."""
        return self._ledger.head.generation

    @property
    def arguments(self) -> dict[str, Json]:
        """What the run was submitted with; empty when nobody submitted it."""
        given = self.state.arguments
        return {} if isinstance(given, UnsetType) else dict(given)

    def ask_to_stop(self) -> None:
        """Have the next verb raise `LeaseLostError`, so that the program comes to an end.

        Safe to call from another thread. A verb that is under way goes on to its end.
        """
        self._is_asked_to_stop = True

    def stumble(self, reason: str, *, tries_max: int) -> Failure:
        """Put it on record that the program failed here, and park the run if it is enough.

        Args:
            reason: How, for people; no payload.
            tries_max: Failures in a row at one position, after which workers leave the
                run to a person; at least 1.

        Raises:
            FrozenError, TerminalError: The run takes no such note.
        """
        self._is_asked_to_stop = False
        with self._verb():
            self._commit(Stumbled(reason=reason, tries_max=max(1, tries_max)))
            failure = standing_failure(self.state)
        if failure is None:
            raise InvariantError("a failure was not kept", self.run_id)
        return failure

    def close(self, pause_ms: int = 0) -> None:
        """Make everything durable, give the lease up, stop the background thread.

        Args:
            pause_ms: How long no worker claims the run by itself.
        """
        if self._is_closed:
            return
        self._is_closed = True
        if self._pulse is not None:
            self._pulse.stop()
        with self._lock:
            if not self._holds_lease or self._ledger.broken is not None:
                return
            if self._fatal is None:
                self._ledger.flush()
            self._ledger.release(pause_ms)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
        if error is None and self._fatal is not None:
            raise self._fatal

    def _verb(self) -> "_Verb":
        return _Verb(self)

    def begin_verb(self) -> None:
        """Keep other threads out, if the session can still act.

        Raises:
            CounterfoilError: It cannot, and why.
        """
        self._lock.acquire()
        fatal = self._fatal or self._ledger.broken
        if self._is_closed:
            fatal = UsageError("the session is closed", self.run_id)
        elif fatal is None and self._is_asked_to_stop:
            fatal = LeaseLostError("the worker is stopping and gives the run up", self.run_id)
        if fatal is not None:
            self._lock.release()
            raise fatal

    def end_verb(self, error: BaseException | None) -> None:
        """Let other threads in, and remember what nothing can follow."""
        if isinstance(error, IntegrityError | LostRaceError):
            self._fatal = error
        self._lock.release()

    def _rules(self) -> Rules:
        parts = self._parts
        return Rules(
            task=self._task, kinds=parts.kinds, now_ms=parts.clock.now_ms(), roots=parts.roots
        )

    def _hear(self) -> None:
        """Apply what people have signed, where the run waits for a person.

        Raises:
            ApprovalError: A person denied the pending action.
        """
        run = self.state
        is_waiting = run.pending is not None and run.pending.approvals_required > 0
        if is_waiting or run.phase is Phase.NEEDS_REVIEW:
            denial = take_statements(self._ledger, self._task, self._rules())
            if denial is not None:
                raise denial

    def _commit(self, given: Input) -> Step:
        step = apply(self.state, given, self._rules())
        self._ledger.commit(step)
        return step

    def _refuse_if_stopped(self) -> None:
        run = self.state
        if run.phase.has_ended:
            raise TerminalError(f"the run has {run.phase}: {run.reason}", run.run_id)
        if run.phase is Phase.NEEDS_REVIEW:
            raise FrozenError(
                f"the run is in review: {run.case.finding if run.case else ''}", run.run_id
            )


class _Verb:
    """One verb of a session, from its first look to its end."""

    __slots__ = ("_run",)

    def __init__(self, run: HeldRun) -> None:
        self._run = run

    def __enter__(self) -> None:
        self._run.begin_verb()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._run.end_verb(error)
