"""Store and register in memory that commit to both at once: the reference for joints.

A commit holds the store's lock from its first look to its end, moves the heads last, and
takes its rows out again if they are not moved: so nobody sees one half of it.
"""

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager

from counterfoil.core.codec import Checkpoint
from counterfoil.core.words import RunId
from counterfoil.ports import Advance, Head
from counterfoil.stores.memory import MemoryHeads, MemoryStore


class _UndoingStore(MemoryStore):
    """A store that can take back what was put."""

    @contextmanager
    def undoing(self, run_ids: Iterable[RunId]) -> Generator[None]:
        """Hold the store, and put the rows of these runs back as they were if the block fails."""
        with self._lock:
            before = {run_id: dict(self._rows.get(run_id, {})) for run_id in run_ids}
            try:
                yield
            except BaseException:  # an interrupt must not leave a half either
                for run_id, rows in before.items():
                    self._rows[run_id] = rows
                    if not rows:
                        del self._rows[run_id]
                raise


class MemoryJoint:
    """A `Joint` in memory, for tests and trials; safe to share by threads.

    Attributes:
        store: Where its rows are.
        heads: Where its heads are.
    """

    def __init__(self, *, now_ms: Callable[[], int], incarnation: str) -> None:
        self._store = _UndoingStore()
        self.store: MemoryStore = self._store
        self.heads = MemoryHeads(now_ms=now_ms, incarnation=incarnation)

    def commit(self, rows: Sequence[Checkpoint], moves: Sequence[Advance]) -> tuple[Head, ...]:
        """Store checkpoints and move heads on, all or none; see `Joint.commit`."""
        with self._store.undoing({row.run_id for row in rows}):
            self._store.put(rows)
            return self.heads.advance(moves)
