"""Stores that each break one promise about marks and pruning: they test the clauses."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from counterfoil.core.codec import Checkpoint
from counterfoil.core.errors import LeaseLostError
from counterfoil.core.words import Digest, RunId
from counterfoil.ports import CheckpointStore, Mark
from counterfoil.testing.saboteur_stores import MANY, Passing

ANY_LEASE = 2**53 - 1
"""A lease that no mark holds off."""


class ForgetsTheMark(Passing):
    """Says that it marked, and did not."""

    def mark(self, mark: Mark) -> None:
        """Return without marking."""


class KeepsTheFirstMark(Passing):
    """Takes a second mark of one lease for a repetition."""

    def mark(self, mark: Mark) -> None:
        """Mark once per lease."""
        present = self.inner.marked(mark.run_id)
        if present is None or present.lease_version < mark.lease_version:
            self.inner.mark(mark)


class AcceptsOldMarks(Passing):
    """Lets a late worker leave its mark over its successor's."""

    def __init__(self, inner: CheckpointStore) -> None:
        super().__init__(inner)
        self._late: dict[RunId, Mark] = {}

    def mark(self, mark: Mark) -> None:
        """Take any mark."""
        try:
            self.inner.mark(mark)
        except LeaseLostError:
            self._late[mark.run_id] = mark

    def marked(self, run_id: RunId) -> Mark | None:
        """Return what was marked last."""
        return self._late.get(run_id) or self.inner.marked(run_id)


class IgnoresTheMark(Passing):
    """Lets a late worker put."""

    def put(self, batch: Sequence[Checkpoint]) -> None:
        """Put under a lease that is never refused."""
        self.inner.put([replace(row, lease_version=ANY_LEASE) for row in batch])


class HoldsItsHolderOff(Passing):
    """Refuses the marked lease itself."""

    def put(self, batch: Sequence[Checkpoint]) -> None:
        """Refuse what is not newer than the mark."""
        for row in batch:
            mark = self.inner.marked(row.run_id)
            if mark is not None and mark.lease_version >= row.lease_version:
                raise LeaseLostError("the mark stands", row.run_id)
        self.inner.put(batch)


class MarksEveryRun(Passing):
    """Holds one run's late workers off by another run's mark."""

    def put(self, batch: Sequence[Checkpoint]) -> None:
        """Refuse what is older than any mark."""
        marks = [self.inner.marked(run) for run in self.inner.runs("", MANY)]
        newest = max((mark.lease_version for mark in marks if mark is not None), default=0)
        for row in batch:
            if row.lease_version < newest:
                raise LeaseLostError("a mark stands", row.run_id)
        self.inner.put(batch)


class PrunesNothing(Passing):
    """Says that there was nothing to drop."""

    def prune(self, run_id: RunId, chain: Mapping[int, Digest], below: int) -> int:
        """Drop nothing."""
        return 0


class PrunesOneStateTooMany(Passing):
    """Takes the bound for one that is included."""

    def prune(self, run_id: RunId, chain: Mapping[int, Digest], below: int) -> int:
        """Drop the state at the bound too."""
        return self.inner.prune(run_id, chain, below + 1)


class PrunesTheChainToo(Passing):
    """Drops whole what should lose its state alone."""

    def prune(self, run_id: RunId, chain: Mapping[int, Digest], below: int) -> int:
        """Drop every row below the bound."""
        none = Digest("0" * 64)
        old = [row.generation for row in self.inner.trace(run_id, -1, MANY)]
        return self.inner.prune(run_id, {each: none for each in old if each < below}, below)


class LeavesOrphans(Passing):
    """Drops states alone, so that losers of races stay for ever."""

    def prune(self, run_id: RunId, chain: Mapping[int, Digest], below: int) -> int:
        """Drop old states."""
        return self.inner.prune(run_id, {}, below)


class PrunesAboveTheHead(Passing):
    """Takes what the chain does not name for an orphan."""

    def prune(self, run_id: RunId, chain: Mapping[int, Digest], below: int) -> int:
        """Drop every row that the chain does not name."""
        none = Digest("0" * 64)
        rows = self.inner.trace(run_id, -1, MANY)
        return self.inner.prune(
            run_id, {row.generation: chain.get(row.generation, none) for row in rows}, below
        )


class CountsWhatIsGone(Passing):
    """Counts every old row again at each pass."""

    def prune(self, run_id: RunId, chain: Mapping[int, Digest], below: int) -> int:
        """Return how many rows are below the bound."""
        self.inner.prune(run_id, chain, below)
        return sum(row.generation < below for row in self.inner.trace(run_id, -1, MANY))


class RemembersHowFarItPruned(Passing):
    """Begins where it stopped, and so never sees what arrives behind it."""

    def __init__(self, inner: CheckpointStore) -> None:
        super().__init__(inner)
        self._below = 0

    def prune(self, run_id: RunId, chain: Mapping[int, Digest], below: int) -> int:
        """Do nothing below where it stopped."""
        if below <= self._below:
            return 0
        self._below = below
        return self.inner.prune(run_id, chain, below)


class PrunesEveryRun(Passing):
    """Drops the old states of all runs at once."""

    def prune(self, run_id: RunId, chain: Mapping[int, Digest], below: int) -> int:
        """Prune each run."""
        return sum(self.inner.prune(run, chain, below) for run in self.inner.runs("", MANY))
