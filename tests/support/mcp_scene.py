"""Runs that write tickets by tools: the task, the program, and stages to play it on."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from counterfoil.adapters.mcp.adapter import McpAdapter
from counterfoil.core.run import Run
from counterfoil.core.task import Policy, Task, Verification
from counterfoil.core.words import Level
from counterfoil.engine import control
from counterfoil.engine.session import Session
from counterfoil.testing.mortal import Death, Died, Fate, mortal
from tests.support.mcp_bench import HTTP, SCOPE, Desk, Door, door, server
from tests.support.stages import Backend, Form, PlayStage, closing

EAGER = Form(merges=False)
TITLES = ("A-1", "B-2")
KINDS = ("tickets.create", "desk.state", "desk.check")


def task_of(tools: tuple[str, ...] = SCOPE["tools"]) -> Task:
    return Task(
        id="triage",
        policy=Policy(permissions=KINDS, scope={"desk": {"tools": tools}}),
        verifier=Verification(kind="desk.check", arguments={"place": "here"}),
    )


def write(run: Session, title: str = TITLES[0], key: str | None = None) -> Any:
    return run.do("tickets.create", title=title, key=key)


def triage(run: Session) -> None:
    """Write two tickets, verify, finish."""
    for title in TITLES:
        write(run, title)
    run.verify()
    run.finish()


def write_once(run: Session) -> Any:
    return write(run)


@contextmanager
def staged(
    desk: Desk,
    level: Level,
    way: str = HTTP,
    *,
    program: Any = triage,
    is_watched: bool = True,
    backend: Backend | None = None,
    tools: tuple[str, ...] = SCOPE["tools"],
    **more: Any,
) -> Generator[tuple[PlayStage, Door]]:
    """A fresh tenant of a desk, and a run that writes there."""
    at = door(desk, way)
    backend = backend or Backend()
    declared = server(at.reach, level, is_watched=is_watched, **more)

    def opened() -> McpAdapter:
        return at.open(declared, now_ms=backend.clock.now_ms)

    stage = PlayStage(
        backend=backend,
        run_id=backend.new_run(),
        task=task_of(tools),
        program=program,
        adapters=lambda: (opened(),),
        count=lambda: titles(at),
        look=lambda: titles(at),
        form=EAGER,
    )
    with closing(stage):
        try:
            yield stage, at
        finally:
            at.close()


def titles(at: Door) -> tuple[str, ...]:
    """Return what was written, in order: the effects."""
    return tuple(str(shown["title"]) for shown in at.tickets())


def shown(stage: PlayStage) -> Run:
    return control.show(stage.parts(), stage.run_id).run


def killed(stage: PlayStage, call: str, *, is_after: bool = True) -> None:
    """Let a worker die at its first call of this name."""

    class Fated(Fate):
        def call(self, name: str, act: Any) -> Any:
            if name == call and self._death is None:
                self._death = Death(at=len(self.calls), is_after=is_after)
            return super().call(name, act)

    fate = Fated()
    try:
        stage.work(mortal(stage.parts(), fate))
    except Died:
        stage.wait()
        return
    raise AssertionError(f"the worker made no call of {call}")
