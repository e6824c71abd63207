"""A stage for crash tests: a run that gives commands, and counts them by their log."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from counterfoil.core.task import Budgets, Policy, Task, Verification
from counterfoil.engine.session import Session
from tests.support.shell_bench import COMMANDS, LOG, Yard, scope_of
from tests.support.stages import FORMS, Backend, Form, PlayStage, Program, closing

TASK = Task(
    id="release",
    policy=Policy(
        permissions=tuple(f"shell.{one.name}" for one in COMMANDS),
        scope={"shell": dict(scope_of(COMMANDS))},
    ),
    budgets=Budgets(proposals=12, steps=6),
    verifier=Verification(kind="shell.check", arguments={"file": LOG}),
)


def release(run: Session) -> None:
    """Give a command, one that may be repeated, verify, finish."""
    run.do("shell.note", text="first")
    run.do("shell.place", text="second")
    run.verify()
    run.finish()


@contextmanager
def shell_stage(
    backend: Backend,
    place: Path,
    *,
    form: Form = FORMS[0],
    program: Program = release,
    yard: Yard | None = None,
    task: Task = TASK,
) -> Generator[PlayStage]:
    """Return a fresh yard, or one that is there, with a run for it."""
    run_id = backend.new_run()
    home = Yard(place / run_id) if yard is None else yard
    stage = PlayStage(
        backend=backend,
        run_id=run_id,
        task=task,
        program=program,
        adapters=lambda: (home.open(now_ms=backend.clock.now_ms),),
        count=lambda: tuple(home.effects),
        look=lambda: sorted(path.name for path in home.root.iterdir()),
        form=form,
    )
    with closing(stage):
        yield stage
