"""Whole runs that give commands: killed anywhere, recovered anew, and asked about."""

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from counterfoil.adapters.shell import Command
from counterfoil.adapters.shell.kernel import START
from counterfoil.adapters.shell.records import Started
from counterfoil.core.errors import FrozenError, StaleObservationError, UnknownOutcomeError
from counterfoil.core.review import CaseReason, Verdict
from counterfoil.core.run import Phase, Run
from counterfoil.core.task import Policy, Task
from counterfoil.core.words import Key, RunId
from counterfoil.engine import control
from counterfoil.engine.session import Session
from counterfoil.stores.memory import MemoryInbox
from counterfoil.testing.crash import enumerate_crashes
from counterfoil.testing.mortal import Death, Died, Fate, mortal
from tests.support.people import RITA, decide, roots
from tests.support.shell_bench import Yard, do
from tests.support.shell_stage import release, shell_stage
from tests.support.stages import FORMS, Backend, Form, PlayStage

SECOND_DEATHS = {"merged": 0.03, "eager": 0.02}
"""Share of the recoveries' instants; each is a run of real commands."""


def short_release(run: Session) -> None:
    """Give one command: what the form changes lies around it."""
    run.do("shell.note", text="first")
    run.verify()
    run.finish()


PROGRAMS = {"merged": release, "eager": short_release}

SCRIPT = "echo run >> effects.log; while [ ! -e go ]; do sleep 0.02; done; echo ended"


@pytest.mark.parametrize("form", [pytest.param(form, id=form.name) for form in FORMS[:2]])
def test_no_crash_and_no_crash_of_the_recovery_repeats_a_command(
    form: Form, tmp_path: Path
) -> None:
    backend = Backend()
    tally = enumerate_crashes(
        lambda: shell_stage(backend, tmp_path, form=form, program=PROGRAMS[form.name]),
        second_deaths=SECOND_DEATHS[form.name],
    )
    assert tally.crashes == len(tally.calls) + 1 > 10
    assert (tally.double_crashes > 0, tally.reviews) == (True, 0)


def waiting(*, is_repeatable: bool = False) -> Command:
    return Command(
        name="wait",
        stages=(("sh", "-c", SCRIPT),),
        is_repeatable=is_repeatable,
        timeout_ms=60_000,
        grace_ms=0,
        wait_ms=0,
    )


WAITING_TASK = Task(
    id="wait",
    policy=Policy(
        permissions=("shell.wait",), scope={"shell": {"commands": ("wait",), "paths": (".",)}}
    ),
)


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    made = Yard(tmp_path / "yard", [waiting()])
    yield made
    (made.root / "go").touch()
    made.close()


def wait(run: Session) -> object:
    return run.do("shell.wait")


def stage_of(yard: Yard) -> PlayStage:
    with shell_stage(Backend(), yard.place, program=wait, yard=yard, task=WAITING_TASK) as stage:
        return stage


def killed_while_it_runs(stage: PlayStage, yard: Yard) -> None:
    """Let a worker die right after its command was given, and wait for the command."""
    rehearsal = Fate()
    with pytest.raises(UnknownOutcomeError):
        stage.work(mortal(stage.parts(), rehearsal))
    while not yard.effects:
        continue
    stage.wait()


def until_settled(stage: PlayStage, **more: object) -> bool:
    """Let worker follow worker until the program has ended; return whether it froze."""
    while True:
        try:
            stage.work(replace(stage.parts(), **more))
        except UnknownOutcomeError:
            stage.wait()
        except FrozenError:
            return True
        else:
            return False


def supervisor_of(yard: Yard) -> int:
    raw = (yard.journal / "attempts" / "1" / START).read_bytes()
    return msgspec.json.decode(raw, type=Started).supervisor[0]


def test_a_command_that_runs_is_waited_for_and_then_adopted(yard: Yard) -> None:
    stage = stage_of(yard)
    killed_while_it_runs(stage, yard)
    with pytest.raises(UnknownOutcomeError, match="still runs"):
        stage.work(stage.parts())
    stage.wait()
    (yard.root / "go").touch()
    assert until_settled(stage) is False
    assert yard.effects == ["run"]
    assert control.show(stage.parts(), stage.run_id).run.cursor == 1
    stage.close()


