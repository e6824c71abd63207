"""Settle the pending intent: the loop that asks the core and performs what it says.

Recovery is not a mode. The loop starts with what the session knows; after a crash that
is nothing, and the core then asks by key before it lets anything be executed.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace

from counterfoil.core.decide import (
    NOTHING,
    Ask,
    Conclude,
    Execute,
    Forbid,
    Idle,
    Known,
    Look,
    SendAgain,
    next_effect,
)
from counterfoil.core.errors import (
    CounterfoilError,
    FrozenError,
    InvariantError,
    PermissionDeniedError,
    StaleObservationError,
    UnavailableError,
    UnknownOutcomeError,
)
from counterfoil.core.inputs import CaseOpened, GivenUp, ReceiptSeen, Resent, Rules
from counterfoil.core.intent import EnvironmentState, Pending
from counterfoil.core.machine import apply
from counterfoil.core.receipt import Answer, Receipt, found, receipt_fingerprint
from counterfoil.core.reconcile import Adopt, GiveUp, Review, Wait
from counterfoil.core.review import Case, CaseReason
from counterfoil.core.run import environment_of
from counterfoil.core.task import Task
from counterfoil.core.trace import Outcome
from counterfoil.core.words import Digest, Json, Level
from counterfoil.engine import acting
from counterfoil.engine.ledger import Ledger

log = logging.getLogger("counterfoil.engine")

EFFECTS_MAX = 64
"""Turns of the loop: eight calls, each asked, looked at and recorded."""

SENDS_PER_SETTLING = 2
"""Calls of one settling: a target that loses two in a row is better asked later."""

ASKABLE = (Level.TRANSACTIONAL, Level.DEDUPLICATING)
"""Levels whose receipt may ride with the next commit: it can be asked for again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Settlement:
    """How a pending intent ended.

    Attributes:
        outcome: "executed", "reconciled" or "replayed".
        receipt: The receipt that was accepted.
    """

    outcome: Outcome
    receipt: Receipt


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
            pending = ledger.run.pending
            spec = rules.kinds.get(pending.intent.kind) if pending else None
            now_ms = max(rules.now_ms, ledger.run.floor_ms)
            effect = next_effect(ledger.run, self._known, spec, now_ms)
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
                    raise UnknownOutcomeError(
                        f"{sends} calls ended without an answer and left no effect",
                        ledger.run.run_id,
                        effect.pending.key,
                        move="settle it later; it is asked by key first",
                    )
                case SendAgain():
                    ledger.commit(apply(ledger.run, Resent(), rules))
                    self._known = Known(is_unsent=True)
                case Execute():
                    sends += 1
                    self._execute(effect.pending, rules)
                case Conclude():
                    return self._conclude(effect, rules)
        raise InvariantError("settling does not come to an end", ledger.run.run_id)

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
        may_ride = ledger.parts.merges and is_live and pending.level in ASKABLE
        if may_ride and not step.run.phase.has_ended:
            ledger.stage(step)
        else:
            ledger.commit(step)
        self._known = NOTHING
        return Settlement(outcome=step.events[0].outcome, receipt=verdict.receipt)

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


def freeze(
    ledger: Ledger,
    rules: Rules,
    *,
    reason: CaseReason,
    finding: str,
    adapter: str,
    receipt: Receipt | None = None,
    observed: EnvironmentState | None = None,
) -> None:
    """Open a case with all evidence, make it durable, and say so.

    Raises:
        FrozenError: Always, once the case is durable.
    """
    run = ledger.run
    case = Case(
        reason=reason,
        finding=finding,
        challenge=ledger.parts.nonce(),
        pending=run.pending,
        receipt=receipt,
        receipt_digest=receipt_fingerprint(receipt) if receipt else Digest(""),
        recorded=environment_of(run, adapter),
        observed=observed,
        opened_at_ms=max(rules.now_ms, run.floor_ms),
    )
    ledger.commit(apply(run, CaseOpened(case=case), rules))
    log.warning("run %s: frozen for review: %s", run.run_id, reason.value)
    raise FrozenError(f"{reason}: {finding}", run.run_id, run.pending.key if run.pending else "")


def _outcome_of(error: CounterfoilError) -> Outcome:
    match error:
        case StaleObservationError():
            return Outcome.STALE_OBSERVATION
        case PermissionDeniedError():
            return Outcome.PERMISSION_DENIED
        case _:
            return Outcome.EXECUTION_ERROR
