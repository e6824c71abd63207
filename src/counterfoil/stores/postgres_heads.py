"""Heads in PostgreSQL.

Each write is one statement and one commit: a function locks the head, reads the server's
clock, compares, and sets. Where it refuses it undoes everything and says what it found.
"""

from collections.abc import Sequence
from hashlib import sha256

import msgspec

from counterfoil.core.errors import (
    CounterfoilError,
    FormatError,
    HeadMissingError,
    LeaseLostError,
    UnavailableError,
)
from counterfoil.core.words import Digest, RunId
from counterfoil.ports import Advance, Head
from counterfoil.stores import rules
from counterfoil.stores.postgres_driver import Refusal, Rows, typed
from counterfoil.stores.postgres_pool import Access
from counterfoil.stores.postgres_rows import (
    HeadRow,
    MovedRow,
    advance_call,
    head,
    moved,
    octets,
    text,
)
from counterfoil.stores.postgres_schema import Part

HEADS = Part(name="heads", version=1, missing=HeadMissingError)

_COLUMNS = """
SELECT run_id, generation, checkpoint, owner, nonce, lease_version, expires_at_ms, status,
    incarnation
FROM {source}
"""
_HEADS = _COLUMNS.replace("{source}", "{schema}.heads")
_BY_RUN = _HEADS + "WHERE run_id = %s"
_BY_ORDER = _HEADS + "WHERE run_id > %s ORDER BY run_id LIMIT %s"
_FREE = _COLUMNS.replace(
    "{source}",
    """(
    (
        SELECT * FROM {schema}.heads
        WHERE status = 'active' AND due_ms <=
            (SELECT greatest({schema}.now_ms(), floor_ms) FROM {schema}.register)
        ORDER BY due_ms, run_id LIMIT %s
    )
    UNION ALL
    SELECT * FROM {schema}.heads
    WHERE status = 'active' AND due_ms IS NULL
        AND expires_at_ms <= greatest(seen_ms, (SELECT {schema}.now_ms()))
) AS found
ORDER BY expires_at_ms, run_id LIMIT %s""",
)
_CREATE = _COLUMNS.replace("{source}", "{schema}.create_head(%s, %s, %s, %s, %s)")
_ACQUIRE = _COLUMNS.replace(
    "{source}", "{schema}.acquire(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"
)
_RENEW = _COLUMNS.replace("{source}", "{schema}.renew(%s, %s, %s, %s)")
_ADVANCE = "SELECT moved_owner, moved_expires_at_ms FROM {advance}"
_RELEASE = "SELECT {schema}.release(%s, %s, %s, %s)"
_RAISE_FLOOR = "SELECT {schema}.raise_floor(%s)"


class _Found(msgspec.Struct, frozen=True, array_like=True):
    generation: int
    checkpoint: str
    owner: str
    nonce_sha256: str
    lease_version: int
    expires_at_ms: int
    status: str
    incarnation: str


class _Said(msgspec.Struct, frozen=True):
    place: int
    now_ms: int
    head: _Found | None


