"""Runs whose cost is counted: no idle flush and no renewal comes between their steps.

Run as `python -m tests.support.counted FOLDER DURABILITY`: `STEPS` steps on two SQLite files
between two calls of `getppid`, which whoever traces calls of the system finds its place by.
"""

import os
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from counterfoil.adapters.function import Call, Effects, Found
from counterfoil.compose import wire
from counterfoil.core.task import Budgets, Policy, Task
from counterfoil.engine.ledger import PRUNE_EVERY
from counterfoil.engine.parts import Parts
from counterfoil.keeper import Keeper
from counterfoil.settings import Commit, Settings
from counterfoil.stores.sqlite import SqliteHeads, SqliteStore, open_heads, open_store
from counterfoil.testing.clock import VirtualClock
from tests.support.stages import INCARNATION, KEYRING

Durability = Literal["merged", "strict"]
Mark = Callable[[], object]

WARM, STEPS = 10, PRUNE_EVERY
TASK = Task(id="count", policy=Policy(permissions=("count.up",)), budgets=Budgets(steps=999))


def effects() -> Effects:
    """Return one effect that can be asked for again, and costs nothing."""
    found = Effects()

    def look_up(key: str) -> Found | None:
        return None

    @found.effect("count.up", level="deduplicating", look_up=look_up)
    def count(call: Call, *, number: int) -> dict[str, object]:
        return {"number": number}

    return found


def parts_on(durability: Durability, store: Any, heads: Any, joint: Any = None) -> Parts:
    """Return the engine that a project of this setting has, over these ports."""
    clock = VirtualClock()
    return wire(
        Settings(commit=Commit(durability=durability)),
        KEYRING,
        store,
        heads,
        effects().adapters(clock.now_ms),
        clock=clock,
        owner="worker",
        runs_background=False,
        joint=joint,
    )


def work(parts: Parts, run_id: str, steps: int) -> None:
    """Make the steps of one run."""
    with Keeper(parts).run(TASK, run_id) as run:
        for number in range(steps):
            run.do("count.up", number=number)


def work_between(parts: Parts, begin: Mark, end: Mark) -> None:
    """Make `STEPS` steps of a run between two marks, and some before and after."""
    with Keeper(parts).run(TASK, "run") as run:
        for number in range(WARM + STEPS + WARM):
            if number == WARM:
                begin()
            if number == WARM + STEPS:
                end()
            run.do("count.up", number=number)


class Noted:
    """A port that notes the name of each call."""

    def __init__(self, inner: Any, calls: list[str]) -> None:
        self._inner = inner
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._inner, name)
        if not callable(call):
            return call

        def noted(*given: Any, **more: Any) -> Any:
            self._calls.append(name)
            return call(*given, **more)

        return noted


@contextmanager
def two_files(folder: Path) -> Generator[tuple[SqliteStore, SqliteHeads]]:
    """Give a store and a register, each in a SQLite file of its own."""
    clock = VirtualClock()
    store = open_store(folder / "project" / "checkpoints.db", create=True)
    heads = open_heads(
        folder / "state" / "heads.db",
        create=True,
        now_ms=clock.now_ms,
        incarnation=lambda: INCARNATION,
    )
    yield store, heads
    heads.close()
    store.close()


def main(folder: str, durability: Any) -> None:
    with two_files(Path(folder)) as (store, heads):
        work_between(parts_on(durability, store, heads), os.getppid, os.getppid)


if __name__ == "__main__":
    main(*sys.argv[1:])
