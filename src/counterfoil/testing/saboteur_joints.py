"""Joints that each break one promise: they test the clauses.

Each wraps a good joint and knows its store and its register. A suite that lets one of
them through lacks a clause.
"""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from counterfoil.core.codec import Checkpoint
from counterfoil.core.errors import LostRaceError, StaleHeadError, UsageError
from counterfoil.ports import Advance, CheckpointStore, Head, HeadRegister, Joint

ANY_LEASE = 2**53 - 1
"""A lease that no mark holds off."""


class Passing:
    """Hands every commit on to a good joint; breaks nothing.

    Attributes:
        inner: The good joint.
        store: Its store.
        heads: Its register.
    """

    def __init__(self, inner: Joint, store: CheckpointStore, heads: HeadRegister) -> None:
        self.inner = inner
        self.store = store
        self.heads = heads

    def commit(self, rows: Sequence[Checkpoint], moves: Sequence[Advance]) -> tuple[Head, ...]:
        """Hand on."""
        return self.inner.commit(rows, moves)

    def present(self, head: Head) -> Head:
        """Return the head as the good register has it, or as it was given."""
        return self.heads.read(head.run_id) or head


class RowsWithoutMoves(Passing):
    """Stores, and answers as if it had moved."""

    def commit(self, rows: Sequence[Checkpoint], moves: Sequence[Advance]) -> tuple[Head, ...]:
        """Put the rows alone."""
        self.store.put(rows)
        return tuple(
            replace(
                move.expected,
                generation=move.expected.generation + 1,
                checkpoint=move.checkpoint,
                status=move.status,
            )
            for move in moves
        )


class MovesWithoutRows(Passing):
    """Moves, and stores nothing."""

    def commit(self, rows: Sequence[Checkpoint], moves: Sequence[Advance]) -> tuple[Head, ...]:
        """Advance alone."""
        return self.heads.advance(moves)


class RowsBeforeMoves(Passing):
    """Makes two writes, so that a refused move leaves rows."""

    def commit(self, rows: Sequence[Checkpoint], moves: Sequence[Advance]) -> tuple[Head, ...]:
        """Put, then advance."""
        self.store.put(rows)
        return self.heads.advance(moves)


class MovesBeforeRows(Passing):
    """Makes two writes, so that refused rows leave heads moved."""

    def commit(self, rows: Sequence[Checkpoint], moves: Sequence[Advance]) -> tuple[Head, ...]:
        """Advance, then put."""
        moved = self.heads.advance(moves)
        self.store.put(rows)
        return moved


class MovesLongBeforeRows(Passing):
    """Puts a row only when the next one comes, and nobody has asked for it meanwhile."""

    def __init__(self, inner: Joint, store: CheckpointStore, heads: HeadRegister) -> None:
        super().__init__(inner, store, heads)
        self._waiting: Sequence[Checkpoint] = ()

    def commit(self, rows: Sequence[Checkpoint], moves: Sequence[Advance]) -> tuple[Head, ...]:
        """Put what waited, advance, and keep the rows for later."""
        self.store.put(self._waiting)
        moved = self.heads.advance(moves)
        self._waiting = tuple(rows)
        return moved


class IgnoresTheMark(Passing):
    """Lets a late worker commit that the store's mark holds off."""

    def commit(self, rows: Sequence[Checkpoint], moves: Sequence[Advance]) -> tuple[Head, ...]:
        """Commit under a lease that is never refused."""
        return self.inner.commit([replace(row, lease_version=ANY_LEASE) for row in rows], moves)


class HalfBatch(Passing):
    """Commits one run after the other, so that a refused one leaves those before it."""

    def commit(self, rows: Sequence[Checkpoint], moves: Sequence[Advance]) -> tuple[Head, ...]:
        """Commit each move with its rows."""
        return tuple(
            head
            for move in moves
            for head in self.inner.commit(
                [row for row in rows if row.digest == move.checkpoint], [move]
            )
        )


class AnswersOutOfOrder(Passing):
    """Answers a batch in order of run ids."""

    def commit(self, rows: Sequence[Checkpoint], moves: Sequence[Advance]) -> tuple[Head, ...]:
        """Sort the answer."""
        return tuple(sorted(self.inner.commit(rows, moves), key=lambda head: head.run_id))


