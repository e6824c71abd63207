"""Ports that tell what passes, and stand still at one moment.

Each wraps a real port and changes nothing. At the moment that the driver named the
worker reports where it is, and waits inside the call for a death from outside.
"""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from counterfoil.core.codec import Checkpoint, split_events
from counterfoil.core.intent import KindSpec
from counterfoil.core.receipt import Fence, LookUp, Receipt, Served
from counterfoil.core.trace import Event, Outcome
from counterfoil.core.words import Digest, Key, RunId
from counterfoil.demo.messages import Adopted, Asked, Fact, Proposed, Sent, Stopped
from counterfoil.demo.plan import Moment
from counterfoil.ports import (
    Adapter,
    Advance,
    CheckpointStore,
    Head,
    HeadRegister,
    Mark,
    Observation,
    Operation,
)

_BEFORE_PUT = {
    Outcome.PENDING: Moment.INTENT_BEFORE_PUT,
    Outcome.RESENT: Moment.RESENT_BEFORE_PUT,
    Outcome.EXECUTED: Moment.RECEIPT_BEFORE_PUT,
    Outcome.RECONCILED: Moment.RECEIPT_BEFORE_PUT,
}
_BEFORE_ADVANCE = {
    Outcome.PENDING: Moment.INTENT_BEFORE_ADVANCE,
    Outcome.RESENT: Moment.RESENT_BEFORE_ADVANCE,
    Outcome.EXECUTED: Moment.RECEIPT_BEFORE_ADVANCE,
    Outcome.RECONCILED: Moment.RECEIPT_BEFORE_ADVANCE,
}
_AFTER_ADVANCE = {
    Outcome.PENDING: Moment.INTENT_AFTER_ADVANCE,
    Outcome.EXECUTED: Moment.RECEIPT_AFTER_ADVANCE,
    Outcome.RECONCILED: Moment.RECEIPT_AFTER_ADVANCE,
}


class Watch:
    """Knows the moment to stop at, and what was put last.

    Args:
        stop_at: The moment; None to stop nowhere.
        tell: Reports to the driver.
        stand_still: Waits for death.
    """

    def __init__(
        self,
        *,
        stop_at: Moment | None,
        tell: Callable[[Fact | Stopped], None],
        stand_still: Callable[[], None],
    ) -> None:
        self._stop_at = stop_at
        self._tell = tell
        self._stand_still = stand_still
        self._put: dict[Digest, Event] = {}
        self._position = -1

    def passes(self, moment: Moment | None) -> None:
        """Stop here, if this is the moment."""
        if moment is not None and moment is self._stop_at:
            self._tell(Stopped(moment=moment, position=self._position))
            self._stand_still()

    def tell(self, fact: Fact) -> None:
        """Report a fact."""
        self._tell(fact)

    def before_put(self, row: Checkpoint) -> None:
        """Note what a checkpoint is about to make durable."""
        event = msgspec.json.decode(split_events(row.events)[0], type=Event)
        self._put[row.digest] = event
        self._position = event.position
        self.passes(_BEFORE_PUT.get(event.outcome))

    def before_advance(self, checkpoint: Digest) -> None:
        """Pass the moment before a commit counts."""
        event = self._put.get(checkpoint)
        self.passes(_BEFORE_ADVANCE.get(event.outcome) if event else None)

    def after_advance(self, checkpoint: Digest) -> None:
        """Tell what is durable."""
        event = self._put.get(checkpoint)
        if event is None:
            return
        if event.outcome is Outcome.PENDING:
            self.tell(Proposed(position=event.position))
        elif event.outcome is Outcome.RECONCILED:
            self.tell(Adopted())
        self.passes(_AFTER_ADVANCE.get(event.outcome))


