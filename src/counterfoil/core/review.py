"""Cases: a frozen matter with all its evidence, until a person decides."""

from enum import StrEnum

import msgspec

from counterfoil.core.intent import EnvironmentState, Pending
from counterfoil.core.receipt import Receipt
from counterfoil.core.words import Digest


class CaseReason(StrEnum):
    """Why a run may not go on by itself."""

    INTENT_CONFLICT = "intent_conflict"
    OUTCOME_UNKNOWN = "outcome_unknown"
    ENVIRONMENT_DRIFT = "environment_drift"
    LATE_COMMIT = "late_commit"
    INCOMPLETE_RECEIPT = "incomplete_receipt"


class Case(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was found when the run froze.

    Attributes:
        reason: One of five.
        finding: One sentence for people.
        challenge: Random, issued with the case; a decision must answer it.
        pending: The intent in doubt, if there is one.
        receipt: The receipt that was observed, if there is one.
        receipt_digest: Fingerprint of that receipt; empty when there is none.
        recorded: Environment as the checkpoint has it.
        observed: Environment as it was found; None when it could not be observed.
        opened_at_ms: When, UTC.
    """

    reason: CaseReason
    finding: str
    challenge: str
    pending: Pending | None = None
    receipt: Receipt | None = None
    receipt_digest: Digest = Digest("")
    recorded: EnvironmentState | None = None
    observed: EnvironmentState | None = None
    opened_at_ms: int
