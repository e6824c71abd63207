"""Acceptance list, sections B and C: what an action must be, and what a run may do."""

import json
from collections.abc import Callable

import pytest

from counterfoil.core.errors import (
    ContractError,
    CounterfoilError,
    IdempotencyConflictError,
    PermissionDeniedError,
    StaleObservationError,
)
from counterfoil.core.intent import Action
from counterfoil.core.trace import Outcome
from counterfoil.engine.session import Session
from tests.support.scenes import (
    EFFECTS,
    SOUND,
    act,
    check,
    counts,
    last,
    lesson_task,
    memory_scene,
    read,
    write,
    written,
)

Propose = Callable[[Session], Action | str]


def _json(**fields: object) -> str:
    whole = {"kind": "read_file", "arguments": {"path": "app.py"}, "preconditions": {"version": 0}}
    return json.dumps(whole | fields)


@pytest.mark.parametrize(
    "propose",
    [
        pytest.param(lambda run: act(run, "fly"), id="acc-012 an unknown kind"),
        pytest.param(lambda run: _json(priority=1), id="acc-013 an unknown field"),
        pytest.param(lambda run: act(run, "read_file"), id="acc-014 a read without its path"),
        pytest.param(
            lambda run: act(run, "read_file", path="app.py", mode="rb"),
            id="acc-015 a read with an extra argument",
        ),
        pytest.param(
            lambda run: act(run, "write_file", path="app.py", content=SOUND),
            id="acc-016 a write without a key",
        ),
        pytest.param(lambda run: read(run, key="key-1"), id="acc-017 a read with a key"),
        pytest.param(
            lambda run: Action(kind="read_file", arguments={"path": "app.py"}, preconditions={}),
            id="acc-020 empty preconditions",
        ),
        pytest.param(
            lambda run: _json(risk="irreversible_write"), id="acc-021 another risk than the kind's"
        ),
        pytest.param(
            lambda run: json.dumps({"arguments": {}, "preconditions": {"version": 0}}),
            id="acc-064 a required field is missing",
        ),
        pytest.param(lambda run: "{", id="no JSON"),
        pytest.param(lambda run: _json(action_id="a1"), id="acc-023 an action names its own id"),
        pytest.param(lambda run: _json(approval={}), id="an action brings an approval"),
    ],
)
def test_it_is_no_action(propose: Propose) -> None:
    scene = memory_scene()
    run = scene.run()
    with pytest.raises(ContractError):
        run.propose(propose(run))
    assert (counts(run), last(run)) == ((1, 0), Outcome.CONTRACT_REJECTED)
    assert scene.world.write_count == 0


@pytest.mark.parametrize("version", [pytest.param(1, id="acc-019")])
def test_an_action_on_a_version_that_is_not_there_is_stale(version: int) -> None:
    run = memory_scene().run()
    with pytest.raises(StaleObservationError):
        run.propose(read(run, version=version))
    assert (counts(run), last(run)) == ((1, 0), Outcome.STALE_OBSERVATION)


@pytest.mark.parametrize("deadline", [pytest.param(1, id="acc-022")])
def test_an_action_after_its_deadline_is_refused(deadline: int) -> None:
    run = memory_scene().run()
    run.propose(read(run))
    late = Action(
        kind="read_file",
        arguments={"path": "app.py"},
        preconditions={"version": 0},
        deadline=deadline,
    )
    with pytest.raises(ContractError):
        run.propose(late)
    assert (counts(run), last(run)) == ((2, 1), Outcome.CONTRACT_REJECTED)


@pytest.mark.parametrize(
    ("content", "replayed"),
    [
        pytest.param(SOUND, True, id="acc-023 the same intent is replayed"),
        pytest.param(EFFECTS, False, id="acc-023 another intent is refused"),
    ],
)
def test_an_executed_action_is_not_executed_again(content: str, replayed: bool) -> None:
    scene = memory_scene()
    run = scene.run()
    written(run)
    try:
        answer = run.propose(write(run, content)).replayed
    except IdempotencyConflictError:
        answer = False
    assert (answer, scene.world.write_count, scene.world.files["app.py"]) == (replayed, 1, SOUND)


@pytest.mark.parametrize("pending", [pytest.param(Outcome.PENDING, id="acc-024")])
def test_nothing_else_is_judged_while_a_write_is_pending(pending: Outcome) -> None:
    run = memory_scene().run()
    first = run.propose(write(run)).outcome
    with pytest.raises(ContractError):
        run.propose(read(run))
    assert (first, counts(run), last(run)) == (pending, (2, 1), Outcome.CONTRACT_REJECTED)


# ---------------------------------------------------------------- what the policy grants

READ, WRITE, TEST = "workspace.read", "workspace.write", "tests.run"


def _without(permission: str) -> tuple[str, ...]:
    return tuple(each for each in (READ, WRITE, TEST) if each != permission)


@pytest.mark.parametrize(
    ("permissions", "propose"),
    [
        pytest.param(
            (READ, WRITE, TEST),
            lambda run: act(run, "write_file", key="k", path="etc/passwd", content=""),
            id="acc-018 a path outside the scope",
        ),
        pytest.param(_without(WRITE), write, id="acc-025 a write without its permission"),
        pytest.param(_without(READ), read, id="acc-026 a read without its permission"),
        pytest.param(_without(TEST), check, id="acc-027 a test without its permission"),
        pytest.param(
            (READ, WRITE, TEST),
            lambda run: check(run, "load"),
            id="acc-028 a target that is not listed",
        ),
        pytest.param((), read, id="acc-065 no permission at all"),
    ],
)
def test_it_is_not_permitted(permissions: tuple[str, ...], propose: Propose) -> None:
    scene = memory_scene(lesson_task(permissions=permissions))
    run = scene.run()
    with pytest.raises(PermissionDeniedError):
        run.propose(propose(run))
    assert (counts(run), last(run)) == ((1, 0), Outcome.PERMISSION_DENIED)
    assert scene.world.write_count == 0


@pytest.mark.parametrize("target", [pytest.param("unit", id="acc-029")])
def test_an_allowed_target_is_tested_and_the_broken_file_fails(target: str) -> None:
    run = memory_scene().run()
    result = run.propose(check(run, target)).result
    assert (result["target"], result["passed"]) == (target, False)


def test_a_refusal_names_the_run_and_the_next_move() -> None:
    run = memory_scene().run()
    with pytest.raises(CounterfoilError, match=r"run run-1.*; correct the named field"):
        run.propose(act(run, "fly"))
