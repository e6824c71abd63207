"""The archive of a finished run: what stands for its checkpoints once these are dropped.

A signed seal names the run's last checkpoint and an index, the index names pieces, and a
piece holds the digest and the events of each checkpoint in turn. The digests are the
leaves of a second Merkle tree, whose root is in the seal. So every event is still proved
by the root in the last header, and every checkpoint is still known by its digest.
"""

import zlib
from collections.abc import Mapping, Sequence

import msgspec

from counterfoil.core.bounds import EVENTS_BYTES_MAX, HEADER_BYTES_MAX
from counterfoil.core.canonical import decode, digest, encode
from counterfoil.core.envelope import ARCHIVE_TYPE, Signer, Verifier, seal, unseal
from counterfoil.core.errors import BindingError, FormatError
from counterfoil.core.words import Digest, RunId

ARCHIVE_FORMAT = 1

SEAL = "seal"
"""Name of the seal; index and pieces are named by their digests."""

PIECE_BYTES = 512 * 1024
"""Events after which a piece is closed: much for a compressor, little for one look-up."""

PIECE_BYTES_MAX = PIECE_BYTES + 2 * EVENTS_BYTES_MAX
"""A piece before it is compressed: it is closed by whatever commit comes last."""

INDEX_BYTES_MAX = 4 * 1024 * 1024
"""An index of tens of thousands of pieces: more than a run has steps for."""

COMPRESSION = 6
"""The level at which a compressor is thorough and still reads faster than a disk."""


class Filed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One checkpoint in an archive.

    Attributes:
        checkpoint: Its digest.
        settles: Names that it settled, as the store found it by them.
        events: Its events, byte for byte.
    """

    checkpoint: Digest
    settles: tuple[str, ...]
    events: msgspec.Raw


class PieceName(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a part of the checkpoints is.

    Attributes:
        digest: SHA-256 of the piece as it is stored: its name.
        first: Generation of its first checkpoint.
        size_bytes: Its size before it was compressed.
    """

    digest: Digest
    first: int
    size_bytes: int


class Seal(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The signed part of an archive.

    Attributes:
        format: Version of seal, index and pieces.
        run: Run id.
        task: Task id.
        generation: Number of the run's last checkpoint.
        checkpoint: Its digest, as the head names it.
        trace_size: Events of the run.
        trace_root: Merkle root over them, hexadecimal, as in the last header.
        chain_root: Merkle root over the digests of all checkpoints, hexadecimal.
        index: Digest of the index.
        archived_at: UTC, RFC 3339.
    """

    format: int
    run: RunId
    task: str
    generation: int
    checkpoint: Digest
    trace_size: int
    trace_root: str
    chain_root: str
    index: Digest
    archived_at: str


def pack(filed: Sequence[Filed], first: int) -> tuple[PieceName, bytes]:
    """Return a piece as it is stored, and its name.

    Args:
        filed: Checkpoints without a gap, oldest first.
        first: Generation of the first of them.
    """
    raw = encode(filed)
    content = zlib.compress(raw, COMPRESSION)
    return PieceName(digest=digest(content), first=first, size_bytes=len(raw)), content


def unpack(name: PieceName, content: bytes, run_id: RunId) -> tuple[Filed, ...]:
    """Return the checkpoints of a piece.

    Raises:
        FormatError: The bytes are not those that the name promises.
    """
    if digest(content) != name.digest or not 0 < name.size_bytes <= PIECE_BYTES_MAX:
        raise FormatError("a piece of the archive is not the one its index names", run_id)
    reader = zlib.decompressobj()
    try:
        raw = reader.decompress(content, name.size_bytes + 1)
    except zlib.error as error:
        raise FormatError("a piece of the archive cannot be read", run_id) from error
    if len(raw) != name.size_bytes or not reader.eof or reader.unused_data:
        raise FormatError("a piece of the archive has another size than its index says", run_id)
    return decode(raw, tuple[Filed, ...], "piece", bytes_max=PIECE_BYTES_MAX)


def open_index(raw: bytes, named: Seal) -> tuple[PieceName, ...]:
    """Return the names of all pieces, oldest first.

    Raises:
        FormatError: The bytes are not those that the seal names.
    """
    if digest(raw) != named.index:
        raise FormatError("the index of the archive is not the one its seal names", named.run)
    return decode(raw, tuple[PieceName, ...], "index", bytes_max=INDEX_BYTES_MAX)


def seal_archive(named: Seal, signer: Signer) -> bytes:
    """Return the envelope over a seal."""
    return seal(ARCHIVE_TYPE, encode(named), signer)


def open_seal(envelope: bytes, run_id: RunId, verifiers: Mapping[str, Verifier]) -> Seal:
    """Return the verified seal of a run's archive.

    Raises:
        FormatError: It is no seal, or of an unknown format.
        SignatureError: No trusted key signed it.
        BindingError: It belongs to another run.
    """
    payload = unseal(envelope, ARCHIVE_TYPE, verifiers)
    named = decode(payload, Seal, "seal", bytes_max=HEADER_BYTES_MAX)
    if named.format != ARCHIVE_FORMAT:
        raise FormatError(f"archive format {named.format} is unknown", run_id)
    if named.run != run_id:
        raise BindingError(f"the archive belongs to run {named.run}", run_id)
    return named
