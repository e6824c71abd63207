"""What evidence about a pending intent means.

One table: what the adapter says of the key, what the environment looks like, and what
the adapter's level can prove, against what must happen. It never guesses: where the
evidence does not suffice, the verdict is to wait or to ask a person.

Argued in docs/explanation/levels.md and docs/explanation/protocol.md.
"""

import msgspec
from msgspec.structs import replace

from counterfoil.core.approval import CLOCKS_APART_MS
from counterfoil.core.bounds import SENDS_MAX
from counterfoil.core.errors import CounterfoilError, StaleObservationError
from counterfoil.core.intent import EnvironmentState, KindSpec, Pending
from counterfoil.core.receipt import Answer, LookUp, Receipt, differences, missing_fields
from counterfoil.core.review import CaseReason
from counterfoil.core.words import Level, RunId

RETENTION_MARGIN_MS = 60_000
"""Stop trusting a key this long before its target may forget it."""


class Adopt(msgspec.Struct, frozen=True, kw_only=True):
    """The effect is done: take the receipt; `observed` is set when the world moved since."""

    receipt: Receipt
    observed: EnvironmentState | None = None


class Send(msgspec.Struct, frozen=True, kw_only=True):
    """The effect is not done and cannot land by itself: call again under the same key."""


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing is certain yet: ask again, at `until_ms` if that is known."""

    reason: str
    until_ms: int | None = None


class MakeImpossible(msgspec.Struct, frozen=True, kw_only=True):
    """The effect is not done and is to be given up: have the adapter forbid the key."""


class GiveUp(msgspec.Struct, frozen=True, kw_only=True):
    """The effect is not done and never will be: seal the intent as superseded."""

    error: CounterfoilError
    observed: EnvironmentState | None = None


class Review(msgspec.Struct, frozen=True, kw_only=True):
    """A person must decide."""

    reason: CaseReason
    finding: str
    receipt: Receipt | None = None
    observed: EnvironmentState | None = None


Verdict = Adopt | Send | Wait | MakeImpossible | GiveUp | Review


class Footing(msgspec.Struct, frozen=True, kw_only=True):
    """On what ground the evidence stands.

    Attributes:
        fenced: This session took a lease after the last call may have left, and the
            adapter knows it.
        forbidden: The adapter has made the key impossible.
        now_ms: UTC, never before the run's floor.
        refusal: What the adapter said when it refused the latest call outright.
        live: The receipt answers a call that this session made.
    """

    fenced: bool
    forbidden: bool
    now_ms: int
    refusal: CounterfoilError | None = None
    live: bool = False


def reconcile(
    pending: Pending,
    run_id: RunId,
    answer: LookUp,
    observed: EnvironmentState,
    *,
    spec: KindSpec,
    footing: Footing,
) -> Verdict:
    """Return what must happen to a pending intent, given the evidence.

    Args:
        pending: The intent in doubt.
        run_id: Its run.
        answer: What the adapter says of the key.
        observed: The environment as it is, from the receipt or a fresh look.
        spec: The kind's declaration.
        footing: What else is certain.
    """
    match answer.answer:
        case Answer.FOUND | Answer.FOUND_OTHER:
            if pending.sends > 1 and not spec.can_be_asked:
                footing = replace(footing, live=False)  # it may answer an earlier call
            return _judge_receipt(pending, run_id, answer, observed, footing)
        case Answer.UNKNOWN if answer.is_final:
            return _unknown(answer.reason or "the target will never know", observed)
        case Answer.UNKNOWN if not spec.can_be_asked:
            return _without_asking(pending, observed, spec, footing)
        case Answer.UNKNOWN:
            return Wait(reason=answer.reason or "the look-up gave no answer")
        case Answer.ABSENT:
            moved = movement(pending.prestate, observed)
            if moved in ("instance", "account"):
                return _drift(pending, observed, moved)
            if moved or footing.refusal is not None:
                stale = StaleObservationError(
                    f"the {moved} changed before it was sent", run_id, pending.key
                )
                giving_up = GiveUp(error=footing.refusal or stale, observed=observed)
                return _abandon(pending, giving_up, observed, spec, footing)
            return _send_again(pending, observed, spec, footing)


def _judge_receipt(
    pending: Pending,
    run_id: RunId,
    answer: LookUp,
    observed: EnvironmentState,
    footing: Footing,
) -> Verdict:
    receipt = answer.receipt
    if receipt is None and answer.answer is Answer.FOUND_OTHER:
        return Review(
            reason=CaseReason.INTENT_CONFLICT,
            finding=answer.reason or "the target says that the key holds another effect",
            observed=observed,
        )
    if receipt is None:
        return Wait(reason="the look-up says found and shows no receipt")
    if missing := missing_fields(receipt):
        return Review(
            reason=CaseReason.INCOMPLETE_RECEIPT,
            finding=f"the receipt lacks {', '.join(missing)}",
            receipt=receipt,
            observed=observed,
        )
    fields = differences(pending, run_id, receipt)
    if fields or answer.answer is Answer.FOUND_OTHER:
        return Review(
            reason=CaseReason.INTENT_CONFLICT,
            finding=f"the key holds another effect: {', '.join(fields) or 'said the adapter'}",
            receipt=receipt,
            observed=observed,
        )
    moved = movement(receipt.poststate, observed)
    for other in (movement(pending.prestate, receipt.poststate), moved):
        if other in ("instance", "account"):
            return _drift(pending, observed, other, receipt)
    doubt = _judge_authority(pending, receipt, observed, footing)
    return doubt or Adopt(receipt=receipt, observed=observed if moved else None)


def _judge_authority(
    pending: Pending, receipt: Receipt, observed: EnvironmentState, footing: Footing
) -> Review | None:
    """Refuse a receipt that does not prove a commit under its approvals, in their time.

    A target that keeps no evidence is believed as long as the answer comes to the very
    call that was made under the approvals, and before they end.
    """
    if not pending.approvals_required:
        return None
    ends_at_ms = pending.released_until_ms
    committed_at_ms, statement = receipt.committed_at_ms, receipt.statement
    if footing.live and committed_at_ms <= 0:
        committed_at_ms = footing.now_ms
    if footing.live and not statement:
        statement = pending.released
    reason, finding = CaseReason.INCOMPLETE_RECEIPT, ""
    if committed_at_ms <= 0:
        finding = "the receipt does not say when it was committed"
    elif not statement or statement != pending.released:
        finding = "the receipt does not name the approvals it was committed under"
    elif committed_at_ms < pending.first_sent_at_ms - CLOCKS_APART_MS:
        finding = f"committed at {committed_at_ms}, before it can have been sent"
    elif committed_at_ms >= ends_at_ms:
        reason = CaseReason.LATE_COMMIT
        finding = f"committed at {committed_at_ms}, the approval ended at {ends_at_ms}"
    if not finding:
        return None
    return Review(reason=reason, finding=finding, receipt=receipt, observed=observed)


def _drift(
    pending: Pending, observed: EnvironmentState, moved: str, receipt: Receipt | None = None
) -> Review:
    return Review(
        reason=CaseReason.ENVIRONMENT_DRIFT,
        finding=f"the {moved} of {pending.intent.adapter} is another one",
        receipt=receipt,
        observed=observed,
    )


def _send_again(
    pending: Pending, observed: EnvironmentState, spec: KindSpec, footing: Footing
) -> Verdict:
    if pending.sends >= SENDS_MAX:
        return _unknown(f"{pending.sends} calls left no trace", observed)
    match pending.level:
        case Level.TRANSACTIONAL | Level.DEDUPLICATING:
            if _key_may_be_forgotten(pending, spec, footing):
                return _unknown("the target may have forgotten the key", observed)
            return Send()
        case Level.CONDITIONAL:
            if footing.fenced:
                return Send()
            return Wait(reason="a new lease must be fenced in before it is sent again")
        case Level.QUERYABLE:
            return _after_flight(pending, observed, spec, footing) or Send()
        case Level.BLIND:
            return _unknown("the target cannot be asked", observed)


def _without_asking(
    pending: Pending, observed: EnvironmentState, spec: KindSpec, footing: Footing
) -> Verdict:
    """Ask a target that dedupes by sending the same call again.

    It answers with the effect that stands, or does it now; so what it would do now must
    be what was approved and expected then.
    """
    moved = movement(pending.prestate, observed)
    if moved in ("instance", "account"):
        return _drift(pending, observed, moved)
    if footing.refusal is not None:
        finding = f"an earlier call may have landed: {footing.refusal.message}"
        return _unknown(finding, observed)
    if moved or pending.level is not Level.DEDUPLICATING:
        reason = f", and the {moved} changed" if moved else ""
        return _unknown(f"the target cannot be asked{reason}", observed)
    return _send_again(pending, observed, spec, footing)


def _abandon(
    pending: Pending,
    giving_up: GiveUp,
    observed: EnvironmentState,
    spec: KindSpec,
    footing: Footing,
) -> Verdict:
    if footing.forbidden:
        return giving_up
    if spec.forbids:
        return MakeImpossible()
    if spec.fences and footing.fenced:
        return giving_up
    match pending.level:
        case Level.QUERYABLE:
            return _after_flight(pending, observed, spec, footing) or giving_up
        case Level.TRANSACTIONAL | Level.CONDITIONAL:
            return Wait(reason="a new lease must be fenced in before it is given up")
        case Level.DEDUPLICATING | Level.BLIND:
            return _unknown(f"an earlier call may still land: {giving_up.error.message}", observed)


def _after_flight(
    pending: Pending, observed: EnvironmentState, spec: KindSpec, footing: Footing
) -> Verdict | None:
    if spec.in_flight_ms is None:
        return _unknown("the target states no bound for calls in flight", observed)
    until_ms = pending.last_sent_at_ms + spec.in_flight_ms
    if footing.now_ms < until_ms:
        return Wait(reason="an earlier call may still land", until_ms=until_ms)
    return None


def _key_may_be_forgotten(pending: Pending, spec: KindSpec, footing: Footing) -> bool:
    if spec.key_retention_ms is None:
        return False
    age_ms = footing.now_ms - pending.first_sent_at_ms
    return age_ms > spec.key_retention_ms - RETENTION_MARGIN_MS


def _unknown(finding: str, observed: EnvironmentState) -> Review:
    return Review(reason=CaseReason.OUTCOME_UNKNOWN, finding=finding, observed=observed)


def movement(expected: EnvironmentState, observed: EnvironmentState) -> str:
    """Return the first thing in which two states differ, or an empty string.

    A state without a fingerprint cannot be observed; only its identity is compared.
    """
    if expected.instance != observed.instance or expected.generation != observed.generation:
        return "instance"
    if expected.account != observed.account:
        return "account"
    if not expected.fingerprint or not observed.fingerprint:
        return ""
    if expected.version != observed.version:
        return "version"
    return "content" if expected.fingerprint != observed.fingerprint else ""
