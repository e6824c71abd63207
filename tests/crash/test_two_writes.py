"""Field case C02: a receipt and the head are two writes, and no delay of one shows.

A wrapper holds one of the two writes of a commit back, and the process dies so that
none, one or both of them are durable.
"""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from dataclasses import replace as changed
from pathlib import Path

import pytest

from counterfoil.core.codec import Checkpoint
from counterfoil.core.errors import UnknownOutcomeError
from counterfoil.core.words import Level
from counterfoil.engine import audit, control
from counterfoil.engine.parts import Parts
from counterfoil.engine.session import Session
from counterfoil.ports import Advance, CheckpointStore, Head, HeadRegister
from counterfoil.testing.mortal import Died, Fate, MortalHeads, MortalStore
from tests.support.stages import Backend, Form, PlayStage, shop_stage

COMMIT = 4
"""Generation of the receipt of the second of three steps, each an intent and a receipt."""

SKUS = ("A-1", "B-2", "C-3")


def three(run: Session) -> None:
    for sku in SKUS:
        run.do("shop.order", sku=sku)


@dataclass(kw_only=True)
class Plan:
    """What becomes of the two writes of one commit.

    Attributes:
        keeps_content: Whether the checkpoint gets into the store.
        keeps_head: Whether the head is moved, if it is asked to.
        alone: Moves of a head to a checkpoint that cannot be read back.
    """

    keeps_content: bool
    keeps_head: bool
    alone: list[Advance] = field(default_factory=list)


class HoldsContentBack(MortalStore):
    """Keeps one checkpoint back, for good, and says that nobody knows."""

    def __init__(self, inner: CheckpointStore, plan: Plan) -> None:
        super().__init__(inner, Fate())
        self._plan = plan

    def put(self, batch: Sequence[Checkpoint]) -> None:
        (row,) = batch
        if row.generation == COMMIT and not self._plan.keeps_content:
            raise UnknownOutcomeError("the write is under way")
        super().put(batch)


class HoldsHeadBack(MortalHeads):
    """Dies at one commit, and notes each one whose content is not there."""

    def __init__(self, inner: HeadRegister, store: CheckpointStore, plan: Plan) -> None:
        super().__init__(inner, Fate())
        self._store = store
        self._plan = plan

    def advance(self, batch: Sequence[Advance]) -> tuple[Head, ...]:
        (move,) = batch
        if self._store.get(move.expected.run_id, move.checkpoint) is None:
            self._plan.alone.append(move)
        if move.expected.generation + 1 != COMMIT:
            return super().advance(batch)
        if self._plan.keeps_head:
            super().advance(batch)
        raise Died


def _spoiled(parts: Parts, plan: Plan) -> Parts:
    store = parts.store
    return changed(
        parts,
        store=HoldsContentBack(store, plan),
        heads=HoldsHeadBack(parts.heads, store, plan),
    )


def _others_work(backend: Backend, count: int) -> None:
    """Run as many other runs at once, each in a thread with stores of its own."""
    start = threading.Barrier(count)

    def work(number: int) -> tuple[str, ...]:
        with shop_stage(backend, level=Level.DEDUPLICATING, form=Form(merges=False)) as stage:
            start.wait(timeout=60)
            stage.work(stage.parts())
            return stage.effects()

    with ThreadPoolExecutor(max_workers=count) as pool:
        for effects in pool.map(work, range(count)):
            assert effects == ("A-7", "B-9")


@pytest.mark.parametrize("threads", [1, 16])
@pytest.mark.parametrize("level", [Level.DEDUPLICATING, Level.QUERYABLE])
@pytest.mark.parametrize(
    ("keeps_content", "keeps_head", "generation"),
    [
        pytest.param(False, False, COMMIT - 1, id="C02 none"),
        pytest.param(True, False, COMMIT - 1, id="C02 content only"),
        pytest.param(False, True, COMMIT - 1, id="C02 head only"),
        pytest.param(True, True, COMMIT, id="C02 both"),
    ],
)
def test_no_delay_of_one_of_two_writes_changes_what_happens(
    *,
    keeps_content: bool,
    keeps_head: bool,
    generation: int,
    level: Level,
    threads: int,
    quick_folder: Path,
) -> None:
    backend = Backend(quick_folder)
    plan = Plan(keeps_content=keeps_content, keeps_head=keeps_head)
    with shop_stage(backend, level=level, form=Form(merges=False)) as stage:
        stage.program = three
        with pytest.raises((Died, UnknownOutcomeError)):
            stage.work(_spoiled(stage.parts(), plan))
        stage.wait()
        _others_work(backend, threads)
        assert plan.alone == []
        assert _head_and_content(stage) == generation
        stage.work(stage.parts())
        assert stage.effects() == SKUS
        assert audit.audit(stage.parts(), stage.run_id).checkpoints == 7


def _head_and_content(stage: PlayStage) -> int:
    """Return the head's generation, once its content is read and nothing lies above it."""
    parts = stage.parts()
    newest = control.show(parts, stage.run_id).head.generation
    assert parts.store.trace(stage.run_id, newest + 1, 10) == ()
    return newest
