"""Registers that each break one promise about what others see: they test the clauses."""

from collections.abc import Callable

from counterfoil.core.errors import LeaseLostError, UnavailableError
from counterfoil.core.words import Digest, RunId
from counterfoil.ports import Head, HeadRegister
from counterfoil.testing.saboteur_heads import MANY, Passing


class StaleReads(Passing):
    """Reads a head once, and believes it for ever."""

    def __init__(self, inner: HeadRegister, now_ms: Callable[[], int]) -> None:
        super().__init__(inner, now_ms)
        self._seen: dict[RunId, Head | None] = {}

    def read(self, run_id: RunId) -> Head | None:
        """Answer as the first time."""
        if run_id not in self._seen:
            self._seen[run_id] = self.inner.read(run_id)
        return self._seen[run_id]


class MakesHeadsUp(Passing):
    """Answers for a run that it does not know with another run's head."""

    def read(self, run_id: RunId) -> Head | None:
        """Return the first head that there is."""
        head = self.inner.read(run_id)
        return head or next(iter(self.inner.heads("", 1)), None)


class FoldsRunIds(Passing):
    """Takes two spellings of a run id for one."""

    def create(
        self, run_id: RunId, checkpoint: Digest, owner: str, nonce: str, ttl_ms: int
    ) -> Head:
        """Create under the folded name."""
        return self.inner.create(RunId(run_id.casefold()), checkpoint, owner, nonce, ttl_ms)

    def read(self, run_id: RunId) -> Head | None:
        """Read under the folded name."""
        return self.inner.read(RunId(run_id.casefold()))


class ClaimsWhatIsHeld(Passing):
    """Offers runs that somebody works on."""

    def claimable(self, limit: int) -> tuple[Head, ...]:
        """Return every active head."""
        heads = self.inner.heads("", MANY)
        return tuple(head for head in heads if head.status == "active")[:limit]


class ClaimsWhatHasEnded(Passing):
    """Offers runs that nobody holds, whatever became of them."""

    def claimable(self, limit: int) -> tuple[Head, ...]:
        """Return every free head."""
        heads = self.inner.heads("", MANY)
        ended = (head for head in heads if not head.nonce and head.status != "active")
        return (*self.inner.claimable(limit), *ended)[:limit]


class ClaimsInOrderOfName(Passing):
    """Offers the same runs first, so that others starve."""

    def claimable(self, limit: int) -> tuple[Head, ...]:
        """Sort by run id."""
        return tuple(sorted(self.inner.claimable(limit), key=lambda head: head.run_id))


class ForgetsThePause(Passing):
    """Gives a run that failed to the next worker at once."""

    def release(self, held: Head, pause_ms: int = 0) -> None:
        """Release without a pause, having judged it."""
        self.inner.release(held, min(pause_ms, 0))


class PausesForEver(Passing):
    """Hides a run that was paused once from every worker."""

    def release(self, held: Head, pause_ms: int = 0) -> None:
        """Pause for longer than anybody waits."""
        self.inner.release(held, pause_ms * 1_000)


class PausesForEverybody(Passing):
    """Takes a pause for a lease, so that nobody can take the run."""

    def acquire(self, expected: Head, owner: str, nonce: str, ttl_ms: int) -> Head:
        """Refuse what is not claimable."""
        if not expected.nonce and expected not in self.inner.claimable(MANY):
            raise LeaseLostError("the run is paused", expected.run_id)
        return self.inner.acquire(expected, owner, nonce, ttl_ms)


class TakesAnyPause(Passing):
    """Takes a pause that ends before it begins for none."""

    def release(self, held: Head, pause_ms: int = 0) -> None:
        """Pause for nothing or longer."""
        self.inner.release(held, max(0, pause_ms))


class ClaimsWithoutEnd(Passing):
    """Ignores the limit of a claim."""

    def claimable(self, limit: int) -> tuple[Head, ...]:
        """Return all."""
        return self.inner.claimable(MANY)


class ListsByAlphabet(Passing):
    """Orders run ids as a person would, so that pages by code point do not join."""

    def heads(self, after: str, limit: int) -> tuple[Head, ...]:
        """Fold letters before comparing."""
        heads = sorted(self.inner.heads("", MANY), key=lambda head: head.run_id.casefold())
        rest = (head for head in heads if head.run_id.casefold() > after.casefold())
        return tuple(rest)[:limit]


class ClosesOnce(Passing):
    """Fails when it is closed a second time."""

    _is_closed = False

    def close(self) -> None:
        """Close, or fail."""
        if self._is_closed:
            raise UnavailableError("the register is closed")
        self._is_closed = True
        self.inner.close()
