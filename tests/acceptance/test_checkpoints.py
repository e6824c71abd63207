"""Acceptance list, section G: what was written opens, and nothing else does."""

import base64
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from counterfoil.core.canonical import encode
from counterfoil.core.envelope import MacKey
from counterfoil.core.errors import (
    BindingError,
    ConfigError,
    FormatError,
    IntegrityError,
    InvariantError,
    RollbackError,
    SignatureError,
)
from counterfoil.core.inputs import Step
from counterfoil.core.run import Evidence, Phase, Run
from counterfoil.core.task import Task
from counterfoil.core.trace import Event, Outcome
from counterfoil.core.words import IntentDigest, RunId
from counterfoil.engine import audit
from counterfoil.engine.ledger import Ledger
from counterfoil.engine.recovery import open_run
from counterfoil.engine.replay import recorded_event
from counterfoil.keys import keyring_of
from counterfoil.stores.memory import MemoryStore
from tests.support.forging import forge_head, head_row, payload_of
from tests.support.scenes import (
    BEGAN_MS,
    KEY,
    RUN_ID,
    SECRET,
    SOUND,
    Scene,
    memory_scene,
    outcomes,
    read,
    sqlite_scene,
    written,
)


def _scene(kind: str, folder: Path) -> Scene:
    return sqlite_scene(folder) if kind == "sqlite" else memory_scene()


def _read_once(scene: Scene) -> None:
    with scene.run() as run:
        run.propose(read(run))


@pytest.mark.parametrize(
    "kind",
    [pytest.param("memory", id="acc-070 memory"), pytest.param("sqlite", id="acc-070 sqlite")],
)
def test_a_run_is_the_same_after_it_was_opened_again(kind: str, tmp_path: Path) -> None:
    scene = _scene(kind, tmp_path)
    with scene.run() as run:
        receipt = written(run)
    before, files, receipts = run.state, scene.world.files, scene.world.receipts
    opening = open_run(scene.parts(), scene.task, RunId(RUN_ID))
    mirror = recorded_event(opening.ledger, KEY)
    scene.close()
    assert (opening.ledger.run, scene.world.files, scene.world.receipts) == (
        before,
        files,
        receipts,
    )
    assert mirror is not None
    assert mirror.receipt == receipt == receipts[receipt.key]


@pytest.mark.parametrize("secret", [pytest.param(bytes(range(1, 33)), id="acc-071")])
def test_another_checkpoint_key_opens_nothing(secret: bytes) -> None:
    scene = memory_scene()
    _read_once(scene)
    scene.keyring = keyring_of(secret)
    with pytest.raises(SignatureError):
        scene.run()


@pytest.mark.parametrize("run_id", [pytest.param("run-2", id="acc-072")])
def test_a_renamed_run_with_the_old_signature_is_refused(run_id: str) -> None:
    scene = memory_scene()
    _read_once(scene)
    forge_head(
        scene, change_header=lambda header: replace(header, run=RunId(run_id)), is_resigned=False
    )
    with pytest.raises(SignatureError):
        scene.run()


def _other_version(task: Task) -> Task:
    return replace(task, version="2")


def _other_policy(task: Task) -> Task:
    return replace(task, policy=replace(task.policy, version="2"))


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(_other_version, id="acc-073 of the task"),
        pytest.param(_other_policy, id="acc-074 of the policy"),
    ],
)
def test_a_run_does_not_go_on_under_another_version(change: Callable[[Task], Task]) -> None:
    scene = memory_scene()
    _read_once(scene)
    with pytest.raises(BindingError):
        scene.run(task=change(scene.task))
    assert scene.run().state.phase is Phase.RUNNING


# ---------------------------------------------------------------- forged with the true key


def _completed(run: Run) -> Run:
    return replace(run, phase=Phase.COMPLETED, reason="verified_outcome")


def _completed_on_a_read(run: Run) -> Run:
    evidence = Evidence(event=1, digest=_READ_DIGEST, environments=run.environments)
    return replace(_completed(run), evidence=evidence)


_READ_DIGEST = IntentDigest("i1:" + "0" * 64)
FINISHED = Event(at_ms=BEGAN_MS, outcome=Outcome.FINISHED, reason="verified_outcome")


@pytest.mark.parametrize("forge", [pytest.param(_completed, id="acc-075")])
def test_a_forged_completion_without_evidence_is_refused(forge: Callable[[Run], Run]) -> None:
    scene = memory_scene()
    _read_once(scene)
    forge_head(scene, change_run=forge, more_events=(FINISHED,))
    with pytest.raises(InvariantError):
        scene.run()


