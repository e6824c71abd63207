"""A key's row in the journal, and what it means for a request.

A row in flight never becomes free by age alone. Where effect and receipt commit together
it may be taken over, since the first request can then no longer commit either.
"""

from enum import StrEnum

import msgspec

from counterfoil.core.receipt import Fence, Served
from counterfoil.core.words import Digest
from counterfoil.integrations.asgi.call import Call
from counterfoil.integrations.asgi.rules import MARGIN_MS, Commits


class State(StrEnum):
    """What a row says of its key."""

    IN_FLIGHT = "in_flight"
    DONE = "done"
    FORBIDDEN = "forbidden"


class Verdict(StrEnum):
    """What a request with a key gets.

    ABSENT: nothing stands under the key.
    CLAIMED: the key is this request's; execute it.
    DONE: an answer is kept; give it.
    OTHER: the key is another request's.
    IN_FLIGHT: the first request is under way.
    ABANDONED: the first request is not under way, and may be superseded.
    UNKNOWN: the first request is not known to be under way, and may have taken effect.
    FORBIDDEN: the key was made impossible.
    STALE: the fence is old.
    """

    ABSENT = "absent"
    CLAIMED = "claimed"
    DONE = "done"
    OTHER = "other"
    IN_FLIGHT = "in_flight"
    ABANDONED = "abandoned"
    UNKNOWN = "unknown"
    FORBIDDEN = "forbidden"
    STALE = "stale"


class Row(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """All that is kept under a key; columns in the order of `statements.COLUMNS`.

    Attributes:
        client: Digest of whose key it is.
        key: The key.
        state: What is said of it.
        fingerprint: Digest of the request; empty when the key was forbidden unused.
        intent: Digest of the intent; empty when the client named none.
        run: The run; empty when the client named none.
        lease_version: Of the run's fence; 0 without one.
        nonce: Of the run's fence; empty without one.
        generation: Of the checkpoint that carries the intent; 0 without one.
        checkpoint: Its digest; empty without one.
        statement: Digest of the approval; empty without one.
        commits: How effect and receipt are to be committed; once it is done, how they were.
        attempt: Which request claimed it; the receipt's id.
        started_at_ms: When, UTC.
        lease_until_ms: How long it counts as under way.
        status: Status of the answer; 0 until it is done.
        headers: Headers of the answer, as JSON.
        body: Body of the answer.
        committed_at_ms: When it was done or forbidden, UTC; 0 before.
        expires_at_ms: How long the receipt is kept at least; 0 for as long as the journal is.
    """

    client: str
    key: str
    state: State
    fingerprint: str
    intent: str
    run: str
    lease_version: int
    nonce: str
    generation: int
    checkpoint: str
    statement: str
    commits: Commits
    attempt: str
    started_at_ms: int
    lease_until_ms: int
    status: int
    headers: str
    body: bytes
    committed_at_ms: int
    expires_at_ms: int

    @property
    def served(self) -> Served | None:
        """Checkpoint that carries the intent."""
        if not self.checkpoint:
            return None
        return Served(generation=self.generation, checkpoint=Digest(self.checkpoint))


def judge(row: Row | None, call: Call, attempt: str, now_ms: int) -> Verdict:
    """Return what the row of its key means for a request, claimed by `attempt` or not."""
    if row is None or is_expired(row, now_ms):
        return Verdict.ABSENT
    if row.state is State.FORBIDDEN:
        return Verdict.FORBIDDEN
    authority = call.authority
    ours = (call.fingerprint, authority.intent, authority.run)
    if (row.fingerprint, row.intent, row.run) != ours:
        return Verdict.OTHER
    if row.state is State.IN_FLIGHT and row.attempt == attempt:
        return Verdict.CLAIMED
    verdict = standing(row, now_ms)
    if verdict is Verdict.UNKNOWN and call.commits is Commits.REPEATABLE:
        return Verdict.ABANDONED
    return verdict


def standing(row: Row | None, now_ms: int) -> Verdict:
    """Return what a row says of its key by itself."""
    if row is None or is_expired(row, now_ms):
        return Verdict.ABSENT
    match row.state:
        case State.FORBIDDEN:
            return Verdict.FORBIDDEN
        case State.DONE:
            return Verdict.DONE
        case State.IN_FLIGHT if now_ms < row.lease_until_ms:
            return Verdict.IN_FLIGHT
        case State.IN_FLIGHT:
            is_together = row.commits is Commits.TOGETHER
            return Verdict.ABANDONED if is_together else Verdict.UNKNOWN


def is_expired(row: Row, now_ms: int) -> bool:
    """Return whether a receipt is past its retention and margin; what is open never is."""
    return row.state is State.DONE and row.expires_at_ms + MARGIN_MS <= now_ms


def fence_of(row: Row) -> Fence | None:
    """Return the fence that a key was claimed under."""
    if not row.nonce:
        return None
    return Fence(lease_version=row.lease_version, nonce=row.nonce)
