"""What must happen now: `next_effect` takes a run and what is known to one effect.

Recovery is the same question asked with less knowledge. With `NOTHING` known, the
adapter is asked by key before anything may be executed.
"""

import msgspec

from counterfoil.core.approval import statement_digest
from counterfoil.core.errors import CounterfoilError, StaleObservationError
from counterfoil.core.intent import EnvironmentState, KindSpec, Pending
from counterfoil.core.receipt import LookUp
from counterfoil.core.reconcile import (
    Footing,
    GiveUp,
    MakeImpossible,
    Review,
    Send,
    Verdict,
    Wait,
    movement,
    reconcile,
)
from counterfoil.core.review import CaseReason
from counterfoil.core.run import Phase, Run
from counterfoil.core.words import Level


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """What this session knows of the pending intent.

    Attributes:
        is_unsent: This session made it durable, or said so again, and has not sent it.
        answer: What the adapter says of the key since the last call ended.
        observed: The environment since then.
        is_fenced: The adapter knows a lease that is newer than every call before.
        is_forbidden: The adapter has made the key impossible.
        refusal: Set when the adapter refused the latest call outright.
        is_live: The answer is the receipt of a call that this session made.
    """

    is_unsent: bool = False
    answer: LookUp | None = None
    observed: EnvironmentState | None = None
    is_fenced: bool = False
    is_forbidden: bool = False
    refusal: CounterfoilError | None = None
    is_live: bool = False


NOTHING = Known()
"""What a session knows after a crash."""


class Idle(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing is pending, or the run may not act."""


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """Look the key up at the adapter."""

    pending: Pending


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """Observe the environment of the pending intent."""

    pending: Pending


class Await(msgspec.Struct, frozen=True, kw_only=True):
    """Wait for a person: the intent may not be sent as things stand."""

    pending: Pending
    lack: str


class Release(msgspec.Struct, frozen=True, kw_only=True):
    """Record that the approved call leaves for the first time, and only then call."""

    pending: Pending


class Perform(msgspec.Struct, frozen=True, kw_only=True):
    """Execute an approved read or verification; it changes nothing."""

    pending: Pending


class Execute(msgspec.Struct, frozen=True, kw_only=True):
    """Call the adapter."""

    pending: Pending


class SendAgain(msgspec.Struct, frozen=True, kw_only=True):
    """Record that the call leaves again, and only then call."""

    pending: Pending


class Forbid(msgspec.Struct, frozen=True, kw_only=True):
    """Have the adapter make the key impossible."""

    pending: Pending


class Conclude(msgspec.Struct, frozen=True, kw_only=True):
    """Put the verdict on record."""

    pending: Pending
    verdict: Verdict


Effect = Idle | Ask | Look | Await | Release | Perform | Execute | SendAgain | Forbid | Conclude


def next_effect(
    run: Run, known: Known, spec: KindSpec | None, now_ms: int, lack: str = ""
) -> Effect:
    """Return the one thing that must happen now.

    Args:
        run: The run as its head has it.
        known: What the session knows of the pending intent.
        spec: Declaration of the pending kind; None when its adapter is not at hand.
        now_ms: UTC, never before the run's floor.
        lack: Why the pending intent may not be sent; empty when it may.
    """
    pending = run.pending
    if pending is None or run.phase is not Phase.RUNNING:
        return Idle()
    if spec is None:
        reason = f"no adapter at hand declares {pending.intent.kind}"
        return Conclude(pending=pending, verdict=Wait(reason=reason))
    if pending.sends == 0:
        return _first_sending(run, pending, known, lack)
    if known.is_unsent:
        return Await(pending=pending, lack=lack) if lack else _sending(pending)
    if pending.is_cleared:
        return Await(pending=pending, lack=lack) if lack else SendAgain(pending=pending)
    if known.refusal is not None and pending.sends == 1:
        return Conclude(pending=pending, verdict=GiveUp(error=known.refusal))
    if known.answer is None:
        return _first_question(pending, known)
    if known.observed is None:
        return Look(pending=pending)
    footing = Footing(
        fenced=known.is_fenced,
        forbidden=known.is_forbidden,
        now_ms=now_ms,
        refusal=known.refusal,
        live=known.is_live,
    )
    verdict = reconcile(
        pending, run.run_id, known.answer, known.observed, spec=spec, footing=footing
    )
    match verdict:
        case Send() if lack:
            return Await(pending=pending, lack=lack)
        case Send():
            return SendAgain(pending=pending)
        case MakeImpossible():
            return Forbid(pending=pending)
        case _:
            return Conclude(pending=pending, verdict=verdict)


def _first_sending(run: Run, pending: Pending, known: Known, lack: str) -> Effect:
    """Look at the world once more before an approved call leaves: it binds what was seen."""
    if lack:
        return Await(pending=pending, lack=lack)
    if known.observed is None:
        return Look(pending=pending)
    moved = movement(pending.prestate, known.observed)
    if moved in ("instance", "account"):
        review = Review(
            reason=CaseReason.ENVIRONMENT_DRIFT,
            finding=f"the {moved} of {pending.intent.adapter} is another one",
            observed=known.observed,
        )
        return Conclude(pending=pending, verdict=review)
    if moved:
        stale = StaleObservationError(
            f"the {moved} changed after it was proposed", run.run_id, pending.key
        )
        return Conclude(pending=pending, verdict=GiveUp(error=stale, observed=known.observed))
    if pending.intent.risk.writes:
        return Release(pending=pending)
    return Perform(pending=pending)


def _sending(pending: Pending) -> Effect:
    """Call under the approvals that are on record for this call, or record others first."""
    if pending.released != statement_digest(pending.approvals):
        return SendAgain(pending=pending)
    return Execute(pending=pending)


def _first_question(pending: Pending, known: Known) -> Effect:
    if pending.level is not Level.BLIND:
        return Ask(pending=pending)
    if known.observed is None:
        return Look(pending=pending)
    review = Review(
        reason=CaseReason.OUTCOME_UNKNOWN,
        finding=f"{pending.intent.kind} may have happened, and its target cannot be asked",
        observed=known.observed,
    )
    return Conclude(pending=pending, verdict=review)
