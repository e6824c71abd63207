"""The durable run: stage what may ride, seal, put, advance, and believe only the head.

A commit is validated and sealed in memory, put into the store, and linearised by one
compare-and-set of the head; or both at once, where they are one database. Silence of the
register is not success: the head is read and digests are compared. After any failed
commit the ledger is not used again.
"""

from collections import OrderedDict
from collections.abc import Callable

from msgspec.structs import replace

from counterfoil.core import task as tasks
from counterfoil.core.bounds import EVENTS_PER_COMMIT_MAX
from counterfoil.core.canonical import encode
from counterfoil.core.codec import (
    Checkpoint,
    Header,
    encode_events,
    extended,
    rfc3339,
    seal_checkpoint,
)
from counterfoil.core.envelope import LEASE_TYPE, seal
from counterfoil.core.errors import (
    CounterfoilError,
    LeaseLostError,
    StaleHeadError,
    UnavailableError,
    UnknownOutcomeError,
)
from counterfoil.core.inputs import Migrated, Rules, Step
from counterfoil.core.intent import Pending
from counterfoil.core.machine import apply
from counterfoil.core.run import Run, check_invariants, head_status
from counterfoil.core.task import Task
from counterfoil.core.trace import Event
from counterfoil.core.words import Digest
from counterfoil.engine.filing import Answers
from counterfoil.engine.lease import Lease
from counterfoil.engine.marks import LeaseRecord
from counterfoil.engine.parts import Parts
from counterfoil.ports import Advance, Head, Mark

ADVANCE_TRIES_MAX = 3
"""Times the same compare-and-set is sent when its answer is lost."""

PRUNE_EVERY = 64
"""Commits between two prunings: a few rows each, so that no commit is slow."""

KEPT_GENERATIONS = 3
"""Newest generations whose state is kept: the head, and what a restore may want."""

Send = Callable[[Advance], tuple[Head, ...]]
"""Makes one move durable, with or without its checkpoint."""


