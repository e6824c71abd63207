"""Threats T4 to T6: stores and registers that were turned back, emptied or mixed up.

Everything here is genuine and signed with the true key; only its time or place is wrong.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from counterfoil.core.errors import (
    BindingError,
    FencedError,
    FrozenError,
    HeadMissingError,
    IntegrityError,
    RollbackError,
)
from counterfoil.core.words import Level, RunId
from counterfoil.engine import control
from counterfoil.ports import Head
from counterfoil.stores.sqlite_heads import SqliteHeads
from counterfoil.stores.sqlite_store import SqliteStore
from counterfoil.testing.mortal import Death, Died, Fate, mortal
from tests.support.stages import (
    Backend,
    Form,
    PlayStage,
    files_stage,
    sandbox_stage,
    shop_stage,
)

EAGER = Form(merges=False)
STORE, STATE = "project", "state"


def _die(stage: PlayStage, at: str, number: int) -> None:
    """Let a process die right after its call of this name with this number, from 1."""
    fate = _Until(at, number)
    with pytest.raises(Died):
        stage.work(mortal(stage.parts(), fate))
    stage.close()
    stage.wait()


_T = TypeVar("_T")


class _Until(Fate):
    """Ends a process after its n-th call of one name."""

    def __init__(self, name: str, number: int) -> None:
        super().__init__()
        self._name = name
        self._left = number

    def call(self, name: str, act: Callable[[], _T]) -> _T:
        self._left -= name == self._name
        if name == self._name and self._left == 0:
            self._death = Death(at=len(self.calls), is_after=True)
        return super().call(name, act)


def _in_store(stage: PlayStage, *statements: str) -> None:
    store, _ = stage.backend.open()
    assert isinstance(store, SqliteStore)
    with store._database.transaction() as connection:
        for statement in statements:
            connection.execute(statement)
    store.close()


def _set_head(stage: PlayStage, head: Head, checkpoint: str | None = None) -> None:
    _, heads = stage.backend.open()
    assert isinstance(heads, SqliteHeads)
    with heads._database.transaction() as connection:
        connection.execute(
            "UPDATE head SET generation = ?, checkpoint = ? WHERE run_id = ?",
            (head.generation, bytes.fromhex(checkpoint or head.checkpoint), stage.run_id),
        )
    heads.close()


def _head(stage: PlayStage, run_id: RunId | None = None) -> Head:
    _, heads = stage.backend.open()
    head = heads.read(run_id or stage.run_id)
    heads.close()
    assert head is not None
    return head


def _ancestor(stage: PlayStage, back: int) -> Head:
    """Return the head as it was some generations ago."""
    store, _ = stage.backend.open()
    view = control.show(stage.parts(), stage.run_id)
    rows = {row.generation: row for row in store.trace(stage.run_id, -1, 100)}
    generation = view.head.generation - back
    stage.close()
    return Head(
        run_id=stage.run_id,
        generation=generation,
        checkpoint=rows[generation].digest,
        incarnation=view.head.incarnation,
    )


def _restore(folder: Path, name: str) -> None:
    shutil.rmtree(folder / name)
    shutil.copytree(folder / f"{name}-yesterday", folder / name)


def _copy(folder: Path, name: str) -> None:
    shutil.copytree(folder / name, folder / f"{name}-yesterday")


# ---------------------------------------------------------------- T4: the store


def _newest_replaced(stage: PlayStage) -> None:
    """Put an older checkpoint's bytes under the name of the newest."""
    _in_store(
        stage,
        """UPDATE checkpoint SET (envelope, events) = (
               SELECT envelope, events FROM checkpoint WHERE generation = 2)
           WHERE generation = (SELECT max(generation) FROM checkpoint)""",
    )


def _newest_dropped(stage: PlayStage) -> None:
    _in_store(
        stage,
        "DELETE FROM checkpoint WHERE generation > 2",
    )


def _head_s_row_dropped(stage: PlayStage) -> None:
    _in_store(
        stage,
        "DELETE FROM checkpoint WHERE generation = (SELECT max(generation) FROM checkpoint)",
    )


def _emptied(stage: PlayStage) -> None:
    _in_store(
        stage,
        "DELETE FROM name",
        "DELETE FROM state",
        "DELETE FROM mark",
        "DELETE FROM checkpoint",
        "DELETE FROM run",
    )


