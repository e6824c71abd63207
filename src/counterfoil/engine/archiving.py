"""Make the archive of a finished run, and let go of the checkpoints that it stands for.

The order is the argument: verify the whole run; make the pieces durable, then the index,
then the seal; read all of it back and verify it; only then drop checkpoints, a few at a
time. Whoever comes after a death at any of these instants does the same again. Head,
last checkpoint and lease record stay as they are.
"""

import time
from collections.abc import Callable

import msgspec

from counterfoil.core import merkle
from counterfoil.core.archive import (
    ARCHIVE_FORMAT,
    PIECE_BYTES,
    SEAL,
    Filed,
    PieceName,
    Seal,
    pack,
    seal_archive,
)
from counterfoil.core.canonical import digest, encode
from counterfoil.core.codec import rfc3339
from counterfoil.core.errors import RollbackError
from counterfoil.core.words import Digest
from counterfoil.engine.audit import Link, audit, chain
from counterfoil.engine.control import RunView
from counterfoil.engine.filing import find_archive
from counterfoil.engine.parts import Parts

COLLECT_ROWS = 64
"""Checkpoints dropped in one durable write: a few milliseconds, so that no worker waits long."""

PACE_S = 0.01
"""Pause after each such write: whoever waits for the store comes first."""

Note = Callable[[int, int], None]
"""Told how many checkpoints are done, and of how many."""


def archive_run(parts: Parts, view: RunView, note: Note | None = None) -> int:
    """See to it that a finished run has a whole archive, and return how many bytes it takes.

    Raises:
        IntegrityError: The run, or its archive as it was read back, cannot be believed.
        UnavailableError, UnknownOutcomeError: Try again; nothing was dropped.
    """
    if find_archive(parts, view.head) is None:
        _file(parts, view, note)
    audit(parts, view.head.run_id, note=note)
    return archive_bytes(parts, view)


def archive_bytes(parts: Parts, view: RunView) -> int:
    """Return how many bytes the archive of a run takes; 0 where it has none."""
    archive = find_archive(parts, view.head)
    if archive is None:
        return 0
    pieces = (parts.store.archived(view.head.run_id, name.digest) for name in archive.index)
    return archive.size_bytes + sum(len(content or b"") for content in pieces)


def drop_archived(parts: Parts, view: RunView) -> int:
    """Drop all checkpoints of an archived run but its last, and return how many went.

    Raises:
        RollbackError: The run has no archive that stands for them.
    """
    head, dropped = view.head, 0
    if find_archive(parts, head) is None:
        raise RollbackError("the store lacks the archive that was just made", head.run_id)
    while count := parts.store.collect(head.run_id, head.checkpoint, head.generation, COLLECT_ROWS):
        dropped += count
        time.sleep(PACE_S)
    return dropped


def _file(parts: Parts, view: RunView, note: Note | None) -> None:
    """Write a run's archive, the seal last."""
    run_id = view.head.run_id
    audit(parts, run_id, note=note)
    index: list[PieceName] = []
    waiting: list[Filed] = []
    size, size_bytes = 0, 0
    frontier: tuple[bytes, ...] = ()
    for link in chain(parts, run_id):
        waiting.append(_filed(link))
        size_bytes += len(link.row.events)
        frontier = merkle.append(size, frontier, merkle.leaf_hash(link.row.digest.encode()))
        size += 1
        if size_bytes >= PIECE_BYTES:
            index.append(_keep(parts, view, waiting, size - len(waiting)))
            waiting, size_bytes = [], 0
    if waiting:
        index.append(_keep(parts, view, waiting, size - len(waiting)))
    raw = encode(index)
    named = _named(parts, view, merkle.root(frontier), digest(raw))
    parts.store.archive(run_id, named.index, raw)
    parts.store.archive(run_id, SEAL, seal_archive(named, parts.seals.signer))


def _filed(link: Link) -> Filed:
    return Filed(
        checkpoint=link.row.digest,
        settles=link.row.settles,
        events=msgspec.Raw(link.row.events),
    )


def _keep(parts: Parts, view: RunView, rows: list[Filed], first: int) -> PieceName:
    name, content = pack(rows, first)
    parts.store.archive(view.head.run_id, name.digest, content)
    return name


def _named(parts: Parts, view: RunView, chain_root: bytes, index: Digest) -> Seal:
    header = view.header
    return Seal(
        format=ARCHIVE_FORMAT,
        run=header.run,
        task=header.task,
        generation=header.generation,
        checkpoint=view.head.checkpoint,
        trace_size=header.trace_size,
        trace_root=header.trace_root,
        chain_root=chain_root.hex(),
        index=index,
        archived_at=rfc3339(parts.clock.now_ms()),
    )
