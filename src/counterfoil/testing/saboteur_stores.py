"""Stores that each break one promise about rows and their order: they test the clauses.

Each wraps a good store. A suite that lets one of them through lacks a clause.
"""

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatch

from msgspec.structs import replace

from counterfoil.core.codec import Checkpoint
from counterfoil.core.errors import UnavailableError
from counterfoil.core.words import Digest, RunId
from counterfoil.ports import CheckpointStore, Mark

MANY = 1_000
"""More rows than any clause puts."""


class Passing:
    """Hands every call on to a good store; breaks nothing.

    Attributes:
        inner: The good store.
    """

    def __init__(self, inner: CheckpointStore) -> None:
        self.inner = inner

    def put(self, batch: Sequence[Checkpoint]) -> None:
        """Hand on."""
        self.inner.put(batch)

    def get(self, run_id: RunId, checkpoint: Digest) -> Checkpoint | None:
        """Hand on."""
        return self.inner.get(run_id, checkpoint)

    def find(self, run_id: RunId, name: str) -> tuple[Checkpoint, ...]:
        """Hand on."""
        return self.inner.find(run_id, name)

    def trace(self, run_id: RunId, after: int, limit: int) -> tuple[Checkpoint, ...]:
        """Hand on."""
        return self.inner.trace(run_id, after, limit)

    def mark(self, mark: Mark) -> None:
        """Hand on."""
        self.inner.mark(mark)

    def marked(self, run_id: RunId) -> Mark | None:
        """Hand on."""
        return self.inner.marked(run_id)

    def prune(self, run_id: RunId, chain: Mapping[int, Digest], below: int) -> int:
        """Hand on."""
        return self.inner.prune(run_id, chain, below)

    def archive(self, run_id: RunId, name: str, content: bytes) -> None:
        """Hand on."""
        self.inner.archive(run_id, name, content)

    def archived(self, run_id: RunId, name: str) -> bytes | None:
        """Hand on."""
        return self.inner.archived(run_id, name)

    def collect(self, run_id: RunId, checkpoint: Digest, generation: int, limit: int) -> int:
        """Hand on."""
        return self.inner.collect(run_id, checkpoint, generation, limit)

    def runs(self, after: str, limit: int) -> tuple[RunId, ...]:
        """Hand on."""
        return self.inner.runs(after, limit)

    def close(self) -> None:
        """Hand on."""
        self.inner.close()


class _Changing(Passing):
    """Changes every row on its way in."""

    changed: Callable[[Checkpoint], Checkpoint]

    def put(self, batch: Sequence[Checkpoint]) -> None:
        """Change each row."""
        self.inner.put([type(self).changed(row) for row in batch])


class ChangesBytes(_Changing):
    """Takes line ends for text."""

    @staticmethod
    def changed(row: Checkpoint) -> Checkpoint:
        """Make every line end the same."""
        return replace(row, events=row.events.replace(b"\r\n", b"\n"))


class CutsAtNul(_Changing):
    """Takes bytes for a string of C."""

    @staticmethod
    def changed(row: Checkpoint) -> Checkpoint:
        """Keep what is before the first NUL."""
        return replace(row, state=row.state.split(b"\x00")[0])


class CutsLargeRows(_Changing):
    """Has columns of 64 KiB."""

    @staticmethod
    def changed(row: Checkpoint) -> Checkpoint:
        """Keep the first 64 KiB."""
        return replace(row, events=row.events[:65_536])


class RoundsNumbers(_Changing):
    """Keeps numbers as floats."""

    @staticmethod
    def changed(row: Checkpoint) -> Checkpoint:
        """Lose the last digits of large numbers."""
        return replace(row, generation=int(float(row.generation) / 16) * 16)


class ForgetsNames(_Changing):
    """Keeps rows, but not what they settle."""

    @staticmethod
    def changed(row: Checkpoint) -> Checkpoint:
        """Drop the names."""
        return replace(row, settles=())