def test_a_start_whose_end_nobody_knows_goes_to_a_person_with_its_evidence(yard: Yard) -> None:
    stage = stage_of(yard)
    killed_while_it_runs(stage, yard)
    os.kill(supervisor_of(yard), signal.SIGKILL)
    (yard.root / "go").touch()
    assert until_settled(stage) is True
    run = control.show(stage.parts(), stage.run_id).run
    assert run.case is not None
    assert (run.phase, run.case.reason) == (Phase.NEEDS_REVIEW, CaseReason.OUTCOME_UNKNOWN)
    assert "its supervisor was killed before it recorded the end" in run.case.finding
    assert "it ran as pid" in run.case.finding
    assert yard.effects == ["run"]
    stage.close()


def decided(stage: PlayStage, yard: Yard, verdict: Verdict) -> Run:
    """Let a person decide on a start whose end nobody knows; return what became of the run."""
    killed_while_it_runs(stage, yard)
    os.kill(supervisor_of(yard), signal.SIGKILL)
    (yard.root / "go").touch()
    until_settled(stage)
    case = control.show(stage.parts(), stage.run_id).run.case
    assert case is not None
    inbox = MemoryInbox()
    inbox.put(stage.run_id, decide(case, verdict, stage.run_id, WAITING_TASK.id))
    stage.wait()
    until_settled(stage, inbox=inbox, roots=roots(RITA))
    return control.show(stage.parts(), stage.run_id).run


def test_after_a_decision_to_plan_anew_it_is_given_under_another_key(yard: Yard) -> None:
    stage = stage_of(yard)
    run = decided(stage, yard, Verdict.REPLAN)
    assert (run.cursor, yard.effects) == (1, ["run", "run"])
    stage.close()


def test_after_a_person_confirmed_its_effect_it_is_not_given_again(yard: Yard) -> None:
    stage = stage_of(yard)
    run = decided(stage, yard, Verdict.CONFIRM_DONE)
    assert (run.cursor, run.pending, yard.effects) == (1, None, ["run"])
    stage.close()


def test_a_repeatable_command_whose_end_nobody_knows_is_given_again(yard: Yard) -> None:
    yard.commands = (waiting(is_repeatable=True),)
    stage = stage_of(yard)
    killed_while_it_runs(stage, yard)
    os.kill(supervisor_of(yard), signal.SIGKILL)
    (yard.root / "go").touch()
    assert until_settled(stage) is False
    assert yard.effects == ["run", "run"]
    stage.close()


def test_another_actor_between_the_look_and_the_command_stops_it(tmp_path: Path) -> None:
    yard = Yard(tmp_path / "yard")

    def disturbed(run: Session) -> None:
        yard.disturb()
        release(run)

    with shell_stage(Backend(), tmp_path, program=disturbed, yard=yard) as stage:
        with pytest.raises(StaleObservationError):
            stage.work(stage.parts())
        assert yard.effects == []


def test_another_runs_command_between_the_look_and_the_command_stops_it(tmp_path: Path) -> None:
    yard = Yard(tmp_path / "yard")

    def overtaken(run: Session) -> None:
        do(
            yard.open(),
            yard.scope,
            "note",
            run_id=RunId("theirs"),
            key=Key("theirs"),
            text="theirs",
        )
        release(run)

    with shell_stage(Backend(), tmp_path, program=overtaken, yard=yard) as stage:
        with pytest.raises(StaleObservationError):
            stage.work(stage.parts())
        assert yard.effects == ["theirs"]


def test_a_worker_that_dies_after_a_command_repeats_nothing(tmp_path: Path) -> None:
    backend = Backend()
    with shell_stage(backend, tmp_path) as stage:
        rehearsal = Fate()
        stage.work(mortal(stage.parts(), rehearsal))
        at = rehearsal.calls.index("adapter.execute")
    with shell_stage(backend, tmp_path) as stage:
        with pytest.raises(Died):
            stage.work(mortal(stage.parts(), Fate(Death(at=at, is_after=True))))
        stage.wait()
        stage.work(stage.parts())
        assert stage.effects() == ("first", "second")
