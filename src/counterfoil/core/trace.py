"""Trace events: what was decided, proposed, seen and done, in order, for good."""

from enum import StrEnum

import msgspec

from counterfoil.core.intent import EnvironmentState, Intent
from counterfoil.core.receipt import Receipt
from counterfoil.core.review import Case
from counterfoil.core.words import IntentDigest, Json


class Outcome(StrEnum):
    """What an event says of a run."""

    OPENED = "opened"
    CONTRACT_REJECTED = "contract_rejected"
    PERMISSION_DENIED = "permission_denied"
    APPROVAL_REJECTED = "approval_rejected"
    STALE_OBSERVATION = "stale_observation"
    IDEMPOTENCY_CONFLICT = "idempotency_conflict"
    EXECUTION_ERROR = "execution_error"
    PENDING = "pending"
    RESENT = "resent"
    ASKED = "asked"
    EXECUTED = "executed"
    RECONCILED = "reconciled"
    REPLAYED = "replayed"
    READ = "read"
    REMEMBERED = "remembered"
    VERIFIED = "verified"
    OBSERVED = "observed"
    APPROVED = "approved"
    DENIED = "denied"
    REVOKED = "revoked"
    REFRESHED = "refreshed"
    RELEASED = "released"
    WITHDRAWN = "withdrawn"
    STATEMENT_REFUSED = "statement_refused"
    MIGRATED = "migrated"
    NEEDS_REVIEW = "needs_review"
    RESOLVED = "resolved"
    CONFIRMED_DONE = "confirmed_done"
    STUMBLED = "stumbled"
    PARKED = "parked"
    UNPARKED = "unparked"
    FINISHED = "finished"
    CANCELLED = "cancelled"
    ABORTED = "aborted"
    PROPOSAL_BUDGET_EXHAUSTED = "proposal_budget_exhausted"
    STEP_BUDGET_EXHAUSTED = "step_budget_exhausted"
    TIME_BUDGET_EXHAUSTED = "time_budget_exhausted"
    COST_BUDGET_EXHAUSTED = "cost_budget_exhausted"


SETTLING = (
    Outcome.EXECUTED,
    Outcome.RECONCILED,
    Outcome.REPLAYED,
    Outcome.READ,
    Outcome.REMEMBERED,
    Outcome.VERIFIED,
    Outcome.CONFIRMED_DONE,
)
"""Outcomes that settle a position of the plan, and a key where there is one."""


class Event(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """One entry of the trace.

    Attributes:
        at_ms: When, UTC, by the run's clock, which never goes back.
        outcome: What happened.
        proposal: Number of the judged proposal; 0 when it was none.
        position: Place in the plan; -1 when it took none.
        action_id: Given by the runtime to an admitted action.
        kind: Kind of the action, or the name of a remembered value.
        key: Idempotency key.
        digest: Digest of the intent.
        intent: The whole intent, where it became pending.
        receipt: The whole receipt, where one was accepted.
        result: Result of a read, a verification or a computation.
        environments: States of environments where they were seen or moved.
        case: The whole case, where one was opened.
        statements: Envelopes of the statements concerned, as they were signed.
        signer: Who signed them.
        reason: One sentence for people.
        passed: Whether a verification passed.
    """

    at_ms: int
    outcome: Outcome
    proposal: int = 0
    position: int = -1
    action_id: str = ""
    kind: str = ""
    key: str = ""
    digest: IntentDigest = IntentDigest("")
    intent: Intent | None = None
    receipt: Receipt | None = None
    result: Json = None
    environments: tuple[EnvironmentState, ...] = ()
    case: Case | None = None
    statements: tuple[str, ...] = ()
    signer: str = ""
    reason: str = ""
    passed: bool = False


def position_name(position: int) -> str:
    """Return the name under which a settled position is found again."""
    return f"@{position}"


def settles(event: Event, name: str) -> bool:
    """Return whether an event settles a key or position (`position_name`)."""
    return event.outcome in SETTLING and name in (event.key, position_name(event.position))
