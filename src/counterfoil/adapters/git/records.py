"""What the adapter writes into repositories: the desk of each run, and receipts.

Both are refs to blobs, in a namespace of their own. A desk holds the fence of a run and
the last write that was planned for it. A receipt holds all that was fixed before the
ref transaction that created it, so its presence alone says that the effect happened.
"""

from hashlib import sha256

import msgspec

from counterfoil.core.bounds import RESULT_BYTES_MAX
from counterfoil.core.canonical import decode, encode
from counterfoil.core.errors import FencedError
from counterfoil.core.receipt import Fence, Receipt, Served
from counterfoil.core.words import Key, RunId

DESKS = "refs/counterfoil/desks/"
RECEIPTS = "refs/counterfoil/receipts/"

RECORD_BYTES_MAX = 4 * RESULT_BYTES_MAX
"""A receipt with its plan; both are made of bounded names."""


class Move(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The one ref that a write moves.

    Attributes:
        ref: Its full name.
        old: Object id it must be at; empty where it must not be there.
        new: Object id it is moved to.
        remote: Name of the remote; empty for this repository.
    """

    ref: str
    old: str
    new: str
    remote: str = ""


class Effect(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A planned write, or one that is done: the receipt ref says which.

    Attributes:
        move: What it does.
        fence: Lease that it was planned under.
        receipt: Its receipt.
        is_refused: Whether the remote is known to have refused it.
    """

    move: Move
    fence: Fence
    receipt: Receipt
    is_refused: bool = False


class Barred(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What stands in place of a receipt when its key was made impossible.

    Attributes:
        run_id: By which run.
        key: The key.
        is_barred: Always true; tells it from an effect.
    """

    run_id: RunId
    key: Key
    is_barred: bool = True


class Slip(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a receipt ref holds: one of both."""

    effect: Effect | None = None
    barred: Barred | None = None


class Desk(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a repository remembers of one run.

    Attributes:
        run_id: The run.
        fence: Its newest lease.
        served: Newest checkpoint that an intent was served of.
        planned: The last write that was planned for it.
        is_begun: Whether the transaction that moves its ref has begun to rename: this
            very change is the first one that it makes.
    """

    run_id: RunId
    fence: Fence
    served: Served | None = None
    planned: Effect | None = None
    is_begun: bool = False


def desk_ref(run_id: RunId) -> str:
    """Return the ref of a run's desk."""
    return f"{DESKS}{sha256(run_id.encode()).hexdigest()}"


def receipt_ref(key: Key) -> str:
    """Return the ref of the receipt under a key."""
    return f"{RECEIPTS}{sha256(key.encode()).hexdigest()}"


def read_desk(raw: bytes) -> Desk:
    """Return a desk from its blob.

    Raises:
        FormatError: The blob is not one that we wrote.
    """
    return decode(raw, Desk, "the desk of a run", bytes_max=RECORD_BYTES_MAX)


def read_slip(raw: bytes) -> Slip:
    """Return what stands under a key from its blob.

    Raises:
        FormatError: The blob is not one that we wrote.
    """
    return decode(raw, Slip, "a receipt", bytes_max=RECORD_BYTES_MAX)


def written(record: Desk | Slip) -> bytes:
    """Return the blob of a record."""
    return encode(record)


def check_fence(desk: Desk | None, run_id: RunId, fence: Fence) -> None:
    """Refuse a token that is not the standing one, and not newer.

    Raises:
        FencedError: A newer lease stands, or another holder's of the same version.
    """
    if desk is None:
        return
    standing = desk.fence
    if fence.lease_version < standing.lease_version:
        raise FencedError(
            f"lease {fence.lease_version} was followed by {standing.lease_version}", run_id
        )
    if fence.lease_version == standing.lease_version and fence.nonce != standing.nonce:
        raise FencedError(f"lease {standing.lease_version} belongs to another holder", run_id)
