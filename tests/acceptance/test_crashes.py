"""Acceptance list, row A9: a worker that dies at any boundary leaves one checkpoint that opens."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import pytest

from counterfoil.core.codec import Checkpoint
from counterfoil.core.receipt import Receipt
from counterfoil.core.run import Phase
from counterfoil.core.words import RunId
from counterfoil.engine import audit
from counterfoil.ports import Adapter, Advance, Head, Mark, Operation
from counterfoil.stores.memory import MemoryHeads, MemoryStore
from counterfoil.testing.saboteur_adapters import Passing
from tests.support.scenes import INCARNATION, RUN_ID, SOUND, Killed, Scene, memory_scene

_T = TypeVar("_T")
BOUNDARIES_MAX = 200


@dataclass(kw_only=True)
class Fuse:
    """Kills the worker at the boundary with this number."""

    left: int

    def around(self, act: Callable[[], _T]) -> _T:
        """Burn before the act and after it."""
        self._burn()
        answer = act()
        self._burn()
        return answer

    def _burn(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise Killed


class FusedStore(MemoryStore):
    fuse: Fuse

    def put(self, batch: Sequence[Checkpoint]) -> None:
        self.fuse.around(lambda: super(FusedStore, self).put(batch))

    def mark(self, mark: Mark) -> None:
        self.fuse.around(lambda: super(FusedStore, self).mark(mark))


class FusedHeads(MemoryHeads):
    fuse: Fuse

    def advance(self, batch: Sequence[Advance]) -> tuple[Head, ...]:
        return self.fuse.around(lambda: super(FusedHeads, self).advance(batch))

    def acquire(self, expected: Head, owner: str, nonce: str, ttl_ms: int) -> Head:
        return self.fuse.around(
            lambda: super(FusedHeads, self).acquire(expected, owner, nonce, ttl_ms)
        )


class FusedAdapter(Passing):
    def __init__(self, inner: Adapter, fuse: Fuse) -> None:
        super().__init__(inner)
        self._fuse = fuse

    def execute(self, operation: Operation) -> Receipt:
        return self._fuse.around(lambda: super(FusedAdapter, self).execute(operation))


def _work(scene: Scene, fuse: Fuse) -> Phase:
    """Repair the file as a program does, from wherever the record stands."""
    run = scene.run(wrap=lambda inner: FusedAdapter(inner, fuse))
    run.do("read_file", path="app.py")
    run.do("write_file", path="app.py", content=SOUND)
    run.verify()
    return run.finish().phase


@pytest.mark.parametrize(
    "merges",
    [
        pytest.param(True, id="acc-A9 receipts ride with the next intent"),
        pytest.param(False, id="acc-A9 receipts are committed alone"),
    ],
)
def test_a_death_at_any_boundary_leaves_a_run_that_opens_and_ends_well(merges: bool) -> None:
    boundaries = 0
    for number in range(1, BOUNDARIES_MAX):
        scene, store = memory_scene(merges=merges), FusedStore()
        heads = FusedHeads(now_ms=scene.clock.now_ms, incarnation=INCARNATION)
        store.fuse = heads.fuse = fuse = Fuse(left=number)
        scene.store, scene.heads = lambda store=store: store, lambda heads=heads: heads
        try:
            _work(scene, fuse)
            break
        except Killed:
            boundaries = number
        assert _work(scene, fuse) is Phase.COMPLETED, f"died at boundary {number}"
        assert scene.world.write_count == 1, f"died at boundary {number}"
        audit.audit(scene.parts(), RunId(RUN_ID))
    assert boundaries > 20
