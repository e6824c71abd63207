"""A run that is held: the verbs of programs and planners, one at a time.

A program calls `do`, `remember`, `verify` and `finish` in its own order; started again
after a crash, each settled position answers from the record. A planner observes,
proposes one action and settles it. Both end in the same machine and the same loop.
"""

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Self

from counterfoil.core.bounds import RESULT_BYTES_MAX
from counterfoil.core.canonical import canonical, digest, encode, restored, storable
from counterfoil.core.errors import (
    ContractError,
    CounterfoilError,
    FrozenError,
    IntegrityError,
    LostRaceError,
    TerminalError,
    UsageError,
    VerificationError,
)
from counterfoil.core.inputs import Garbled, Input, Proposed, Recorded, Remembered, Rules, Step
from counterfoil.core.intent import (
    DIGEST_VERSION,
    Action,
    Fact,
    derived_key,
    parse_action,
)
from counterfoil.core.judge import CANCEL, FINISH, form_intent
from counterfoil.core.machine import apply
from counterfoil.core.run import Phase, Run, environment_of
from counterfoil.core.task import Task
from counterfoil.core.trace import Event, Outcome
from counterfoil.core.words import IntentDigest, Json, identifier
from counterfoil.engine.observing import check_environments, observe_all, observe_live
from counterfoil.engine.performing import Proposal, has_passed, perform_admitted, recorded_for
from counterfoil.engine.pulse import Pulse
from counterfoil.engine.recovery import Opening
from counterfoil.engine.replay import (
    check_same,
    digest_of,
    recorded_event,
    refuse_other_pending,
    settled_event,
)
from counterfoil.engine.settling import Settlement, Settler
from counterfoil.ports import Observation


