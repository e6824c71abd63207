"""A target that remembers a run does not take it for new when every store has lost it."""

from pathlib import Path

import pytest

from counterfoil.core.errors import RollbackError
from counterfoil.stores.memory import MemoryHeads, MemoryStore
from tests.support.scenes import INCARNATION, Scene, files_scene, memory_scene, written


def forget(scene: Scene) -> None:
    store = MemoryStore()
    heads = MemoryHeads(now_ms=scene.clock.now_ms, incarnation=f"{INCARNATION} again")
    scene.store, scene.heads = (lambda: store), (lambda: heads)


@pytest.mark.parametrize(
    "where", [pytest.param("memory", id="T6 memory"), pytest.param("files", id="T6 files")]
)
def test_a_run_that_both_stores_lost_is_refused_by_what_its_target_remembers(
    where: str, tmp_path: Path
) -> None:
    scene = memory_scene() if where == "memory" else files_scene(tmp_path)
    with scene.run() as run:
        written(run)
    forget(scene)
    for _ in range(2):
        with pytest.raises(RollbackError):
            scene.run()
    assert scene.world.write_count == 1
    scene.close()
