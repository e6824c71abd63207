"""Read everything of a run and check it: what `verify` and `prove` stand on.

Recovery reads one head and one checkpoint. An audit reads all of them: every
signature, every hash, the chain, every Merkle root, and the consistency of each
checkpoint's trace with the one before.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from counterfoil.core import codec, merkle
from counterfoil.core.archive import Filed
from counterfoil.core.canonical import digest
from counterfoil.core.codec import Checkpoint, Header
from counterfoil.core.envelope import key_ids
from counterfoil.core.errors import FormatError, RollbackError, UsageError
from counterfoil.core.run import Phase
from counterfoil.core.trace import Event, Outcome
from counterfoil.core.words import Digest, RunId
from counterfoil.engine.control import show
from counterfoil.engine.filing import events_of, filed, find_archive
from counterfoil.engine.freshness import check_freshness, genuine_header
from counterfoil.engine.parts import Parts
from counterfoil.ports import Head

_NO_FRONTIER: tuple[bytes, ...] = ()

PAGE = 256
"""Checkpoints read at once."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Link:
    """One checkpoint on the chain, with its verified events.

    Attributes:
        row: As the store has it; of an archived one the envelope and the state are gone.
        header: Its verified header; None where the seal of an archive stands for it.
        events: Its events.
    """

    row: Checkpoint
    header: Header | None
    events: tuple[Event, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Audit:
    """What an audit found to be true.

    Attributes:
        checkpoints: Checkpoints on the chain.
        events: Events in the trace.
        root: Merkle root over them, hexadecimal.
        leftovers: Genuine checkpoints off the chain, left by losers of races.
        keys: Key ids that signed, in order of appearance.
        archived_at: When the run was archived, RFC 3339; empty where it is not.
    """

    checkpoints: int
    events: int
    root: str
    leftovers: int
    keys: tuple[str, ...]
    archived_at: str = ""


def chain(parts: Parts, run_id: RunId, *, after: Link | None = None) -> Iterator[Link]:
    """Yield the run's checkpoints from generation 0 to the head, each verified.

    The chain is found backwards by digest, since only the head is to be believed;
    digests of the whole run are held in memory, bodies are not. Of a run that was
    archived the seal is believed, and the archive is read.

    Args:
        parts: The engine.
        run_id: The run.
        after: Yield only what follows this one, which was yielded before.

    Raises:
        IntegrityError: The member that says why.
    """
    head = show(parts, run_id).head
    first = after.row.generation + 1 if after else 0
    archive = find_archive(parts, head)
    if archive is None:
        try:
            for link in _stored(parts, head, first, after.row.digest if after else ""):
                yield link
                first = link.row.generation + 1
            return
        except RollbackError:
            archive = find_archive(parts, head)  # it may have been archived meanwhile
            if archive is None:
                raise
    for generation, each in filed(parts, archive, first):
        is_last = generation == head.generation
        yield _last(parts, head) if is_last else _filed(run_id, generation, each)


def _stored(parts: Parts, head: Head, first: int, known: str) -> Iterator[Link]:
    """Yield checkpoints from `first` on; the one before, if any, has the digest `known`."""
    names: list[Digest] = []
    name = head.checkpoint
    while name and name != known:
        row = _row(parts, head.run_id, name)
        names.append(name)
        name = Digest(codec.open_header(row, parts.seals.verifiers).previous)
    for generation, name in enumerate(reversed(names), start=first):
        link = _link(parts, _row(parts, head.run_id, name))
        if link.row.generation != generation:
            raise FormatError(
                f"generation {link.row.generation} stands at {generation}", head.run_id
            )
        yield link


def _row(parts: Parts, run_id: RunId, name: Digest) -> Checkpoint:
    row = parts.store.get(run_id, name)
    if row is None:
        raise RollbackError(f"the store lacks a checkpoint of the chain: {name}", run_id)
    return row


def _link(parts: Parts, row: Checkpoint) -> Link:
    header = codec.open_header(row, parts.seals.verifiers)
    return Link(row=row, header=header, events=codec.open_events(row, header))


def _last(parts: Parts, head: Head) -> Link:
    return _link(parts, _row(parts, head.run_id, head.checkpoint))


def _filed(run_id: RunId, generation: int, each: Filed) -> Link:
    row = Checkpoint(
        run_id=run_id,
        generation=generation,
        digest=each.checkpoint,
        lease_version=0,
        envelope=b"",
        state=b"",
        events=bytes(each.events),
        settles=each.settles,
    )
    return Link(row=row, header=None, events=events_of(each))


def audit(parts: Parts, run_id: RunId, *, note: Callable[[int, int], None] | None = None) -> Audit:
    """Check every signature, hash, Merkle root and consistency, the head, and the state.

    Args:
        parts: The engine.
        run_id: The run.
        note: Told how many checkpoints are checked, and of how many.

    Raises:
        UnknownRunError: The register has no such run.
        IntegrityError: The member that says why, with the generation in its message.
    """
    view = show(parts, run_id)
    check_freshness(parts, view.head)
    size, frontier = 0, _NO_FRONTIER
    keys: dict[str, None] = {}
    proved: set[int] = set()
    names: set[Digest] = set()
    for link in chain(parts, run_id):
        old_size = size
        for raw, event in zip(codec.split_events(link.row.events), link.events, strict=True):
            if event.outcome is Outcome.VERIFIED and event.passed:
                proved.add(size)
            frontier = merkle.append(size, frontier, merkle.leaf_hash(raw))
            size += 1
        if size <= old_size:
            raise FormatError(f"generation {link.row.generation} has no event", run_id)
        if link.header is not None:
            _check_trace(link.header, size, frontier)
            _check_state(link.row, link.header)
            keys |= dict.fromkeys(key_ids(link.row.envelope))
        names.add(link.row.digest)
        if note is not None:
            note(len(names), view.head.generation + 1)
    evidence = view.run.evidence
    if view.run.phase is Phase.COMPLETED and (evidence is None or evidence.event not in proved):
        raise FormatError("the run is completed and its trace holds no such verification", run_id)
    archive = find_archive(parts, view.head)
    keys |= dict.fromkeys(archive.keys if archive else ())
    return Audit(
        checkpoints=len(names),
        events=size,
        root=merkle.root(frontier).hex(),
        leftovers=_leftovers(parts, run_id, view.head.generation, names),
        keys=tuple(keys),
        archived_at=archive.seal.archived_at if archive else "",
    )


def _check_trace(header: Header, size: int, frontier: tuple[bytes, ...]) -> None:
    root = merkle.root(frontier).hex()
    if (header.trace_size, header.trace_root) != (size, root):
        raise FormatError(
            f"the trace of generation {header.generation} does not have the signed root",
            header.run,
        )


def _check_state(row: Checkpoint, header: Header) -> None:
    if row.state and digest(row.state) != header.state:
        raise FormatError(f"the state of generation {header.generation} is another", header.run)


def _leftovers(parts: Parts, run_id: RunId, generation: int, names: set[Digest]) -> int:
    """Return how many genuine checkpoints lie off the chain, up to a generation."""
    after, count = -1, 0
    while rows := parts.store.trace(run_id, after, PAGE):
        for row in rows:
            is_off = row.generation <= generation and row.digest not in names
            if is_off and genuine_header(parts, row) is not None:
                count += 1
        after = rows[-1].generation
    return count


def events(parts: Parts, run_id: RunId) -> Iterator[tuple[int, Event]]:
    """Yield every event of the run with its index in the trace."""
    index = 0
    for link in chain(parts, run_id):
        for event in link.events:
            yield index, event
            index += 1


def leaves(parts: Parts, run_id: RunId) -> tuple[tuple[bytes, ...], bytes]:
    """Return the bytes of every event, and the envelope of the head."""
    entries: list[bytes] = []
    envelope = b""
    for link in chain(parts, run_id):
        entries += codec.split_events(link.row.events)
        envelope = link.row.envelope
    return tuple(entries), envelope


def check_index(index: int, size: int) -> None:
    """Refuse an event that the trace does not have.

    Raises:
        UsageError: With the bound.
    """
    if not 0 <= index < size:
        raise UsageError(f"no event {index}: the trace has {size}, numbered from 0")
