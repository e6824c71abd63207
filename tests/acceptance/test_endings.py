"""Acceptance list, section I: completion is proved, and an end is an end."""

import pytest
from msgspec.structs import replace

from counterfoil.core.errors import TerminalError, VerificationError
from counterfoil.core.run import Phase, verified_version
from counterfoil.core.trace import Outcome
from tests.support.scenes import (
    EFFECTS,
    Scene,
    check,
    counts,
    events,
    last,
    memory_scene,
    outcomes,
    read,
    written,
)


def _complete(scene: Scene) -> None:
    with scene.run() as run:
        written(run)
        run.propose(check(run))
        run.finish()


@pytest.mark.parametrize("phase", [pytest.param(Phase.RUNNING, id="acc-097")])
def test_a_run_cannot_finish_before_it_is_verified(phase: Phase) -> None:
    run = memory_scene().run()
    written(run)
    with pytest.raises(VerificationError):
        run.finish()
    assert run.state.phase is phase


@pytest.mark.parametrize("passed", [pytest.param(False, id="acc-098")])
def test_a_failed_verification_is_no_evidence(passed: bool) -> None:
    run = memory_scene().run()
    result = run.propose(check(run)).result
    with pytest.raises(VerificationError):
        run.finish()
    assert (result["passed"], events(run)[1].passed, run.state.evidence) == (passed, passed, None)


@pytest.mark.parametrize("evidence", [pytest.param(None, id="acc-099")])
def test_a_later_write_withdraws_the_evidence(evidence: None) -> None:
    run = memory_scene().run()
    written(run)
    run.propose(check(run))
    written(run, EFFECTS, key="key-2")
    assert run.state.evidence == evidence
    with pytest.raises(VerificationError):
        run.finish()


def test_a_later_failure_withdraws_the_evidence() -> None:
    scene = memory_scene()
    run = scene.run()
    written(run)
    run.propose(check(run))
    scene.world.tamper("app.py", EFFECTS)
    run.propose(check(run))
    with pytest.raises(VerificationError):
        run.finish()


def test_a_final_state_that_is_not_the_expected_one_is_no_completion() -> None:
    scene = memory_scene()
    run = scene.run()
    written(run)
    scene.world.tamper("README.md", "Something else.\n")
    run.propose(check(run))
    with pytest.raises(VerificationError, match=r"sandbox\.README\.md"):
        run.finish()


@pytest.mark.parametrize("phase", [pytest.param(Phase.CANCELLED, id="acc-100")])
def test_a_cancelled_run_cannot_finish(phase: Phase) -> None:
    run = memory_scene().run()
    run.cancel("no longer wanted")
    with pytest.raises(TerminalError):
        run.finish()
    assert (run.state.phase, run.state.reason, last(run)) == (
        phase,
        "no longer wanted",
        Outcome.CANCELLED,
    )


@pytest.mark.parametrize("phase", [pytest.param(Phase.COMPLETED, id="acc-101")])
def test_a_completed_run_reads_nothing(phase: Phase) -> None:
    scene = memory_scene()
    _complete(scene)
    run = scene.run()
    with pytest.raises(TerminalError):
        run.propose(read(run))
    assert run.state.phase is phase


@pytest.mark.parametrize("phase", [pytest.param(Phase.COMPLETED, id="acc-102")])
def test_a_completed_run_is_still_verified_when_it_is_opened_again(phase: Phase) -> None:
    scene = memory_scene()
    _complete(scene)
    run = scene.run()
    assert (run.state.phase, verified_version(run.state, "sandbox")) == (phase, scene.world.version)


@pytest.mark.parametrize("reason", [pytest.param("verified_outcome", id="acc-103")])
def test_the_lesson_is_four_proposals_and_five_events(reason: str) -> None:
    scene = memory_scene()
    with scene.run() as run:
        run.propose(read(run))
        written(run)
        run.propose(check(run))
        run.finish()
    assert (run.state.phase, run.state.reason) == (Phase.COMPLETED, reason)
    assert (scene.world.version, scene.world.write_count, counts(run)) == (1, 1, (4, 4))
    assert outcomes(run) == [
        Outcome.OPENED,
        Outcome.READ,
        Outcome.PENDING,
        Outcome.EXECUTED,
        Outcome.VERIFIED,
        Outcome.FINISHED,
    ]


def test_a_task_without_a_verifier_cannot_finish() -> None:
    scene = memory_scene()
    scene.task = replace(scene.task, verifier=None)
    run = scene.run()
    with pytest.raises(VerificationError):
        run.verify()
    with pytest.raises(VerificationError):
        run.finish()
