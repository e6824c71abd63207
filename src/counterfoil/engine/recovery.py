"""Open a run: create it, or take it over after whatever happened to the last worker.

The order is the argument: read the head; take the lease by compare-and-set; only then
look at the store; write the lease record; raise the fence at every adapter and read
what each served last; load and verify; observe. An alarm that time was turned back is
raised only after the head was read again and still shows this lease.
"""

import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from counterfoil.core import codec
from counterfoil.core import task as tasks
from counterfoil.core.authority import check_authority
from counterfoil.core.canonical import canonical, digest, normalise
from counterfoil.core.errors import (
    BindingError,
    CounterfoilError,
    FencedError,
    HeadMissingError,
    LeaseLostError,
    RollbackError,
    StaleHeadError,
    UnknownOutcomeError,
    UnknownRunError,
)
from counterfoil.core.intent import EnvironmentState
from counterfoil.core.machine import opened
from counterfoil.core.run import Run, check_invariants
from counterfoil.core.task import Task
from counterfoil.core.words import Digest, RunId
from counterfoil.engine import acting
from counterfoil.engine.freshness import BEYOND_PAGE, check_freshness, genuine_header, place
from counterfoil.engine.lease import Lease
from counterfoil.engine.ledger import Ledger
from counterfoil.engine.migrating import live_migration
from counterfoil.engine.parts import Parts
from counterfoil.ports import Head

POLL_MS = 50
"""Pause between two tries to take a lease that another worker holds."""

SALT_BYTES = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class Opening:
    """A run that is open.

    Attributes:
        ledger: Holds the run.
        is_new: Whether it was created by this opening.
        holds_lease: Whether this worker may act; not for a run that has ended.
    """

    ledger: Ledger
    is_new: bool
    holds_lease: bool


def adapters_of(parts: Parts, task: Task) -> tuple[str, ...]:
    """Return the adapters that the policy lets the task touch."""
    granted = set(task.policy.permissions)
    names = {spec.adapter for spec in parts.kinds.values() if spec.permission in granted}
    if task.verifier is not None and task.verifier.kind in parts.kinds:
        names.add(parts.kinds[task.verifier.kind].adapter)
    return tuple(sorted(names))


def open_run(parts: Parts, task: Task, run_id: RunId, *, wait_ms: int = 0) -> Opening:
    """Open a run under its task, or create it.

    Args:
        parts: The engine.
        task: The task, given from outside.
        run_id: Name of the run.
        wait_ms: How long to wait for another holder; 0 raises at once.

    Raises:
        LeaseLostError: Another worker holds the run.
        BindingError: The run was started under another task, policy or account.
        IntegrityError: The member that says why.
        UnavailableError: A store, register or environment cannot be reached.
    """
    head = _registered_head(parts, run_id)
    if head is None:
        created = _create(parts, task, run_id)
        if created is not None:
            return created
        head = _present(parts, run_id)
    if head.status == "terminal":
        return _load(parts, head, task, holds_lease=False)
    held, lease = take_lease(parts, head, wait_ms=wait_ms)
    if held.status == "terminal":
        parts.heads.release(held)
        return _load(parts, held, task, holds_lease=False)
    with _given_back_on_failure(parts, held):
        return _take_over(parts, held, lease, task)


@contextmanager
def _given_back_on_failure(parts: Parts, held: Head) -> Generator[None]:
    """Give the lease up when the opening fails, and tell why it failed, whatever else does."""
    try:
        yield
    except CounterfoilError:
        with suppress(CounterfoilError):  # the lease ends by itself at the latest
            parts.heads.release(held)
        raise


def known_head(parts: Parts, run_id: RunId) -> Head:
    """Return the head of a run that exists.

    Raises:
        UnknownRunError: There is no such run.
        HeadMissingError: The store holds checkpoints of it, and the register no head.
    """
    head = _registered_head(parts, run_id)
    if head is None:
        raise UnknownRunError("the register has no such run", run_id)
    return head


def _registered_head(parts: Parts, run_id: RunId) -> Head | None:
    """Return the head of a run; None when the run is new.

    Rows beyond the first are an alarm only if there is still no head: another worker may
    have created the run, and moved it on, between the two reads.

    Raises:
        HeadMissingError: The store holds checkpoints of it, and the register no head.
    """
    head = parts.heads.read(run_id)
    if head is not None:
        return head
    rows = parts.store.trace(run_id, 0, BEYOND_PAGE)
    if not any(genuine_header(parts, row) for row in rows):
        return None
    head = parts.heads.read(run_id)
    if head is None:
        raise HeadMissingError("the store holds checkpoints and the register no head", run_id)
    return head


