"""The Merkle tree of a trace, as RFC 9162 section 2.1 hashes it.

The frontier is the list of roots of the perfect subtrees, largest first, one for each
set bit of the size. It is all that appending needs, so a run carries at most 64 hashes.
Proofs are made from all leaf hashes and checked from a handful.
"""

from collections.abc import Sequence
from hashlib import sha256

from counterfoil.core.bounds import FRONTIER_HASHES_MAX
from counterfoil.core.errors import FormatError

Hash = bytes
EMPTY_ROOT = sha256(b"").digest()
HASH_BYTES = 32


def leaf_hash(entry: bytes) -> Hash:
    """Return the hash of one entry: SHA-256 of a zero byte and the entry."""
    return sha256(b"\x00" + entry).digest()


def node_hash(left: Hash, right: Hash) -> Hash:
    """Return the hash of an inner node: SHA-256 of a one byte and both children."""
    return sha256(b"\x01" + left + right).digest()


def extend(size: int, frontier: tuple[Hash, ...], leaves: Sequence[Hash]) -> tuple[Hash, ...]:
    """Return the frontier of `size` + as many leaves, given that of `size`.

    Raises:
        FormatError: `frontier` does not fit `size`.
    """
    check_frontier(size, frontier)
    stack = list(frontier)
    for leaf in leaves:
        node, carries = leaf, size
        while carries & 1:
            node = node_hash(stack.pop(), node)
            carries >>= 1
        stack.append(node)
        size += 1
    return tuple(stack)


def append(size: int, frontier: tuple[Hash, ...], leaf: Hash) -> tuple[Hash, ...]:
    """Return the frontier of `size` + 1 leaves, given that of `size`.

    Raises:
        FormatError: `frontier` does not fit `size`.
    """
    return extend(size, frontier, (leaf,))


def root(frontier: tuple[Hash, ...]) -> Hash:
    """Return the root that a frontier stands for."""
    if not frontier:
        return EMPTY_ROOT
    node = frontier[-1]
    for left in reversed(frontier[:-1]):
        node = node_hash(left, node)
    return node


def check_frontier(size: int, frontier: Sequence[Hash]) -> None:
    """Refuse a frontier that cannot belong to `size` leaves.

    Raises:
        FormatError: The number or the length of its hashes is wrong.
    """
    if size < 0 or size.bit_length() > FRONTIER_HASHES_MAX:
        raise FormatError(f"trace size {size} is outside 0 to 2^{FRONTIER_HASHES_MAX}")
    if len(frontier) != size.bit_count() or not {HASH_BYTES}.issuperset(map(len, frontier)):
        raise FormatError(f"frontier of {len(frontier)} hashes does not fit trace size {size}")


def tree_root(leaves: Sequence[Hash]) -> Hash:
    """Return the root over all leaf hashes."""
    frontier: tuple[Hash, ...] = ()
    for size, leaf in enumerate(leaves):
        frontier = append(size, frontier, leaf)
    return root(frontier)


def inclusion_proof(leaves: Sequence[Hash], index: int) -> tuple[Hash, ...]:
    """Return the audit path of leaf `index`, lowest sibling first.

    Raises:
        FormatError: There is no such leaf.

    Source:
        RFC 9162 section 2.1.3.1.
    """
    if not 0 <= index < len(leaves):
        raise FormatError(f"no event {index} in a trace of {len(leaves)}")
    path: list[Hash] = []
    low, high = 0, len(leaves)
    while high - low > 1:
        middle = low + _split(high - low)
        if index < middle:
            path.append(tree_root(leaves[middle:high]))
            high = middle
        else:
            path.append(tree_root(leaves[low:middle]))
            low = middle
    return tuple(reversed(path))


def inclusion_root(leaf: Hash, index: int, size: int, proof: Sequence[Hash]) -> Hash:
    """Return the root that an inclusion proof leads to; compare it with the signed one.

    Raises:
        FormatError: The proof has the wrong length for `index` and `size`.

    Source:
        RFC 9162 section 2.1.3.2.
    """
    if not 0 <= index < size:
        raise FormatError(f"no event {index} in a trace of {size}")
    fn, sn, node = index, size - 1, leaf
    for sibling in proof:
        if sn == 0:
            raise FormatError("the inclusion proof is too long")
        if fn & 1 or fn == sn:
            node = node_hash(sibling, node)
            while not fn & 1 and fn:
                fn, sn = fn >> 1, sn >> 1
        else:
            node = node_hash(node, sibling)
        fn, sn = fn >> 1, sn >> 1
    if sn:
        raise FormatError("the inclusion proof is too short")
    return node


def consistency_proof(leaves: Sequence[Hash], old_size: int) -> tuple[Hash, ...]:
    """Return the proof that the tree over `leaves` extends its first `old_size` leaves.

    Raises:
        FormatError: `old_size` is not between 1 and the number of leaves.

    Source:
        RFC 9162 section 2.1.4.1.
    """
    if not 1 <= old_size <= len(leaves):
        raise FormatError(f"no trace of {old_size} inside one of {len(leaves)}")
    path: list[Hash] = []
    low, high, whole = 0, len(leaves), True
    while high - low != old_size - low:
        middle = low + _split(high - low)
        if old_size <= middle:
            path.append(tree_root(leaves[middle:high]))
            high = middle
        else:
            path.append(tree_root(leaves[low:middle]))
            low, whole = middle, False
    if not whole:
        path.append(tree_root(leaves[low:high]))
    return tuple(reversed(path))


def is_consistent(
    old_size: int, old_root: Hash, new_size: int, new_root: Hash, proof: Sequence[Hash]
) -> bool:
    """Return whether `proof` shows that the new tree extends the old one.

    Source:
        RFC 9162 section 2.1.4.2.
    """
    if old_size == new_size:
        return not proof and old_root == new_root
    if not 1 <= old_size < new_size or (not proof and old_size.bit_count() != 1):
        return False
    path = list(proof)
    if old_size.bit_count() == 1:
        path.insert(0, old_root)
    fn, sn = old_size - 1, new_size - 1
    while fn & 1:
        fn, sn = fn >> 1, sn >> 1
    old_node = new_node = path[0]
    for sibling in path[1:]:
        if sn == 0:
            return False
        if fn & 1 or fn == sn:
            old_node = node_hash(sibling, old_node)
            new_node = node_hash(sibling, new_node)
            while not fn & 1 and fn:
                fn, sn = fn >> 1, sn >> 1
        else:
            new_node = node_hash(new_node, sibling)
        fn, sn = fn >> 1, sn >> 1
    return sn == 0 and old_node == old_root and new_node == new_root


def _split(count: int) -> int:
    """Return the largest power of two below `count`, which is at least 2."""
    return 1 << ((count - 1).bit_length() - 1)
