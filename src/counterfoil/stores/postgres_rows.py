"""How checkpoints and heads become bindings of our functions, and rows become them again.

Texts travel as their UTF-8 bytes: PostgreSQL keeps no text with a NUL, and every byte.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256

import msgspec

from counterfoil.core.codec import Checkpoint
from counterfoil.core.envelope import payload_of
from counterfoil.core.errors import FormatError, UsageError
from counterfoil.core.words import Digest, RunId
from counterfoil.ports import Advance, Head


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """A call of one of our functions.

    Attributes:
        text: SQL, with `{schema}` and a `%s` for each binding.
        bindings: What to bind.
    """

    text: str
    bindings: tuple[object, ...]


class CheckpointRow(msgspec.Struct, frozen=True, array_like=True):
    """A checkpoint as a query returns it, without its run."""

    generation: int
    lease_version: int
    digest: bytes
    settles: bytes
    envelope: bytes
    events: bytes
    state: bytes | None


class HeadRow(msgspec.Struct, frozen=True, array_like=True):
    """A head as the view returns it."""

    run_id: bytes
    generation: int
    checkpoint: bytes
    owner: bytes
    nonce: bytes
    lease_version: int
    expires_at_ms: int
    status: str
    incarnation: bytes


class _Link(msgspec.Struct, frozen=True):
    """The part of a header that names the checkpoint before; empty for the first."""

    previous: str


class MovedRow(msgspec.Struct, frozen=True, array_like=True):
    """What an advance answers for one move."""

    owner: bytes
    expires_at_ms: int


def octets(text: str) -> bytes:
    """Return the bytes of a text.

    Raises:
        UsageError: It holds half a character.
    """
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise UsageError("a text holds half a character") from error


def text(value: bytes) -> str:
    """Return the text of bytes.

    Raises:
        FormatError: They are none that we wrote.
    """
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise FormatError("a text in a row is not UTF-8") from error


def name_hash(name: str) -> bytes:
    """Return what finds a settled name."""
    return sha256(octets(name)).digest()


def put_call(batch: Sequence[Checkpoint]) -> Call:
    """Return the call that stores a batch; digests are known to be digests."""
    names = [(place, name) for place, row in enumerate(batch, 1) for name in set(row.settles)]
    columns = (
        ("bytea", _distinct(row.run_id for row in batch)),
        ("bytea", [octets(row.run_id) for row in batch]),
        ("bigint", [row.generation for row in batch]),
        ("bigint", [row.lease_version for row in batch]),
        ("bytea", [bytes.fromhex(row.digest) for row in batch]),
        ("bytea", [_previous(row.envelope) for row in batch]),
        ("bytea", [msgspec.json.encode(row.settles) for row in batch]),
        ("bytea", [row.envelope for row in batch]),
        ("bytea", [row.events for row in batch]),
        ("bytea", [row.state for row in batch]),
        ("integer", [place for place, _ in names]),
        ("bytea", [name_hash(name) for _, name in names]),
    )
    arrays = ", ".join(_array(kind, values) for kind, values in columns)
    return Call(text=f"{{schema}}.put({arrays})", bindings=_chained(columns))


def advance_call(batch: Sequence[Advance], runs: str = "{array}") -> Call:
    """Return the call that makes a batch of moves; digests are known to be digests.

    Args:
        batch: The moves.
        runs: What to pass as the runs to lock, where `{array}` stands for them.
    """
    heads = [move.expected for move in batch]
    distinct = _distinct(head.run_id for head in heads)
    columns = (
        ("bytea", [octets(head.run_id) for head in heads]),
        ("bytea", [octets(head.incarnation) for head in heads]),
        ("bigint", [head.generation for head in heads]),
        ("bytea", [bytes.fromhex(head.checkpoint) for head in heads]),
        ("bytea", [octets(head.nonce) for head in heads]),
        ("bigint", [head.lease_version for head in heads]),
        ("bytea", [bytes.fromhex(move.checkpoint) for move in batch]),
        ("text", [move.status for move in batch]),
        ("bigint", [move.ttl_ms for move in batch]),
    )
    arrays = ", ".join(_array(kind, values) for kind, values in columns)
    locked = runs.replace("{array}", _array("bytea", distinct))
    return Call(
        text=f"{{schema}}.advance({locked}, {arrays})", bindings=(*distinct, *_chained(columns))
    )


def _array(kind: str, values: Sequence[object]) -> str:
    """Return an array of single bindings: the driver takes far longer to bind a list."""
    return f"ARRAY[{', '.join(['%s'] * len(values))}]::{kind}[]"


def _chained(columns: Iterable[tuple[str, Sequence[object]]]) -> tuple[object, ...]:
    return tuple(value for _, values in columns for value in values)


def _previous(envelope: bytes) -> bytes | None:
    """Return the digest that a header names; None where there is no header that we know.

    Like every column beside the bytes it is an index, and proves nothing.
    """
    try:
        header = msgspec.json.decode(payload_of(envelope), type=_Link)
        return bytes.fromhex(header.previous)
    except (FormatError, msgspec.MsgspecError, ValueError):
        return None


def _distinct(run_ids: Iterable[RunId]) -> list[bytes]:
    return sorted({octets(run_id) for run_id in run_ids})


def checkpoint(run_id: RunId, row: CheckpointRow) -> Checkpoint:
    """Return the checkpoint of a row.

    Raises:
        FormatError: It does not have the form that we write.
    """
    return Checkpoint(
        run_id=run_id,
        generation=row.generation,
        digest=Digest(row.digest.hex()),
        lease_version=row.lease_version,
        envelope=row.envelope,
        state=row.state or b"",
        events=row.events,
        settles=_names(row.settles),
    )


def _names(settles: bytes) -> tuple[str, ...]:
    try:
        return msgspec.json.decode(settles, type=tuple[str, ...])
    except msgspec.MsgspecError as error:
        raise FormatError("a row does not have the form that we write") from error


def head(row: HeadRow) -> Head:
    """Return the head of a row.

    Raises:
        FormatError: It does not have the form that we write.
    """
    return Head(
        run_id=RunId(text(row.run_id)),
        generation=row.generation,
        checkpoint=Digest(row.checkpoint.hex()),
        owner=text(row.owner),
        nonce=text(row.nonce),
        lease_version=row.lease_version,
        expires_at_ms=row.expires_at_ms,
        status=row.status,
        incarnation=text(row.incarnation),
    )


def moved(move: Advance, row: MovedRow) -> Head:
    """Return the head after a move."""
    return Head(
        run_id=move.expected.run_id,
        generation=move.expected.generation + 1,
        checkpoint=move.checkpoint,
        owner=text(row.owner),
        nonce=move.expected.nonce,
        lease_version=move.expected.lease_version,
        expires_at_ms=row.expires_at_ms,
        status=move.status,
        incarnation=move.expected.incarnation,
    )
