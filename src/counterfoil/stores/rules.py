"""What a head register refuses, and in which order: one answer for every backend.

Pure functions over the present record. A backend compares and sets in one atomic act;
where that act changes nothing, these say why.
"""

import re

from counterfoil.core.errors import (
    CounterfoilError,
    HeadMissingError,
    InvariantError,
    LeaseLostError,
    StaleHeadError,
    UsageError,
)
from counterfoil.core.words import Digest, RunId
from counterfoil.ports import Head

STATUSES = ("active", "frozen", "terminal")
"""Every status that a head may have."""

DIGEST = re.compile(r"[0-9a-f]{64}")


def check_digest(digest: Digest) -> None:
    """Refuse what is not SHA-256 as 64 lower-case hexadecimal digits.

    Raises:
        UsageError: It is something else.
    """
    if DIGEST.fullmatch(digest) is None:
        raise UsageError("a digest has 64 lower-case hexadecimal digits")


def check_lease(nonce: str, ttl_ms: int, run_id: RunId) -> None:
    """Refuse a lease that nobody could hold.

    Raises:
        UsageError: The nonce is empty, or the term is shorter than a millisecond.
    """
    if not nonce:
        raise UsageError("a lease needs a nonce; an empty one means that nobody holds it", run_id)
    check_term(ttl_ms, run_id)


def check_term(ttl_ms: int, run_id: RunId) -> None:
    """Refuse a term shorter than a millisecond.

    Raises:
        UsageError: It is.
    """
    if ttl_ms < 1:
        raise UsageError(f"a term of {ttl_ms} ms ends before it begins", run_id)


def check_pause(pause_ms: int, run_id: RunId) -> None:
    """Refuse a pause that would end before it begins.

    Raises:
        UsageError: It is negative.
    """
    if pause_ms < 0:
        raise UsageError(f"a pause of {pause_ms} ms ends before it begins", run_id)


def check_status(status: str, run_id: RunId) -> None:
    """Refuse a status that no reader knows.

    Raises:
        UsageError: It is not among `STATUSES`.
    """
    if status not in STATUSES:
        raise UsageError(f"status is one of {', '.join(STATUSES)}", run_id)


def not_archived(run_id: RunId) -> CounterfoilError:
    """Return the refusal of dropping what no archive stands for."""
    return InvariantError("checkpoints of a run without an archive stay", run_id)


def is_held(present: Head, now_ms: int) -> bool:
    """Return whether somebody's lease stands at `now_ms` of the register's clock."""
    return bool(present.nonce) and present.expires_at_ms > now_ms


def acquire_refusal(present: Head | None, expected: Head, now_ms: int) -> CounterfoilError | None:
    """Return why a lease cannot be taken, or None.

    The expiry is not compared: renewing moves it, and changes nothing else.
    """
    run_id = expected.run_id
    if present is None:
        return missing(run_id)
    if is_held(present, now_ms):
        return LeaseLostError(
            f"{present.owner!r} holds the run under lease {present.lease_version}, which ends "
            f"at {present.expires_at_ms} ms of the register's clock, in "
            f"{present.expires_at_ms - now_ms} ms",
            run_id,
        )
    if (_compared(present), present.owner) != (_compared(expected), expected.owner):
        return StaleHeadError(f"the head is at generation {present.generation} by now", run_id)
    return None


def holder_refusal(present: Head | None, held: Head, now_ms: int) -> CounterfoilError | None:
    """Return why `held` is not the lease that stands, or None."""
    if present is None:
        return missing(held.run_id)
    if (present.nonce, present.lease_version) != (held.nonce, held.lease_version):
        return LeaseLostError(
            f"lease {held.lease_version} was given up or taken over: {present.owner!r} has "
            f"lease {present.lease_version}",
            held.run_id,
        )
    if not is_held(present, now_ms):
        return LeaseLostError(
            f"lease {held.lease_version} ended {now_ms - present.expires_at_ms} ms ago by the "
            "register's clock",
            held.run_id,
        )
    return None


def advance_refusal(present: Head | None, expected: Head, now_ms: int) -> CounterfoilError | None:
    """Return why a head cannot be moved on from `expected`, or None."""
    refusal = holder_refusal(present, expected, now_ms)
    if refusal is not None or present is None:
        return refusal
    if _compared(present)[:3] != _compared(expected)[:3]:
        return StaleHeadError(
            f"the head is at generation {present.generation}, not at the expected "
            f"{expected.generation} with the expected checkpoint",
            expected.run_id,
        )
    return None


def missing(run_id: RunId) -> HeadMissingError:
    """Return the error for a run without a head."""
    return HeadMissingError("the register holds no head for this run", run_id)


def taken(run_id: RunId) -> StaleHeadError:
    """Return the error for creating a head that is there."""
    return StaleHeadError("the run has a head already", run_id)


def superseded(run_id: RunId, lease_version: int, mark_version: int) -> LeaseLostError:
    """Return the error for a store's write under an older lease than its mark."""
    return LeaseLostError(
        f"lease {lease_version} was taken over: the store is marked with lease {mark_version}",
        run_id,
    )


def _compared(head: Head) -> tuple[str, int, Digest, str, int, str]:
    return (
        head.incarnation,
        head.generation,
        head.checkpoint,
        head.nonce,
        head.lease_version,
        head.status,
    )