class AnswersInOrderOfRows(Passing):
    """Takes the first row for that of the first move."""

    def commit(self, rows: Sequence[Checkpoint], moves: Sequence[Advance]) -> tuple[Head, ...]:
        """Answer as the rows came."""
        moved = {head.checkpoint: head for head in self.inner.commit(rows, moves)}
        return tuple(moved[row.digest] for row in rows if row.digest in moved)


class _Believing(Passing):
    """Commits from the head as it is, in what `believed` names."""

    believed: tuple[str, ...] = ()

    def commit(self, rows: Sequence[Checkpoint], moves: Sequence[Advance]) -> tuple[Head, ...]:
        """Put the present fields in the place of the expected ones."""
        return self.inner.commit(rows, list(self._corrected(moves)))

    def _corrected(self, moves: Iterable[Advance]) -> Iterable[Advance]:
        for each in moves:
            present = self.present(each.expected)
            fields = {name: getattr(present, name) for name in self.believed}
            yield replace(each, expected=replace(each.expected, **fields))


class IgnoresTheLease(_Believing):
    """Compares generation and checkpoint alone, so a late worker commits."""

    believed = ("nonce", "lease_version")


class IgnoresTheCheckpoint(_Believing):
    """Compares numbers alone, and a fork has the same number."""

    believed = ("checkpoint",)


class CommitsTwice(_Believing):
    """Compares the lease alone, so a repeated call moves the head again."""

    believed = ("generation", "checkpoint")


class TakesARefusalForARepetition(Passing):
    """Answers a stale commit with the head as it is, as if it had been made before."""

    def commit(self, rows: Sequence[Checkpoint], moves: Sequence[Advance]) -> tuple[Head, ...]:
        """Swallow the refusal."""
        try:
            return self.inner.commit(rows, moves)
        except StaleHeadError:
            return tuple(self.present(move.expected) for move in moves)


class RefusesWhatIsStored(Passing):
    """Takes a row that was put before for a repetition of the whole commit."""

    def commit(self, rows: Sequence[Checkpoint], moves: Sequence[Advance]) -> tuple[Head, ...]:
        """Refuse a row that is there."""
        for row in rows:
            if self.store.get(row.run_id, row.digest) is not None:
                raise StaleHeadError("the row is there already", row.run_id)
        return self.inner.commit(rows, moves)


class ForgetsNames(Passing):
    """Stores rows, but not what they settle."""

    def commit(self, rows: Sequence[Checkpoint], moves: Sequence[Advance]) -> tuple[Head, ...]:
        """Drop the names."""
        return self.inner.commit([replace(row, settles=()) for row in rows], moves)


class ForgetsTheTerm(Passing):
    """Moves heads, and leaves the ends of their leases."""

    def commit(self, rows: Sequence[Checkpoint], moves: Sequence[Advance]) -> tuple[Head, ...]:
        """Ask for a term that is always over first."""
        return self.inner.commit(rows, [replace(move, ttl_ms=1) for move in moves])


class TakesAnyStatus(Passing):
    """Takes a status that nobody knows for an active one."""

    def commit(self, rows: Sequence[Checkpoint], moves: Sequence[Advance]) -> tuple[Head, ...]:
        """Try again with a status that is known."""
        try:
            return self.inner.commit(rows, moves)
        except UsageError:
            return self.inner.commit(rows, [replace(move, status="active") for move in moves])


class KeepsTheRowsOfLosers(Passing):
    """Tells a lost race, and leaves the row of its loser."""

    def commit(self, rows: Sequence[Checkpoint], moves: Sequence[Advance]) -> tuple[Head, ...]:
        """Store what was refused."""
        try:
            return self.inner.commit(rows, moves)
        except LostRaceError:
            self.store.put(rows)
            raise


class MovesARunOnce(Passing):
    """Moves each run of a batch once, to the last of its checkpoints."""

    def commit(self, rows: Sequence[Checkpoint], moves: Sequence[Advance]) -> tuple[Head, ...]:
        """Drop all but the first move of each run."""
        first: dict[str, Advance] = {}
        for move in moves:
            first.setdefault(move.expected.run_id, move)
        return self.inner.commit(rows, list(first.values()))
