"""Acceptance list, sections H and J: what a worker finds after the last one died.

Each row runs over stores in memory and in SQLite, and in a real folder.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from counterfoil.core.errors import (
    ConfigError,
    FencedError,
    FrozenError,
    LeaseLostError,
    LostRaceError,
    RefusedError,
    StaleObservationError,
    UnavailableError,
    VerificationError,
)
from counterfoil.core.receipt import LookUp, Receipt
from counterfoil.core.run import Phase
from counterfoil.core.task import Budgets
from counterfoil.core.trace import Outcome
from counterfoil.core.words import Key, RunId
from counterfoil.engine.session import Session
from counterfoil.keeper import Keeper
from counterfoil.ports import Adapter, Head, Operation
from counterfoil.testing.saboteur_adapters import Passing
from counterfoil.testing.saboteur_heads import Passing as PassingHeads
from tests.support.scenes import (
    EFFECTS,
    RUN_ID,
    SOUND,
    DiesAfterTheCall,
    DiesBeforeTheCall,
    Killed,
    Scene,
    check,
    counts,
    events,
    files_scene,
    last,
    lesson_task,
    memory_scene,
    outcomes,
    read,
    sqlite_scene,
    write,
)

SCENES: dict[str, Callable[[Path], Scene]] = {
    "memory": lambda _: memory_scene(),
    "sqlite": sqlite_scene,
    "files": files_scene,
}


@pytest.fixture
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    made = SCENES[request.param](tmp_path)
    yield made
    made.close()


def everywhere(row: str) -> Any:
    """Run a test in every scene, under the row's number."""
    return pytest.mark.parametrize(
        "scene", [pytest.param(name, id=f"{row} {name}") for name in SCENES], indirect=True
    )


def in_sandbox(row: str) -> Any:
    """Run a test where the world has a verification."""
    names = ("memory", "sqlite")
    return pytest.mark.parametrize(
        "scene", [pytest.param(name, id=f"{row} {name}") for name in names], indirect=True
    )


def _die(scene: Scene, wrap: Callable[[Adapter], Adapter], content: str = SOUND) -> Session:
    """Let a worker die while its write is pending, and return what it held."""
    run = scene.run(wrap=wrap)
    run.propose(write(run, content))
    with pytest.raises(Killed):
        run.settle()
    return run


# ---------------------------------------------------------------- the effect is there


@everywhere("acc-081")
def test_an_effect_that_was_not_recorded_is_adopted(scene: Scene) -> None:
    _die(scene, DiesAfterTheCall)
    run = scene.run()
    settled = run.settle()
    assert settled is not None
    assert (settled.outcome, last(run)) == (Outcome.RECONCILED, Outcome.RECONCILED)
    assert (scene.world.write_count, run.state.pending, run.state.writes) == (1, None, 1)


@everywhere("acc-081 with a lost answer")
def test_an_effect_whose_answer_was_lost_is_adopted_by_the_same_worker(scene: Scene) -> None:
    run = scene.run()
    run.propose(write(run))
    scene.world.lose_next_answer()
    settled = run.settle()
    assert settled is not None
    assert (settled.outcome, scene.world.write_count) == (Outcome.RECONCILED, 1)


@in_sandbox("acc-096")
def test_a_recovered_run_goes_on_to_its_end(scene: Scene) -> None:
    _die(scene, DiesAfterTheCall)
    with scene.run() as run:
        run.settle()
        run.propose(check(run))
        run.finish()
    assert (run.state.phase, scene.world.write_count) == (Phase.COMPLETED, 1)


class Listening(Passing):
    """Writes down which questions come, in order."""

    def __init__(self, inner: Adapter) -> None:
        super().__init__(inner)
        self.heard: list[str] = []

    def look_up(self, run_id: RunId, key: Key, kind: str) -> LookUp:
        self.heard.append("look up")
        return super().look_up(run_id, key, kind)

    def execute(self, operation: Operation) -> Receipt:
        self.heard.append("execute")
        return super().execute(operation)


@everywhere("acc-A7")
def test_a_new_worker_asks_before_it_acts(scene: Scene) -> None:
    _die(scene, DiesAfterTheCall)
    ears: list[Listening] = []

    def listen(inner: Adapter) -> Adapter:
        ears.append(Listening(inner))
        return ears[-1]

    run = scene.run(wrap=listen)
    run.settle()
    assert (ears[0].heard, run.state.pending, scene.world.write_count) == (["look up"], None, 1)


