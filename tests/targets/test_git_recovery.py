"""Whole runs over a repository and its remote, dead at every instant, and recovered."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from counterfoil.core.task import Budgets, Policy, Task, Verification
from counterfoil.engine.session import Session
from counterfoil.testing.crash import enumerate_crashes
from tests.support.git_scene import MAIN, RUNNER, SCOPE, WORK, Scene, git, in_memory
from tests.support.stages import Backend, Form, PlayStage, closing

pytestmark = pytest.mark.timeout(300)  # hundreds of git commands for each death

KINDS = ("git.commit", "git.push", "git.check")
FIRST = "1767319445"


def task_of(scene: Scene) -> Task:
    """Return a task that may do everything, and is done when the remote has the first commit."""
    return Task(
        id="release",
        policy=Policy(permissions=KINDS, scope={"git": SCOPE}),
        budgets=Budgets(proposals=12, steps=8),
        verifier=Verification(
            kind="git.check", arguments={"ref": WORK, "target": scene.first, "remote": "origin"}
        ),
    )


def release(base: str, run: Session) -> None:
    """Commit, and push what was committed."""
    made = run.do(
        "git.commit",
        ref=WORK,
        parent=base,
        changes={"app.py": "sound\n"},
        message="Repair",
        author=RUNNER,
    )["new"]
    run.do("git.push", remote="origin", ref=WORK, target=made, expected=base)
    run.verify()
    run.finish()


def effects(scene: Scene) -> tuple[str, ...]:
    """Name what was done, on the repository and on the remote themselves."""
    found: list[str] = []
    for name, place in (("here", scene.root), ("there", scene.remote)):
        words = ("log", "--author=run@example.org", "--format=%H", f"{scene.first}..{WORK}")
        found += [f"{name} {line}" for line in git(place, *words).split()]
    return tuple(found)


@contextmanager
def staged(backend: Backend, folder: Path, form: Form) -> Generator[PlayStage]:
    """Set a fresh scene up; what every commit depends on is the same in each."""
    run_id = backend.new_run()
    place = folder / run_id
    place.mkdir(parents=True)
    scene = Scene(place, date=f"@{FIRST} +0000")
    stage = PlayStage(
        backend=backend,
        run_id=run_id,
        task=task_of(scene),
        program=partial(release, scene.first),
        adapters=lambda: (scene.open(now_ms=backend.clock.now_ms),),
        count=lambda: effects(scene),
        look=lambda: [scene.at(ref, at) for ref in (WORK, MAIN) for at in places(scene)],
        form=form,
    )
    with closing(stage):
        yield stage


def places(scene: Scene) -> tuple[Path, Path]:
    return (scene.root, scene.remote)


@pytest.fixture
def quick() -> Iterator[Path]:
    with in_memory() as folder:
        yield folder


def test_no_crash_changes_what_becomes_of_a_release(quick: Path) -> None:
    backend = Backend()
    tally = enumerate_crashes(lambda: staged(backend, quick, Form()), second_deaths=0.0)
    assert tally.crashes == len(tally.calls) + 1
    assert (tally.calls.count("adapter.execute"), tally.reviews) == (3, 0)