class Ledger:
    """Owns one run for as long as its lease is held."""

    def __init__(
        self, *, parts: Parts, head: Head, run: Run, header: Header, task: Task | None, lease: Lease
    ) -> None:
        self.parts = parts
        self.head = head
        self.run = run
        self.lease = lease
        self.broken: CounterfoilError | None = None
        self.archived: Answers | None = None
        self._header = header
        self._task = task
        self._found_pending = run.pending
        self._staged: tuple[bytes, ...] = ()
        self._staged_names: dict[str, Event] = {}
        self._staged_at_ms = 0
        self._chain: OrderedDict[int, Digest] = OrderedDict({head.generation: head.checkpoint})

    def has_sent(self, pending: Pending) -> bool:
        """Return whether a call of this intent may have left under the present lease."""
        found = self._found_pending
        return found is None or (found.key, found.sends) != (pending.key, pending.sends)

    @property
    def is_clean(self) -> bool:
        """Whether everything that happened is durable."""
        return not self._staged

    def staged_event(self, name: str) -> Event | None:
        """Return the event that settles `name`, if it is staged and not yet durable."""
        return self._staged_names.get(name)

    def staged_for_ms(self) -> int:
        """Return how long the oldest staged event has waited; 0 when there is none."""
        if not self._staged:
            return 0
        return self.parts.clock.monotonic_ms() - self._staged_at_ms

    def stage(self, step: Step) -> None:
        """Take a step into memory; the next commit makes it durable.

        Only for steps that recovery would find again by asking the adapter.
        """
        events = encode_events(step.events)
        run = extended(step.run, events)
        check_invariants(run, self._task)
        if not self._staged:
            self._staged_at_ms = self.parts.clock.monotonic_ms()
        self._staged += events
        self._staged_names |= dict.fromkeys(step.settles, step.events[0])
        self.run = run

    def flush(self) -> None:
        """Make staged steps durable."""
        if self._staged:
            self._commit(self.run, self._staged, tuple(self._staged_names))

    def commit(self, step: Step) -> None:
        """Make a step, and whatever is staged before it, durable.

        Raises:
            ContractError: State or events are over their bound; nothing moved.
            LostRaceError: Another worker holds or moved the run.
            UnknownOutcomeError: The register cannot say whether the commit happened.
            UnavailableError: A store or register cannot be reached.
        """
        if len(self._staged) + len(step.events) > EVENTS_PER_COMMIT_MAX:
            self.flush()
        events = encode_events(step.events)
        run = extended(step.run, events)
        check_invariants(run, self._task)
        self._commit(run, self._staged + events, (*self._staged_names, *step.settles))

    def _commit(self, run: Run, events: tuple[bytes, ...], settles: tuple[str, ...]) -> None:
        parts, head = self.parts, self.head
        header = replace(
            self._header,
            generation=head.generation + 1,
            previous=head.checkpoint,
            lease_version=head.lease_version,
            nonce=head.nonce,
            incarnation=head.incarnation,
            written_at=rfc3339(run.floor_ms),
        )
        row = seal_checkpoint(run, events, header, settles, parts.seals.signer)
        try:
            self.head = self._make_durable(row, head_status(run))
            self.run = run
            self._staged, self._staged_names = (), {}
            self._remember(self.head)
            if parts.marks:
                self.mark()
        except CounterfoilError as error:
            self.broken = error
            raise
        except BaseException:  # an interrupt: what became durable is for the next session to see
            self.broken = UnknownOutcomeError("a commit was interrupted", head.run_id)
            raise

    def _make_durable(self, row: Checkpoint, status: str) -> Head:
        store, joint = self.parts.store, self.parts.joint
        if joint is not None:
            return self._advance(row.digest, status, lambda move: joint.commit((row,), (move,)))
        try:
            store.put((row,))
        except UnknownOutcomeError:
            store.put((row,))  # content-addressed: a second put is the same row
        return self._advance(row.digest, status)

    def _advance(self, checkpoint: Digest, status: str, send: Send | None = None) -> Head:
        """Move the head on, by `send` or by the register alone."""
        parts, expected = self.parts, self.head
        send = send or (lambda move: parts.heads.advance((move,)))
        move = Advance(expected=expected, checkpoint=checkpoint, status=status, ttl_ms=parts.ttl_ms)
        sent_at_ms = parts.clock.monotonic_ms()  # the first try may be the one that counted
        for _ in range(ADVANCE_TRIES_MAX):
            try:
                (moved,) = send(move)
            except (UnknownOutcomeError, StaleHeadError, LeaseLostError) as error:
                learned = self._learn(checkpoint, error)
                if learned is None:
                    continue
                moved = learned
            self.lease.extend(sent_at_ms=sent_at_ms, now_ms=parts.clock.monotonic_ms())
            return moved
        raise UnknownOutcomeError("the register does not answer", expected.run_id)

    def _learn(self, checkpoint: Digest, error: CounterfoilError) -> Head | None:
        """Read the head after a refusal or silence: None means send the same again.

        Raises:
            UnknownOutcomeError: The head cannot be read, so that nobody knows.
            LostRaceError: Another worker holds or moved the run.
        """
        before = self.head
        try:
            present = self.parts.heads.read(before.run_id)
        except UnavailableError as silence:
            raise UnknownOutcomeError(
                "the register does not say what became of a commit", before.run_id
            ) from silence
        if present is None:
            raise StaleHeadError("the head is gone", before.run_id) from error
        is_mine = (present.nonce, present.lease_version) == (before.nonce, before.lease_version)
        if is_mine and present.checkpoint == checkpoint:
            return present
        is_unmoved = (present.generation, present.checkpoint) == (
            before.generation,
            before.checkpoint,
        )
        if is_mine and is_unmoved and isinstance(error, UnknownOutcomeError):
            return None
        if not is_mine:
            raise LeaseLostError(
                f"the run is held by {present.owner or 'nobody'} under lease "
                f"{present.lease_version}",
                before.run_id,
            ) from error
        raise error

    def _remember(self, head: Head) -> None:
        """Keep the digests of recent generations, and prune now and then."""
        self._chain[head.generation] = head.checkpoint
        while len(self._chain) > PRUNE_EVERY + KEPT_GENERATIONS:
            self._chain.popitem(last=False)
        if head.generation % PRUNE_EVERY == 0:
            below = head.generation - KEPT_GENERATIONS
            self.parts.store.prune(head.run_id, dict(self._chain), below)

    def migrate(self, task: Task, envelope: str) -> None:
        """Bind the run to another version of its task, on record, under a migration."""
        self._task = task
        self._header = replace(
            self._header,
            task_digest=tasks.fingerprint(task),
            policy_digest=tasks.policy_fingerprint(task.policy),
        )
        parts = self.parts
        rules = Rules(task=task, kinds=parts.kinds, now_ms=parts.clock.now_ms(), roots=parts.roots)
        self.commit(apply(self.run, Migrated(envelope=envelope), rules))

    def mark(self) -> None:
        """Write the signed lease record: which head this lease stands on.

        Raises:
            LeaseLostError: The store has seen a newer lease.
        """
        head = self.head
        record = LeaseRecord(
            run=head.run_id,
            generation=head.generation,
            checkpoint=head.checkpoint,
            lease_version=head.lease_version,
            nonce=head.nonce,
        )
        envelope = seal(LEASE_TYPE, encode(record), self.parts.lease_seals.signer)
        self.parts.store.mark(
            Mark(run_id=head.run_id, lease_version=head.lease_version, envelope=envelope)
        )

    def renew(self) -> None:
        """Extend the lease at the register.

        Raises:
            LeaseLostError: It is another's, or over.
        """
        sent_at_ms = self.parts.clock.monotonic_ms()
        try:
            self.parts.heads.renew(self.head, self.parts.ttl_ms)
        except LeaseLostError as error:
            self.lease.lose(error)
            raise
        self.lease.extend(sent_at_ms=sent_at_ms, now_ms=self.parts.clock.monotonic_ms())

    def release(self, pause_ms: int = 0) -> None:
        """Give the lease up; no worker claims the run for `pause_ms`."""
        self.parts.heads.release(self.head, pause_ms)
