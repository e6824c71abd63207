"""Read everything of a run and check it: what `verify` and `prove` stand on.

Recovery reads one head and one checkpoint. An audit reads all of them: every
signature, every hash, the chain, every Merkle root, and the consistency of each
checkpoint's trace with the one before.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from counterfoil.core import codec, merkle
from counterfoil.core.canonical import digest
from counterfoil.core.codec import Checkpoint, Header
from counterfoil.core.envelope import key_ids
from counterfoil.core.errors import FormatError, IntegrityError, RollbackError, UsageError
from counterfoil.core.run import Phase
from counterfoil.core.trace import Event, Outcome
from counterfoil.core.words import Digest, RunId
from counterfoil.engine.control import show
from counterfoil.engine.freshness import check_freshness
from counterfoil.engine.parts import Parts

_NO_FRONTIER: tuple[bytes, ...] = ()

PAGE = 256
"""Checkpoints read at once."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Link:
    """One checkpoint on the chain, with its verified header and events."""

    row: Checkpoint
    header: Header
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
    """

    checkpoints: int
    events: int
    root: str
    leftovers: int
    keys: tuple[str, ...]


def chain(parts: Parts, run_id: RunId, *, after: Link | None = None) -> Iterator[Link]:
    """Yield the run's checkpoints from generation 0 to the head, each verified.

    The chain is found backwards by digest, since only the head is to be believed;
    digests of the whole run are held in memory, bodies are not.

    Args:
        parts: The engine.
        run_id: The run.
        after: Yield only what follows this one, which was yielded before.

    Raises:
        IntegrityError: The member that says why.
    """
    view = show(parts, run_id)
    names: list[Digest] = []
    name, known = view.head.checkpoint, after.row.digest if after else ""
    while name and name != known:
        row = parts.store.get(run_id, name)
        if row is None:
            raise RollbackError(f"the store lacks a checkpoint of the chain: {name}", run_id)
        names.append(name)
        name = Digest(codec.open_header(row, parts.seals.verifiers).previous)
    first = after.header.generation + 1 if after else 0
    for generation, name in enumerate(reversed(names), start=first):
        row = parts.store.get(run_id, name)
        if row is None:
            raise RollbackError(f"the store lacks a checkpoint of the chain: {name}", run_id)
        header = codec.open_header(row, parts.seals.verifiers)
        if header.generation != generation:
            raise FormatError(f"generation {header.generation} stands at {generation}", run_id)
        yield Link(row=row, header=header, events=codec.open_events(row, header))


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
    checkpoints = 0
    for link in chain(parts, run_id):
        old_size, old_frontier = size, frontier
        for raw, event in zip(codec.split_events(link.row.events), link.events, strict=True):
            if event.outcome is Outcome.VERIFIED and event.passed:
                proved.add(size)
            frontier = merkle.append(size, frontier, merkle.leaf_hash(raw))
            size += 1
        _check_trace(link, size, frontier, old_size, old_frontier)
        if link.row.state and digest(link.row.state) != link.header.state:
            raise FormatError(
                f"the state of generation {link.header.generation} is another", run_id
            )
        keys |= dict.fromkeys(key_ids(link.row.envelope))
        checkpoints += 1
        if note is not None:
            note(checkpoints, view.head.generation + 1)
    evidence = view.run.evidence
    if view.run.phase is Phase.COMPLETED and (evidence is None or evidence.event not in proved):
        raise FormatError("the run is completed and its trace holds no such verification", run_id)
    return Audit(
        checkpoints=checkpoints,
        events=size,
        root=merkle.root(frontier).hex(),
        leftovers=_leftovers(parts, run_id, view.head.generation, checkpoints),
        keys=tuple(keys),
    )


def _check_trace(
    link: Link,
    size: int,
    frontier: tuple[bytes, ...],
    old_size: int,
    old_frontier: tuple[bytes, ...],
) -> None:
    header = link.header
    root = merkle.root(frontier).hex()
    if (header.trace_size, header.trace_root) != (size, root):
        raise FormatError(
            f"the trace of generation {header.generation} does not have the signed root",
            header.run,
        )
    if size <= old_size:
        raise FormatError(f"generation {header.generation} has no event", header.run)


def _leftovers(parts: Parts, run_id: RunId, head_generation: int, on_chain: int) -> int:
    after, count = -1, 0
    while rows := parts.store.trace(run_id, after, PAGE):
        for row in rows:
            if row.generation <= head_generation and _is_genuine(parts, row):
                count += 1
        after = rows[-1].generation
    return count - on_chain


def _is_genuine(parts: Parts, row: Checkpoint) -> bool:
    try:
        codec.open_header(row, parts.seals.verifiers)
    except IntegrityError:
        return False
    return True


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
