"""What lies in etcd: the keys of a register, and the one spelling of each value.

A comparison of a value is a comparison of the whole record, since a record has one
spelling only. One that is spelled otherwise could never be moved on, so it is damage.

    PREFIX/register    the incarnation
    PREFIX/head/RUN    everything of the head but the end of its lease
    PREFIX/hold/RUN    there as long as a lease, or a pause, stands; on a lease of etcd
    PREFIX/until/RUN   the end of the lease as its holder was told, for people
    PREFIX/active/RUN  there if the run is active; set when it is taken and given up
"""

import re
from dataclasses import dataclass

import msgspec

from counterfoil.core.canonical import canonical
from counterfoil.core.errors import FormatError, UsageError
from counterfoil.core.words import Digest, RunId
from counterfoil.ports import Head
from counterfoil.stores import rules
from counterfoil.stores.etcd_wire import Row, Step, delete, put

ACTIVE = "active"

_UNTIL = re.compile(rb"[0-9]{1,19}")
_INCARNATION = re.compile(rb"[!-~]{1,200}")


class _Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The value of a head, in order of its names, as canonical JSON has them."""

    checkpoint: str
    generation: int
    incarnation: str
    lease_version: int
    nonce: str
    owner: str
    status: str


_records = msgspec.json.Decoder(_Record)


@dataclass(frozen=True, kw_only=True, slots=True)
class Keys:
    """The keys of one register.

    Attributes:
        prefix: First segment of each.
    """

    prefix: str

    @property
    def register(self) -> bytes:
        """Key of the incarnation."""
        return f"{self.prefix}/register".encode()

    def of(self, kind: str, run_id: str) -> bytes:
        """Return a run's key of one kind: head, hold, until or active.

        Raises:
            UsageError: The run id has no bytes, since it holds half a character.
        """
        try:
            return f"{self.prefix}/{kind}/{run_id}".encode()
        except UnicodeEncodeError as error:
            raise UsageError("a run id holds half a character (a lone surrogate)") from error

    def after(self, kind: str, run_id: str) -> bytes:
        """Return where the keys of one kind go on behind a run; "" is before all."""
        return self.of(kind, run_id) + b"\x00" if run_id else self.of(kind, "")

    def end(self, kind: str) -> bytes:
        """Return what is behind every key of one kind."""
        return f"{self.prefix}/{kind}0".encode()  # "0" is the character after "/"

    def run_of(self, kind: str, key: bytes) -> RunId:
        """Return whose key of one kind this is.

        Raises:
            FormatError: It is no such key.
        """
        start = self.of(kind, "")
        try:
            run_id = RunId(key.removeprefix(start).decode())
        except UnicodeDecodeError as error:
            raise FormatError("a key in etcd is not text") from error
        if not key.startswith(start):
            raise FormatError("etcd answered with another kind of key than was asked for")
        return run_id


def encode_head(head: Head) -> bytes:
    """Return the one spelling of everything of a head but the end of its lease."""
    return canonical(
        {
            "checkpoint": str(head.checkpoint),
            "generation": head.generation,
            "incarnation": head.incarnation,
            "lease_version": head.lease_version,
            "nonce": head.nonce,
            "owner": head.owner,
            "status": head.status,
        }
    )


def decode_head(run_id: RunId, value: bytes, until: bytes) -> Head:
    """Return the head of two values.

    Raises:
        FormatError: One of them is spelled otherwise than we do.
    """
    try:
        record = _records.decode(value)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise FormatError("a head in etcd is not as we write it", run_id) from error
    head = Head(
        run_id=run_id,
        generation=record.generation,
        checkpoint=Digest(record.checkpoint),
        owner=record.owner,
        nonce=record.nonce,
        lease_version=record.lease_version,
        expires_at_ms=decode_until(until, run_id),
        status=record.status,
        incarnation=record.incarnation,
    )
    is_sound = (
        encode_head(head) == value
        and rules.DIGEST.fullmatch(record.checkpoint) is not None
        and record.status in rules.STATUSES
        and min(record.generation, record.lease_version) >= 0
        and bool(record.incarnation)
    )
    if not is_sound:
        raise FormatError("a head in etcd is not as we write it", run_id)
    return head


def encode_until(moment_ms: int) -> bytes:
    """Return the spelling of a moment, in milliseconds."""
    return str(moment_ms).encode("ascii")


def decode_until(value: bytes, run_id: RunId) -> int:
    """Return a moment, in milliseconds.

    Raises:
        FormatError: It is no number.
    """
    if _UNTIL.fullmatch(value) is None:
        raise FormatError("the end of a lease in etcd is not as we write it", run_id)
    return int(value)


def decode_incarnation(row: Row) -> str:
    """Return the name of a register.

    Raises:
        FormatError: It is not as we write it.
    """
    if _INCARNATION.fullmatch(row.value) is None:
        raise FormatError("the name of the register in etcd is not as we write it")
    return row.value.decode("ascii")


def hold_value(nonce: str, lease_version: int) -> bytes:
    """Return what a hold says of itself; an empty nonce is a pause."""
    return canonical({"lease_version": lease_version, "nonce": nonce})


def moved_steps(keys: Keys, before: Head, after: Head) -> tuple[Step, ...]:
    """Return what sets a head: at most three operations."""
    steps = [
        put(keys.of("head", after.run_id), encode_head(after)),
        put(keys.of("until", after.run_id), encode_until(after.expires_at_ms)),
    ]
    active = keys.of("active", after.run_id)
    if (before.status, after.status).count(ACTIVE) == 1:
        steps.append(put(active, b"") if after.status == ACTIVE else delete(active))
    return tuple(steps)


def handed_steps(keys: Keys, head: Head) -> tuple[Step, ...]:
    """Return what sets a head that changes hands, and puts an active run behind the others."""
    steps = moved_steps(keys, head, head)
    if head.status != ACTIVE:
        return steps
    return (*steps, put(keys.of("active", head.run_id), b""))
