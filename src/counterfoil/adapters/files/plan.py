"""A prepared change, and how to tell afterwards whether it happened.

Every change is one atomic rename of what stands at `left` to `right`, which is free,
or an exchange of the two. The plan, made durable first, names the objects, so whoever
comes after a kill decides by looking at both places. Nothing here touches a file.

    form       left             right         the rename
    create     spare: content   free          to the free name
    replace    spare: content   the old file  exchange
    delete     the file         spare: free   to the free name
    move       the file         free          to the free name
    move over  the file         the old file  exchange
"""

from dataclasses import dataclass
from enum import Enum, StrEnum

import msgspec

from counterfoil.core.receipt import Served
from counterfoil.core.words import IntentDigest, Json, Key, RunId


class Form(StrEnum):
    """Which of the five changes."""

    CREATE = "create"
    REPLACE = "replace"
    DELETE = "delete"
    MOVE = "move"
    MOVE_OVER = "move_over"


class Identity(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which object, with which content.

    Attributes:
        serial: What the file system never gives to another object.
        sha256: Digest of the content; empty for what is no file.
    """

    serial: str
    sha256: str


class Plan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One change that is about to happen.

    Attributes:
        kind: Kind of the action.
        run_id: For which run.
        key: Under which key.
        digest: Digest of the intent.
        served: Checkpoint that carries the intent.
        statement: Digest of the approval.
        realm: Scope entries of the run.
        account: Account that the adapter acts as.
        sequence: Number of the receipt to come.
        planned_at_ms: The moment right before the rename, UTC.
        form: Which change.
        left: Path before the rename.
        right: Path after it.
        spare: Reserved path of what is left over; empty where nothing is.
        witness: Reserved path of a second name of a created file, by which it is known
            to live when both others are gone; empty for other forms.
        folder: Serial of the folder that `right` is in.
        mover: What moves from left to right.
        displaced: What `right` held before; None where it was free.
        result: Result of the receipt to come.
    """

    kind: str
    run_id: RunId
    key: Key
    digest: IntentDigest
    served: Served | None
    statement: str
    realm: tuple[str, ...]
    account: str
    sequence: int
    planned_at_ms: int
    form: Form
    left: str
    right: str
    spare: str = ""
    witness: str = ""
    folder: str
    mover: Identity
    displaced: Identity | None = None
    result: Json = None

    @property
    def is_exchange(self) -> bool:
        """Whether both places hold something."""
        return self.displaced is not None


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """Serials at the places of a plan, None where there is nothing.

    Attributes:
        left: At the plan's left.
        right: At its right.
        spare: At its spare.
        witness: At its witness.
        is_same_folder: Whether the folder of `right` is the one of the plan.
    """

    left: str | None
    right: str | None
    spare: str | None
    witness: str | None
    is_same_folder: bool


class Finding(Enum):
    """What the places say."""

    BEFORE = "nothing happened"
    AFTER = "the rename happened"
    DISTURBED = "other programs left nothing to tell it by"


def decide(plan: Plan, seen: Seen) -> Finding:
    """Return whether the rename of a plan happened.

    `DISTURBED` needs another program that changed the same places inside the window of
    a crash. Nothing of ours is left then; the key must not be used again.
    """
    mover = plan.mover.serial
    if seen.right == mover:
        return Finding.AFTER
    if seen.left == mover:
        return Finding.BEFORE
    if _has_happened(plan, seen):
        return Finding.AFTER
    return Finding.BEFORE if _is_intact(plan, seen) else Finding.DISTURBED


def _has_happened(plan: Plan, seen: Seen) -> bool:
    match plan.form:
        case Form.CREATE:
            return seen.witness == plan.mover.serial
        case Form.REPLACE | Form.MOVE_OVER:
            return _displaced(plan) in (seen.left, seen.spare)
        case Form.DELETE:
            return seen.right is not None
        case Form.MOVE:
            return False


def _is_intact(plan: Plan, seen: Seen) -> bool:
    """Return whether the mover can have vanished without our rename, as after a power cut."""
    match plan.form:
        case Form.CREATE | Form.DELETE:
            return seen.is_same_folder
        case Form.REPLACE | Form.MOVE_OVER:
            return seen.right == _displaced(plan)
        case Form.MOVE:
            return False


def _displaced(plan: Plan) -> str | None:
    return None if plan.displaced is None else plan.displaced.serial


def path_digests(plan: Plan) -> dict[str, str | None]:
    """Return what the change leaves at each path: a digest, or None for nothing."""
    match plan.form:
        case Form.CREATE | Form.REPLACE:
            return {plan.right: plan.mover.sha256}
        case Form.DELETE:
            return {plan.left: None}
        case Form.MOVE | Form.MOVE_OVER:
            return {plan.left: None, plan.right: plan.mover.sha256}


def doomed(plan: Plan, *, is_done: bool) -> str | None:
    """Return the serial of what may be removed from the reserved paths of a decided plan.

    Anything else that stands there came from another program, and is kept.
    """
    displaced = _displaced(plan)
    match plan.form:
        case Form.CREATE:
            return plan.mover.serial
        case Form.REPLACE:
            return displaced if is_done else plan.mover.serial
        case Form.DELETE:
            return plan.mover.serial if is_done else None
        case Form.MOVE | Form.MOVE_OVER:
            return displaced if is_done else None
