"""One durable write for many sessions of a process: their puts, advances and commits meet here.

Whoever comes while nothing is under way goes at once, with what it has. Whoever comes
while a batch is under way queues; when that ends, the first in the queue takes all of it
along that fits. Nobody waits for company, and there is no thread and no timer here: the
callers' own threads do the work.

A batch that is refused says nothing about any one of its calls, so each of them is then
made alone and gets an answer of its own. One whose answer was lost is unknown to each.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from threading import Lock
from typing import Generic, TypeVar

from counterfoil.core.codec import Checkpoint
from counterfoil.core.errors import CounterfoilError, UnknownOutcomeError
from counterfoil.core.words import RunId
from counterfoil.ports import Advance, CheckpointStore, Head, HeadRegister, Joint

BATCH_MAX = 128
"""Rows in one batch: past a few dozen a sync is shared well enough, and a server that
bounds its transactions usually allows this many. A port with another bound says so in
an attribute `batch_max`."""

BATCH_BYTES_MAX = 4 * 1024 * 1024
"""Bytes in one batch: room for several of the largest checkpoints, and little enough that
nobody waits for it much longer than for a write of its own."""

Item = TypeVar("Item")
Answer = TypeVar("Answer")


@dataclass(frozen=True, kw_only=True, slots=True)
class Size:
    """What a call adds to a batch.

    Attributes:
        rows: How many rows it writes.
        size_bytes: How many bytes they have.
        runs: Whose they are.
    """

    rows: int
    size_bytes: int
    runs: frozenset[RunId]


class _Turn(Generic[Item, Answer]):
    """One call in a lane, and what became of it.

    One that has ended with neither answers nor an error was refused with others: it is
    made again, alone.
    """

    __slots__ = ("answers", "batch", "bell", "error", "has_ended", "items")

    def __init__(self, items: Sequence[Item]) -> None:
        self.items = items
        self.bell: Lock | None = None
        self.batch: Sequence[_Turn[Item, Answer]] = ()
        self.has_ended = False
        self.answers: tuple[Answer, ...] | None = None
        self.error: CounterfoilError | None = None

    def wait(self) -> None:
        """Wait until this call has ended or leads."""
        if self.bell is not None:
            self.bell.acquire()

    def ring(self) -> None:
        """Wake whoever waits; a second time does no harm."""
        if self.bell is not None and self.bell.locked():
            self.bell.release()

    def end(
        self, *, answers: tuple[Answer, ...] | None = None, error: CounterfoilError | None = None
    ) -> None:
        """Note what became of it, unless that is known."""
        if not self.has_ended:
            self.answers, self.error = answers, error
            self.has_ended = True


class Lane(Generic[Item, Answer]):
    """Lets one call of a port be under way, and what comes meanwhile share the next.

    The turn that leads is in `_leader`, and stays at the front of the queue, if it waited
    there, until it has taken its batch. Each change of state is one assignment under the
    mutex, and leaving twice is leaving once: so an interrupt leaves nobody waiting,
    whichever two of our instructions it comes between.
    """

    def __init__(
        self,
        act: Callable[[Sequence[Item]], tuple[Answer, ...]],
        weigh: Callable[[Sequence[Item]], Size],
        rows_max: int,
    ) -> None:
        self._act = act
        self._weigh = weigh
        self._rows_max = rows_max
        self._process_id = os.getpid()
        self._mutex = Lock()
        self._leader: _Turn[Item, Answer] | None = None
        self._queue: list[_Turn[Item, Answer]] = []

    def go(self, items: Sequence[Item]) -> tuple[Answer, ...]:
        """Return the port's answer to one call, made alone or with others.

        Raises:
            UnknownOutcomeError: The answer of its batch was lost, or never came.
            CounterfoilError: What the port says to this call alone.
        """
        if os.getpid() != self._process_id:
            return self._act(items)  # after a fork: whoever leads the queue is not here
        turn = _Turn[Item, Answer](items)
        try:
            with self._mutex:
                if self._leader is None:
                    self._leader = turn
                else:
                    turn.bell = _locked()
                    self._queue.append(turn)
            if turn.bell is None:
                return self._act(items)
            turn.wait()
            if self._leader is turn:
                self._lead(turn)
        finally:
            if self._leader is turn or not turn.has_ended:
                try:
                    self._leave(turn)
                except BaseException:  # an interrupt right here must leave nobody waiting
                    self._leave(turn)
                    raise
        if turn.error is not None:
            raise turn.error
        return self._act(items) if turn.answers is None else turn.answers

    def _lead(self, turn: _Turn[Item, Answer]) -> None:
        """Make one call of those that wait, and note what became of each."""
        with self._mutex:
            self._take_along(turn)
        if len(turn.batch) == 1:
            turn.end(answers=self._act(turn.items))
            return
        try:
            answers = iter(self._act([item for each in turn.batch for item in each.items]))
        except UnknownOutcomeError as lost:
            for each in turn.batch:
                each.end(error=self._unknown(each, lost.message, lost))
        except CounterfoilError:
            for each in turn.batch:
                each.end()
        else:
            for each in turn.batch:
                each.end(answers=tuple(islice(answers, len(each.items))))

    def _take_along(self, turn: _Turn[Item, Answer]) -> None:
        """Take the front of the queue as a batch, with no run in it twice, and none overtaken."""
        taken: list[_Turn[Item, Answer]] = []
        left: list[_Turn[Item, Answer]] = []
        rows, size_bytes, runs = 0, 0, frozenset[RunId]()
        for place, each in enumerate(self._queue):
            size = self._weigh(each.items)
            rows, size_bytes = rows + size.rows, size_bytes + size.size_bytes
            if taken and (rows > self._rows_max or size_bytes > BATCH_BYTES_MAX):
                left += self._queue[place:]
                break
            (taken if runs.isdisjoint(size.runs) else left).append(each)
            runs |= size.runs
        turn.batch, self._queue = taken, left

    def _leave(self, turn: _Turn[Item, Answer]) -> None:
        """Hand the lead on, and wake everybody whose call has ended."""
        with self._mutex:
            if turn.bell is not None and not turn.batch:
                self._queue = [each for each in self._queue if each is not turn]
            if self._leader is turn:
                self._leader = self._queue[0] if self._queue else None
            if self._leader is not None:
                self._leader.ring()
        for each in turn.batch:
            if not each.has_ended:
                each.end(error=self._unknown(each, "whoever wrote for several runs stopped"))
            each.ring()

    def _unknown(
        self, turn: _Turn[Item, Answer], message: str, cause: CounterfoilError | None = None
    ) -> UnknownOutcomeError:
        """Return an error of its own for one turn of a batch."""
        runs = self._weigh(turn.items).runs
        error = UnknownOutcomeError(message, next(iter(runs)) if len(runs) == 1 else "")
        error.__cause__ = cause
        return error


def _locked() -> Lock:
    bell = Lock()
    bell.acquire()
    return bell


class SharedStore:
    """A `CheckpointStore` that stores what several threads put at once in one write.

    Every other call is the store's own.
    """

    def __init__(self, inner: CheckpointStore) -> None:
        def put(rows: Sequence[Checkpoint]) -> tuple[None, ...]:
            inner.put(rows)
            return (None,) * len(rows)

        self._lane = Lane(put, _size_of_rows, batch_max(inner))
        self.get = inner.get
        self.find = inner.find
        self.trace = inner.trace
        self.mark = inner.mark
        self.marked = inner.marked
        self.prune = inner.prune
        self.archive = inner.archive
        self.archived = inner.archived
        self.collect = inner.collect
        self.runs = inner.runs
        self.close = inner.close

    def put(self, batch: Sequence[Checkpoint]) -> None:
        """Store checkpoints, perhaps with those of others; see `CheckpointStore.put`."""
        self._lane.go(batch)


class SharedHeads:
    """A `HeadRegister` that moves what several threads advance at once in one write.

    Every other call is the register's own.
    """

    def __init__(self, inner: HeadRegister) -> None:
        def advance(moves: Sequence[Advance]) -> tuple[Head, ...]:
            return _answering(moves, inner.advance(moves))

        self._lane = Lane(advance, _size_of_moves, batch_max(inner))
        self.create = inner.create
        self.read = inner.read
        self.acquire = inner.acquire
        self.renew = inner.renew
        self.release = inner.release
        self.claimable = inner.claimable
        self.heads = inner.heads
        self.close = inner.close

    def advance(self, batch: Sequence[Advance]) -> tuple[Head, ...]:
        """Move heads on, perhaps with those of others; see `HeadRegister.advance`."""
        return self._lane.go(batch)


@dataclass(frozen=True, slots=True)
class _Pair:
    """What one call commits."""

    rows: Sequence[Checkpoint]
    moves: Sequence[Advance]


class SharedJoint:
    """A `Joint` that commits what several threads commit at once in one transaction."""

    def __init__(self, inner: Joint) -> None:
        def commit(pairs: Sequence[_Pair]) -> tuple[tuple[Head, ...], ...]:
            moves = [move for pair in pairs for move in pair.moves]
            rows = [row for pair in pairs for row in pair.rows]
            heads = iter(_answering(moves, inner.commit(rows, moves)))
            return tuple(tuple(islice(heads, len(pair.moves))) for pair in pairs)

        self._lane = Lane(commit, _size_of_pairs, batch_max(inner))

    def commit(self, rows: Sequence[Checkpoint], moves: Sequence[Advance]) -> tuple[Head, ...]:
        """Store and move on, perhaps with others; see `Joint.commit`."""
        (heads,) = self._lane.go((_Pair(rows, moves),))
        return heads


def shared(
    store: CheckpointStore, heads: HeadRegister, joint: Joint | None = None
) -> tuple[CheckpointStore, HeadRegister, Joint | None]:
    """Return the same ports, with the durable writes of several threads put together.

    Share what this returns among all sessions of a process, and use it in that process
    alone: after a fork its calls go to the ports as they are, which refuse them.

    A call that meets no other goes at once and as it is. None is overtaken by a later one
    for a run of its own; by one for other runs only where its own run is in the batch.
    """
    return SharedStore(store), SharedHeads(heads), None if joint is None else SharedJoint(joint)


def batch_max(port: object) -> int:
    """Return how many rows a batch of a port may have: its own bound, or `BATCH_MAX`."""
    stated: object = getattr(port, "batch_max", BATCH_MAX)
    return stated if isinstance(stated, int) else BATCH_MAX


def _answering(moves: Sequence[Advance], heads: tuple[Head, ...]) -> tuple[Head, ...]:
    """Refuse an answer that would give a run the head of another.

    Raises:
        UnknownOutcomeError: The answer does not fit the question; read the heads.
    """
    if [head.run_id for head in heads] != [move.expected.run_id for move in moves]:
        raise UnknownOutcomeError("the register answered for other runs than it was asked for")
    return heads


def _size_of_rows(rows: Sequence[Checkpoint]) -> Size:
    return Size(
        rows=len(rows),
        size_bytes=sum(len(row.envelope) + len(row.events) + len(row.state) for row in rows),
        runs=frozenset(row.run_id for row in rows),
    )


def _size_of_moves(moves: Sequence[Advance]) -> Size:
    """Weigh moves; a head is small, so that their number bounds their bytes."""
    return Size(
        rows=len(moves),
        size_bytes=0,
        runs=frozenset(move.expected.run_id for move in moves),
    )


def _size_of_pairs(pairs: Sequence[_Pair]) -> Size:
    rows = [_size_of_rows(pair.rows) for pair in pairs]
    moves = [_size_of_moves(pair.moves) for pair in pairs]
    return Size(
        rows=max(sum(size.rows for size in rows), sum(size.rows for size in moves)),
        size_bytes=sum(size.size_bytes for size in rows),
        runs=frozenset[RunId]().union(*(size.runs for size in (*rows, *moves))),
    )
