"""Heads in etcd: each write is one transaction that compares whole records and sets them.

A lease stands as long as a key on a lease of etcd does, so that no worker's clock counts.
The moments in heads are what holders were told, by their own wall clocks, for people. That
of a pause also says from when on workers look at the run again.
"""

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from counterfoil.core.errors import (
    CounterfoilError,
    HeadMissingError,
    UnavailableError,
    UsageError,
)
from counterfoil.core.words import Digest, RunId
from counterfoil.ports import Advance, Head
from counterfoil.stores import rules
from counterfoil.stores.etcd_gateway import Gateway
from counterfoil.stores.etcd_holding import Holding, Want, odd
from counterfoil.stores.etcd_judging import (
    Present,
    batch_refusal,
    head_of,
    one_row,
    plan_of,
    present_of,
    present_steps,
)
from counterfoil.stores.etcd_leases import Begun, Grip, Leases
from counterfoil.stores.etcd_listing import free_heads, head_page
from counterfoil.stores.etcd_records import (
    DUE_MS_MIN,
    Keys,
    encode_head,
    encode_until,
    expected_steps,
    handed_steps,
    moved_steps,
    paused_until_ms,
)
from counterfoil.stores.etcd_wire import (
    TXN_OPERATIONS_MAX,
    Row,
    Step,
    Txn,
    TxnAnswer,
    get,
    has_value,
    is_absent,
    put,
)

BATCH_MAX = TXN_OPERATIONS_MAX // 4
"""Moves in one `advance`: each takes at most four operations of a transaction, of which
etcd takes 128 unless it is told otherwise."""

RELEASES_MAX = 4
"""Tries to give up a head that moves meanwhile; only its holder's own threads move it."""