@everywhere("acc-A8")
def test_another_actors_write_after_ours_is_recorded_beside_it(scene: Scene) -> None:
    _die(scene, DiesAfterTheCall)
    scene.world.other_actor_writes("README.md", "theirs")
    run = scene.run()
    settled = run.settle()
    assert settled is not None
    assert outcomes(run)[-2:] == [Outcome.RECONCILED, Outcome.OBSERVED]
    ours, theirs = settled.receipt.poststate, events(run)[-1].environments[0]
    assert (ours != theirs, run.state.environments) == (True, (theirs,))
    assert scene.world.files == {"app.py": SOUND, "README.md": "theirs"}


@in_sandbox("acc-A8 and evidence")
def test_evidence_from_before_another_actors_write_does_not_count(scene: Scene) -> None:
    run = scene.run()
    run.propose(write(run))
    run.settle()
    run.propose(check(run))
    scene.world.other_actor_writes("README.md", "theirs")
    with pytest.raises(RefusedError):
        run.finish()
    run.observe()
    assert run.state.evidence is None
    with pytest.raises(VerificationError):
        run.finish()


# ---------------------------------------------------------------- the effect is not there


@everywhere("acc-083")
def test_a_call_that_never_left_is_sent_once(scene: Scene) -> None:
    _die(scene, DiesBeforeTheCall)
    run = scene.run()
    settled = run.settle()
    assert settled is not None
    assert (settled.outcome, settled.receipt.replayed) == (Outcome.EXECUTED, False)
    assert (scene.world.write_count, run.state.pending) == (1, None)


@everywhere("acc-083 and dies again")
def test_a_worker_that_dies_while_recovering_leaves_it_to_the_next(scene: Scene) -> None:
    _die(scene, DiesBeforeTheCall)
    for dies, sent in ((DiesBeforeTheCall, 0), (DiesAfterTheCall, 1)):
        run = scene.run(wrap=dies)
        with pytest.raises(Killed):
            run.settle()
        assert scene.world.write_count == sent
    run = scene.run()
    settled = run.settle()
    assert settled is not None
    assert (settled.outcome, scene.world.write_count) == (Outcome.RECONCILED, 1)


@everywhere("acc-093 in one session")
def test_a_write_on_a_world_that_moved_is_given_up(scene: Scene) -> None:
    run = scene.run()
    run.propose(write(run))
    scene.world.other_actor_writes("app.py", "theirs")
    with pytest.raises(StaleObservationError):
        run.settle()
    assert (last(run), run.state.pending) == (Outcome.STALE_OBSERVATION, None)
    assert scene.world.write_count == 0


@everywhere("acc-093 after a crash")
def test_a_pending_write_on_a_world_that_moved_is_given_up(scene: Scene) -> None:
    _die(scene, DiesBeforeTheCall)
    scene.world.other_actor_writes("README.md", "theirs")
    run = scene.run()
    with pytest.raises(StaleObservationError):
        run.settle()
    assert (last(run), run.state.pending) == (Outcome.STALE_OBSERVATION, None)
    assert (scene.world.write_count, run.state.phase) == (0, Phase.RUNNING)


@everywhere("acc-094")
def test_a_write_on_content_that_drifted_is_given_up(scene: Scene) -> None:
    run = scene.run()
    run.propose(write(run))
    scene.world.tamper("app.py", EFFECTS)
    with pytest.raises(StaleObservationError):
        run.settle()
    assert (scene.world.write_count, run.state.pending) == (0, None)
    assert scene.world.files["app.py"] == EFFECTS


@everywhere("acc-095")
def test_a_pending_write_on_content_that_drifted_is_given_up(scene: Scene) -> None:
    _die(scene, DiesBeforeTheCall)
    scene.world.tamper("app.py", EFFECTS)
    run = scene.run()
    with pytest.raises(StaleObservationError):
        run.settle()
    assert (scene.world.write_count, run.state.pending) == (0, None)
    assert scene.world.files["app.py"] == EFFECTS


@everywhere("acc-095 and plans anew")
def test_a_write_that_was_given_up_can_be_planned_anew(scene: Scene) -> None:
    _die(scene, DiesBeforeTheCall)
    scene.world.other_actor_writes("README.md", "theirs")
    run = scene.run()
    with pytest.raises(StaleObservationError):
        run.settle()
    run.propose(write(run, key="key-2"))
    settled = run.settle()
    assert settled is not None
    assert (settled.outcome, scene.world.files["app.py"]) == (Outcome.EXECUTED, SOUND)


@in_sandbox("acc-095 without anything pending")
def test_content_that_drifted_under_its_version_freezes_a_run(scene: Scene) -> None:
    with scene.run() as run:
        run.propose(read(run))
    scene.world.tamper("app.py", EFFECTS)
    again = scene.run()
    with pytest.raises(FrozenError):
        again.propose(read(again))
    assert again.state.phase is Phase.NEEDS_REVIEW


# ---------------------------------------------------------------- two hands