def _present(parts: Parts, run_id: RunId) -> Head:
    head = parts.heads.read(run_id)
    if head is None:
        raise HeadMissingError("the register holds no head", run_id)
    return head


def _create(parts: Parts, task: Task, run_id: RunId) -> Opening | None:
    """Create a run; None when another worker was faster."""
    now_ms = parts.clock.now_ms()
    states = [_first_look(parts, task, name) for name in adapters_of(parts, task)]
    run = Run(
        run_id=run_id,
        task_id=task.id,
        salt=parts.random_bytes(SALT_BYTES),
        started_at_ms=now_ms,
        floor_ms=now_ms,
        environments=tuple(states),
    )
    step = opened(run)
    events = codec.encode_events(step.events)
    run = codec.extended(step.run, events)
    check_invariants(run, task)
    nonce = parts.nonce()
    header = first_header(parts, task, run, nonce)
    row = codec.seal_checkpoint(run, events, header, (), parts.seals.signer)
    parts.store.put((row,))
    lease = Lease(ttl_ms=parts.ttl_ms)
    sent_at_ms = parts.clock.monotonic_ms()
    try:
        head = parts.heads.create(run_id, row.digest, parts.owner, nonce, parts.ttl_ms)
    except (StaleHeadError, UnknownOutcomeError):
        present = parts.heads.read(run_id)
        if present is None:
            raise  # nothing is registered, or not yet: the next opening finds out
        if present.nonce != nonce:
            return None
        head = present
    lease.extend(sent_at_ms=sent_at_ms, now_ms=parts.clock.monotonic_ms())
    ledger = Ledger(parts=parts, head=head, run=run, header=header, task=task, lease=lease)
    with _given_back_on_failure(parts, head):
        _refuse_remembered(ledger, task)
    return Opening(ledger=ledger, is_new=True, holds_lease=True)


def _refuse_remembered(ledger: Ledger, task: Task) -> None:
    """Refuse a run that looks new and that an adapter has served before.

    Raises:
        RollbackError: Store and register have lost it.
        LeaseLostError: It is as new as it looks, and another worker took it over.
    """
    run_id = ledger.run.run_id
    for name in adapters_of(ledger.parts, task):
        alarm = _turned_back(name, run_id)
        try:
            served = acting.take(ledger, name)
        except FencedError as error:
            _confirm_alarm(ledger.parts, ledger.head, error)
            raise alarm from error
        if served is not None:
            _confirm_alarm(ledger.parts, ledger.head, alarm)
            raise alarm


def _turned_back(name: str, run_id: RunId) -> RollbackError:
    return RollbackError(
        f"an adapter ({name}) has served this run under a lease that is lost", run_id
    )


def _first_look(parts: Parts, task: Task, name: str) -> EnvironmentState:
    state = acting.observe(parts, task, name).state
    wanted = task.accounts.get(name)
    if wanted is not None and wanted != state.account:
        raise BindingError(f"{name} acts as {state.account or 'nobody'}, the task wants {wanted}")
    return state


def first_header(parts: Parts, task: Task, run: Run, nonce: str) -> codec.Header:
    """Return the header that later ones of the run are derived from."""
    return codec.Header(
        format=codec.FORMAT,
        run=run.run_id,
        task=task.id,
        generation=0,
        previous="",
        lease_version=1,
        nonce=nonce,
        incarnation="",
        task_digest=tasks.fingerprint(task),
        policy_digest=tasks.policy_fingerprint(task.policy),
        code_digest=code_fingerprint(parts),
        state=Digest(""),
        events=Digest(""),
        trace_size=0,
        trace_root="",
        environments=(),
        written_at=codec.rfc3339(run.started_at_ms),
    )


def code_fingerprint(parts: Parts) -> Digest:
    """Return the digest of all declared kinds and what they promise."""
    kinds = [
        [s.name, s.adapter, s.risk.value, s.level.value, s.permission, list(s.volatile)]
        for s in sorted(parts.kinds.values(), key=lambda spec: spec.name)
    ]
    return digest(canonical(normalise(kinds, "kinds")))


