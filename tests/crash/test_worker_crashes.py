"""Every crash of a submission and of the worker that takes it, and of their successors."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path

import pytest

from counterfoil.core.errors import UnavailableError
from counterfoil.core.words import Level
from counterfoil.engine.parts import Parts
from counterfoil.keeper import Keeper
from counterfoil.testing.crash import enumerate_crashes
from tests.support.stages import FORMS, Backend, Form, PlayStage, sandbox_stage

pytestmark = pytest.mark.timeout(600)  # thousands of runs, on however busy a machine

ARGUMENTS = {"wanted": "sound"}


class Submitted(PlayStage):
    """A process that submits the run, and then does it as a worker."""

    def work(self, parts: Parts) -> None:
        keeper = Keeper(parts)
        keeper.program(self.task)(lambda run, wanted: self.program(run))
        keeper.submit(self.task, self.run_id, ARGUMENTS)
        keeper.worker()._labour.work(self.run_id)
        head = parts.heads.read(self.run_id)
        if head is None or head.status == "active":
            raise UnavailableError("the run has not ended yet")


@contextmanager
def submitted(backend: Backend, form: Form) -> Generator[PlayStage]:
    with sandbox_stage(backend, level=Level.TRANSACTIONAL, form=form) as stage:
        yield Submitted(**{each.name: getattr(stage, each.name) for each in fields(stage)})


@pytest.mark.parametrize("form", FORMS[:2], ids=lambda form: form.name)
@pytest.mark.parametrize("where", ["memory", "sqlite"])
def test_a_submitted_run_survives_every_crash(form: Form, where: str, tmp_path: Path) -> None:
    backend = Backend(tmp_path if where == "sqlite" else None)
    tally = enumerate_crashes(
        lambda: submitted(backend, form), second_deaths=0.1 if where == "sqlite" else 0.5
    )
    assert tally.crashes > len(tally.calls) > 20