@everywhere("acc-A10 while the lease stands")
def test_a_second_worker_waits_for_the_lease(scene: Scene) -> None:
    run = scene.run()
    with pytest.raises(LeaseLostError):
        scene.keeper(owner="second").run(scene.task, RUN_ID)
    run.propose(write(run))
    run.settle()
    assert scene.world.write_count == 1


@everywhere("acc-A10 after it was taken over")
def test_the_first_worker_cannot_act_after_it_was_followed(scene: Scene) -> None:
    former = scene.run()
    former.propose(write(former))
    present = scene.run()
    with pytest.raises(LostRaceError):
        former.settle()
    assert scene.world.write_count == 0
    present.settle()
    assert scene.world.write_count == 1
    with pytest.raises(LostRaceError):
        former.propose(read(former))


@everywhere("acc-A10 at one generation")
def test_one_of_two_workers_at_one_generation_wins(scene: Scene) -> None:
    with scene.run() as run:
        run.propose(read(run))
    head = scene.heads().read(RunId(RUN_ID))
    assert head is not None
    first, second = scene.parts(), scene.parts()
    won = first.heads.acquire(head, "first", "nonce-1", 30_000)
    with pytest.raises(LostRaceError):
        second.heads.acquire(head, "second", "nonce-2", 30_000)
    assert scene.heads().read(RunId(RUN_ID)) == won


@everywhere("acc-A10 at the start")
def test_a_run_that_another_creates_and_moves_meanwhile_raises_no_alarm(scene: Scene) -> None:
    class SeenLate(PassingHeads):
        was_read = False

        def read(self, run_id: RunId) -> Head | None:
            found = super().read(run_id)
            if not self.was_read:
                self.was_read = True
                run = scene.run()
                run.propose(read(run))
            return found

    parts = scene.parts(owner="slow")
    slow = Keeper(replace(parts, heads=SeenLate(parts.heads, scene.clock.now_ms)))
    with pytest.raises(LeaseLostError):
        slow.run(scene.task, RUN_ID)


@everywhere("acc-A10 at the target")
def test_a_late_call_of_a_former_worker_is_fenced_off(scene: Scene) -> None:
    late: list[Callable[[], object]] = []

    class Sleeps(Passing):
        def execute(self, operation: Operation) -> Receipt:
            if operation.key:
                late.append(lambda: self.inner.execute(operation))
                raise Killed
            return super().execute(operation)

    _die(scene, Sleeps)
    scene.run()
    with pytest.raises(FencedError):
        late[0]()
    assert scene.world.write_count == 0


# ---------------------------------------------------------------- budgets


@everywhere("acc-A13")
def test_no_crash_refunds_a_budget(scene: Scene) -> None:
    with scene.run() as run:
        run.propose(read(run))
    before = counts(_die(scene, DiesBeforeTheCall))
    recovering = scene.run(wrap=DiesBeforeTheCall)
    with pytest.raises(Killed):
        recovering.settle()
    run = scene.run()
    run.settle()
    assert (before, counts(run)) == ((2, 2), (2, 2))


@in_sandbox("acc-A14")
def test_the_last_step_is_counted_once_and_the_run_can_finish(scene: Scene) -> None:
    scene.task = lesson_task(budgets=Budgets(proposals=5, steps=1))
    _die(scene, DiesAfterTheCall)
    with scene.run() as run:
        run.settle()
        assert (counts(run), run.state.phase) == ((1, 1), Phase.RUNNING)
        run.propose(check(run))
        run.finish()
    assert (run.state.phase, scene.world.write_count) == (Phase.COMPLETED, 1)


@in_sandbox("acc-A14 the last proposal")
def test_a_run_whose_last_proposal_is_pending_ends_once_it_is_settled(scene: Scene) -> None:
    scene.task = lesson_task(budgets=Budgets(proposals=1, steps=1))
    _die(scene, DiesAfterTheCall)
    run = scene.run()
    settled = run.settle()
    assert settled is not None
    assert (settled.outcome, run.state.phase) == (Outcome.RECONCILED, Phase.FAILED)
    assert (run.state.reason, scene.world.write_count) == ("proposal_budget_exhausted", 1)


# ---------------------------------------------------------------- no world, no recovery


@everywhere("acc-A21")
def test_a_run_is_not_recovered_without_its_world(scene: Scene) -> None:
    _die(scene, DiesAfterTheCall)
    head = scene.heads().read(RunId(RUN_ID))
    scene.world.cut_off()
    with pytest.raises((UnavailableError, ConfigError)):
        scene.run()
    after = scene.heads().read(RunId(RUN_ID))
    assert head is not None
    assert after is not None
    assert (after.generation, after.checkpoint) == (head.generation, head.checkpoint)
    scene.world.reconnect()
    run = scene.run()
    run.settle()
    assert (scene.world.write_count, run.state.pending) == (1, None)