class NormalisesIdentifiers(_Changing):
    """Takes two spellings of a run id for one."""

    @staticmethod
    def changed(row: Checkpoint) -> Checkpoint:
        """Tidy the run id up."""
        return replace(row, run_id=RunId(unicodedata.normalize("NFC", row.run_id.strip())))


class FoldsDigests(Passing):
    """Reads digests as numbers, so that two spellings are one name."""

    def get(self, run_id: RunId, checkpoint: Digest) -> Checkpoint | None:
        """Look under the lower-case name."""
        return self.inner.get(run_id, Digest(checkpoint.lower()))


class ShortensDigests(Passing):
    """Takes the first digits of a digest for the whole."""

    def get(self, run_id: RunId, checkpoint: Digest) -> Checkpoint | None:
        """Return the first row whose digest begins alike."""
        rows = self.inner.trace(run_id, -1, MANY)
        return next((row for row in rows if row.digest[:16] == checkpoint[:16]), None)


class AcknowledgesAndForgets(Passing):
    """Says that it stored a batch, and stored its first row."""

    def put(self, batch: Sequence[Checkpoint]) -> None:
        """Store one row."""
        self.inner.put(batch[:1])


class HalfBatch(Passing):
    """Stores a batch row by row, so that a refused one leaves those before it."""

    def put(self, batch: Sequence[Checkpoint]) -> None:
        """Store each row by itself."""
        for row in batch:
            self.inner.put([row])


class StaleReads(Passing):
    """Reads once, and believes it for ever."""

    def __init__(self, inner: CheckpointStore) -> None:
        super().__init__(inner)
        self._seen: dict[tuple[RunId, int, int], tuple[Checkpoint, ...]] = {}

    def trace(self, run_id: RunId, after: int, limit: int) -> tuple[Checkpoint, ...]:
        """Answer as the first time."""
        key = (run_id, after, limit)
        if key not in self._seen:
            self._seen[key] = self.inner.trace(run_id, after, limit)
        return self._seen[key]


class RefusesARepeatedPut(Passing):
    """Takes a repeated put for a mistake."""

    def put(self, batch: Sequence[Checkpoint]) -> None:
        """Refuse a row that is there."""
        for row in batch:
            if self.inner.get(row.run_id, row.digest) is not None:
                raise UnavailableError("the row is there already", row.run_id)
        self.inner.put(batch)


class Overwrites(Passing):
    """Keeps what was put last."""

    def __init__(self, inner: CheckpointStore) -> None:
        super().__init__(inner)
        self._last: dict[tuple[RunId, Digest], Checkpoint] = {}

    def put(self, batch: Sequence[Checkpoint]) -> None:
        """Put the row over what is there."""
        self.inner.put(batch)
        self._last.update({(row.run_id, row.digest): row for row in batch})

    def get(self, run_id: RunId, checkpoint: Digest) -> Checkpoint | None:
        """Return what was put last."""
        return self._last.get((run_id, checkpoint)) or self.inner.get(run_id, checkpoint)


class KeepsOnePerGeneration(Passing):
    """Has run and generation for a key, so that the first in a race shuts others out."""

    def put(self, batch: Sequence[Checkpoint]) -> None:
        """Drop rows whose generation is taken."""
        for row in batch:
            taken = {each.generation for each in self.inner.trace(row.run_id, -1, MANY)}
            if row.generation not in taken:
                self.inner.put([row])


class MixesRuns(Passing):
    """Looks a digest up whatever run it belongs to."""

    def get(self, run_id: RunId, checkpoint: Digest) -> Checkpoint | None:
        """Return the row of any run."""
        runs = (run_id, *self.inner.runs("", MANY))
        rows = (self.inner.get(each, checkpoint) for each in runs)
        return next((row for row in rows if row is not None), None)


