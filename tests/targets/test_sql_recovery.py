"""Runs on databases end alike whenever they are killed, and their effects are counted there."""

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from counterfoil.core.task import Budgets, Task, Verification
from counterfoil.engine.session import Session
from counterfoil.local.postgres import LocalPostgres
from counterfoil.testing.crash import enumerate_crashes
from tests.support.sources import ROOT
from tests.support.sql_bench import Place, credited, noted, opened, sqlite_place
from tests.support.sql_program import TASK, pay
from tests.support.sql_proxy import Loss
from tests.support.sql_scene import paid
from tests.support.stages import Backend, Form, PlayStage, closing

pytest_plugins = ["tests.support.postgres"]

SECONDS_MAX = 60
SHARES = {Form(merges=True): 0.15, Form(merges=False): 0.05}
"""Of the instants of recoveries, how many are tried with a second death."""


def pay_twice(run: Session) -> None:
    """Pay, look, pay again, verify and finish."""
    run.do("sql.execute", statements=[credited(10, rows=1), noted("first")])
    run.do("sql.query", statement="notes")
    run.do("sql.execute", statements=[credited(10, returning=[{"balance": 120}]), noted("second")])
    run.verify()
    run.finish()


WANTED = [{"line": "line first"}, {"line": "line second"}]
TWICE = Task(
    id="pay twice",
    policy=TASK.policy,
    budgets=Budgets(proposals=12, steps=8),
    verifier=Verification(kind="sql.check", arguments={"statement": "notes", "expected": WANTED}),
)


@contextmanager
def staged(backend: Backend, form: Form, places: Callable[[], Place]) -> Generator[PlayStage]:
    place = places()
    stage = PlayStage(
        backend=backend,
        run_id=backend.new_run(),
        task=TWICE,
        program=pay_twice,
        adapters=lambda: (place.adapter(),),
        count=lambda: tuple(place.lines),
        look=place.balance,
        form=form,
    )
    with ExitStack() as stack:
        stack.callback(place.close)
        yield stack.enter_context(closing(stage))


@pytest.mark.timeout(120)
@pytest.mark.parametrize("form", SHARES, ids=lambda form: form.name)
def test_no_crash_changes_the_outcome(form: Form, tmp_path: Path) -> None:
    """Before and after each call of a port, and again in a share of the recoveries."""
    numbers, backend = itertools.count(), Backend()
    tally = enumerate_crashes(
        lambda: staged(backend, form, lambda: sqlite_place(tmp_path / str(next(numbers)))),
        second_deaths=SHARES[form],
    )
    assert (tally.crashes, tally.reviews) == (len(tally.calls) + 1, 0)
    assert tally.double_crashes > 0


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("name", ["sqlite", "postgresql"])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_run_is_recovered_by_a_new_process(
    moment: str, name: str, home: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with opened(name, tmp_path, lambda: request.getfixturevalue("postgres")) as place:
        for then, code, said in ((moment, -signal.SIGKILL, ""), ("never", 0, "completed")):
            answer = subprocess.run(
                [sys.executable, "-m", "tests.support.sql_program", home, str(place.target), then],
                cwd=ROOT,
                env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
                check=False,
                capture_output=True,
                text=True,
                timeout=SECONDS_MAX,
            )
            assert (answer.returncode, answer.stdout) == (code, said), answer.stderr
        assert paid(place) == (1, 1)


@pytest.mark.parametrize(
    "loss",
    [
        pytest.param(Loss.ANSWER, id="C26 a, after COMMIT was applied"),
        pytest.param(Loss.REQUEST, id="C26 b, before COMMIT arrived"),
    ],
)
def test_a_run_whose_commit_is_lost_goes_on_by_itself(
    loss: Loss, home: Path, postgres: LocalPostgres, tmp_path: Path
) -> None:
    with opened("postgresql", tmp_path, lambda: postgres) as place:
        assert place.proxy is not None
        place.proxy.lose(loss, nth=2)  # the first one is that of the fence
        assert pay(home, str(place.target)).phase == "completed"
        assert place.proxy.has_cut.is_set()
        assert paid(place) == (1, 1)
