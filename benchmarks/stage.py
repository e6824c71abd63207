"""A project with one effect that does nothing: what is left of a step is ours."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.peers.programs.talk import ARGUMENTS, RESULT
from counterfoil import Effects, Keeper, Policy, Session, Task, open_keeper
from counterfoil.adapters.function import Call, Found
from counterfoil.settings import Commit, Settings

KIND = "ledger.add"
RUN_ID = "bench"
SCRATCH = Path(".cache")
"""Where files go unless told otherwise: beside the project, since /tmp may be no disk."""

TASK = Task(id="bench", policy=Policy(permissions=(KIND,)))


class Ledger:
    """The target: counts entries, and can say which keys it has seen."""

    def __init__(self) -> None:
        self.count = 0
        self.keys: set[str] = set()
        self.remembers = False

    def add(self, key: str) -> dict[str, object]:
        """Count one entry."""
        self.count += 1
        if self.remembers:
            self.keys.add(key)
        return RESULT

    def look_up(self, key: str) -> Found | None:
        """Return the entry under `key`; a settled step never asks."""
        return Found(result=RESULT) if key in self.keys else None


def effects_of(ledger: Ledger) -> Effects:
    """Return the one declared effect."""
    effects = Effects()

    @effects.effect(KIND, level="deduplicating", risk="reversible_write", look_up=ledger.look_up)
    def add(
        call: Call, *, account: str, entry: str, lines: list[dict[str, str | int]]
    ) -> dict[str, object]:
        return ledger.add(call.key)

    return effects


@contextmanager
def scratch(folder: Path | None = None) -> Iterator[Path]:
    """Give a folder that is gone afterwards."""
    parent = folder or SCRATCH
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=parent, prefix="bench-") as name:
        yield Path(name).resolve()


@contextmanager
def keeper_in(folder: Path, *, merges: bool = True) -> Iterator[Keeper]:
    """Open a keeper whose checkpoints and heads lie in different folders of `folder`."""
    project, user = folder / "project", folder / "user"
    project.mkdir(mode=0o700, exist_ok=True)
    user.mkdir(mode=0o700, exist_ok=True)
    os.environ["XDG_STATE_HOME"] = os.environ["XDG_CONFIG_HOME"] = str(user)
    settings = Settings(commit=Commit(durability="merged" if merges else "strict"))
    with open_keeper(project, settings=settings, effects=effects_of(Ledger())) as keeper:
        yield keeper


def files_in(folder: Path) -> list[Path]:
    """Return the database files, logs included, of a keeper that is closed."""
    return [path for path in folder.rglob("*.db*") if path.is_file()]


def do_steps(run: Session, count: int) -> None:
    """Make `count` write steps."""
    for _ in range(count):
        run.do(KIND, **ARGUMENTS)