@pytest.mark.parametrize("forge", [pytest.param(_completed_on_a_read, id="acc-075 and evidence")])
def test_a_forged_completion_with_forged_evidence_fails_the_audit(
    forge: Callable[[Run], Run],
) -> None:
    scene = memory_scene()
    _read_once(scene)
    forge_head(scene, change_run=forge, more_events=(FINISHED,))
    with pytest.raises(IntegrityError):
        audit.audit(scene.parts(), RunId(RUN_ID))


def _without(field: str) -> Callable[[bytes], bytes]:
    def change(state: bytes) -> bytes:
        value = msgspec.json.decode(state)
        del value[field]
        return encode(value)

    return change


@pytest.mark.parametrize(
    "field",
    [
        pytest.param(field.name, id=f"acc-076 {field.name}")
        for field in msgspec.structs.fields(Run)
        if field.default is not msgspec.UNSET
    ],
)
def test_a_state_without_one_of_its_fields_is_refused(field: str) -> None:
    scene = memory_scene()
    _read_once(scene)
    forge_head(scene, change_state=_without(field))
    with pytest.raises(FormatError):
        scene.run()


def test_a_forged_checkpoint_with_nothing_changed_opens() -> None:
    scene = memory_scene()
    _read_once(scene)
    before = head_row(scene)
    assert forge_head(scene) == before
    assert scene.run().state.cursor == 1


# ---------------------------------------------------------------- keys


@pytest.mark.parametrize("secret", [pytest.param(b"short", id="acc-077")])
def test_a_short_key_signs_nothing(secret: bytes) -> None:
    with pytest.raises(SignatureError):
        MacKey(id="k1-short", secret=secret)
    with pytest.raises(ConfigError):
        keyring_of(secret)


@pytest.mark.parametrize("secret", [pytest.param(SECRET, id="acc-078")])
def test_a_checkpoint_shows_no_key(secret: bytes) -> None:
    scene = memory_scene()
    _read_once(scene)
    row = head_row(scene)
    whole = b"".join((row.envelope, payload_of(scene, row), row.state, row.events))
    spellings = (secret, secret.hex().encode(), base64.b64encode(secret))
    assert [spelling for spelling in spellings if spelling in whole] == []
    assert [name for name in msgspec.json.decode(payload_of(scene, row)) if "key" in name] == []


# ---------------------------------------------------------------- time turned back


class _Two:
    """A scene with two commits after the first one, and what was stored after one."""

    def __init__(self) -> None:
        self.scene = memory_scene()
        with self.scene.run() as run:
            run.propose(read(run))
            self.earlier = dict(self._store()._rows[RunId(RUN_ID)])
            run.propose(read(run))

    def _store(self) -> MemoryStore:
        store = self.scene.store()
        assert isinstance(store, MemoryStore)
        return store

    def restore(self) -> None:
        self._store()._rows[RunId(RUN_ID)] = self.earlier

    def empty(self) -> None:
        self._store()._rows.clear()
        self._store()._marks.clear()


@pytest.mark.parametrize(
    "turn_back",
    [
        pytest.param(_Two.restore, id="acc-079 the first checkpoint"),
        pytest.param(_Two.empty, id="acc-079 no store"),
    ],
)
def test_an_older_store_is_refused(turn_back: Callable[[_Two], None]) -> None:
    two = _Two()
    turn_back(two)
    with pytest.raises(RollbackError):
        two.scene.run()


@pytest.mark.parametrize("generation", [pytest.param(2, id="acc-079 the second checkpoint")])
def test_the_newest_store_opens(generation: int) -> None:
    two = _Two()
    head = two.scene.heads().read(RunId(RUN_ID))
    assert head is not None
    assert (head.generation, two.scene.run().state.cursor) == (generation, 2)


@pytest.mark.parametrize("phase", [pytest.param(Phase.RUNNING, id="acc-080")])
def test_an_impossible_state_moves_nothing(phase: Phase) -> None:
    scene = memory_scene()
    _read_once(scene)
    scene.clock.move(60_000)
    ledger = open_run(scene.parts(), scene.task, RunId(RUN_ID)).ledger
    impossible = Step(run=_completed(ledger.run), events=(FINISHED,))
    for way in (Ledger.commit, Ledger.stage):
        with pytest.raises(InvariantError):
            way(ledger, impossible)
    head = scene.heads().read(RunId(RUN_ID))
    assert head is not None
    assert (head.generation, scene.world.files["app.py"] == SOUND) == (1, False)
    run = scene.run()
    assert (run.state.phase, outcomes(run)) == (phase, [Outcome.OPENED, Outcome.READ])
