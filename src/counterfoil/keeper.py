"""The keeper: what a program opens once, and opens its runs from."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypedDict, TypeVar, Unpack

from counterfoil.core import task as tasks
from counterfoil.core.errors import ConfigError, ContractError
from counterfoil.core.judge import check_kinds, check_task_fits
from counterfoil.core.task import Task, parse_task
from counterfoil.core.words import RunId, identifier
from counterfoil.engine.aio import AsyncSession
from counterfoil.engine.labour import Program
from counterfoil.engine.parts import Parts
from counterfoil.engine.recovery import open_run
from counterfoil.engine.session import Session
from counterfoil.engine.submitting import submit_run
from counterfoil.engine.worker import Worker, WorkerOptions, checked_options

_F = TypeVar("_F", bound=Callable[..., Any])


class Working(TypedDict, total=False):
    """The members of `WorkerOptions`, each optional."""

    concurrency: int
    tries_max: int
    poll_ms: int
    grace_ms: int
    is_burst: bool


class Keeper:
    """Owns stores, keys and adapters; hands out runs. Safe to use from several threads."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self._programs: dict[str, Program] = {}

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
        value, name = self._checked(task, run_id)
        opening = open_run(self.parts, value, name, wait_ms=wait_ms)
        session = Session(opening=opening, task=value)
        return session.start(is_new=opening.is_new)

    def run_async(self, task: Task | Path, run_id: str, *, wait_ms: int = 0) -> AsyncSession:
        """Return the same run with awaited verbs; enter it with `async with`."""
        return AsyncSession(lambda: self.run(task, run_id, wait_ms=wait_ms))

    def submit(
        self, task: Task | Path, run_id: str, arguments: Mapping[str, object] | None = None
    ) -> bool:
        """Create a run for whichever worker is free, and return whether it is new.

        Submitting the same again changes nothing, so that a caller whose answer was lost
        submits again.

        Args:
            task: A task, or the path of a TOML or JSON file.
            run_id: At most 200 printable characters.
            arguments: Given to the program by name; at most 16 KiB as canonical JSON.

        Raises:
            ContractError: Task, run id or arguments are not well formed.
            IdempotencyConflictError: The run exists with other arguments.
            BindingError: The run exists under another task.
            UnavailableError: A store, register or environment cannot be reached.
        """
        value, name = self._checked(task, run_id)
        return submit_run(self.parts, value, name, arguments or {})

    def program(self, task: Task | Path) -> Callable[[_F], _F]:
        """Register the decorated function as what workers call for the runs of a task.

        It gets the session, and the arguments that the run was submitted with by name. A
        coroutine function gets a session with awaited verbs. It is called again after
        every death: what is settled answers from the record.

        Raises:
            ContractError: The task is not well formed, or has a program already.
        """
        value = task if isinstance(task, Task) else load_task(task)
        tasks.check_task(value)
        if value.id in self._programs:
            raise ContractError(f"task {value.id} has a program already")

        def registered(function: _F) -> _F:
            self._programs[value.id] = Program(task=value, function=function)
            return function

        return registered

    def worker(self, **options: Unpack[Working]) -> Worker:
        """Return a worker for the registered programs; call its `run`.

        Args:
            **options: See `WorkerOptions`.

        Raises:
            ConfigError: No program is registered, or a number is below 1.
        """
        if not self._programs:
            raise ConfigError(
                "no program is registered", move="decorate a function with `keeper.program(task)`"
            )
        return Worker(
            self.parts,
            self._programs,
            lambda program, run_id: self.run(program.task, run_id),
            checked_options(WorkerOptions(**options)),
        )

    def _checked(self, task: Task | Path, run_id: str) -> tuple[Task, RunId]:
        value = task if isinstance(task, Task) else load_task(task)
        name = RunId(identifier(run_id, "run_id"))
        tasks.check_task(value)
        check_kinds(self.parts.kinds)
        check_task_fits(value, self.parts.kinds)
        return value, name

    def close(self) -> None:
        """Let go of stores, inbox and adapters."""
        for adapter in self.parts.adapters.values():
            adapter.close()
        if self.parts.bell is not None:
            self.parts.bell.close()
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
