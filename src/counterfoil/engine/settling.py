"""Settle the pending intent: the loop that asks the core and performs what it says.

Recovery is not a mode. The loop starts with what the session knows; after a crash that
is nothing, and the core then asks by key before it lets anything be executed.
"""

import logging
from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from counterfoil.core.authority import approval_lack
from counterfoil.core.decide import (
    NOTHING,
    Ask,
    Await,
    Conclude,
    Effect,
    Execute,
    Forbid,
    Idle,
    Known,
    Look,
    Perform,
    Release,
    SendAgain,
    next_effect,
)
from counterfoil.core.errors import (
    ApprovalError,
    CounterfoilError,
    InvariantError,
    PermissionDeniedError,
    StaleObservationError,
    UnavailableError,
    UnknownOutcomeError,
)
from counterfoil.core.inputs import (
    Asked,
    GivenUp,
    Lapsed,
    ReceiptSeen,
    Released,
    Resent,
    Rules,
    Step,
)
from counterfoil.core.intent import EnvironmentState, Pending
from counterfoil.core.judge import Admitted
from counterfoil.core.machine import apply
from counterfoil.core.receipt import Answer, Receipt, found
from counterfoil.core.reconcile import Adopt, GiveUp, Review, Wait
from counterfoil.core.task import Task
from counterfoil.core.trace import Outcome
from counterfoil.core.words import Json, Level, RunId
from counterfoil.engine import acting
from counterfoil.engine.freezing import freeze
from counterfoil.engine.ledger import Ledger
from counterfoil.engine.performing import perform_admitted

log = logging.getLogger("counterfoil.engine")

EFFECTS_MAX = 64
"""Turns of the loop: eight calls, each asked, looked at and recorded."""

SENDS_PER_SETTLING = 2
"""Calls of one settling: a target that loses two in a row is better asked later."""

ASKABLE = (Level.TRANSACTIONAL, Level.DEDUPLICATING)
"""Levels whose receipt may ride with the next commit: it can be asked for again."""


class Settlement(msgspec.Struct, frozen=True, kw_only=True):
    """How a pending intent ended.

    Attributes:
        outcome: "executed", "reconciled" or "replayed".
        receipt: The receipt that was accepted; None for a read.
        result: What the target answered.
    """

    outcome: Outcome
    receipt: Receipt | None
    result: Json = None


