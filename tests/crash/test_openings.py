"""Openings that fail half way: nothing stays held, and no false alarm is raised."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from counterfoil.adapters.sandbox import World
from counterfoil.core.errors import (
    IntegrityError,
    LeaseLostError,
    RollbackError,
    UnavailableError,
)
from counterfoil.core.receipt import Fence, Served
from counterfoil.core.run import Phase
from counterfoil.core.words import Level, RunId
from counterfoil.engine.aio import AsyncSession
from counterfoil.engine.session import Session
from counterfoil.keeper import Keeper
from counterfoil.ports import Adapter, Head
from counterfoil.stores.memory import MemoryHeads
from counterfoil.testing.saboteur_adapters import Passing
from tests.support.killing import EAGER, opened, write_once
from tests.support.stages import Backend, PlayStage, sandbox_stage


class TakesAfter(Passing):
    """Lets something happen right before the first fence is raised."""

    def __init__(self, inner: Adapter, happen: list[Callable[[], object]]) -> None:
        super().__init__(inner)
        self._happen = happen

    def take(self, run_id: RunId, fence: Fence) -> Served | None:
        if self._happen:
            self._happen.pop()()
        return super().take(run_id, fence)


def _breaks() -> None:
    raise UnavailableError("the door is closed")


@pytest.mark.parametrize("is_new", [True, False])
def test_a_worker_that_cannot_raise_its_fence_gives_the_run_back(is_new: bool) -> None:
    happen: list[Callable[[], object]] = []
    with sandbox_stage(
        Backend(), form=EAGER, wrap=lambda _, inner: TakesAfter(inner, happen)
    ) as stage:
        if not is_new:
            opened(stage).close()
        happen.append(_breaks)
        with pytest.raises(UnavailableError):
            opened(stage)
        with opened(stage) as run:
            write_once(run)
        assert stage.effects() == ("app.py=sound",)


@pytest.mark.parametrize("level", [Level.DEDUPLICATING, Level.TRANSACTIONAL])
def test_a_worker_that_cannot_look_gives_the_run_back(level: Level) -> None:
    worlds: list[World] = []

    def note(world: World, adapter: Adapter) -> Adapter:
        worlds.append(world)
        return adapter

    with sandbox_stage(Backend(), level=level, form=EAGER, wrap=note) as stage:
        opened(stage).close()
        worlds[0].cut_off()
        with pytest.raises(UnavailableError):
            opened(stage)
        worlds[0].reconnect()
        with opened(stage) as run:
            write_once(run)
        assert stage.effects() == ("app.py=sound",)


def test_a_creator_that_was_overtaken_before_it_raised_its_fence_raises_no_alarm() -> None:
    happen: list[Callable[[], object]] = []

    with sandbox_stage(
        Backend(), form=EAGER, wrap=lambda _, inner: TakesAfter(inner, happen)
    ) as stage:

        def overtake() -> None:
            stage.wait()
            stage.work(stage.parts())

        happen.append(overtake)
        with pytest.raises(LeaseLostError):
            opened(stage)
        assert stage.effects() == ("app.py=sound", "notes.md=new")
        assert _phase(stage) is Phase.COMPLETED


class CannotRelease(MemoryHeads):
    """Answers no release."""

    def release(self, held: Head, pause_ms: int = 0) -> None:
        raise UnavailableError("the register does not answer")


def test_the_reason_why_a_run_does_not_open_is_told_even_if_the_lease_cannot_be_given_up() -> None:
    backend = Backend()
    backend._heads = CannotRelease(now_ms=backend.clock.now_ms, incarnation="register-1")
    with sandbox_stage(backend, form=EAGER) as stage:
        opened(stage)
        stage.wait()
        backend._store._rows.clear()
        with pytest.raises(IntegrityError) as caught:
            opened(stage)
        assert isinstance(caught.value, RollbackError)


def _phase(stage: PlayStage) -> Phase:
    with Keeper(stage.parts()).run(stage.task, stage.run_id) as run:
        return run.state.phase


def test_an_opening_that_is_cancelled_gives_the_run_back() -> None:
    with sandbox_stage(Backend(), form=EAGER) as stage:
        is_opening, may_open = threading.Event(), threading.Event()

        def slowly() -> Session:
            is_opening.set()
            may_open.wait(timeout=60)
            return opened(stage)

        entering = AsyncSession(slowly)

        async def enter_and_cancel() -> None:
            task = asyncio.create_task(entering.__aenter__())
            await asyncio.to_thread(is_opening.wait, 60)
            task.cancel()
            await asyncio.sleep(0)
            may_open.set()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(enter_and_cancel())
        entering._thread.shutdown(wait=True)
        with opened(stage) as run:
            write_once(run)
        assert stage.effects() == ("app.py=sound",)
