"""What a target of each level keeps, as data: the sandbox has no other rules.

A level is honest when the target keeps no less than it says, and useful for tests when
it keeps no more: a target that happens to deduplicate would hide a missing question.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from counterfoil.core.words import Level


@dataclass(frozen=True, kw_only=True, slots=True)
class Promises:
    """What the sandbox does for callers of one level.

    Attributes:
        level: The level, for the receipts.
        fences: Refuses a call under an older lease, and remembers what it served.
        checks_prestate: Refuses a write that was built on another state.
        keeps_keys: One effect per key, and a repeated call gets the first receipt.
        forbids: Can make a key impossible.
        answers: Can be asked by key.
        keeps_digest: Records the intent digest with an effect.
        keeps_evidence: Records the checkpoint and the approval it was called with.
        retention_ms: How long keys are kept; None when for ever.
        shares_keys: A key of one run is the same key in another.
    """

    level: Level
    fences: bool = False
    checks_prestate: bool = False
    keeps_keys: bool = False
    forbids: bool = False
    answers: bool = True
    keeps_digest: bool = False
    keeps_evidence: bool = False
    retention_ms: int | None = None
    shares_keys: bool = False


PROMISES: Mapping[Level, Promises] = {
    Level.TRANSACTIONAL: Promises(
        level=Level.TRANSACTIONAL,
        fences=True,
        checks_prestate=True,
        keeps_keys=True,
        forbids=True,
        keeps_digest=True,
        keeps_evidence=True,
    ),
    Level.DEDUPLICATING: Promises(level=Level.DEDUPLICATING, keeps_keys=True, keeps_digest=True),
    Level.CONDITIONAL: Promises(
        level=Level.CONDITIONAL, fences=True, checks_prestate=True, keeps_digest=True
    ),
    Level.QUERYABLE: Promises(level=Level.QUERYABLE),
    Level.BLIND: Promises(level=Level.BLIND, answers=False),
}
"""The five levels."""
