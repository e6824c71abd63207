"""Registers that each break one promise about leases: they test the clauses."""

from collections.abc import Sequence

from msgspec.structs import replace

from counterfoil.core.errors import HeadMissingError, LeaseLostError, LostRaceError, StaleHeadError
from counterfoil.core.words import Digest, RunId
from counterfoil.ports import Advance, Head
from counterfoil.testing.saboteur_heads import MANY, Passing


class CreateOverwrites(Passing):
    """Takes creating for taking over, so that a run begins again."""

    def create(
        self, run_id: RunId, checkpoint: Digest, owner: str, nonce: str, ttl_ms: int
    ) -> Head:
        """Take over what is there."""
        try:
            return self.inner.create(run_id, checkpoint, owner, nonce, ttl_ms)
        except StaleHeadError:
            (present,) = (head for head in self.inner.heads("", MANY) if head.run_id == run_id)
            return self.taken_anew(replace(present, owner=owner, nonce=nonce), ttl_ms)


class AcquireCreates(Passing):
    """Makes a head for whoever holds one, so that a wiped register looks whole."""

    def acquire(self, expected: Head, owner: str, nonce: str, ttl_ms: int) -> Head:
        """Create what is missing."""
        try:
            return self.inner.acquire(expected, owner, nonce, ttl_ms)
        except HeadMissingError:
            return self.inner.create(expected.run_id, expected.checkpoint, owner, nonce, ttl_ms)


class TakesStandingLeases(Passing):
    """Takes a lease from a holder that is alive."""

    def acquire(self, expected: Head, owner: str, nonce: str, ttl_ms: int) -> Head:
        """Free the head first."""
        self.inner.release(self.present(expected))
        return self.inner.acquire(self.present(expected), owner, nonce, ttl_ms)


class HidesTheHolder(Passing):
    """Refuses a lease, and does not say for whom."""

    def acquire(self, expected: Head, owner: str, nonce: str, ttl_ms: int) -> Head:
        """Say nothing of the holder."""
        try:
            return self.inner.acquire(expected, owner, nonce, ttl_ms)
        except LeaseLostError as error:
            raise LeaseLostError("the lease is not free", expected.run_id) from error


class KeepsTheVersion(Passing):
    """Hands a lease over under its old version."""

    def acquire(self, expected: Head, owner: str, nonce: str, ttl_ms: int) -> Head:
        """Answer with the old version."""
        taken = self.inner.acquire(expected, owner, nonce, ttl_ms)
        return replace(taken, lease_version=expected.lease_version)


class TakesFromAnOldHead(Passing):
    """Compares nothing but the lease when it is taken."""

    def acquire(self, expected: Head, owner: str, nonce: str, ttl_ms: int) -> Head:
        """Take the head as it is."""
        return self.inner.acquire(self.present(expected), owner, nonce, ttl_ms)


class EverybodyWins(Passing):
    """Answers each of many as if it had won."""

    def create(
        self, run_id: RunId, checkpoint: Digest, owner: str, nonce: str, ttl_ms: int
    ) -> Head:
        """Answer with the head as this caller wants it."""
        try:
            return self.inner.create(run_id, checkpoint, owner, nonce, ttl_ms)
        except StaleHeadError:
            (present,) = (head for head in self.inner.heads("", MANY) if head.run_id == run_id)
            return replace(present, owner=owner, nonce=nonce)

    def acquire(self, expected: Head, owner: str, nonce: str, ttl_ms: int) -> Head:
        """Answer with the head as this caller wants it."""
        try:
            return self.inner.acquire(expected, owner, nonce, ttl_ms)
        except LostRaceError:
            return replace(self.present(expected), owner=owner, nonce=nonce)

    def advance(self, batch: Sequence[Advance]) -> tuple[Head, ...]:
        """Answer with the head as this caller wants it."""
        try:
            return self.inner.advance(batch)
        except StaleHeadError:
            return tuple(self.present(each.expected) for each in batch)


class RenewingShortens(Passing):
    """Sets the end of a lease at each renewal, also to an earlier moment."""

    def renew(self, held: Head, ttl_ms: int) -> Head:
        """Answer with the end that was asked for."""
        return replace(self.inner.renew(held, ttl_ms), expires_at_ms=self.now_ms() + ttl_ms)


class RenewingDoesNothing(Passing):
    """Says that it renewed, and did not."""

    def renew(self, held: Head, ttl_ms: int) -> Head:
        """Answer with the head as it is."""
        self.inner.renew(held, 1)
        return self.present(held)


class RenewsForAnybody(Passing):
    """Extends the present lease for whoever asks."""

    def renew(self, held: Head, ttl_ms: int) -> Head:
        """Renew the head as it is."""
        return self.inner.renew(self.present(held), ttl_ms)


class RenewsTheDead(Passing):
    """Extends a lease that has ended."""

    def renew(self, held: Head, ttl_ms: int) -> Head:
        """Take the lease anew for a holder that comes late."""
        try:
            return self.inner.renew(held, ttl_ms)
        except LeaseLostError:
            if self.present(held).nonce != held.nonce:
                raise
            return self.taken_anew(held, ttl_ms)


class RenewingComparesTheCommit(Passing):
    """Refuses to renew for a holder that has committed since."""

    def renew(self, held: Head, ttl_ms: int) -> Head:
        """Compare the generation too."""
        if self.present(held).generation != held.generation:
            raise StaleHeadError("the head moved", held.run_id)
        return self.inner.renew(held, ttl_ms)


class ReleasesForAnybody(Passing):
    """Frees the present lease for whoever asks."""

    def release(self, held: Head, pause_ms: int = 0) -> None:
        """Release the head as it is."""
        self.inner.release(self.present(held), pause_ms)


class LeasesForNobody(Passing):
    """Grants a term of nothing, as if it were one."""

    def create(
        self, run_id: RunId, checkpoint: Digest, owner: str, nonce: str, ttl_ms: int
    ) -> Head:
        """Grant at least a millisecond, to anybody."""
        return self.inner.create(run_id, checkpoint, owner, nonce or "none", max(1, ttl_ms))