def take_lease(parts: Parts, head: Head, *, wait_ms: int = 0) -> tuple[Head, Lease]:
    """Take the lease of a run by compare-and-set on the whole record.

    Raises:
        LeaseLostError: Another worker holds it, and still does after `wait_ms`.
    """
    run_id = head.run_id
    give_up_at_ms = parts.clock.monotonic_ms() + wait_ms
    while True:
        nonce = parts.nonce()
        sent_at_ms = parts.clock.monotonic_ms()
        try:
            held = parts.heads.acquire(head, parts.owner, nonce, parts.ttl_ms)
        except (LeaseLostError, StaleHeadError, UnknownOutcomeError) as error:
            present = _present(parts, run_id)
            if present.nonce != nonce:
                if parts.clock.monotonic_ms() >= give_up_at_ms:
                    raise _as_lost(error, run_id) from error
                time.sleep(POLL_MS / 1000)
                head = _present(parts, run_id)
                continue
            held = present
        lease = Lease(ttl_ms=parts.ttl_ms)
        lease.extend(sent_at_ms=sent_at_ms, now_ms=parts.clock.monotonic_ms())
        return held, lease


def _as_lost(error: CounterfoilError, run_id: RunId) -> LeaseLostError:
    if isinstance(error, LeaseLostError):
        return error
    return LeaseLostError(f"another worker was faster: {error.message}", run_id)


def _take_over(parts: Parts, held: Head, lease: Lease, task: Task) -> Opening:
    try:
        opening = _load(parts, held, task, holds_lease=True, lease=lease)
        check_freshness(parts, held)
        opening.ledger.mark()
        for name in adapters_of(parts, task):
            served = acting.take(opening.ledger, name)
            if served is not None:
                place(parts, held, served.generation, served.checkpoint, f"adapter {name}")
    except FencedError as error:
        _confirm_alarm(parts, held, error)
        raise _turned_back("of the task", held.run_id) from error
    except (RollbackError, HeadMissingError) as error:
        _confirm_alarm(parts, held, error)
        raise
    return opening


def _confirm_alarm(parts: Parts, held: Head, error: CounterfoilError) -> None:
    """Turn an alarm into a lost race when another worker took the run meanwhile."""
    present = parts.heads.read(held.run_id)
    if present is None or (present.nonce, present.lease_version) != (
        held.nonce,
        held.lease_version,
    ):
        raise LeaseLostError("another worker took the run over", held.run_id) from error


def _load(
    parts: Parts, head: Head, task: Task, *, holds_lease: bool, lease: Lease | None = None
) -> Opening:
    found = load_checkpoint(parts, head)
    check_invariants(found.run, task)
    check_authority(found.run, parts.roots)
    migration = _binding_or_migration(parts, head, found, task)
    ledger = Ledger(
        parts=parts,
        head=head,
        run=found.run,
        header=found.header,
        task=task,
        lease=lease or Lease(ttl_ms=parts.ttl_ms),
    )
    if migration is not None and holds_lease:
        ledger.migrate(task, migration)
        if parts.inbox is not None:
            parts.inbox.discard(head.run_id, migration.encode("utf-8"))
    return Opening(ledger=ledger, is_new=False, holds_lease=holds_lease)


def _binding_or_migration(parts: Parts, head: Head, found: codec.Opened, task: Task) -> str | None:
    """Return None when the run is this task's, or the statement that makes it so.

    Raises:
        BindingError: It is another's, and no live migration says otherwise.
    """
    try:
        check_binding(found.header, task)
    except BindingError:
        statement = live_migration(parts, head, found, task)
        if statement is None:
            raise
        return statement
    return None


def load_checkpoint(parts: Parts, head: Head) -> codec.Opened:
    """Return the verified checkpoint that a head names.

    Raises:
        RollbackError: The store does not hold it, or the register was set up anew.
        IntegrityError: The member that says why it cannot be believed.
    """
    row = parts.store.get(head.run_id, head.checkpoint)
    if row is None:
        raise RollbackError(
            f"the store lacks checkpoint {head.generation}, which the head names", head.run_id
        )
    if row.digest != head.checkpoint:
        raise RollbackError("the store answers with another checkpoint", head.run_id)
    found = codec.open_checkpoint(row, parts.seals.verifiers)
    header = found.header
    if header.generation != head.generation:
        raise RollbackError(
            f"the head says generation {head.generation}, its checkpoint {header.generation}",
            head.run_id,
        )
    if header.incarnation and header.incarnation != head.incarnation:
        raise RollbackError("the head register was set up anew or restored", head.run_id)
    return found


def check_binding(header: codec.Header, task: Task) -> None:
    """Refuse to go on under another task than the run was started with.

    Raises:
        BindingError: Names what differs.
    """
    if header.task != task.id:
        raise BindingError(f"the run belongs to task {header.task}, not {task.id}", header.run)
    if header.policy_digest != tasks.policy_fingerprint(task.policy):
        raise BindingError("the run was started under another policy", header.run)
    if header.task_digest != tasks.fingerprint(task):
        raise BindingError("the run was started under another version of its task", header.run)