class Settler:
    """Owns what one session knows of its pending intent."""

    def __init__(self, *, ledger: Ledger, task: Task, is_fenced: bool) -> None:
        self._ledger = ledger
        self._task = task
        self._known = replace(NOTHING, is_fenced=is_fenced)
        self._volatile: Mapping[str, Json] = {}

    def begin(self, volatile: Mapping[str, Json]) -> None:
        """Note that the pending intent is durable and this session has not sent it."""
        self._known = Known(is_unsent=True)
        self._volatile = volatile

    def supply(self, volatile: Mapping[str, Json]) -> None:
        """Bring volatile arguments for a pending intent of an earlier session."""
        self._volatile = volatile

    def settle(self, rules: Rules) -> Settlement | None:
        """Bring the pending intent to its end; None when there is none.

        Raises:
            UnknownOutcomeError: Nothing is certain yet; settle again later.
            UnavailableError: The call did not leave; settle again later.
            FrozenError: A person must decide; the case is open.
            RefusedError: The intent was given up and sealed into the trace.
        """
        ledger, sends = self._ledger, 0
        for _ in range(EFFECTS_MAX):
            rules = replace(rules, now_ms=max(rules.now_ms, ledger.parts.clock.now_ms()))
            effect = self._next(rules)
            match effect:
                case Idle():
                    return None
                case Ask():
                    self._known = replace(
                        self._known, answer=acting.look_up(ledger, effect.pending)
                    )
                case Look():
                    self._known = replace(self._known, observed=self._look(effect.pending))
                case Forbid():
                    answer = acting.forbid(ledger, effect.pending)
                    is_forbidden = answer.answer is Answer.ABSENT
                    self._known = replace(self._known, answer=answer, is_forbidden=is_forbidden)
                case SendAgain() if sends >= SENDS_PER_SETTLING:
                    raise _unanswered(ledger.run.run_id, effect.pending, sends)
                case SendAgain() | Release():
                    given = Released() if isinstance(effect, Release) else self._resent()
                    ledger.commit(apply(ledger.run, given, rules))
                    self._known = Known(is_unsent=True)
                case Await():
                    self._forget()
                    self.note_lapse(rules)
                    raise _waits(ledger.run.run_id, effect.pending, effect.lack)
                case Perform():
                    return self._perform(effect.pending, rules)
                case Execute():
                    sends += 1
                    self._execute(effect.pending, rules)
                case Conclude():
                    return self._conclude(effect, rules)
        raise InvariantError("settling does not come to an end", ledger.run.run_id)

    def _next(self, rules: Rules) -> Effect:
        run = self._ledger.run
        spec = rules.kinds.get(run.pending.intent.kind) if run.pending else None
        now_ms = max(rules.now_ms, run.floor_ms)
        return next_effect(run, self._known, spec, now_ms, approval_lack(run, rules))

    def _resent(self) -> Resent:
        answer = self._known.answer
        return Resent(answer="" if answer is None else answer.answer)

    def _forget(self) -> None:
        """Drop what was seen of target and world: it is old by the time a person answers."""
        self._known = Known(is_unsent=self._known.is_unsent, is_fenced=self._known.is_fenced)

    def note_lapse(self, rules: Rules) -> None:
        """Put it on record, once, that the time of bound approvals was seen to be over."""
        run = self._ledger.run
        lack = approval_lack(run, rules)
        if lack and not approval_lack(run, replace(rules, now_ms=run.floor_ms)):
            self._ledger.commit(apply(run, Lapsed(reason=lack), rules))

    def _look(self, pending: Pending) -> EnvironmentState:
        seen = acting.observe(self._ledger.parts, self._task, pending.intent.adapter).state
        return acting.merged(pending.prestate, seen)

    def _execute(self, pending: Pending, rules: Rules) -> None:
        spec, unsent = rules.kinds[pending.intent.kind], self._known
        self._known = NOTHING  # an interrupt leaves a call that may have happened
        ended = acting.execute(self._ledger, self._task, pending, spec, self._volatile)
        if ended.is_unsent:
            self._known = unsent
            raise UnavailableError(ended.reason, self._ledger.run.run_id, pending.key)
        if ended.receipt is not None:
            answer = found(ended.receipt)
            self._known = Known(answer=answer, observed=ended.receipt.poststate, is_live=True)
        else:
            self._known = Known(answer=ended.conflict, refusal=ended.refusal)

    def _perform(self, pending: Pending, rules: Rules) -> Settlement:
        """Execute an approved read or verification; it is settled in one commit."""
        spec = rules.kinds[pending.intent.kind]
        admitted = Admitted(
            intent=pending.intent,
            digest=pending.digest,
            spec=spec,
            volatile=dict(self._volatile),
            prestate=pending.prestate,
        )
        step = Step(run=self._ledger.run, admitted=admitted)
        done, result = perform_admitted(self._ledger, self._task, step, pending.action_id, rules)
        self._ledger.commit(done)
        if done.error is not None:
            raise done.error
        return Settlement(outcome=done.events[0].outcome, receipt=None, result=result)

    def _conclude(self, effect: Conclude, rules: Rules) -> Settlement:
        pending, verdict, known = effect.pending, effect.verdict, self._known
        ledger = self._ledger
        match verdict:
            case Adopt():
                return self._adopt(pending, verdict, rules)
            case GiveUp():
                self._give_up(pending, verdict, rules)
            case Review():
                self._known = NOTHING
                self._open_case(pending, verdict, rules)
            case Wait():
                self._known = Known(is_fenced=known.is_fenced)
                if known.answer is not None:
                    asked = Asked(answer=known.answer.answer, reason=verdict.reason)
                    ledger.commit(apply(ledger.run, asked, rules))
                until = f", ask again after {verdict.until_ms}" if verdict.until_ms else ""
                raise UnknownOutcomeError(
                    f"{verdict.reason}{until}", ledger.run.run_id, pending.key
                )
            case _:
                raise InvariantError(f"{verdict} is no conclusion", ledger.run.run_id)
        raise InvariantError("a conclusion was not raised", ledger.run.run_id)

    def _adopt(self, pending: Pending, verdict: Adopt, rules: Rules) -> Settlement:
        ledger, is_live = self._ledger, self._known.is_live
        given = ReceiptSeen(
            receipt=verdict.receipt, was_recovered=not is_live, observed=verdict.observed
        )
        step = apply(ledger.run, given, rules)
        spec = rules.kinds[pending.intent.kind]
        is_askable = pending.level in ASKABLE and spec.has_look_up
        may_ride = ledger.parts.merges and is_live and is_askable
        if may_ride and not step.run.phase.has_ended:
            ledger.stage(step)
        else:
            ledger.commit(step)
        self._known = NOTHING
        receipt = verdict.receipt
        return Settlement(outcome=step.events[0].outcome, receipt=receipt, result=receipt.result)

    def _give_up(self, pending: Pending, verdict: GiveUp, rules: Rules) -> None:
        ledger, error = self._ledger, verdict.error
        observed = verdict.observed
        if observed is None:
            observed = self._look(pending)
        given = GivenUp(outcome=_outcome_of(error), error=error, observed=observed)
        ledger.commit(apply(ledger.run, given, rules))
        self._known = NOTHING
        raise error

    def _open_case(self, pending: Pending, verdict: Review, rules: Rules) -> None:
        freeze(
            self._ledger,
            rules,
            reason=verdict.reason,
            finding=verdict.finding,
            receipt=verdict.receipt,
            adapter=pending.intent.adapter,
            observed=verdict.observed,
        )


def _outcome_of(error: CounterfoilError) -> Outcome:
    match error:
        case StaleObservationError():
            return Outcome.STALE_OBSERVATION
        case PermissionDeniedError():
            return Outcome.PERMISSION_DENIED
        case _:
            return Outcome.EXECUTION_ERROR


def _unanswered(run_id: RunId, pending: Pending, sends: int) -> UnknownOutcomeError:
    return UnknownOutcomeError(
        f"{sends} calls ended without an answer and left no effect",
        run_id,
        pending.key,
        move="settle it later; it is asked by key first",
    )


def _waits(run_id: RunId, pending: Pending, lack: str) -> ApprovalError:
    return ApprovalError(
        f"it waits for a person: {lack}",
        run_id,
        pending.key,
        move="have it approved, see `counterfoil requests`; then settle it",
    )
