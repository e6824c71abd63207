"""Evidence that time was turned back: in the store, in its lease record, at an adapter.

Only what a key of ours signed counts, so that a writer of the store raises no alarm.
What an adapter or a lease record has seen must be the head or an ancestor of it.
"""

from counterfoil.core import codec
from counterfoil.core.errors import IntegrityError, RollbackError
from counterfoil.core.words import Digest
from counterfoil.engine.filing import filed_digest, find_archive
from counterfoil.engine.marks import read_mark
from counterfoil.engine.parts import Parts
from counterfoil.ports import Head

BEYOND_ROWS_MAX = 1024
"""Rows above the head that are looked at: staged leftovers are one or two."""

BEYOND_PAGE = 64
ANCESTORS_MAX = 64
"""Headers walked back to place what an adapter served; older ones must merely exist."""


def check_freshness(parts: Parts, head: Head) -> None:
    """Look for genuine evidence in the store that the register was turned back.

    Raises:
        RollbackError: Checkpoints or a lease record are beyond the head.
    """
    record = read_mark(parts, head.run_id)
    if record is not None:
        if record.lease_version > head.lease_version:
            raise RollbackError("the store has seen a newer lease", head.run_id)
        is_same_lease = record.lease_version == head.lease_version
        if is_same_lease and head.nonce and record.nonce != head.nonce:
            raise RollbackError("the store has seen this lease under another nonce", head.run_id)
        place(parts, head, record.generation, record.checkpoint, "the lease record")
    after, seen = head.generation, 0
    while rows := parts.store.trace(head.run_id, after, BEYOND_PAGE):
        for row in rows:
            header = genuine_header(parts, row)
            if header is None:
                continue
            is_staged = header.generation == head.generation + 1
            if not is_staged or header.previous != head.checkpoint:
                raise RollbackError(
                    f"the store holds generation {header.generation}, the head says "
                    f"{head.generation}",
                    head.run_id,
                )
        after, seen = rows[-1].generation, seen + len(rows)
        if seen > BEYOND_ROWS_MAX:
            raise RollbackError(f"over {BEYOND_ROWS_MAX} rows lie beyond the head", head.run_id)


def genuine_header(parts: Parts, row: codec.Checkpoint) -> codec.Header | None:
    """Return the header of a row that a key of ours signed; others are no evidence."""
    try:
        return codec.open_header(row, parts.seals.verifiers)
    except IntegrityError:
        return None


def place(parts: Parts, head: Head, generation: int, checkpoint: Digest, who: str) -> None:
    """Refuse evidence of a checkpoint that is not the head or an ancestor of it.

    Raises:
        RollbackError: It is beyond the head, or of another history.
    """
    if generation > head.generation:
        raise RollbackError(
            f"{who} has seen generation {generation}, the head says {head.generation}", head.run_id
        )
    try:
        _place_stored(parts, head, generation, checkpoint, who)
    except RollbackError:
        archive = find_archive(parts, head)
        if archive is None or filed_digest(parts, archive, generation) != checkpoint:
            raise


def _place_stored(parts: Parts, head: Head, generation: int, checkpoint: Digest, who: str) -> None:
    at, name = head.generation, head.checkpoint
    for _ in range(ANCESTORS_MAX):
        if at == generation:
            break
        row = parts.store.get(head.run_id, name)
        header = genuine_header(parts, row) if row is not None else None
        if header is None:
            raise RollbackError(f"the store lacks generation {at} of the chain", head.run_id)
        at, name = at - 1, Digest(header.previous)
    else:
        row = parts.store.get(head.run_id, checkpoint)
        if row is not None and genuine_header(parts, row) is not None:
            return
        name = Digest("")
    if name != checkpoint:
        raise RollbackError(
            f"{who} has seen another history at generation {generation}", head.run_id
        )
