"""Death and power cuts at every call of every change leave one of two ends."""

from pathlib import Path

import pytest

from counterfoil.core.receipt import Answer
from tests.support.disks import Death, DyingDisk, VolatileDisk
from tests.support.files_scene import (
    CHANGES,
    FENCE,
    RUN,
    Scene,
    change,
    expect_one_end,
    raised,
)

MOMENTS_MAX = 60
ENDS = {Answer.ABSENT, Answer.FOUND}

by_change = pytest.mark.parametrize(
    "name", [pytest.param(name, id=f"[{name}]") for name in CHANGES]
)


def cut_off(place: Path, name: str, disk: DyingDisk) -> tuple[Scene, bool, object]:
    """Execute a change on a disk that dies; return the scene, whether it died, and the call."""
    place.mkdir()
    scene = Scene(place, CHANGES[name][0])
    healthy = scene.open()
    asked = change(healthy, name)
    healthy.take(RUN, FENCE)
    healthy.close()
    moments, disk.left = disk.left, MOMENTS_MAX
    adapter = scene.open(disk)
    disk.left = moments
    outcome = raised(lambda: adapter.execute(asked))
    adapter.close()
    return scene, isinstance(outcome, Death), asked


@by_change
def test_death_at_any_call_leaves_the_change_done_or_not(name: str, swift_path: Path) -> None:
    ends = set()
    for moment in range(MOMENTS_MAX):
        disk = DyingDisk(moment)
        scene, died, asked = cut_off(swift_path / str(moment), name, disk)
        ends.add(expect_one_end(scene, name, asked))
        if not died:
            break
    else:
        pytest.fail(f"more than {MOMENTS_MAX} moments")
    assert ends == ENDS


@pytest.mark.parametrize("name", [pytest.param(name, id=f"[C17 T25 {name}]") for name in CHANGES])
def test_a_power_cut_at_any_call_leaves_the_change_done_or_not(name: str, swift_path: Path) -> None:
    ends = set()
    for moment in range(MOMENTS_MAX):
        (graveyard := swift_path / f"{moment} graveyard").mkdir()
        disk = VolatileDisk(moment, graveyard)
        scene, died, asked = cut_off(swift_path / str(moment), name, disk)
        disk.cut_power()
        ends.add(expect_one_end(scene, name, asked))
        if not died:
            break
    else:
        pytest.fail(f"more than {MOMENTS_MAX} moments")
    assert ends == ENDS


@pytest.mark.parametrize("name", [name for name in CHANGES if "folders" not in name])
def test_death_during_recovery_leaves_the_change_done_or_not(name: str, swift_path: Path) -> None:
    for first in range(MOMENTS_MAX):
        died_again = True
        for second in range(MOMENTS_MAX):
            place = swift_path / f"{first}-{second}"
            scene, died, asked = cut_off(place, name, DyingDisk(first))
            disk = DyingDisk(MOMENTS_MAX)
            adapter = None
            try:
                disk.left = second
                adapter = scene.open(disk)
                adapter.look_up(RUN, asked.key, asked.kind)
                adapter.execute(asked)
                died_again = False
            except Death:
                pass
            finally:
                if adapter is not None:
                    adapter.close()
            expect_one_end(scene, name, asked)
            if not died_again or not died:
                break
        if not died:
            break
