"""Registers that each break one promise about commits: they test the clauses.

Each wraps a good register and knows its wall clock. A suite that lets one of them
through lacks a clause.
"""

import itertools
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from counterfoil.core.errors import LeaseLostError
from counterfoil.core.words import Digest, RunId
from counterfoil.ports import Advance, Head, HeadRegister

MANY = 1_000
"""More heads than any clause creates."""


class Passing:
    """Hands every call on to a good register; breaks nothing.

    Attributes:
        inner: The good register.
        now_ms: Its wall clock.
    """

    def __init__(self, inner: HeadRegister, now_ms: Callable[[], int]) -> None:
        self.inner = inner
        self.now_ms = now_ms

    def create(
        self, run_id: RunId, checkpoint: Digest, owner: str, nonce: str, ttl_ms: int
    ) -> Head:
        """Hand on."""
        return self.inner.create(run_id, checkpoint, owner, nonce, ttl_ms)

    def read(self, run_id: RunId) -> Head | None:
        """Hand on."""
        return self.inner.read(run_id)

    def acquire(self, expected: Head, owner: str, nonce: str, ttl_ms: int) -> Head:
        """Hand on."""
        return self.inner.acquire(expected, owner, nonce, ttl_ms)

    def renew(self, held: Head, ttl_ms: int) -> Head:
        """Hand on."""
        return self.inner.renew(held, ttl_ms)

    def advance(self, batch: Sequence[Advance]) -> tuple[Head, ...]:
        """Hand on."""
        return self.inner.advance(batch)

    def release(self, held: Head, pause_ms: int = 0) -> None:
        """Hand on."""
        self.inner.release(held, pause_ms)

    def claimable(self, limit: int) -> tuple[Head, ...]:
        """Hand on."""
        return self.inner.claimable(limit)

    def heads(self, after: str, limit: int) -> tuple[Head, ...]:
        """Hand on."""
        return self.inner.heads(after, limit)

    def close(self) -> None:
        """Hand on."""
        self.inner.close()

    def present(self, head: Head) -> Head:
        """Return the head as the good register has it, or as it was given."""
        return self.inner.read(head.run_id) or head

    def taken_anew(self, head: Head, ttl_ms: int) -> Head:
        """Return the lease taken again under its name, however it ended."""
        self.inner.release(self.present(head))
        free = self.present(head)
        return self.inner.acquire(free, head.owner or "one", head.nonce or "none", ttl_ms)


class _Believing(Passing):
    """Advances from the head as it is, in what `believed` names."""

    believed: tuple[str, ...] = ()

    def advance(self, batch: Sequence[Advance]) -> tuple[Head, ...]:
        """Put the present fields in the place of the expected ones."""
        return self.inner.advance([self._corrected(each) for each in batch])

    def _corrected(self, each: Advance) -> Advance:
        present = self.present(each.expected)
        fields = {name: getattr(present, name) for name in self.believed}
        return replace(each, expected=replace(each.expected, **fields))


class IgnoresTheLease(_Believing):
    """Compares generation and checkpoint alone, so a late worker commits."""

    believed = ("nonce", "lease_version", "generation", "checkpoint")


class IgnoresTheNonce(_Believing):
    """Compares the lease version alone, which a restored register issues twice."""

    believed = ("nonce",)


class AdvancesTwice(_Believing):
    """Compares the lease alone, so a repeated call moves the head again."""

    believed = ("generation", "checkpoint")


class IgnoresTheCheckpoint(_Believing):
    """Compares numbers alone, and a fork has the same number."""

    believed = ("checkpoint",)


class IgnoresTheIncarnation(_Believing):
    """Takes the head of another register for its own."""

    believed = ("incarnation",)


class ForgetsTheStatus(Passing):
    """Moves the head, and leaves its status."""

    def advance(self, batch: Sequence[Advance]) -> tuple[Head, ...]:
        """Advance under the expected status."""
        return self.inner.advance([replace(each, status=each.expected.status) for each in batch])


class TakesAnyStatus(Passing):
    """Takes a status that nobody knows for an active one."""

    def advance(self, batch: Sequence[Advance]) -> tuple[Head, ...]:
        """Advance to active where the status is unknown."""
        known = ("active", "frozen", "terminal")
        return self.inner.advance(
            [each if each.status in known else replace(each, status="active") for each in batch]
        )