class EtcdHeads:
    """A `HeadRegister` in etcd; safe to share by threads, not across a fork.

    Attributes:
        incarnation: Random text that names this register.
        batch_max: How many moves one `advance` takes.
    """

    batch_max = BATCH_MAX

    def __init__(self, gateway: Gateway, incarnation: str, now_ms: Callable[[], int]) -> None:
        self.incarnation = incarnation
        self._gateway = gateway
        self._keys = Keys(prefix=gateway.address.prefix)
        self._leases = Leases(gateway, (gateway.address.prefix, incarnation))
        self._holding = Holding(gateway, self._keys, self._leases)
        self._wall_ms = now_ms

    def create(
        self, run_id: RunId, checkpoint: Digest, owner: str, nonce: str, ttl_ms: int
    ) -> Head:
        """Register generation 0 and hold it under lease version 1.

        Raises:
            StaleHeadError: The run has a head.
            HeadMissingError: The register itself is gone.
            UnavailableError: Nothing happened.
            UnknownOutcomeError: The answer was lost; read the head.
        """
        rules.check_lease(nonce, ttl_ms, run_id)
        rules.check_digest(checkpoint)
        head = Head(
            run_id=run_id,
            generation=0,
            checkpoint=checkpoint,
            owner=owner,
            nonce=nonce,
            lease_version=1,
            expires_at_ms=self._wall_ms() + ttl_ms,
            incarnation=self.incarnation,
        )
        register, key = self._keys.register, self._keys.of("head", run_id)
        begun = self._leases.begin(run_id, nonce, 1, ttl_ms)
        answer = self._hand_over(
            head,
            head,
            begun,
            compare=(has_value(register, self.incarnation.encode()), is_absent(key)),
            failure=(get(register), get(key)),
        )
        if not answer.succeeded:
            named, present, _ = answer.ranges
            self._check_register(one_row(named))
            raise rules.taken(run_id) if present.kvs else odd(run_id)
        return head

    def read(self, run_id: RunId) -> Head | None:
        """Return the head, linearizably, or None.

        Raises:
            HeadMissingError: The register itself is gone.
            UnavailableError: No node answers.
            FormatError: What lies there is not as we write it.
            RollbackError: etcd is at an earlier moment than it was.
        """
        key, until = self._keys.of("head", run_id), self._keys.of("until", run_id)
        txn = Txn(success=(get(key), get(until), get(self._keys.register)))
        head, end, named = map(one_row, self._gateway.ask(txn, run_id).ranges)
        self._check_register(named)
        return head_of(run_id, head, end)

    def acquire(self, expected: Head, owner: str, nonce: str, ttl_ms: int) -> Head:
        """Take a lease that is free, released or expired by etcd's word.

        Raises:
            LeaseLostError: Another holder's lease stands.
            StaleHeadError: The record is not `expected` any more.
            HeadMissingError: There is none.
            UnavailableError: Nothing happened.
            UnknownOutcomeError: The answer was lost; read the head.
        """
        run_id = expected.run_id
        rules.check_lease(nonce, ttl_ms, run_id)
        rules.check_digest(expected.checkpoint)
        head = replace(
            expected,
            owner=owner,
            nonce=nonce,
            lease_version=expected.lease_version + 1,
            expires_at_ms=self._wall_ms() + ttl_ms,
        )
        begun = self._leases.begin(run_id, nonce, head.lease_version, ttl_ms)
        answer = self._hand_over(
            expected,
            head,
            begun,
            compare=(
                *expected_steps(self._keys, expected),
                is_absent(self._keys.hold(run_id)),  # that of a pause stops nobody
            ),
            failure=present_steps(self._keys, run_id),
        )
        if not answer.succeeded:
            present = present_of(run_id, answer.ranges[:-1])
            judged_at_ms = present.judged_at_ms(self._wall_ms())
            raise rules.acquire_refusal(present.head, expected, judged_at_ms) or odd(run_id)
        return head

    def renew(self, held: Head, ttl_ms: int) -> Head:
        """Extend the lease; never shorten it.

        Raises:
            LeaseLostError: It is not the caller's, or has expired.
            HeadMissingError: There is no head.
            UnavailableError: The lease may be longer, and nothing else happened.
            UnknownOutcomeError: The answer was lost; renew again.
        """
        run_id, wall_ms = held.run_id, self._wall_ms()
        rules.check_term(ttl_ms, run_id)
        until = encode_until(max(held.expires_at_ms, wall_ms + ttl_ms))
        want = Want(
            run_id=run_id, nonce=held.nonce, lease_version=held.lease_version, ttl_ms=ttl_ms
        )

        def transaction(grips: Mapping[RunId, Grip]) -> Txn:
            grip = grips[run_id]
            return Txn(
                compare=(grip.compare,),
                success=(
                    put(self._keys.of("until", run_id), until),
                    *grip.moves,
                    get(self._keys.of("head", run_id)),
                ),
                failure=present_steps(self._keys, run_id),
            )

        def refusal(present: Mapping[RunId, Present]) -> CounterfoilError | None:
            judged_at_ms = present[run_id].judged_at_ms(wall_ms)
            return rules.holder_refusal(present[run_id].head, held, judged_at_ms)

        answer = self._holding.act((want,), transaction, refusal)
        head = head_of(run_id, one_row(answer.ranges[0]), Row(key=b"", value=until))
        if head is None:
            raise rules.missing(run_id)
        return head

    def advance(self, batch: Sequence[Advance]) -> tuple[Head, ...]:
        """Move heads on, in order, all of at most `BATCH_MAX` moves or none.

        Raises:
            UsageError: There are more.
            LeaseLostError: A lease is not the caller's, or has expired.
            StaleHeadError: A generation or checkpoint is not the expected one.
            HeadMissingError: There is no such head.
            UnavailableError: Leases may be longer, and nothing else happened.
            UnknownOutcomeError: The answer was lost; read the heads.
        """
        _check_batch(batch)
        if not batch:
            return ()
        wall_ms = self._wall_ms()
        plan = plan_of(batch, wall_ms)
        wants = tuple(
            Want(
                run_id=run_id,
                nonce=head.nonce,
                lease_version=head.lease_version,
                ttl_ms=plan.ttls_ms[run_id],
            )
            for run_id, head in plan.before.items()
        )
        if not plan.is_sound:
            raise batch_refusal(batch, self._holding.look(wants), wall_ms) or odd(wants[0].run_id)

        def transaction(grips: Mapping[RunId, Grip]) -> Txn:
            compare: list[Step] = []
            success: list[Step] = []
            failure: list[Step] = []
            for run_id, before in plan.before.items():
                key, grip = self._keys.of("head", run_id), grips[run_id]
                compare += has_value(key, encode_head(before)), grip.compare
                success += *moved_steps(self._keys, before, plan.after[run_id]), *grip.moves
                failure += present_steps(self._keys, run_id)
            return Txn(compare=tuple(compare), success=tuple(success), failure=tuple(failure))

        self._holding.act(
            wants, transaction, lambda present: batch_refusal(batch, present, wall_ms)
        )
        return plan.heads

    def release(self, held: Head, pause_ms: int = 0) -> None:
        """Give the lease up, if it is still the caller's; otherwise do nothing.

        Raises:
            UsageError: The pause is negative, or longer than etcd grants.
            UnavailableError: Nothing happened.
            UnknownOutcomeError: The answer was lost; the lease ends by itself at the latest.
        """
        run_id, before = held.run_id, held
        rules.check_pause(pause_ms, run_id)
        due_ms = max(DUE_MS_MIN, self._wall_ms() + pause_ms) if pause_ms else 0
        pause = self._pause(held, pause_ms) if pause_ms else None
        for _ in range(RELEASES_MAX):
            answer = self._free(before, pause, due_ms)
            hold = one_row(answer.ranges[-1])
            if answer.succeeded:
                self._end_others(hold, pause)
                return
            found = present_of(run_id, answer.ranges[:-1])
            if not _is_held_by(held, found.head):
                if pause is not None:
                    self._leases.drop(pause, hold)
                return
            before = found.head or before
        raise UnavailableError("the head moves whenever it is to be given up", run_id)

    def claimable(self, limit: int) -> tuple[Head, ...]:
        """Return active heads that are free, those first that changed hands longest ago.

        A pause is over when etcd says so. This machine's clock says at which ones to look:
        where it is behind that of the worker that gave a run up, the run is seen that much
        later, and where it is ahead, runs are looked at for nothing.
        """
        return free_heads(self._gateway, self._keys, limit, self._wall_ms())

    def heads(self, after: str, limit: int) -> tuple[Head, ...]:
        """Return heads in order of run id, from after `after`, at most `limit`."""
        return head_page(self._gateway, self._keys, after, limit)

    def close(self) -> None:
        """Let go of connections; a second time does nothing."""
        self._gateway.close()

    def _hand_over(
        self,
        before: Head,
        after: Head,
        begun: Begun,
        *,
        compare: tuple[Step, ...],
        failure: tuple[Step, ...],
    ) -> TxnAnswer:
        """Set a head under the lease that was begun for it, if the comparison holds."""
        hold = self._keys.hold(after.run_id)
        answer = self._gateway.act(
            Txn(
                compare=compare,
                success=handed_steps(self._keys, before, after, begun.lease_id),
                failure=(*failure, get(hold)),
            ),
            after.run_id,
        )
        if answer.succeeded:
            self._leases.confirm({hold: begun.lease_id}, begun.term, answer)
        else:
            self._leases.drop(begun, one_row(answer.ranges[-1]))
        return answer

    def _pause(self, held: Head, pause_ms: int) -> Begun:
        """Begin the lease of a pause, which is nobody's."""
        name = f"pause after {held.nonce}"
        return self._leases.begin(held.run_id, name, held.lease_version, pause_ms)

    def _end_others(self, hold: Row | None, pause: Begun | None) -> None:
        """End the lease of the hold that was given up; a pause after a pause may share it."""
        lease_id = 0 if hold is None else int(hold.lease)
        if lease_id and (pause is None or pause.lease_id != lease_id):
            self._leases.end(lease_id)

    def _free(self, before: Head, pause: Begun | None, due_ms: int) -> TxnAnswer:
        """Give a head up as it is known to be, and read the hold or pause that it had.

        Where it is refused, read what lies there, and then what such a pause is held by.
        """
        run_id, lease_id = before.run_id, None if pause is None else pause.lease_id
        free = replace(before, owner="", nonce="", expires_at_ms=due_ms)
        held_by = get(self._keys.hold(run_id, paused_until_ms(before)))
        paused_by = get(self._keys.hold(run_id, due_ms))
        return self._gateway.act(
            Txn(
                compare=expected_steps(self._keys, before),
                success=(held_by, *handed_steps(self._keys, before, free, lease_id)),
                failure=(*present_steps(self._keys, run_id), paused_by),
            ),
            run_id,
        )

    def _check_register(self, row: Row | None) -> None:
        """Refuse to go on where the register was taken away, since no run is new then."""
        if row is None or row.value != self.incarnation.encode():
            raise HeadMissingError(
                f"the register below {self._keys.prefix}/ in etcd was taken away or replaced"
            )


def _check_batch(batch: Sequence[Advance]) -> None:
    if len(batch) > BATCH_MAX:
        raise UsageError(f"a batch of {len(batch)} moves is longer than etcd's {BATCH_MAX}")
    for move in batch:
        rules.check_digest(move.checkpoint)
        rules.check_digest(move.expected.checkpoint)
        rules.check_status(move.status, move.expected.run_id)
        rules.check_term(move.ttl_ms, move.expected.run_id)


def _is_held_by(held: Head, present: Head | None) -> bool:
    return present is not None and (present.nonce, present.lease_version) == (
        held.nonce,
        held.lease_version,
    )
