"""Acceptance list, row A20: the ten-thousandth step costs what the first one did."""

from collections import Counter
from collections.abc import Sequence

import pytest

from counterfoil.core.codec import Checkpoint
from counterfoil.core.task import Budgets
from counterfoil.core.words import Digest, RunId
from counterfoil.engine.session import Session
from counterfoil.stores.memory import MemoryStore
from tests.support.forging import head_row
from tests.support.scenes import Scene, act, lesson_task, memory_scene, read

STEPS = (100, 1_000, 10_000)
HASH_BYTES = 48
"""One more hash in the frontier, as the state spells it."""

DIGITS = 64
"""Longer numbers: generation, cursor, budgets, versions, in header and state."""


class CountingStore(MemoryStore):
    """Counts how often it is asked, and how many rows it gives and takes."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()

    def put(self, batch: Sequence[Checkpoint]) -> None:
        self.calls["put"] += len(batch)
        super().put(batch)

    def get(self, run_id: RunId, checkpoint: Digest) -> Checkpoint | None:
        self.calls["get"] += 1
        return super().get(run_id, checkpoint)

    def find(self, run_id: RunId, name: str) -> tuple[Checkpoint, ...]:
        self.calls["find"] += 1
        return super().find(run_id, name)

    def trace(self, run_id: RunId, after: int, limit: int) -> tuple[Checkpoint, ...]:
        rows = super().trace(run_id, after, limit)
        self.calls["trace"] += 1 + len(rows)
        return rows


def _scene(store: CountingStore) -> Scene:
    scene = memory_scene(lesson_task(budgets=Budgets()))
    scene.store = lambda: store
    return scene


def _step(run: Session, number: int) -> None:
    path = "app.py"
    run.propose(act(run, "write_file", key=f"key-{number}", path=path, content=str(number)))
    run.settle()


def _bytes(scene: Scene) -> int:
    row = head_row(scene)
    return len(row.envelope) + len(row.state)


@pytest.mark.parametrize("hashes_max", [pytest.param(14, id="acc-A20 bytes")])
def test_a_checkpoint_does_not_grow_with_the_run(hashes_max: int) -> None:
    scene = _scene(CountingStore())
    run = scene.run()
    sizes: dict[int, int] = {}
    for number in range(1, STEPS[-1] + 1):
        run.propose(read(run))
        if number in STEPS:
            sizes[number] = _bytes(scene)
    growth = max(sizes.values()) - min(sizes.values())
    assert growth <= hashes_max * HASH_BYTES + DIGITS, sizes


@pytest.mark.parametrize("steps", [pytest.param(2_000, id="acc-A20 cost")])
def test_a_step_asks_the_store_no_more_after_many_steps(steps: int) -> None:
    store = CountingStore()
    run = _scene(store).run()
    costs: list[Counter[str]] = []
    for number in range(steps):
        before = store.calls.copy()
        _step(run, number)
        costs.append(store.calls - before)
    assert costs[-1] == costs[10]


@pytest.mark.parametrize("steps", [pytest.param((10, 2_000), id="acc-A20 recovery")])
def test_opening_a_run_does_not_read_its_history(steps: tuple[int, ...]) -> None:
    reads: list[Counter[str]] = []
    for count in steps:
        store = CountingStore()
        scene = _scene(store)
        with scene.run() as run:
            for number in range(count):
                _step(run, number)
        before = store.calls.copy()
        scene.run().close()
        reads.append(store.calls - before)
    assert reads[0] == reads[1]
