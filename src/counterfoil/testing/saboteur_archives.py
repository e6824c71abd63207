"""Stores that each break one promise about archives: they test the clauses."""

from counterfoil.core.archive import SEAL
from counterfoil.core.codec import Checkpoint
from counterfoil.core.words import Digest, RunId
from counterfoil.ports import CheckpointStore, Mark
from counterfoil.testing.saboteur_stores import MANY, Passing

NONE = Digest("0" * 64)


class ForgetsTheArchive(Passing):
    """Says that it kept a part, and did not."""

    def archive(self, run_id: RunId, name: str, content: bytes) -> None:
        """Return without keeping."""


class FoldsPartNames(Passing):
    """Takes two spellings of a name for one."""

    def archive(self, run_id: RunId, name: str, content: bytes) -> None:
        """Keep under the lower-case name."""
        self.inner.archive(run_id, name.lower(), content)

    def archived(self, run_id: RunId, name: str) -> bytes | None:
        """Read under the lower-case name."""
        return self.inner.archived(run_id, name.lower())


class CutsLargeParts(Passing):
    """Has columns of one MiB."""

    def archive(self, run_id: RunId, name: str, content: bytes) -> None:
        """Keep the first MiB."""
        self.inner.archive(run_id, name, content[: 1024 * 1024])


class KeepsTheFirstPart(Passing):
    """Takes a second part of one name for a repetition."""

    def archive(self, run_id: RunId, name: str, content: bytes) -> None:
        """Keep what is not there."""
        if self.inner.archived(run_id, name) is None:
            self.inner.archive(run_id, name, content)


class MixesArchives(Passing):
    """Looks a part up whatever run it belongs to."""

    def archived(self, run_id: RunId, name: str) -> bytes | None:
        """Return the part of any run."""
        runs = (run_id, *self.inner.runs("", MANY))
        parts = (self.inner.archived(each, name) for each in runs)
        return next((part for part in parts if part is not None), None)


class CollectsWithoutASeal(Passing):
    """Drops what nothing stands for."""

    def collect(self, run_id: RunId, checkpoint: Digest, generation: int, limit: int) -> int:
        """Make a seal up, and drop."""
        if self.inner.archived(run_id, SEAL) is None:
            self.inner.archive(run_id, SEAL, b"made up")
        return self.inner.collect(run_id, checkpoint, generation, limit)


class CollectsNothing(Passing):
    """Says that nothing was left to drop."""

    def collect(self, run_id: RunId, checkpoint: Digest, generation: int, limit: int) -> int:
        """Drop nothing."""
        return 0 if self.inner.archived(run_id, SEAL) else self.inner.collect(run_id, NONE, -1, 0)


class CollectsTheLastToo(Passing):
    """Drops what is to stay."""

    def collect(self, run_id: RunId, checkpoint: Digest, generation: int, limit: int) -> int:
        """Drop everything."""
        return self.inner.collect(run_id, NONE, generation, limit)


class CollectsAboveTheHead(Passing):
    """Drops whatever is not to stay."""

    def collect(self, run_id: RunId, checkpoint: Digest, generation: int, limit: int) -> int:
        """Drop of every generation."""
        return self.inner.collect(run_id, checkpoint, generation + MANY, limit)


class CollectsWithoutEnd(Passing):
    """Drops everything at once, however long it takes."""

    def collect(self, run_id: RunId, checkpoint: Digest, generation: int, limit: int) -> int:
        """Ignore the limit."""
        return self.inner.collect(run_id, checkpoint, generation, MANY)


class CollectsStatesAlone(Passing):
    """Counts checkpoints that lose their state, and leaves the rest of them."""

    def collect(self, run_id: RunId, checkpoint: Digest, generation: int, limit: int) -> int:
        """Drop states."""
        return self.inner.prune(run_id, {}, generation)


class LeavesNames(Passing):
    """Drops rows and finds them still."""

    def __init__(self, inner: CheckpointStore) -> None:
        super().__init__(inner)
        self._dropped: dict[tuple[RunId, str], Checkpoint] = {}

    def collect(self, run_id: RunId, checkpoint: Digest, generation: int, limit: int) -> int:
        """Note what was there before dropping."""
        for row in self.inner.trace(run_id, -1, MANY):
            self._dropped |= {(run_id, name): row for name in row.settles}
        return self.inner.collect(run_id, checkpoint, generation, limit)

    def find(self, run_id: RunId, name: str) -> tuple[Checkpoint, ...]:
        """Return what was dropped where nothing else is found."""
        ghost = self._dropped.get((run_id, name))
        return self.inner.find(run_id, name) or ((ghost,) if ghost else ())


class DropsTheMark(Passing):
    """Takes the lease record of a finished run for rubbish."""

    def __init__(self, inner: CheckpointStore) -> None:
        super().__init__(inner)
        self._collected: set[RunId] = set()

    def collect(self, run_id: RunId, checkpoint: Digest, generation: int, limit: int) -> int:
        """Note that the mark is gone."""
        self._collected.add(run_id)
        return self.inner.collect(run_id, checkpoint, generation, limit)

    def marked(self, run_id: RunId) -> Mark | None:
        """Return the mark of a run that is whole."""
        return None if run_id in self._collected else self.inner.marked(run_id)


class CollectsEveryRun(Passing):
    """Drops from all archived runs at once."""

    def collect(self, run_id: RunId, checkpoint: Digest, generation: int, limit: int) -> int:
        """Drop from each."""
        sealed = [run for run in self.inner.runs("", MANY) if self.inner.archived(run, SEAL)]
        return sum(self.inner.collect(run, checkpoint, generation, limit) for run in sealed)


class RefusesWhatWasDropped(Passing):
    """Remembers a dropped digest, and never takes it again."""

    def __init__(self, inner: CheckpointStore) -> None:
        super().__init__(inner)
        self._gone: set[Digest] = set()

    def collect(self, run_id: RunId, checkpoint: Digest, generation: int, limit: int) -> int:
        """Note what goes."""
        before = {row.digest for row in self.inner.trace(run_id, -1, MANY)}
        dropped = self.inner.collect(run_id, checkpoint, generation, limit)
        self._gone |= before - {row.digest for row in self.inner.trace(run_id, -1, MANY)}
        return dropped

    def trace(self, run_id: RunId, after: int, limit: int) -> tuple[Checkpoint, ...]:
        """Leave out what was dropped once."""
        rows = self.inner.trace(run_id, after, limit)
        return tuple(row for row in rows if row.digest not in self._gone)


class TakesAnyDigest(Passing):
    """Reads what is to stay as a number, so that a slip costs it."""

    def collect(self, run_id: RunId, checkpoint: Digest, generation: int, limit: int) -> int:
        """Make a digest of anything."""
        name = Digest(f"{checkpoint.lower():0>64}"[:64])
        return self.inner.collect(run_id, name, generation, limit)