class WatchedStore:
    """A `CheckpointStore` under watch."""

    def __init__(self, store: CheckpointStore, watch: Watch) -> None:
        self._store = store
        self._watch = watch

    def put(self, batch: Sequence[Checkpoint]) -> None:
        """Stop before, if that is the moment; then put."""
        for row in batch:
            self._watch.before_put(row)
        self._store.put(batch)

    def get(self, run_id: RunId, checkpoint: Digest) -> Checkpoint | None:
        """Pass on."""
        return self._store.get(run_id, checkpoint)

    def find(self, run_id: RunId, name: str) -> tuple[Checkpoint, ...]:
        """Pass on."""
        return self._store.find(run_id, name)

    def trace(self, run_id: RunId, after: int, limit: int) -> tuple[Checkpoint, ...]:
        """Pass on."""
        return self._store.trace(run_id, after, limit)

    def mark(self, mark: Mark) -> None:
        """Pass on."""
        self._store.mark(mark)

    def marked(self, run_id: RunId) -> Mark | None:
        """Pass on."""
        return self._store.marked(run_id)

    def prune(self, run_id: RunId, chain: Mapping[int, Digest], below: int) -> int:
        """Pass on."""
        return self._store.prune(run_id, chain, below)

    def archive(self, run_id: RunId, name: str, content: bytes) -> None:
        """Pass on."""
        self._store.archive(run_id, name, content)

    def archived(self, run_id: RunId, name: str) -> bytes | None:
        """Pass on."""
        return self._store.archived(run_id, name)

    def collect(self, run_id: RunId, checkpoint: Digest, generation: int, limit: int) -> int:
        """Pass on."""
        return self._store.collect(run_id, checkpoint, generation, limit)

    def runs(self, after: str, limit: int) -> tuple[RunId, ...]:
        """Pass on."""
        return self._store.runs(after, limit)

    def close(self) -> None:
        """Pass on."""
        self._store.close()


class WatchedHeads:
    """A `HeadRegister` under watch."""

    def __init__(self, heads: HeadRegister, watch: Watch) -> None:
        self._heads = heads
        self._watch = watch

    def create(
        self, run_id: RunId, checkpoint: Digest, owner: str, nonce: str, ttl_ms: int
    ) -> Head:
        """Pass on."""
        return self._heads.create(run_id, checkpoint, owner, nonce, ttl_ms)

    def read(self, run_id: RunId) -> Head | None:
        """Pass on."""
        return self._heads.read(run_id)

    def acquire(self, expected: Head, owner: str, nonce: str, ttl_ms: int) -> Head:
        """Take the lease; stop after it, if that is the moment."""
        held = self._heads.acquire(expected, owner, nonce, ttl_ms)
        self._watch.passes(Moment.LEASE_TAKEN)
        return held

    def renew(self, held: Head, ttl_ms: int) -> Head:
        """Pass on."""
        return self._heads.renew(held, ttl_ms)

    def advance(self, batch: Sequence[Advance]) -> tuple[Head, ...]:
        """Stop before or after, if that is the moment."""
        for move in batch:
            self._watch.before_advance(move.checkpoint)
        moved = self._heads.advance(batch)
        for move in batch:
            self._watch.after_advance(move.checkpoint)
        return moved

    def release(self, held: Head, pause_ms: int = 0) -> None:
        """Pass on."""
        self._heads.release(held, pause_ms)

    def claimable(self, limit: int) -> tuple[Head, ...]:
        """Pass on."""
        return self._heads.claimable(limit)

    def heads(self, after: str, limit: int) -> tuple[Head, ...]:
        """Pass on."""
        return self._heads.heads(after, limit)

    def close(self) -> None:
        """Pass on."""
        self._heads.close()


class WatchedAdapter:
    """An `Adapter` under watch; reads pass unseen."""

    def __init__(self, adapter: Adapter, watch: Watch) -> None:
        self._adapter = adapter
        self._watch = watch

    @property
    def name(self) -> str:
        """Name of the adapter."""
        return self._adapter.name

    @property
    def kinds(self) -> tuple[KindSpec, ...]:
        """What it can do."""
        return self._adapter.kinds

    def take(self, run_id: RunId, fence: Fence) -> Served | None:
        """Raise the fence; stop after it, if that is the moment."""
        served = self._adapter.take(run_id, fence)
        self._watch.passes(Moment.FENCE_RAISED)
        return served

    def observe(self, scope: Mapping[str, tuple[str, ...]]) -> Observation:
        """Pass on."""
        return self._adapter.observe(scope)

    def look_up(self, run_id: RunId, key: Key, kind: str) -> LookUp:
        """Stop before or after, if that is the moment; tell the answer."""
        self._watch.passes(Moment.BEFORE_LOOK_UP)
        answer = self._adapter.look_up(run_id, key, kind)
        self._watch.tell(Asked(answer=answer.answer))
        self._watch.passes(Moment.AFTER_LOOK_UP)
        return answer

    def execute(self, operation: Operation) -> Receipt:
        """Stop before or after a write, if that is the moment."""
        if not operation.key:
            return self._adapter.execute(operation)
        self._watch.passes(Moment.BEFORE_EXECUTE)
        self._watch.tell(Sent())
        receipt = self._adapter.execute(operation)
        self._watch.passes(Moment.AFTER_EXECUTE)
        return receipt

    def forbid(self, run_id: RunId, key: Key, kind: str, fence: Fence) -> LookUp:
        """Pass on."""
        return self._adapter.forbid(run_id, key, kind, fence)

    def close(self) -> None:
        """Pass on."""
        self._adapter.close()