class Session:
    """One run, held under a lease, until it is closed.

    Use it as a context manager. After an `IntegrityError`, a `LostRaceError` or a
    failed commit every verb raises that error again, and so does leaving the context:
    a framework that swallowed it cannot go on.
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
        self._pulse: Pulse | None = None

    def start(self, *, is_new: bool) -> Self:
        """Compare the world with the checkpoint, and begin to keep the lease.

        Raises:
            UnavailableError: The world cannot be looked at; the lease is given up.
        """
        if self._holds_lease and not is_new and self.state.phase is Phase.RUNNING:
            try:
                check_environments(self._ledger, self._task, self._rules())
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

    @property
    def state(self) -> Run:
        """The run as this session knows it; frozen."""
        return self._ledger.run

    @property
    def run_id(self) -> str:
        """Name of the run."""
        return self._ledger.run.run_id

    # Verbs of programs

    def do(self, kind: str, /, *, key: str | None = None, **arguments: object) -> Json:
        """Execute one action once, and return its result, also after any crash.

        Args:
            kind: A kind that some adapter declares.
            key: Idempotency key; derived from run and position when not given.
            **arguments: Arguments of the kind.

        Raises:
            ContractError, PermissionDeniedError, BudgetError: Refused, counted, traced.
            IdempotencyConflictError: The record holds another intent here.
            StaleObservationError: The world moved before the call; call again.
            UnknownOutcomeError: The call may have happened; open the run again.
            FrozenError: A person must decide.
        """
        with self._verb():
            return self._do(kind, dict(arguments), key)

    def remember(self, name: str, compute: Callable[[], object]) -> Json:
        """Compute a value once and return it ever after.

        Args:
            name: At most 200 printable characters; part of what is compared on replay.
            compute: Called when the position is not settled; must change nothing outside.

        Raises:
            ContractError: The value is larger than 64 KiB.
            IdempotencyConflictError: The record holds something else here.
        """
        with self._verb():
            identifier(name, "name")
            raw = canonical({"remember": name})
            wanted = IntentDigest(f"{DIGEST_VERSION}:{digest(raw)}")
            if self._position < self.state.cursor:
                return self._replayed(self._settled(), wanted, name)
            refuse_other_pending(self.state, None, f"remember {name}")
            self._refuse_if_stopped()
            value = storable(compute())
            if (size := len(encode(value))) > RESULT_BYTES_MAX:
                raise ContractError(
                    f"{name} has {size} bytes, the bound is {RESULT_BYTES_MAX}", self.run_id
                )
            self._commit(Remembered(name=name, digest=wanted, value=value))
            self._position = self.state.cursor
            return restored(value)

    def verify(self) -> Json:
        """Run the task's verification and bind its pass to the world as it is.

        Raises:
            VerificationError: It did not pass, or the task names no verifier.
        """
        with self._verb():
            verifier = self._task.verifier
            if verifier is None:
                raise VerificationError("the task names no verifier", self.run_id)
            result = self._do(verifier.kind, dict(verifier.arguments), None)
            if not has_passed(result):
                raise VerificationError(f"{verifier.kind} did not pass", self.run_id)
            return result

    def finish(self) -> Run:
        """End the run as completed, on live evidence.

        Raises:
            VerificationError: No evidence, or the world moved since.
        """
        with self._verb():
            if self.state.phase is Phase.COMPLETED:
                return self.state
            if self.state.pending is not None:
                self._settler.settle(self._rules())
            seen = observe_all(self._ledger, self._task)
            versions = [observation.state.version for observation in seen.values()]
            facts: dict[Fact, int | str] = {"version": versions[0] if versions else 0}
            self._propose(Action(kind=FINISH, preconditions=facts), observations=seen)
            return self.state

    def cancel(self, reason: str = "") -> Run:
        """End the run as cancelled; nothing may be pending."""
        with self._verb():
            arguments: dict[str, Json] = {"reason": reason} if reason else {}
            action = Action(kind=CANCEL, arguments=arguments, preconditions=self._seen_anywhere())
            self._propose(action)
            return self.state

    # Verbs of planners

    def observe(self) -> dict[str, Observation]:
        """Look at every environment of the task, and take note of what moved.

        Raises:
            FrozenError: An environment is another one, or changed under its version.
        """
        with self._verb():
            self._refuse_if_stopped()
            return observe_live(self._ledger, self._task, self._rules())

    def propose(self, action: Action | str | bytes) -> Proposal:
        """Judge one action; reads are executed, writes become pending.

        Args:
            action: A value, or strict JSON as a planner wrote it.

        Raises:
            CounterfoilError: The refusal; it is counted and traced.
        """
        with self._verb():
            self._refuse_if_stopped()
            if not isinstance(action, Action):
                try:
                    action = parse_action(action)
                except ContractError as error:
                    self._commit(Garbled(error=error))
                    raise
            proposal = self._propose(action, recorded_for(self._ledger, action))
            self._position = self.state.cursor
            return proposal

    def settle(self) -> Settlement | None:
        """Execute or reconcile the pending action; None when nothing is pending.

        Raises:
            UnknownOutcomeError: Nothing is certain yet; settle again later.
            FrozenError: A person must decide.
            RefusedError: The action was given up; plan anew.
        """
        with self._verb():
            self._refuse_if_stopped()
            settled = self._settler.settle(self._rules())
            self._position = self.state.cursor
            return settled

    # The run's end of the session

    def flush(self) -> None:
        """Make everything that happened durable."""
        with self._verb():
            self._ledger.flush()

    def close(self) -> None:
        """Make everything durable, give the lease up, stop the background thread."""
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
            self._ledger.release()

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

    # How verbs work

    @contextmanager
    def _verb(self) -> Generator[None]:
        with self._lock:
            if self._is_closed:
                raise UsageError("the session is closed", self.run_id)
            fatal = self._fatal or self._ledger.broken
            if fatal is not None:
                raise fatal
            try:
                yield
            except (IntegrityError, LostRaceError) as error:
                self._fatal = error
                raise

    def _rules(self) -> Rules:
        return Rules(task=self._task, kinds=self._parts.kinds, now_ms=self._parts.clock.now_ms())

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

    def _settled(self) -> Event:
        return settled_event(self._ledger, self._position)

    def _do(self, kind: str, arguments: dict[str, Json], key: str | None) -> Json:
        known = recorded_event(self._ledger, key) if key else None
        if known is None and self._position < self.state.cursor:
            known = self._settled()
        if known is not None:
            return self._replayed(known, digest_of(self._ledger, kind, arguments), kind)
        self._refuse_if_stopped()
        if self.state.pending is not None:
            return self._settle_earlier(kind, arguments, key)
        spec = self._parts.kinds.get(kind)
        if key is None and spec is not None and spec.risk.writes:
            run = self.state
            key = derived_key(run.salt, run.run_id, run.cursor, run.attempt)
        env = environment_of(self.state, spec.adapter) if spec else None
        seen: dict[Fact, int | str] = {"version": env.version if env else 0}
        action = Action(kind=kind, arguments=arguments, preconditions=seen, key=key)
        result = self._propose(action).result
        if spec is not None and spec.risk.writes:
            settled = self._settler.settle(self._rules())
            result = settled.receipt.result if settled else None
        self._position = self.state.cursor
        return restored(result)

    def _settle_earlier(self, kind: str, arguments: dict[str, Json], key: str | None) -> Json:
        """Settle what an earlier session left, if this call is that very action."""
        pending = self.state.pending
        wanted = digest_of(self._ledger, kind, arguments)
        if pending is None or pending.digest != wanted or key not in (None, pending.key):
            refuse_other_pending(self.state, wanted, kind)
        spec = self._parts.kinds[kind]
        adapter = environment_of(self.state, spec.adapter)
        _, volatile = form_intent(spec, arguments, adapter.instance if adapter else "")
        self._settler.supply(volatile)
        settled = self._settler.settle(self._rules())
        self._position = self.state.cursor
        return restored(settled.receipt.result if settled else None)

    def _replayed(self, event: Event, wanted: IntentDigest, what: str) -> Json:
        """Answer from the record, if this call is what was recorded."""
        check_same(self._ledger, event, wanted, what)
        if event.position == self._position:
            self._position += 1
        return restored(event.receipt.result if event.receipt else event.result)

    def _propose(
        self,
        action: Action,
        recorded: Recorded | None = None,
        observations: dict[str, Observation] | None = None,
    ) -> Proposal:
        run = self.state
        action_id = f"a{run.spent.proposals + 1}"
        if observations is None:
            is_finish = action.kind == FINISH and run.pending is None
            observations = observe_all(self._ledger, self._task) if is_finish else {}
        given = Proposed(
            action=action,
            action_id=action_id,
            recorded=recorded,
            environments=tuple(seen.state for seen in observations.values()),
            facts={name: seen.facts for name, seen in observations.items()},
        )
        step = apply(run, given, self._rules())
        result: Json = None
        if step.admitted is not None and not step.events:
            step, result = perform_admitted(
                self._ledger, self._task, step, action_id, self._rules()
            )
        self._ledger.commit(step)
        if step.error is not None:
            raise step.error
        if step.admitted is not None and self.state.pending is not None:
            self._settler.begin(step.admitted.volatile)
        if recorded is not None and recorded.receipt is not None:
            result = recorded.receipt.result
        outcome = step.events[0].outcome
        return Proposal(
            outcome=outcome,
            action_id=action_id,
            result=restored(result),
            replayed=outcome is Outcome.REPLAYED,
        )

    def _seen_anywhere(self) -> dict[Fact, int | str]:
        states = self.state.environments
        return {"version": states[0].version} if states else {"version": 0}