class TakesNamesForPatterns(Passing):
    """Lets wildcards in a name match other names."""

    def find(self, run_id: RunId, name: str) -> tuple[Checkpoint, ...]:
        """Return rows whose names match."""
        rows = self.inner.trace(run_id, -1, MANY)
        return tuple(row for row in rows if any(fnmatch(name, each) for each in row.settles))


class FindsOldestFirst(Passing):
    """Returns what a name finds in order of the trace."""

    def find(self, run_id: RunId, name: str) -> tuple[Checkpoint, ...]:
        """Turn the order round."""
        return tuple(reversed(self.inner.find(run_id, name)))


class FindsOnlyOne(Passing):
    """Takes the first row that a name finds for the only one."""

    def find(self, run_id: RunId, name: str) -> tuple[Checkpoint, ...]:
        """Return one row."""
        return self.inner.find(run_id, name)[:1]


class FindsWithoutEnd(Passing):
    """Returns every row that settles a name."""

    def find(self, run_id: RunId, name: str) -> tuple[Checkpoint, ...]:
        """Return them all."""
        rows = reversed(self.inner.trace(run_id, -1, MANY))
        return tuple(row for row in rows if name in row.settles)


class FindsARowPerName(Passing):
    """Returns a row once for each time that it names what is looked for."""

    def find(self, run_id: RunId, name: str) -> tuple[Checkpoint, ...]:
        """Repeat the row."""
        rows = self.inner.find(run_id, name)
        return tuple(row for row in rows for _ in range(row.settles.count(name)))


class TracesFromAfter(Passing):
    """Begins a trace with `after` itself."""

    def trace(self, run_id: RunId, after: int, limit: int) -> tuple[Checkpoint, ...]:
        """Begin one generation too early."""
        return self.inner.trace(run_id, after - 1, limit)


class TracesNewestFirst(Passing):
    """Returns a trace from its end."""

    def trace(self, run_id: RunId, after: int, limit: int) -> tuple[Checkpoint, ...]:
        """Turn the order round."""
        return tuple(reversed(self.inner.trace(run_id, after, limit)))


class TracesWithoutEnd(Passing):
    """Ignores the limit of a page."""

    def trace(self, run_id: RunId, after: int, limit: int) -> tuple[Checkpoint, ...]:
        """Return the whole trace."""
        return self.inner.trace(run_id, after, MANY)


class SplitsGenerations(Passing):
    """Ends a page inside a generation, so that the next page leaves its rest out."""

    def trace(self, run_id: RunId, after: int, limit: int) -> tuple[Checkpoint, ...]:
        """Return exactly as many rows as asked for."""
        return self.inner.trace(run_id, after, limit)[:limit]


class ListsByAlphabet(Passing):
    """Orders run ids as a person would, so that pages by code point do not join."""

    def runs(self, after: str, limit: int) -> tuple[RunId, ...]:
        """Fold letters before comparing."""
        runs = sorted(self.inner.runs("", MANY), key=str.casefold)
        return tuple(run for run in runs if run.casefold() > after.casefold())[:limit]


class ListsARunPerCheckpoint(Passing):
    """Lists a run as often as it has checkpoints."""

    def runs(self, after: str, limit: int) -> tuple[RunId, ...]:
        """Repeat each run."""
        runs = self.inner.runs(after, limit)
        return tuple(row.run_id for run in runs for row in self.inner.trace(run, -1, MANY))[:limit]


class ForgetsOnClose(Passing):
    """Loses rows when it is closed."""

    def close(self) -> None:
        """Drop every row."""
        for run in self.inner.runs("", MANY):
            rows = self.inner.trace(run, -1, MANY)
            none = Digest("0" * 64)
            self.inner.prune(run, {row.generation: none for row in rows}, 0)


class ClosesOnce(Passing):
    """Fails when it is closed a second time."""

    _is_closed = False

    def close(self) -> None:
        """Close, or fail."""
        if self._is_closed:
            raise UnavailableError("the store is closed")
        self._is_closed = True
        self.inner.close()
