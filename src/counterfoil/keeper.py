"""The keeper: what a program opens once, and opens its runs from."""

from pathlib import Path
from types import TracebackType
from typing import Self

from counterfoil.core import task as tasks
from counterfoil.core.errors import ConfigError, ContractError
from counterfoil.core.judge import check_kinds, check_task_fits
from counterfoil.core.task import Task, parse_task
from counterfoil.core.words import RunId, identifier
from counterfoil.engine.aio import AsyncSession
from counterfoil.engine.parts import Parts
from counterfoil.engine.recovery import open_run
from counterfoil.engine.session import Session


class Keeper:
    """Owns stores, keys and adapters; hands out runs. Safe to use from several threads."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts

    def run(self, task: Task | Path, run_id: str, *, wait_ms: int = 0) -> Session:
        """Open a run, or create it; use the result as a context manager.

        A run that was killed is taken over: what is settled answers from the record,
        what is in doubt is asked of its target by key.

        Args:
            task: A task, or the path of a TOML or JSON file.
            run_id: At most 200 printable characters; one head per run id.
            wait_ms: How long to wait for a worker that holds the run; 0 raises at once.

        Raises:
            ContractError: Task or run id are not well formed, or name what is not there.
            LeaseLostError: Another worker holds the run.
            BindingError: The run was started under another task.
            IntegrityError: The member that says why.
            UnavailableError: A store, register or environment cannot be reached.
        """
        value = task if isinstance(task, Task) else load_task(task)
        name = RunId(identifier(run_id, "run_id"))
        tasks.check_task(value)
        check_kinds(self.parts.kinds)
        check_task_fits(value, self.parts.kinds)
        opening = open_run(self.parts, value, name, wait_ms=wait_ms)
        session = Session(opening=opening, task=value)
        return session.start(is_new=opening.is_new)

    def run_async(self, task: Task | Path, run_id: str, *, wait_ms: int = 0) -> AsyncSession:
        """Return the same run with awaited verbs; enter it with `async with`."""
        return AsyncSession(lambda: self.run(task, run_id, wait_ms=wait_ms))

    def close(self) -> None:
        """Let go of stores, inbox and adapters."""
        for adapter in self.parts.adapters.values():
            adapter.close()
        if self.parts.inbox is not None:
            self.parts.inbox.close()
        self.parts.heads.close()
        self.parts.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def load_task(path: Path) -> Task:
    """Read a task from a TOML or JSON file.

    Raises:
        ContractError: As `parse_task`, or the name ends in neither.
        ConfigError: The file cannot be read.
    """
    syntax = {".toml": "toml", ".json": "json"}.get(path.suffix)
    if syntax is None:
        raise ContractError(f"task file {path.name:.100} ends in neither .toml nor .json")
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"task file {path} cannot be read: {error.strerror}") from error
    return parse_task(raw, syntax=syntax)
