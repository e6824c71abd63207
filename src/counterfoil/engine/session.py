"""A run that is held: the verbs of programs and planners, one at a time.

A program calls `do`, `remember`, `verify` and `finish` in its own order; started again
after a crash, each settled position answers from the record. A planner observes,
proposes one action and settles it. Both end in the same machine and the same loop.
"""

import time
from collections.abc import Callable

from counterfoil.core.approval import Request
from counterfoil.core.authority import approval_lack, pending_request
from counterfoil.core.bounds import RESULT_BYTES_MAX
from counterfoil.core.canonical import canonical, digest, encode, restored, storable
from counterfoil.core.errors import (
    ContractError,
    VerificationError,
)
from counterfoil.core.inputs import Garbled, Proposed, Recorded, Remembered, Withdrawn
from counterfoil.core.intent import (
    DIGEST_VERSION,
    Action,
    Fact,
    derived_key,
    parse_action,
)
from counterfoil.core.judge import CANCEL, FINISH, approvals_required, form_intent
from counterfoil.core.machine import apply
from counterfoil.core.run import Phase, Run, environment_of
from counterfoil.core.trace import Event, Outcome
from counterfoil.core.words import IntentDigest, Json, free_text, identifier
from counterfoil.engine import acting
from counterfoil.engine.held import HeldRun
from counterfoil.engine.observing import observe_all, observe_live
from counterfoil.engine.performing import Proposal, has_passed, perform_admitted, recorded_for
from counterfoil.engine.replay import (
    check_same,
    digest_of,
    recorded_event,
    refuse_other_pending,
    settled_event,
)
from counterfoil.engine.settling import Settlement
from counterfoil.ports import Observation

WAIT_POLL_MS = 200
"""Pause between two looks at the inbox of a run that somebody stays with."""


class Session(HeldRun):
    """One run, held under a lease, until it is closed; use it as a context manager."""

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
            return self._settle()

    def wait(self, *, timeout_ms: int) -> Settlement | None:
        """Stay until a person has decided and the pending action is settled.

        Args:
            timeout_ms: How long to stay; the run itself waits as long as it takes.

        Returns:
            How it was settled; None when nothing is pending or the time is over.

        Raises:
            ApprovalError: A person denied it.
            FrozenError: The run is in review, and still is when the time is over.
        """
        clock = self._parts.clock
        ends_at_ms = clock.monotonic_ms() + timeout_ms
        while True:
            is_over = clock.monotonic_ms() >= ends_at_ms
            with self._verb():
                self._hear()
                rules = self._rules()
                self._settler.note_lapse(rules)
                run, lack = self.state, approval_lack(self.state, rules)
                if run.phase is not Phase.NEEDS_REVIEW and not lack:
                    return self._settle()
                if is_over and run.phase is not Phase.NEEDS_REVIEW:
                    return None
                if is_over:
                    self._refuse_if_stopped()
            time.sleep(WAIT_POLL_MS / 1000)

    def withdraw(self, reason: str = "withdrawn by the planner") -> Run:
        """Take back the pending action, if it has not been sent.

        Raises:
            ApprovalError: It may have been sent, or nothing waits.
        """
        with self._verb():
            self._refuse_if_stopped()
            self._commit(Withdrawn(reason=free_text(reason, "reason")))
            return self.state

    @property
    def request(self) -> Request | None:
        """What a person is asked at present; None when nothing waits for one."""
        pending = self.state.pending
        if pending is None or not pending.approvals_required:
            return None
        return pending_request(self.state)

    def _settle(self) -> Settlement | None:
        self._hear()
        self._refuse_if_stopped()
        settled = self._settler.settle(self._rules())
        self._position = self.state.cursor
        return settled

    # How verbs work

    def _settled(self) -> Event:
        return settled_event(self._ledger, self._position)

    def _do(self, kind: str, arguments: dict[str, Json], key: str | None) -> Json:
        known = recorded_event(self._ledger, key) if key else None
        if known is None and self._position < self.state.cursor:
            known = self._settled()
        if known is not None:
            return self._replayed(known, digest_of(self._ledger, kind, arguments), kind)
        self._hear()
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
        if self._is_pending():
            settled = self._settler.settle(self._rules())
            result = settled.result if settled else None
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
        return restored(settled.result if settled else None)

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
        challenge, preview = self._asking(action)
        if observations is None:
            is_finish = action.kind == FINISH and run.pending is None
            observations = observe_all(self._ledger, self._task) if is_finish else {}
        given = Proposed(
            action=action,
            action_id=action_id,
            recorded=recorded,
            environments=tuple(seen.state for seen in observations.values()),
            facts={name: seen.facts for name, seen in observations.items()},
            challenge=challenge,
            preview=preview,
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

    def _asking(self, action: Action) -> tuple[str, str]:
        """Return a challenge and a preview for an action that a person must allow."""
        spec = self._parts.kinds.get(action.kind)
        if spec is None or not approvals_required(self._task, spec):
            return "", ""
        shown = acting.preview(self._parts, spec.adapter, spec.name, action.arguments)
        return self._parts.nonce(), shown

    def _is_pending(self) -> bool:
        return self.state.pending is not None

    def _seen_anywhere(self) -> dict[Fact, int | str]:
        states = self.state.environments
        return {"version": states[0].version} if states else {"version": 0}