@pytest.mark.parametrize(
    ("spoil", "error"),
    [
        pytest.param(_newest_replaced, IntegrityError, id="T4 an older one as the newest"),
        pytest.param(_newest_dropped, RollbackError, id="T4 the newest ones are gone"),
        pytest.param(_head_s_row_dropped, RollbackError, id="T4 the head's row is gone"),
        pytest.param(_emptied, RollbackError, id="T4 the store is emptied"),
    ],
)
def test_a_store_that_went_back_opens_no_run(
    spoil: Callable[[PlayStage], None], error: type[IntegrityError], quick_folder: Path
) -> None:
    with sandbox_stage(Backend(quick_folder), form=EAGER) as stage:
        _die(stage, "adapter.execute", 2)
        before = stage.effects()
        spoil(stage)
        with pytest.raises(error):
            stage.work(stage.parts())
        assert stage.effects() == before


@pytest.mark.parametrize("number", [pytest.param(2, id="T4 an older copy of the whole store")])
def test_yesterday_s_store_opens_no_run(number: int, quick_folder: Path) -> None:
    with sandbox_stage(Backend(quick_folder), form=EAGER) as stage:
        _die(stage, "adapter.execute", 1)
        _copy(quick_folder, STORE)
        _die(stage, "adapter.execute", number)
        before = stage.effects()
        _restore(quick_folder, STORE)
        with pytest.raises(RollbackError):
            stage.work(stage.parts())
        assert stage.effects() == before


# ---------------------------------------------------------------- T5: the register


@pytest.mark.parametrize(
    ("number", "back"),
    [
        pytest.param(3, 1, id="T5 one back, and an intent is forgotten"),
        pytest.param(3, 2, id="T5 two back"),
        pytest.param(3, 5, id="T5 many back"),
    ],
)
def test_a_head_that_was_set_back_opens_no_run(number: int, back: int, quick_folder: Path) -> None:
    with sandbox_stage(Backend(quick_folder), form=EAGER) as stage:
        _die(stage, "adapter.execute", number)
        before = stage.effects()
        _set_head(stage, _ancestor(stage, back))
        with pytest.raises(RollbackError):
            stage.work(stage.parts())
        assert stage.effects() == before


@pytest.mark.parametrize(
    "level",
    [
        pytest.param(Level.TRANSACTIONAL, id="T5 one back, transactional"),
        pytest.param(Level.DEDUPLICATING, id="T5 one back, deduplicating"),
    ],
)
def test_a_head_set_back_over_a_receipt_repeats_no_effect(level: Level, quick_folder: Path) -> None:
    with sandbox_stage(Backend(quick_folder), level=level, form=EAGER) as stage:
        _die(stage, "heads.advance", 3)  # the receipt of the first write
        _set_head(stage, _ancestor(stage, 1))
        stage.work(stage.parts())
        assert stage.effects() == ("app.py=sound", "notes.md=new")


@pytest.mark.parametrize(
    "number", [pytest.param(1, id="T5 one back over an intent, deduplicating")]
)
def test_a_head_set_back_over_an_intent_leads_to_the_same_key(
    number: int, quick_folder: Path
) -> None:
    backend = Backend(quick_folder)
    with shop_stage(backend, level=Level.DEDUPLICATING, form=EAGER) as stage:
        _die(stage, "adapter.execute", number)
        _set_head(stage, _ancestor(stage, 1))
        stage.work(stage.parts())
        assert stage.effects() == ("A-7", "B-9")


@pytest.mark.parametrize(
    "number", [pytest.param(1, id="T5 one back over an intent, deduplicating and observed")]
)
def test_a_head_set_back_over_an_intent_shows_in_the_world(number: int, quick_folder: Path) -> None:
    backend = Backend(quick_folder)
    with sandbox_stage(backend, level=Level.DEDUPLICATING, form=EAGER) as stage:
        _die(stage, "adapter.execute", number)
        _set_head(stage, _ancestor(stage, 1))
        with pytest.raises(FrozenError):
            stage.work(stage.parts())
        assert stage.effects() == ("app.py=sound",)