class PostgresHeads:
    """A `HeadRegister` in a PostgreSQL schema; safe to share by threads and processes.

    The server's clock judges leases. One that is set back revives none.
    """

    def __init__(self, access: Access) -> None:
        self._access = access
        self._sql = access.place.sql

    def create(
        self, run_id: RunId, checkpoint: Digest, owner: str, nonce: str, ttl_ms: int
    ) -> Head:
        """Register generation 0 durably and hold it under lease version 1.

        Raises:
            StaleHeadError: The run has a head.
            UnavailableError: Nothing happened.
            UnknownOutcomeError: The answer was lost; read the head.
        """
        rules.check_lease(nonce, ttl_ms, run_id)
        rules.check_digest(checkpoint)
        bindings = (
            octets(run_id),
            bytes.fromhex(checkpoint),
            octets(owner),
            octets(nonce),
            ttl_ms,
        )
        try:
            return _only(self._access.write(self._sql(_CREATE), bindings))
        except Refusal as refusal:
            raise rules.taken(run_id) from refusal

    def read(self, run_id: RunId) -> Head | None:
        """Return the head, or None."""
        heads = self._heads(_BY_RUN, octets(run_id))
        return heads[0] if heads else None

    def acquire(self, expected: Head, owner: str, nonce: str, ttl_ms: int) -> Head:
        """Take a lease durably, that is free, released or expired by the server's clock.

        Raises:
            LeaseLostError: Another holder's lease stands.
            StaleHeadError: The record is not `expected` any more.
            HeadMissingError: There is none.
            UnavailableError: Nothing happened.
            UnknownOutcomeError: The answer was lost; read the head.
        """
        rules.check_lease(nonce, ttl_ms, expected.run_id)
        rules.check_digest(expected.checkpoint)
        bindings = (
            octets(expected.run_id),
            octets(expected.incarnation),
            expected.generation,
            bytes.fromhex(expected.checkpoint),
            octets(expected.owner),
            octets(expected.nonce),
            expected.lease_version,
            expected.status,
            octets(owner),
            octets(nonce),
            ttl_ms,
        )
        try:
            return _only(self._access.write(self._sql(_ACQUIRE), bindings))
        except Refusal as refusal:
            said = _said(refusal)
            reason = rules.acquire_refusal(_present(said, expected), expected, said.now_ms)
            raise reason or _unexplained(expected.run_id) from refusal

    def renew(self, held: Head, ttl_ms: int) -> Head:
        """Extend the lease durably; never shorten it.

        Raises:
            LeaseLostError: It is not the caller's, or has expired.
            HeadMissingError: There is no head.
            UnavailableError: Nothing happened.
            UnknownOutcomeError: The answer was lost; renew again.
        """
        rules.check_term(ttl_ms, held.run_id)
        bindings = (octets(held.run_id), octets(held.nonce), held.lease_version, ttl_ms)
        try:
            return _only(self._access.write(self._sql(_RENEW), bindings))
        except Refusal as refusal:
            said = _said(refusal)
            reason = rules.holder_refusal(_present(said, held), held, said.now_ms)
            raise self._remembered(reason, held, said) from refusal

    def advance(self, batch: Sequence[Advance]) -> tuple[Head, ...]:
        """Move heads on, in order, all of the batch in one durable write or none.

        Raises:
            LeaseLostError: A lease is not the caller's, or has expired.
            StaleHeadError: A generation or checkpoint is not the expected one.
            HeadMissingError: There is no such head.
            UnavailableError: Nothing happened.
            UnknownOutcomeError: The answer was lost; read the heads.
        """
        check_moves(batch)
        if not batch:
            return ()
        call = advance_call(batch)
        query = self._sql(_ADVANCE.replace("{advance}", call.text))
        try:
            rows = self._access.write(query, call.bindings)
        except Refusal as refusal:
            raise self.refused(refusal, batch) from refusal
        return answers(batch, rows)

    def release(self, held: Head, pause_ms: int = 0) -> None:
        """Give the lease up, if it is still the caller's; otherwise do nothing.

        Raises:
            UsageError: The pause is negative.
            UnavailableError: Nothing happened.
            UnknownOutcomeError: The answer was lost; the lease ends by itself at the latest.
        """
        rules.check_pause(pause_ms, held.run_id)
        bindings = (octets(held.run_id), octets(held.nonce), held.lease_version, pause_ms)
        self._access.write(self._sql(_RELEASE), bindings)

    def claimable(self, limit: int) -> tuple[Head, ...]:
        """Return active heads that are free, those that are so longest first."""
        return self._heads(_FREE, max(0, limit), max(0, limit))

    def heads(self, after: str, limit: int) -> tuple[Head, ...]:
        """Return heads in order of run id, from after `after`, at most `limit`."""
        return self._heads(_BY_ORDER, octets(after), max(0, limit))

    def close(self) -> None:
        """Let go of the connections; a second time does nothing."""
        self._access.close()

    def refused(self, refusal: Refusal, batch: Sequence[Advance]) -> CounterfoilError:
        """Return why an advance was refused, having kept the moment if it rests on one.

        Raises:
            UnavailableError: The moment could not be kept; nothing happened.
            UnknownOutcomeError: Nobody knows whether it was kept; no head was moved.
        """
        said = _said(refusal)
        expected = batch[said.place - 1].expected
        reason = rules.advance_refusal(_present(said, expected), expected, said.now_ms)
        return self._remembered(reason, expected, said)

    def _remembered(
        self, reason: CounterfoilError | None, held: Head, said: _Said
    ) -> CounterfoilError:
        """Keep the moment at which a lease is called over: a clock set back must not undo it."""
        present = _present(said, held)
        has_ended = present is not None and bool(present.nonce) and _lease(present) == _lease(held)
        if isinstance(reason, LeaseLostError) and has_ended:
            (row,) = self._access.write(self._sql(_RAISE_FLOOR), (said.now_ms,))
            if typed(row, tuple[int])[0] < said.now_ms:
                return UnavailableError("the server's clock was set back meanwhile", held.run_id)
        return reason or _unexplained(held.run_id)

    def _heads(self, query: str, *bindings: int | bytes) -> tuple[Head, ...]:
        rows = self._access.rows(HeadRow, self._sql(query), bindings)
        return tuple(head(row) for row in rows)


def check_moves(batch: Sequence[Advance]) -> None:
    """Refuse moves that no head could make.

    Raises:
        UsageError: A digest, a status or a term is none.
    """
    for move in batch:
        rules.check_digest(move.checkpoint)
        rules.check_digest(move.expected.checkpoint)
        rules.check_status(move.status, move.expected.run_id)
        rules.check_term(move.ttl_ms, move.expected.run_id)


def answers(batch: Sequence[Advance], rows: Rows) -> tuple[Head, ...]:
    """Return the heads after a batch of moves, in its order."""
    return tuple(moved(move, typed(row, MovedRow)) for move, row in zip(batch, rows, strict=True))


def _only(rows: Rows) -> Head:
    (row,) = rows
    return head(typed(row, HeadRow))


def _said(refusal: Refusal) -> _Said:
    try:
        return msgspec.json.decode(refusal.detail, type=_Said)
    except msgspec.MsgspecError as error:
        raise FormatError("the register refused in a way that is not ours") from error


def _present(said: _Said, expected: Head) -> Head | None:
    """Return the head as the register found it.

    Its nonce is told by its hash alone: it is the expected one, or stands for another.
    """
    found = said.head
    if found is None:
        return None
    hashed = sha256(octets(expected.nonce)).hexdigest()
    return Head(
        run_id=expected.run_id,
        generation=found.generation,
        checkpoint=Digest(found.checkpoint),
        owner=text(bytes.fromhex(found.owner)),
        nonce=expected.nonce if found.nonce_sha256 == hashed else found.nonce_sha256,
        lease_version=found.lease_version,
        expires_at_ms=found.expires_at_ms,
        status=found.status,
        incarnation=text(bytes.fromhex(found.incarnation)),
    )


def _lease(head: Head) -> tuple[str, int]:
    return head.nonce, head.lease_version


def _unexplained(run_id: RunId) -> FormatError:
    return FormatError("the register refused what it had no reason to refuse", run_id)
