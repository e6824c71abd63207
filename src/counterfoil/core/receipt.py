"""Receipts: the adapter's authoritative record of a committed effect.

Whether a receipt is ours is decided by comparing all that a pending intent fixes,
never by its mere presence.
"""

from enum import StrEnum

import msgspec

from counterfoil.core.canonical import canonical, digest, encode, normalise
from counterfoil.core.intent import EnvironmentState, Pending
from counterfoil.core.words import Digest, IntentDigest, Json, Key, Level, RunId


class Fence(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The token of a lease: its version, and the nonce of this very acquisition."""

    lease_version: int
    nonce: str


class Served(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The newest checkpoint that an adapter has served an intent of, for one run."""

    generation: int
    checkpoint: Digest


class Receipt(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One committed effect, as its adapter recorded it.

    Attributes:
        id: Given by the adapter, unique in its environment.
        adapter: Who executed.
        kind: What was executed.
        run_id: For which run.
        key: Under which key.
        digest: Digest of the intent; empty when the target does not keep it.
        level: Level of the kind.
        poststate: State of the environment right after.
        committed_at_ms: When, UTC, by the adapter; 0 when unknown.
        served: Checkpoint that carried the intent.
        statement: Digest of the approval it was executed under; empty when none.
        result: What the target answered.
        replayed: Whether the target answered a repeated key with its earlier effect.
    """

    id: str
    adapter: str
    kind: str
    run_id: RunId
    key: Key
    digest: IntentDigest
    level: Level
    poststate: EnvironmentState
    committed_at_ms: int
    served: Served | None = None
    statement: str = ""
    result: Json = None
    replayed: bool = False


class Answer(StrEnum):
    """What a look-up by key can say. Unknown is never treated as absent."""

    FOUND = "found"
    FOUND_OTHER = "found_other"
    ABSENT = "absent"
    UNKNOWN = "unknown"


class LookUp(msgspec.Struct, frozen=True, kw_only=True):
    """An adapter's answer to "what do you know of this key?".

    Attributes:
        answer: One of four.
        receipt: Present exactly when something was found.
        reason: Why it is unknown, for people.
        is_final: It is unknown and nobody will ever know: a person decides at once.
    """

    answer: Answer
    receipt: Receipt | None = None
    reason: str = ""
    is_final: bool = False


ABSENT = LookUp(answer=Answer.ABSENT)


def found(receipt: Receipt) -> LookUp:
    """Return the answer that `receipt` stands under the key."""
    return LookUp(answer=Answer.FOUND, receipt=receipt)


def unknown(reason: str, *, is_final: bool = False) -> LookUp:
    """Return the answer that nothing can be said, and why; a final one is never asked again."""
    return LookUp(answer=Answer.UNKNOWN, reason=reason, is_final=is_final)


def identity(receipt: Receipt) -> tuple[str, ...]:
    """Return what every target can say again of an effect: which one, whose, what for."""
    return (
        receipt.id,
        receipt.adapter,
        receipt.kind,
        receipt.run_id,
        receipt.key,
        receipt.digest,
    )


def receipt_fingerprint(receipt: Receipt) -> Digest:
    """Return the digest of a whole receipt, its result included."""
    fields = msgspec.structs.asdict(receipt) | {"result": digest(encode(receipt.result))}
    fields.pop("replayed")
    return digest(canonical(normalise(msgspec.to_builtins(fields), "receipt")))


def differences(pending: Pending, run_id: RunId, receipt: Receipt) -> tuple[str, ...]:
    """Return the fields in which a receipt is not the receipt of this pending intent."""
    intent = pending.intent
    wanted = {
        "adapter": (intent.adapter, receipt.adapter),
        "kind": (intent.kind, receipt.kind),
        "run_id": (run_id, receipt.run_id),
        "key": (pending.key, receipt.key),
        "digest": (pending.digest, receipt.digest or pending.digest),
        "level": (pending.level, receipt.level),
        "environment": (intent.adapter, receipt.poststate.adapter),
        "instance": (intent.target, receipt.poststate.instance),
    }
    return tuple(name for name, (ours, theirs) in wanted.items() if ours != theirs)


def missing_fields(receipt: Receipt) -> tuple[str, ...]:
    """Return the fields without which a receipt proves nothing at its level."""
    missing = [name for name in ("id", "run_id", "key") if not getattr(receipt, name)]
    if receipt.level is Level.TRANSACTIONAL:
        missing += ["digest"] if not receipt.digest else []
        missing += ["committed_at_ms"] if receipt.committed_at_ms <= 0 else []
    return tuple(missing)
