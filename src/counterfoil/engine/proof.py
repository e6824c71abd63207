"""Inclusion proofs as files: one event, shown to be in a signed trace, without a store.

The Merkle part convinces anybody who trusts the root. That the root was signed is
checked under the checkpoint key, where that key is at hand.
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from counterfoil.core import merkle
from counterfoil.core.bounds import EVENTS_BYTES_MAX, HEADER_BYTES_MAX
from counterfoil.core.canonical import decode, encode
from counterfoil.core.codec import Header
from counterfoil.core.envelope import CHECKPOINT_TYPE, Envelope, Verifier, unseal
from counterfoil.core.errors import FormatError
from counterfoil.core.trace import Event
from counterfoil.core.words import RunId
from counterfoil.engine import audit
from counterfoil.engine.parts import Parts

PROOF_FORMAT = 1
PROOF_BYTES_MAX = 4 * EVENTS_BYTES_MAX


class Proof(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """That an event is in a trace.

    Attributes:
        format: Version of this form.
        run: The run.
        index: Place of the event in the trace.
        size: Events in the trace that the envelope speaks of.
        event: The event's bytes, base64.
        path: Audit path, lowest sibling first, hexadecimal.
        envelope: The signed checkpoint header, base64.
    """

    format: int
    run: RunId
    index: int
    size: int
    event: str
    path: tuple[str, ...]
    envelope: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Proved:
    """What a proof shows.

    Attributes:
        header: Header of the checkpoint.
        event: The event.
        index: Its place.
        is_signed: Whether the signature was checked, and fits.
    """

    header: Header
    event: Event
    index: int
    is_signed: bool


def make_proof(parts: Parts, run_id: RunId, index: int) -> bytes:
    """Return the proof that event `index` is in the trace of the run's newest checkpoint.

    Raises:
        UsageError: The trace has no such event.
        IntegrityError: The run cannot be believed.
    """
    entries, envelope = audit.leaves(parts, run_id)
    audit.check_index(index, len(entries))
    hashes = [merkle.leaf_hash(entry) for entry in entries]
    proof = Proof(
        format=PROOF_FORMAT,
        run=run_id,
        index=index,
        size=len(entries),
        event=base64.b64encode(entries[index]).decode("ascii"),
        path=tuple(node.hex() for node in merkle.inclusion_proof(hashes, index)),
        envelope=base64.b64encode(envelope).decode("ascii"),
    )
    return encode(proof) + b"\n"


def check_proof(raw: bytes, verifiers: Mapping[str, Verifier] | None) -> Proved:
    """Check a proof against its own signed root.

    Args:
        raw: The file's bytes.
        verifiers: Checkpoint keys; None when none is at hand, and then the signature
            is not checked, which the result says.

    Raises:
        FormatError: It is no proof, or the event is not under the root.
        SignatureError: The root is not signed by a key at hand.
    """
    proof = decode(raw.rstrip(b"\n"), Proof, "proof", bytes_max=PROOF_BYTES_MAX)
    if proof.format != PROOF_FORMAT:
        raise FormatError(f"proof format {proof.format} is unknown")
    entry, envelope = _bytes(proof.event), _bytes(proof.envelope)
    if verifiers is None:
        payload = _bytes(decode(envelope, Envelope, "envelope", bytes_max=len(envelope)).payload)
    else:
        payload = unseal(envelope, CHECKPOINT_TYPE, verifiers)
    header = decode(payload, Header, "header", bytes_max=HEADER_BYTES_MAX)
    if (header.run, header.trace_size) != (proof.run, proof.size):
        raise FormatError("the proof speaks of another run or trace than its checkpoint")
    path = [_hash(node) for node in proof.path]
    root = merkle.inclusion_root(merkle.leaf_hash(entry), proof.index, proof.size, path)
    if root.hex() != header.trace_root:
        raise FormatError("the event is not under the signed root", header.run)
    event = decode(entry, Event, "event", bytes_max=EVENTS_BYTES_MAX)
    return Proved(header=header, event=event, index=proof.index, is_signed=verifiers is not None)


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise FormatError("the proof holds no base64 where it must") from error


def _hash(text: str) -> bytes:
    try:
        node = bytes.fromhex(text)
    except ValueError as error:
        raise FormatError("the proof holds no hash where it must") from error
    if len(node) != merkle.HASH_BYTES:
        raise FormatError("the proof holds a hash of another length")
    return node