@pytest.mark.parametrize("level", [pytest.param(Level.QUERYABLE, id="T5 one back, with marks")])
def test_a_commit_marker_shows_a_head_set_back_by_one(level: Level, quick_folder: Path) -> None:
    form = Form(merges=False, marks=True)
    with sandbox_stage(Backend(quick_folder), level=level, form=form) as stage:
        _die(stage, "adapter.execute", 1)
        _set_head(stage, _ancestor(stage, 1))
        with pytest.raises(RollbackError):
            stage.work(stage.parts())
        assert stage.effects() == ("app.py=sound",)


@pytest.mark.parametrize("number", [pytest.param(1, id="T5 head deleted")])
def test_a_run_without_a_head_is_no_new_run(number: int, quick_folder: Path) -> None:
    with sandbox_stage(Backend(quick_folder), form=EAGER) as stage:
        _die(stage, "adapter.execute", number)
        _, heads = stage.backend.open()
        assert isinstance(heads, SqliteHeads)
        with heads._database.transaction() as connection:
            connection.execute("DELETE FROM head")
        heads.close()
        with pytest.raises(HeadMissingError):
            stage.work(stage.parts())
        assert stage.effects() == ("app.py=sound",)


@pytest.mark.parametrize(
    ("is_moved", "error"),
    [
        pytest.param(False, RollbackError, id="T5 head of another run"),
        pytest.param(True, BindingError, id="T5 head and rows of another run"),
    ],
)
def test_a_head_that_names_another_run_opens_nothing(
    is_moved: bool, error: type[IntegrityError], quick_folder: Path
) -> None:
    backend = Backend(quick_folder)
    with (
        sandbox_stage(backend, form=EAGER) as stage,
        sandbox_stage(backend, form=EAGER) as other,
    ):
        _die(stage, "adapter.execute", 1)
        _die(other, "adapter.execute", 1)
        _set_head(stage, _head(stage, other.run_id))
        if is_moved:
            _in_store(stage, "UPDATE checkpoint SET run = 1")
        with pytest.raises(error):
            stage.work(stage.parts())
        assert stage.effects() == ("app.py=sound",)


@pytest.mark.parametrize("number", [pytest.param(2, id="T5 register restored")])
def test_yesterday_s_register_opens_no_run(number: int, quick_folder: Path) -> None:
    with sandbox_stage(Backend(quick_folder), form=EAGER) as stage:
        _die(stage, "adapter.execute", 1)
        _copy(quick_folder, STATE)
        _die(stage, "adapter.execute", number)
        before = stage.effects()
        _restore(quick_folder, STATE)
        with pytest.raises(RollbackError):
            stage.work(stage.parts())
        assert stage.effects() == before


# ---------------------------------------------------------------- T6: both together


def _turned_back(stage: PlayStage, folder: Path, call: str) -> tuple[str, ...]:
    """Run to the end, then restore store and register of the first step."""
    _die(stage, call, 1)
    for name in (STORE, STATE):
        _copy(folder, name)
    stage.work(stage.parts())
    stage.close()
    for name in (STORE, STATE):
        _restore(folder, name)
    stage.wait()
    return stage.effects()


@pytest.mark.parametrize(
    ("kind", "call"),
    [
        pytest.param("sandbox", "adapter.execute", id="T6 sandbox, after the effect"),
        pytest.param("sandbox", "store.put", id="T6 sandbox, before the run"),
        pytest.param("files", "adapter.execute", id="T6 files, after the effect"),
    ],
)
def test_an_adapter_that_remembers_shows_that_everything_was_turned_back(
    kind: str, call: str, quick_folder: Path
) -> None:
    backend = Backend(quick_folder)
    made = (
        sandbox_stage(backend, form=EAGER)
        if kind == "sandbox"
        else files_stage(backend, quick_folder / "folders", form=EAGER)
    )
    with made as stage:
        before = _turned_back(stage, quick_folder, call)
        with pytest.raises((RollbackError, FencedError)):
            stage.work(stage.parts())
        assert stage.effects() == before


@pytest.mark.parametrize(
    "call",
    [
        pytest.param("adapter.execute", id="T6 deduplicating, after the effect"),
        pytest.param("heads.advance", id="T6 deduplicating, before the effect"),
    ],
)
def test_where_nobody_remembers_the_key_is_the_same(call: str, quick_folder: Path) -> None:
    backend = Backend(quick_folder)
    with shop_stage(backend, level=Level.DEDUPLICATING, form=EAGER) as stage:
        before = _turned_back(stage, quick_folder, call)
        stage.work(stage.parts())
        assert stage.effects() == before == ("A-7", "B-9")
