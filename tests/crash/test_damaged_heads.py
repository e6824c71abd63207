"""A head that was damaged or edited is refused by name, and nothing is called for it."""

import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from counterfoil.core.errors import CounterfoilError, IntegrityError
from counterfoil.core.words import Digest
from counterfoil.ports import Head
from tests.support.scenes import RUN_ID, Scene, memory_scene, sqlite_scene, written


def with_a_write(scene: Scene) -> Scene:
    with scene.run() as run:
        written(run)
    return scene


def edited(scene: Scene, head: Head) -> None:
    heads = scene.heads()
    heads._heads[head.run_id] = head


DIGITS = range(64)


@pytest.mark.parametrize("row", [pytest.param(None, id="T1 T5 every digit of the digest")])
def test_a_head_with_any_digit_changed_opens_nothing(row: None) -> None:
    scene = with_a_write(memory_scene())
    head = scene.heads().read(RUN_ID)
    assert head is not None
    for at in DIGITS:
        digit = "0" if head.checkpoint[at] != "0" else "1"
        other = head.checkpoint[:at] + digit + head.checkpoint[at + 1 :]
        edited(scene, replace(head, checkpoint=Digest(other)))
        with pytest.raises(IntegrityError):
            scene.run()
    edited(scene, head)
    with scene.run() as run:
        assert (run.state.writes, scene.world.write_count) == (1, 1)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"generation": 0}, id="T5 the first generation"),
        pytest.param({"generation": 99}, id="T5 a generation that never was"),
        pytest.param({"incarnation": "register-2"}, id="T5 another incarnation"),
        pytest.param({"lease_version": 0}, id="T5 a lease from before"),
    ],
)
def test_a_head_with_a_field_changed_opens_nothing(change: dict[str, object]) -> None:
    scene = with_a_write(memory_scene())
    head = scene.heads().read(RUN_ID)
    assert head is not None
    edited(scene, replace(head, **change))
    with pytest.raises(IntegrityError):
        scene.run()
    assert scene.world.write_count == 1


STRIDE = 41
"""Bytes between two flips: coprime to the size of a page and of its cells."""


@pytest.mark.parametrize("row", [pytest.param(None, id="T5 T25 bytes of the file")])
def test_a_register_file_with_a_flipped_byte_is_refused_or_unharmed(
    row: None, tmp_path: Path
) -> None:
    scene = with_a_write(sqlite_scene(tmp_path))
    scene.close()
    state = tmp_path / "state"
    shutil.copytree(state, tmp_path / "sound")
    raw = (state / "heads.db").read_bytes()
    refused = 0
    for at in range(0, len(raw), STRIDE):
        shutil.rmtree(state)
        shutil.copytree(tmp_path / "sound", state)
        (state / "heads.db").write_bytes(raw[:at] + bytes([raw[at] ^ 0x5A]) + raw[at + 1 :])
        try:
            with scene.run() as run:
                assert run.state.writes == 1
        except CounterfoilError:
            refused += 1
        scene.close()
    assert refused > 0
    assert scene.world.write_count == 1