class HalfBatch(Passing):
    """Moves heads one by one, so that a refused one leaves those before it moved."""

    def advance(self, batch: Sequence[Advance]) -> tuple[Head, ...]:
        """Advance each by itself."""
        return tuple(head for each in batch for head in self.inner.advance([each]))


class AnswersOutOfOrder(Passing):
    """Answers a batch in order of run ids."""

    def advance(self, batch: Sequence[Advance]) -> tuple[Head, ...]:
        """Sort the answer."""
        return tuple(sorted(self.inner.advance(batch), key=lambda head: head.run_id))


class ShortensInAdvance(Passing):
    """Sets the end of a lease at each commit, also to an earlier moment."""

    def advance(self, batch: Sequence[Advance]) -> tuple[Head, ...]:
        """Answer with the end that was asked for."""
        moved = self.inner.advance(batch)
        ends = [self.now_ms() + each.ttl_ms for each in batch]
        return tuple(
            replace(head, expires_at_ms=end) for head, end in zip(moved, ends, strict=True)
        )


class ExpiredCommits(Passing):
    """Lets a lease that ended commit, if nobody took it over."""

    def advance(self, batch: Sequence[Advance]) -> tuple[Head, ...]:
        """Take the lease anew for a holder that comes late."""
        try:
            return self.inner.advance(batch)
        except LeaseLostError:
            (each,) = batch
            present = self.present(each.expected)
            if present.nonce != each.expected.nonce:
                raise
            held = self.taken_anew(each.expected, each.ttl_ms)
            return self.inner.advance([replace(each, expected=held)])


class ReleasedCommits(Passing):
    """Lets whoever asks commit while nobody holds the head."""

    def advance(self, batch: Sequence[Advance]) -> tuple[Head, ...]:
        """Take a free head for the caller's."""
        try:
            return self.inner.advance(batch)
        except LeaseLostError:
            (each,) = batch
            if self.present(each.expected).nonce:
                raise
            held = self.taken_anew(each.expected, each.ttl_ms)
            return self.inner.advance([replace(each, expected=held)])


class EndsLeasesEarly(Passing):
    """Grants a millisecond less than it was asked for."""

    def create(
        self, run_id: RunId, checkpoint: Digest, owner: str, nonce: str, ttl_ms: int
    ) -> Head:
        """Shorten the term."""
        return self.inner.create(run_id, checkpoint, owner, nonce, ttl_ms - 1)


class FollowsTheClockBack(Passing):
    """Judges by the wall clock alone, so that a lease comes back to life."""

    def advance(self, batch: Sequence[Advance]) -> tuple[Head, ...]:
        """Let a lease commit that the wall clock says is good."""
        try:
            return self.inner.advance(batch)
        except LeaseLostError:
            (each,) = batch
            if self.present(each.expected).expires_at_ms <= self.now_ms():
                raise
            held = self.taken_anew(each.expected, each.ttl_ms)
            return self.inner.advance([replace(each, expected=held)])


class ForgetsWhenItCommitted(Passing):
    """Keeps the moments of its refusals alone, so that a lease comes back to life."""

    _refused_at_ms = 0

    def renew(self, held: Head, ttl_ms: int) -> Head:
        """Let a lease live that no refusal has seen as over."""
        try:
            return self.inner.renew(held, ttl_ms)
        except LeaseLostError:
            self._refused_at_ms = max(self._refused_at_ms, self.now_ms())
            if self.present(held).expires_at_ms <= self._refused_at_ms:
                raise
            return self.taken_anew(held, ttl_ms)


class NamesItselfAnew(Passing):
    """Has another incarnation at each opening."""

    _numbers = itertools.count()

    def create(
        self, run_id: RunId, checkpoint: Digest, owner: str, nonce: str, ttl_ms: int
    ) -> Head:
        """Answer with another name."""
        head = self.inner.create(run_id, checkpoint, owner, nonce, ttl_ms)
        return replace(head, incarnation=f"register {next(self._numbers)}")
