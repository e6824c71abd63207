"""Leases of etcd as the right to act: etcd alone judges when one is over.

A lease's id follows from whose it is, so that any process that has the head can keep it
alive. Its term is in whole seconds and is fixed when it is granted; a longer one is
another lease, to which the hold moves.

A leader that was cut off may keep a lease alive that its successor ends a little
earlier. So a lease counts as kept only if the transaction behind it went through the
same leader's term.
"""

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from counterfoil.core.canonical import canonical
from counterfoil.core.errors import UnavailableError, UnknownOutcomeError, UsageError
from counterfoil.core.words import RunId
from counterfoil.stores.etcd_gateway import Gateway, Kept
from counterfoil.stores.etcd_wire import Row, Step, Txn, TxnAnswer, get, has_lease, put

TTL_S_MAX = 9_000_000_000
"""The longest term that etcd grants, in seconds."""

BEGINS_MAX = 3
CONFIRMS_MAX = 5
"""An election in each of them would be no cluster."""

BY_CONSENSUS = -1
"""In place of a leader's term: the lease was granted by all, and any successor keeps it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Begun:
    """A lease whose term has just begun.

    Attributes:
        lease_id: Its id.
        is_new: Whether this call made it; otherwise it may be in use.
        term: Of the leader that kept it, `BY_CONSENSUS`, or 0 for one that cannot be told.
    """

    lease_id: int
    is_new: bool
    term: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Grip:
    """How the hold of one run is kept while a transaction is made.

    Attributes:
        key: Of the hold.
        value: What it says of itself.
        lease_id: The lease that it must be on.
        longer: The lease that it moves to; None where it stays.
    """

    key: bytes
    value: bytes
    lease_id: int
    longer: Begun | None = None

    @property
    def compare(self) -> Step:
        """The hold stands, and on this lease."""
        return has_lease(self.key, self.lease_id)

    @property
    def moves(self) -> tuple[Step, ...]:
        """What moves the hold to the longer lease, if there is one."""
        return () if self.longer is None else (put(self.key, self.value, self.longer.lease_id),)

    @property
    def kept_id(self) -> int:
        """The lease that the hold is on afterwards."""
        return self.lease_id if self.longer is None else self.longer.lease_id


class Leases:
    """Begins, keeps and ends leases for one register.

    Args:
        gateway: The client.
        scope: What tells this register from every other: prefix and incarnation.
    """

    def __init__(self, gateway: Gateway, scope: tuple[str, str]) -> None:
        self._gateway = gateway
        self._scope = scope

    def id_of(self, run_id: RunId, nonce: str, lease_version: int, ttl_ms: int) -> int:
        """Return the id of the lease that a hold is on, unless it asked for another term."""
        name = canonical([*self._scope, str(run_id), nonce, lease_version, seconds(ttl_ms, run_id)])
        return int.from_bytes(hashlib.sha256(name).digest()[:8], "big") >> 1 or 1

    def begin(self, run_id: RunId, nonce: str, lease_version: int, ttl_ms: int) -> Begun:
        """Grant a lease of at least `ttl_ms`, or begin the term of one that is there anew.

        Raises:
            UsageError: etcd has no term as long as that.
            UnavailableError: No node answers; what was granted ends by itself.
        """
        lease_id = self.id_of(run_id, nonce, lease_version, ttl_ms)
        for _ in range(BEGINS_MAX):
            if self._gateway.grant(lease_id, seconds(ttl_ms, run_id)):
                return Begun(lease_id=lease_id, is_new=True, term=BY_CONSENSUS)
            kept = self._gateway.keep((lease_id,))
            if kept.ttls[lease_id]:
                return Begun(lease_id=lease_id, is_new=False, term=kept.term)
        raise UnavailableError("a lease of etcd ends whenever it is begun", run_id)

    def keep(self, lease_ids: tuple[int, ...]) -> Kept:
        """Begin the terms of leases anew; see `Gateway.keep`."""
        return self._gateway.keep(lease_ids)

    def drop(self, begun: Begun, hold: Row | None) -> None:
        """End a lease that this caller began, unless the hold that was found is on it.

        It is where the refused transaction was this caller's own, which the network
        doubled: the first one went through.
        """
        if begun.is_new and (hold is None or int(hold.lease) != begun.lease_id):
            self.end(begun.lease_id)

    def end(self, lease_id: int) -> None:
        """End a lease, if etcd can be reached; otherwise it ends by itself."""
        with suppress(UnavailableError):
            self._gateway.revoke(lease_id)

    def confirm(self, holds: Mapping[bytes, int], term: int, answer: TxnAnswer) -> None:
        """See to it that holds stand for a whole term from now, after a write went through.

        Args:
            holds: Leases by the key of the hold.
            term: Of the leader that kept them.
            answer: To the write.

        Raises:
            UnknownOutcomeError: That cannot be told. The write went through.
        """
        if term in {BY_CONSENSUS, answer.term}:
            return
        try:
            if self._is_confirmed(holds):
                return
        except (UnavailableError, UsageError) as error:
            raise _unconfirmed() from error
        raise _unconfirmed()

    def _is_confirmed(self, holds: Mapping[bytes, int]) -> bool:
        lease_ids = tuple(holds.values())
        look = Txn(success=tuple(get(key) for key in holds))
        for _ in range(CONFIRMS_MAX):
            kept = self._gateway.keep(lease_ids)
            found = self._gateway.ask(look)
            stand = [int(row.lease) for each in found.ranges for row in each.kvs]
            if not all(kept.ttls.values()) or stand != list(lease_ids):
                return False
            if kept.term == found.term:
                return True
        return False


def _unconfirmed() -> UnknownOutcomeError:
    return UnknownOutcomeError("a write went through, and its lease cannot be confirmed")


def seconds(ttl_ms: int, run_id: RunId) -> int:
    """Return a term in whole seconds, rounded up.

    Raises:
        UsageError: etcd has no term as long as that.
    """
    ttl_s = -(-ttl_ms // 1000)
    if ttl_s > TTL_S_MAX:
        raise UsageError(f"a term of {ttl_ms} ms is longer than etcd grants", run_id)
    return ttl_s
