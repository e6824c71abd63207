"""What lies in etcd: the keys of a register, and the one spelling of each value.

A comparison of a value is a comparison of the whole record, since a record has one
spelling only. One that is spelled otherwise could never be moved on, so it is damage.

    PREFIX/register        the incarnation
    PREFIX/head/RUN        everything of the head but the end of its lease
    PREFIX/until/RUN       the end of the lease, or pause, as it was told
    PREFIX/hold/DUE/RUN    there as long as a lease, or a pause, stands; on a lease of etcd
    PREFIX/active/DUE/RUN  there if the run is active; set when it is taken and given up

DUE is zero, or the end that was told of the pause that a free run has: nobody looks at a
run before. It is by a worker's clock, and judges nothing: whether the pause stands is
seen by the hold alone.
"""

import re
from dataclasses import dataclass

import msgspec

from counterfoil.core.canonical import canonical
from counterfoil.core.errors import FormatError, UsageError
from counterfoil.core.words import Digest, RunId
from counterfoil.ports import Head
from counterfoil.stores import rules
from counterfoil.stores.etcd_wire import Row, Step, delete, has_value, put

ACTIVE = "active"

DUE_MS_MIN = 1
"""Of a pause, however wrong the clock is; 0 is none."""

DUE_DIGITS = 19
"""As many as the end of a lease has at most, so that keys are in the order of moments."""

_UNTIL = re.compile(rb"[0-9]{1,19}")
_DUE = re.compile(r"([0-9]{19})/(.*)", re.DOTALL)
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
class Due:
    """A run, and from when on it is looked at.

    Attributes:
        run_id: The run.
        due_ms: The end of its pause as it was told; 0 where it is held, or has none.
    """

    run_id: RunId
    due_ms: int


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
        """Return a run's key of one kind, head or until.

        Raises:
            UsageError: The run id has no bytes, since it holds half a character.
        """
        try:
            return f"{self.prefix}/{kind}/{run_id}".encode()
        except UnicodeEncodeError as error:
            raise UsageError("a run id holds half a character (a lone surrogate)") from error

    def hold(self, run_id: str, due_ms: int = 0) -> bytes:
        """Return the key of a run's lease, or of its pause.

        Raises:
            UsageError: As `of`.
        """
        return self._due("hold", due_ms, run_id)

    def active(self, run_id: str, due_ms: int = 0) -> bytes:
        """Return the key by which a run is found to be claimed.

        Raises:
            UsageError: As `of`.
        """
        return self._due("active", due_ms, run_id)

    def looked_at(self, kind: str, now_ms: int) -> tuple[bytes, bytes]:
        """Return the range of those keys, hold or active, that are looked at at a moment."""
        return self._due(kind, 0, ""), self._due(kind, max(now_ms, DUE_MS_MIN) + 1, "")

    def _due(self, kind: str, due_ms: int, run_id: str) -> bytes:
        return self.of(kind, f"{due_ms:0{DUE_DIGITS}}/{run_id}")

    def due_of(self, kind: str, key: bytes) -> Due:
        """Return whose key, hold or active, this is.

        Raises:
            FormatError: It is no such key.
        """
        match = _DUE.fullmatch(self.run_of(kind, key))
        if match is None:
            raise FormatError("a key in etcd does not say when its run is due")
        return Due(run_id=RunId(match[2]), due_ms=int(match[1]))

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
    active = keys.active(after.run_id)
    if (before.status, after.status).count(ACTIVE) == 1:
        steps.append(put(active, b"") if after.status == ACTIVE else delete(active))
    return tuple(steps)


def paused_until_ms(head: Head) -> int:
    """Return the end of a free head's pause as it was told; 0 if it is held or has none."""
    return 0 if head.nonce else head.expires_at_ms


def handed_steps(keys: Keys, before: Head, after: Head, lease_id: int | None) -> tuple[Step, ...]:
    """Return what hands a head over, and puts an active run behind the others.

    At most six operations. Of the hold and the pause of the one before nothing is left.

    Args:
        keys: Of the register.
        before: What is handed over; the same as `after` for a head that is created.
        after: What it becomes.
        lease_id: The lease that its hold or pause is on; None where it is free at once.
    """
    run_id = after.run_id
    left_ms, due_ms = paused_until_ms(before), paused_until_ms(after)
    steps = list(moved_steps(keys, after, after))
    if lease_id is not None:
        value = hold_value(after.nonce, after.lease_version)
        steps.append(put(keys.hold(run_id, due_ms), value, lease_id))
    if lease_id is None or left_ms != due_ms:
        steps.append(delete(keys.hold(run_id, left_ms)))
    if after.status == ACTIVE:
        steps.append(put(keys.active(run_id, due_ms), b""))
        if left_ms != due_ms:
            steps.append(delete(keys.active(run_id, left_ms)))
    return tuple(steps)


def expected_steps(keys: Keys, head: Head) -> tuple[Step, ...]:
    """Return what compares that a head is as expected.

    Of a free one the end of its pause is compared too, since keys are named after it. That
    of a lease is moved by each renewal, which changes nothing else.
    """
    steps = (has_value(keys.of("head", head.run_id), encode_head(head)),)
    if head.nonce:
        return steps
    until = has_value(keys.of("until", head.run_id), encode_until(head.expires_at_ms))
    return (*steps, until)
