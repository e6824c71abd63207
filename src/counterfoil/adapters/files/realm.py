"""What the paths of a scope hold, as one number that a single write can bring up to date.

A realm is a set of scope entries. Its sum adds a long hash of each file that the
entries cover, so that the order does not matter and one changed file costs two
additions, however many there are. Its fingerprint is the digest of the sum.

Source: Bellare and Micciancio, "A new paradigm for collision-free hashing", EUROCRYPT
1997 (AdHash). At `SUM_BITS` the generalised birthday attack of Wagner, CRYPTO 2002,
costs 2^256, as much as a collision search could ask of SHA-512.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import shake_256

from counterfoil.core.canonical import canonical, digest
from counterfoil.core.errors import ContractError
from counterfoil.core.task import PATHS, canonical_path, covers
from counterfoil.core.words import Digest

SUM_BITS = 16_384
"""Wagner's attack costs 2^(2·sqrt(bits))."""

SUM_BYTES = SUM_BITS // 8

_MASK = (1 << SUM_BITS) - 1

FILE = "file"
LINK = "link"
OTHER = "other"


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One object below the root, as it was last seen.

    Attributes:
        kind: `FILE`, `LINK` or `OTHER`.
        sha256: Digest of the content, or of a link's target.
        dev: Device, as the kernel numbers it at present.
        inode: Number of the object on its device.
        size: Bytes.
        mtime_ns: Last change of the content, by the file system's clock.
        ctime_ns: Last change of anything.
        is_settled: Whether a later change would certainly show in these figures.
    """

    kind: str
    sha256: str
    dev: int
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int
    is_settled: bool


def patterns(scope: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Return the path entries of a scope, in order, each once.

    Raises:
        ContractError: One is no canonical path, folder or ".".
    """
    entries = sorted(set(scope.get(PATHS, ())))
    for entry in entries:
        if entry != ".":
            canonical_path(entry.removesuffix("/"), PATHS)
    return tuple(entries)


def realm_id(entries: tuple[str, ...]) -> Digest:
    """Return the name of the realm of these scope entries."""
    return digest(canonical(list(entries)))


def is_covered(entries: tuple[str, ...], path: str) -> bool:
    """Return whether any scope entry covers the path."""
    return any(covers(entry, path) for entry in entries)


def term(path: str, entry: Entry) -> int:
    """Return what one object adds to the sum of every realm that covers it."""
    head = f"counterfoil files 1\0{entry.kind}\0{entry.sha256}\0".encode()
    name = path.encode("utf-8", "surrogateescape")
    return int.from_bytes(shake_256(head + name).digest(SUM_BYTES), "big")


def total(terms: Iterable[int]) -> int:
    """Return the sum of terms, which may be negative."""
    return sum(terms) & _MASK


def to_bytes(number: int) -> bytes:
    """Return a sum as it is kept."""
    return number.to_bytes(SUM_BYTES, "big")


def from_bytes(raw: bytes) -> int:
    """Return the sum that `to_bytes` kept.

    Raises:
        ContractError: It has another length.
    """
    if len(raw) != SUM_BYTES:
        raise ContractError(f"a sum has {len(raw)} bytes, not {SUM_BYTES}")
    return int.from_bytes(raw, "big")


def fingerprint(raw: bytes) -> Digest:
    """Return the fingerprint of a realm with this sum."""
    return digest(raw)
