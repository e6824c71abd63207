"""The ports: what the engine needs of stores, registers, inboxes, adapters and clocks.

Protocols, not base classes. Each is defined as much by its conformance suite in
`counterfoil.testing` as by its signatures. Driver errors never cross a port: they are
translated to the taxonomy, and an error after the first byte was sent is unknown.
"""

from asyncio import AbstractEventLoop
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import Protocol

import msgspec

from counterfoil.core.codec import Checkpoint
from counterfoil.core.intent import EnvironmentState, KindSpec
from counterfoil.core.receipt import Fence, LookUp, Receipt, Served
from counterfoil.core.words import Digest, IntentDigest, Json, Key, RunId
from counterfoil.shelf import Shelf


class Head(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One record per run: which checkpoint is newest, and who may say so.

    Attributes:
        run_id: The run.
        generation: Number of the newest checkpoint.
        checkpoint: Its digest.
        owner: Name of the holder, for people; empty when free.
        nonce: Random, new at each acquisition; empty when free.
        lease_version: Raised at each acquisition.
        expires_at_ms: End of the lease, by the register's clock. When free, the moment
            from which workers may claim the run; 0 for at once.
        status: "active", "frozen" or "terminal".
        incarnation: Random, new whenever the register was set up or restored.
    """

    run_id: RunId
    generation: int
    checkpoint: Digest
    owner: str = ""
    nonce: str = ""
    lease_version: int = 0
    expires_at_ms: int = 0
    status: str = "active"
    incarnation: str


class Advance(msgspec.Struct, frozen=True, kw_only=True):
    """One compare-and-set: move `expected` to another checkpoint.

    Attributes:
        expected: The head as the holder last saw it.
        checkpoint: Digest of the checkpoint with `expected.generation` + 1.
        status: Status to set.
        ttl_ms: The lease is extended to this long from now.
    """

    expected: Head
    checkpoint: Digest
    status: str
    ttl_ms: int


class HeadRegister(Protocol):
    """One linearizable record per run. Every implementation passes `HEAD_CLAUSES`.

    Each write is one atomic act. When its answer is lost the method raises
    `UnknownOutcomeError`; the caller reads the head to learn what happened.
    """

    def create(
        self, run_id: RunId, checkpoint: Digest, owner: str, nonce: str, ttl_ms: int
    ) -> Head:
        """Register generation 0 and hold it under lease version 1.

        Raises:
            StaleHeadError: The run has a head.
        """
        ...

    def read(self, run_id: RunId) -> Head | None:
        """Return the head, linearizably, or None."""
        ...

    def acquire(self, expected: Head, owner: str, nonce: str, ttl_ms: int) -> Head:
        """Take a lease that is free, released or expired by the register's clock.

        Raises:
            LeaseLostError: Another holder's lease stands.
            StaleHeadError: The record is not `expected` any more.
            HeadMissingError: There is none.
        """
        ...

    def renew(self, held: Head, ttl_ms: int) -> Head:
        """Extend the lease; never shorten it.

        Raises:
            LeaseLostError: Nonce and lease version are not the register's, or the
                lease has expired by the register's clock.
        """
        ...

    def advance(self, batch: Sequence[Advance]) -> tuple[Head, ...]:
        """Move heads on, all of the batch in one durable write or none.

        Raises:
            LeaseLostError: A lease is not the caller's, or has expired.
            StaleHeadError: A generation or checkpoint is not the expected one.
            HeadMissingError: There is no such head.
        """
        ...

    def release(self, held: Head, pause_ms: int = 0) -> None:
        """Give the lease up, if it is still the caller's; otherwise do nothing.

        The run is free at once. `claimable` leaves it out for `pause_ms` by the
        register's clock, so that a worker that failed is not followed at once.
        """
        ...

    def claimable(self, limit: int) -> tuple[Head, ...]:
        """Return active heads that are free and whose pause is over, at most `limit`."""
        ...

    def heads(self, after: str, limit: int) -> tuple[Head, ...]:
        """Return heads in order of run id, from after `after`, at most `limit`."""
        ...

    def close(self) -> None:
        """Let go of connections."""
        ...


class Joint(Protocol):
    """Store and register in one database: both moves are one transaction.

    What is refused, and with what, is as `CheckpointStore.put` and then
    `HeadRegister.advance` say; nothing of the batch has happened then.
    """

    def commit(self, rows: Sequence[Checkpoint], moves: Sequence[Advance]) -> tuple[Head, ...]:
        """Store checkpoints and move heads on, all or none, in one durable write."""
        ...


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """The signed lease record, or commit marker, of a run in the checkpoint store.

    Attributes:
        run_id: The run.
        lease_version: Lease it was written under.
        envelope: Signed: generation, digest, lease version and nonce.
    """

    run_id: RunId
    lease_version: int
    envelope: bytes


class CheckpointStore(Shelf, Protocol):
    """Immutable, content-addressed checkpoints. Passes `STORE_CLAUSES`.

    Whatever it returns is judged by signature and hash; it decides nothing.
    """

    def put(self, batch: Sequence[Checkpoint]) -> None:
        """Store checkpoints durably, all or none; one that is there already is kept.

        Raises:
            LeaseLostError: The mark of a run is of a newer lease.
            UnknownOutcomeError: The answer was lost; putting again is harmless.
        """
        ...

    def get(self, run_id: RunId, checkpoint: Digest) -> Checkpoint | None:
        """Return one checkpoint, or None."""
        ...

    def find(self, run_id: RunId, name: str) -> tuple[Checkpoint, ...]:
        """Return the checkpoints that settle a key or position, newest first.

        More than one where several workers staged one; at most `FOUND_MAX`.
        """
        ...

    def trace(self, run_id: RunId, after: int, limit: int) -> tuple[Checkpoint, ...]:
        """Return checkpoints with a generation above `after`, oldest first.

        A page never ends inside a generation, so it may hold more than `limit`.
        """
        ...

    def mark(self, mark: Mark) -> None:
        """Replace the run's mark.

        Raises:
            LeaseLostError: The present mark is of a newer lease.
        """
        ...

    def marked(self, run_id: RunId) -> Mark | None:
        """Return the run's mark, or None."""
        ...

    def prune(self, run_id: RunId, chain: Mapping[int, Digest], below: int) -> int:
        """Drop what no recovery needs, and return how many rows changed.

        Drops the state of checkpoints with a generation below `below`, and whole
        checkpoints whose generation is in `chain` under another digest.
        """
        ...

    def runs(self, after: str, limit: int) -> tuple[RunId, ...]:
        """Return run ids in order, from after `after`, at most `limit`."""
        ...

    def close(self) -> None:
        """Let go of connections."""
        ...


FOUND_MAX = 8
"""Rows that `find` returns: one, and what losers of a race left."""


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One call of an adapter.

    Attributes:
        run_id: For which run.
        kind: What to do.
        arguments: Normalised; with volatile ones where they are at hand.
        key: Idempotency key; empty for reads and verifications.
        digest: Digest of the intent.
        fence: Token of the lease; an adapter that can refuses an older one.
        served: Checkpoint that carries the intent; None for reads.
        prestate: State that the intent was built on.
        scope: The policy's lists for this adapter.
        timeout_ms: Longest that the call may take.
        statement: Digest of the approval; empty when there is none.
    """

    run_id: RunId
    kind: str
    arguments: dict[str, Json]
    key: Key
    digest: IntentDigest
    fence: Fence
    served: Served | None
    prestate: EnvironmentState
    scope: Mapping[str, tuple[str, ...]]
    timeout_ms: int
    statement: str = ""


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """What an adapter sees of its environment.

    Attributes:
        state: Identity and exact state; the fingerprint is empty when unobservable.
        facts: Named facts that a task may expect at the end.
    """

    state: EnvironmentState
    facts: dict[str, Json] = {}


class Adapter(Protocol):
    """The world as one adapter sees it. Passes `ADAPTER_CLAUSES` of its level.

    `execute` raises `StaleObservationError`, another `RefusedError`, `UsageError` or
    `UnavailableError` only when nothing has happened and nothing will; `FencedError`
    when the fence is old; `IdempotencyConflictError` when the key holds another intent;
    and anything else means that the outcome is unknown.
    """

    @property
    def name(self) -> str:
        """Name in intents, scopes and settings."""
        ...

    @property
    def kinds(self) -> tuple[KindSpec, ...]:
        """What it can do."""
        ...

    def take(self, run_id: RunId, fence: Fence) -> Served | None:
        """Raise the run's fence, and return what was served last under older ones.

        Raises:
            FencedError: A newer fence, or an equal version with another nonce, stands.
        """
        ...

    def observe(self, scope: Mapping[str, tuple[str, ...]]) -> Observation:
        """Return the environment as it is.

        Raises:
            UnavailableError: It cannot be looked at.
        """
        ...

    def look_up(self, run_id: RunId, key: Key, kind: str) -> LookUp:
        """Say what is known of a key; an error while asking is `unknown`, not absent."""
        ...

    def execute(self, operation: Operation) -> Receipt:
        """Do it, once per key, and return the receipt.

        The result of a write is as `canonical.bounded` returns it, since the adapter
        keeps it. For reads and verifications the result is any value, and it and the
        poststate alone count.
        """
        ...

    def forbid(self, run_id: RunId, key: Key, kind: str, fence: Fence) -> LookUp:
        """Make the key impossible unless it is done; return found or absent.

        Only called where the kind declares `forbids`.
        """
        ...

    def close(self) -> None:
        """Let go of what is held."""
        ...


running_loop: ContextVar[AbstractEventLoop | None] = ContextVar("running_loop", default=None)
"""Loop of the asynchronous session that calls an adapter; None for others."""


class Clock(Protocol):
    """Time for the engine."""

    def now_ms(self) -> int:
        """Return the wall clock, UTC, in milliseconds."""
        ...

    def monotonic_ms(self) -> int:
        """Return a clock that never goes back and counts suspended time."""
        ...


class Inbox(Protocol):
    """Signed statements that wait for the session that holds the run."""

    def put(self, run_id: RunId, statement: bytes) -> None:
        """Keep a statement; the same bytes twice are one."""
        ...

    def pending(self, run_id: RunId, limit: int) -> tuple[bytes, ...]:
        """Return statements in order of arrival, at most `limit`."""
        ...

    def discard(self, run_id: RunId, statement: bytes) -> None:
        """Drop a statement that was applied or refused; nothing if it is not there."""
        ...

    def arrivals(self, after: str, limit: int) -> tuple[RunId, ...]:
        """Return runs that have statements, in order, from after `after`, at most `limit`."""
        ...

    def close(self) -> None:
        """Let go of connections."""
        ...


class Bell(Protocol):
    """Wakes a worker when something may be due; without one, workers look now and then."""

    def wait(self, timeout_ms: int) -> bool:
        """Return True as soon as something may be due, False when the time is over.

        A lost connection is no error: it is made again, and a ring may be missed.
        """
        ...

    def close(self) -> None:
        """Let go of the connection; a second time does nothing."""
        ...


class Previews(Protocol):
    """An adapter that can show people what a write would change."""

    def preview(self, kind: str, arguments: dict[str, Json]) -> str:
        """Return a text for people, at most `PREVIEW_CHARS_MAX` characters.

        Raises:
            UnavailableError: It cannot be looked at.
        """
        ...


PREVIEW_CHARS_MAX = 8 * 1024
"""A difference that a person reads; longer ones are cut, and say so."""
