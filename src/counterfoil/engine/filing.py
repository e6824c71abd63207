"""Read the archive of a finished run: believed by its seal, as a checkpoint by its own.

An archive counts only for the very checkpoint that the head names. What nobody with a
key sealed is no archive; a part that a genuine seal leads to and that is gone is an alarm.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from counterfoil.core import merkle
from counterfoil.core.archive import SEAL, Filed, PieceName, Seal, open_index, open_seal, unpack
from counterfoil.core.bounds import EVENTS_BYTES_MAX
from counterfoil.core.canonical import decode
from counterfoil.core.envelope import key_ids
from counterfoil.core.errors import FormatError, IntegrityError, RollbackError
from counterfoil.core.trace import Event, settles
from counterfoil.core.words import Digest, RunId
from counterfoil.engine.parts import Parts
from counterfoil.ports import Head

TERMINAL = "terminal"


@dataclass(frozen=True, kw_only=True, slots=True)
class Archive:
    """An archive whose seal is genuine.

    Attributes:
        seal: What was signed.
        index: Names of its pieces, oldest first.
        keys: Key ids that signed the seal.
        size_bytes: Bytes of seal and index.
    """

    seal: Seal
    index: tuple[PieceName, ...]
    keys: tuple[str, ...]
    size_bytes: int


def find_archive(parts: Parts, head: Head) -> Archive | None:
    """Return the archive of the checkpoint that a head names; None when there is none.

    Raises:
        RollbackError: The seal is genuine, and the store lacks the index.
        FormatError: The index is not the one that the seal names.
    """
    if head.status != TERMINAL:
        return None
    envelope = parts.store.archived(head.run_id, SEAL)
    if envelope is None:
        return None
    try:
        seal = open_seal(envelope, head.run_id, parts.seals.verifiers)
    except IntegrityError:
        return None
    if (seal.generation, seal.checkpoint) != (head.generation, head.checkpoint):
        return None
    raw = _part(parts, head.run_id, seal.index)
    return Archive(
        seal=seal,
        index=open_index(raw, seal),
        keys=key_ids(envelope),
        size_bytes=len(envelope) + len(raw),
    )


def filed(parts: Parts, archive: Archive, first: int = 0) -> Iterator[tuple[int, Filed]]:
    """Yield the checkpoints of an archive with their generations, from `first` on.

    Raises:
        RollbackError: The store lacks a piece.
        FormatError: A piece is not the one that the index names, or out of order; or,
            read from generation 0 to the end, they are not those that were sealed.
    """
    seal, size, expected = archive.seal, 0, 0
    frontier: tuple[bytes, ...] = ()
    for number, name in enumerate(archive.index):
        ends = archive.index[number + 1].first if number + 1 < len(archive.index) else None
        if ends is not None and ends <= first:
            expected = ends
            continue
        if name.first != expected:
            raise FormatError(f"the archive has a gap at generation {expected}", seal.run)
        for each in piece(parts, archive, name):
            if expected >= first:
                yield expected, each
            if not first:
                frontier = merkle.append(size, frontier, merkle.leaf_hash(each.checkpoint.encode()))
                size += 1
            expected += 1
    is_whole = first or merkle.root(frontier).hex() == seal.chain_root
    if expected != seal.generation + 1 or not is_whole:
        raise FormatError("the archive does not hold the checkpoints that were sealed", seal.run)


def piece(parts: Parts, archive: Archive, name: PieceName) -> tuple[Filed, ...]:
    """Return one piece of an archive; errors are those of `filed`."""
    return unpack(name, _part(parts, archive.seal.run, name.digest), archive.seal.run)


def events_of(each: Filed) -> tuple[Event, ...]:
    """Return the events of an archived checkpoint.

    Raises:
        FormatError: They are not in their form.
    """
    return decode(bytes(each.events), tuple[Event, ...], "events", bytes_max=EVENTS_BYTES_MAX)


def filed_digest(parts: Parts, archive: Archive, generation: int) -> Digest | None:
    """Return the digest of an archived checkpoint; None for a generation it does not have."""
    names = [name for name in archive.index if name.first <= generation]
    if not names:
        return None
    rows = piece(parts, archive, names[-1])
    at = generation - names[-1].first
    return rows[at].checkpoint if at < len(rows) else None


def _part(parts: Parts, run_id: RunId, name: Digest) -> bytes:
    raw = parts.store.archived(run_id, name)
    if raw is None:
        raise RollbackError(f"the store lacks a part of the archive: {name}", run_id)
    return raw


@dataclass(kw_only=True, slots=True)
class Answers:
    """What an archive knows by key and by position, for a program that is run again.

    Holds where each name is, and the events of one piece.

    Attributes:
        parts: The engine.
        archive: The archive.
    """

    parts: Parts
    archive: Archive
    _places: dict[str, int] = field(default_factory=dict[str, int])
    _number: int = -1
    _events: tuple[Event, ...] = ()

    def __post_init__(self) -> None:
        for number, name in enumerate(self.archive.index):
            for each in piece(self.parts, self.archive, name):
                self._places |= dict.fromkeys(each.settles, number)

    def event(self, name: str) -> Event | None:
        """Return the event that settled a key or position, or None."""
        if name not in self._places:
            return None
        found = (
            event for event in reversed(self._read(self._places[name])) if settles(event, name)
        )
        return next(found, None)

    def intent_event(self, key: str) -> Event | None:
        """Return the event in which the intent of a settled key became pending, if it is near."""
        settled = self._places.get(key, -1)
        for number in range(settled, max(-1, settled - 2), -1):
            for event in reversed(self._read(number)):
                if event.key == key and event.intent is not None:
                    return event
        return None

    def _read(self, number: int) -> tuple[Event, ...]:
        if self._number != number:
            rows = piece(self.parts, self.archive, self.archive.index[number])
            self._events = tuple(event for each in rows for event in events_of(each))
            self._number = number
        return self._events
