"""The sandbox: its shipped scenario, its faults, and what its levels do with late calls."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from counterfoil.adapters.sandbox import SandboxAdapter, World, lesson, load_scenario
from counterfoil.core.errors import (
    ContractError,
    CounterfoilError,
    FencedError,
    IdempotencyConflictError,
    RefusedError,
    StaleObservationError,
    UnavailableError,
)
from counterfoil.core.intent import Intent, intent_digest
from counterfoil.core.receipt import Answer, Fence, Receipt, Served
from counterfoil.core.words import Digest, Key, Level, RunId
from counterfoil.ports import Operation

RUN = RunId("run-1")
OTHER_RUN = RunId("run-2")
KEY = Key("key-1")
FIRST = Fence(lease_version=1, nonce="first")
SECOND = Fence(lease_version=2, nonce="second")
NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


def _write(
    adapter: SandboxAdapter,
    content: str = "sound",
    *,
    run_id: RunId = RUN,
    key: Key = KEY,
    fence: Fence = FIRST,
) -> Operation:
    arguments = {"path": "app.py", "content": content}
    state = adapter.observe({}).state
    spec = next(spec for spec in adapter.kinds if spec.name == "write_file")
    intent = Intent(
        adapter=adapter.name,
        kind=spec.name,
        arguments=arguments,
        risk=spec.risk,
        target=state.instance,
    )
    return Operation(
        run_id=run_id,
        kind=spec.name,
        arguments=arguments,
        key=key,
        digest=intent_digest(intent),
        fence=fence,
        served=Served(generation=1, checkpoint=Digest("1" * 64)),
        prestate=state,
        scope={},
        timeout_ms=1_000,
    )


def _world(now_ms: Callable[[], int] = lambda: NOW_MS) -> World:
    return World({"app.py": "broken"}, tests={"unit": {"app.py": "sound"}}, now_ms=now_ms)


# ---------------------------------------------------------------- the scenario


@pytest.mark.parametrize("targets", [pytest.param(("unit",), id="acc-001 the shipped scenario")])
def test_the_lesson_declares_one_target_and_room_for_refusals(targets: tuple[str, ...]) -> None:
    task, world = load_scenario(lesson())
    assert (task.id, task.version, task.policy.version) == ("repair-app", "1", "1")
    assert (task.policy.scope["sandbox"]["targets"], world.targets) == (targets, targets)
    assert task.budgets.proposals > task.budgets.steps


def test_the_lesson_starts_broken_and_expects_what_its_test_wants() -> None:
    task, world = load_scenario(lesson())
    adapter = SandboxAdapter(world)
    broken = world.files["app.py"]
    expected = task.verifier.expected["sandbox"] if task.verifier else {}
    for path, content in expected.items():
        world.tamper(path, content)
    assert (broken == expected["app.py"], adapter.observe({}).facts) == (False, expected)


def _changed(change: Callable[[dict[str, Any]], None]) -> str:
    scenario = json.loads(lesson())
    change(scenario)
    return json.dumps(scenario)


def _put(*path: str, value: object) -> str:
    def change(scenario: dict[str, Any]) -> None:
        *parents, last = path
        place = scenario
        for name in parents:
            place = place[name]
        place[last] = value

    return _changed(change)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param('{"id": "a", "id": "b"}', id="acc-002 a member is named twice"),
        pytest.param(lesson().replace("20", "NaN"), id="acc-003 NaN is no number"),
        pytest.param(_put("priority", value=1), id="acc-004 an unknown field"),
        pytest.param(_put("budgets", "steps", value=True), id="acc-005 true is no count"),
        pytest.param(
            _put("policy", "scope", "sandbox", "paths", value=["../app.py"]),
            id="acc-006 a path climbs out",
        ),
        pytest.param(
            _put("policy", "scope", "sandbox", "paths", value=["src//app.py"]),
            id="acc-007 a slash is doubled",
        ),
        pytest.param(
            _put("policy", "permissions", value=["workspace.read", "workspace.fly"]),
            id="acc-008 an unknown capability",
        ),
        pytest.param(
            _put("budgets", "proposals", value=9), id="acc-009 fewer proposals than steps"
        ),
        pytest.param(
            _put("policy", "scope", "sandbox", "targets", value=["unit", "unit"]),
            id="acc-010 a target is listed twice",
        ),
        pytest.param(
            _put("verifier", "expected", "sandbox", value={"etc/passwd": "x"}),
            id="acc-011 an expected file is outside the allowed paths",
        ),
        pytest.param(
            _put("initial", "sandbox", "tests", value={"unit": {"secret.py": "x"}}),
            id="a test wants a file outside the allowed paths",
        ),
        pytest.param(
            _put("policy", "scope", "sandbox", "targets", value=["unit", "load"]),
            id="an allowed target has no test",
        ),
        pytest.param(_put("initial", value={}), id="the world is missing"),
        pytest.param(_put("initial", "other", value={}), id="another world is described"),
        pytest.param(
            _put("initial", "sandbox", "files", value={"app.py": 1}), id="a file is no text"
        ),
        pytest.param(
            _put("initial", "sandbox", "files", value={"/app.py": ""}), id="a file has no place"
        ),
        pytest.param(
            _put("verifier", "expected", value={"files": {}}), id="another adapter is expected"
        ),
        pytest.param(
            _put("verifier", "expected", "sandbox", value={"app.py": 1}),
            id="an expected file is no text",
        ),
        pytest.param(_put("verifier", "kind", value="write_file"), id="a write verifies"),
        pytest.param(_put("verifier", "arguments", value={}), id="the verification lacks a target"),
    ],
)
def test_a_scenario_is_refused_when(text: str) -> None:
    with pytest.raises(ContractError):
        load_scenario(text)


# ---------------------------------------------------------------- reading and testing


def _ask(adapter: SandboxAdapter, kind: str, arguments: Mapping[str, str]) -> Receipt:
    write = _write(adapter)
    return adapter.execute(
        Operation(
            run_id=RUN,
            kind=kind,
            arguments=dict(arguments),
            key=Key(""),
            digest=write.digest,
            fence=FIRST,
            served=None,
            prestate=write.prestate,
            scope={},
            timeout_ms=1_000,
        )
    )


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param("broken", {"target": "unit", "passed": False, "differs": ["app.py"]}, id="no"),
        pytest.param("sound", {"target": "unit", "passed": True, "differs": []}, id="yes"),
    ],
)
def test_a_test_passes_when_the_files_are_as_it_wants(
    content: str, expected: dict[str, Any]
) -> None:
    adapter = SandboxAdapter(_world())
    adapter.execute(_write(adapter, content))
    assert _ask(adapter, "run_tests", {"target": "unit"}).result == expected


def test_a_target_without_a_test_does_not_pass() -> None:
    adapter = SandboxAdapter(_world())
    assert _ask(adapter, "run_tests", {"target": "load"}).result["passed"] is False


@pytest.mark.parametrize(
    ("path", "content"),
    [
        pytest.param("app.py", "broken", id="a file"),
        pytest.param("gone.py", None, id="no file"),
    ],
)
def test_a_read_shows_the_content(path: str, content: str | None) -> None:
    adapter = SandboxAdapter(_world())
    result = _ask(adapter, "read_file", {"path": path}).result
    assert result == {"path": path, "content": content}


def test_an_unknown_kind_is_refused() -> None:
    adapter = SandboxAdapter(_world())
    with pytest.raises(ContractError):
        _ask(adapter, "format_disk", {})


# ---------------------------------------------------------------- keys of other runs


@pytest.mark.parametrize(
    "level", [Level.TRANSACTIONAL, Level.DEDUPLICATING], ids="acc-A23 T18 {}".format
)
def test_the_key_of_another_run_is_a_conflict(level: Level) -> None:
    world = _world()
    adapter = SandboxAdapter(world, level=level)
    adapter.execute(_write(adapter))
    with pytest.raises(IdempotencyConflictError):
        adapter.execute(_write(adapter, run_id=OTHER_RUN))
    answer = adapter.look_up(OTHER_RUN, KEY, "write_file")
    assert (answer.answer, world.write_count) == (Answer.FOUND_OTHER, 1)


@pytest.mark.parametrize(
    "level", [Level.TRANSACTIONAL, Level.DEDUPLICATING], ids="acc-A23 {}".format
)
def test_a_key_that_is_declared_shared_is_one_effect_for_all_runs(level: Level) -> None:
    world = _world()
    adapter = SandboxAdapter(world, level=level, shared_keys=True)
    first = adapter.execute(_write(adapter))
    theirs = adapter.execute(_write(adapter, run_id=OTHER_RUN))
    assert (theirs.id, theirs.run_id, theirs.replayed) == (first.id, OTHER_RUN, True)
    assert world.write_count == 1


# ---------------------------------------------------------------- what goes wrong


@pytest.mark.parametrize("level", Level)
def test_a_lost_answer_leaves_its_effect(level: Level) -> None:
    world = _world()
    adapter = SandboxAdapter(world, level=level)
    world.lose_next_answer()
    with pytest.raises(ConnectionError):
        adapter.execute(_write(adapter))
    assert [effect.content for effect in world.effects] == ["sound"]


def test_a_refusal_can_be_lost_too() -> None:
    world = _world()
    adapter = SandboxAdapter(world)
    stale = _write(adapter)
    world.other_actor_writes("app.py", "theirs")
    world.lose_next_answer()
    with pytest.raises(ConnectionError):
        adapter.execute(stale)
    assert world.write_count == 0


def test_a_call_that_fails_at_the_door_does_nothing() -> None:
    world = _world()
    adapter = SandboxAdapter(world)
    world.fail_before_next()
    with pytest.raises(UnavailableError):
        adapter.execute(_write(adapter))
    assert (world.version, adapter.execute(_write(adapter)).poststate.version) == (0, 1)


def _late(level: Level) -> tuple[World, SandboxAdapter]:
    """Return a world with one call under way that its caller has given up."""
    world = _world()
    adapter = SandboxAdapter(world, level=level)
    world.delay_next()
    with pytest.raises(TimeoutError):
        adapter.execute(_write(adapter))
    return world, adapter


@pytest.mark.parametrize(
    ("level", "effects"),
    [
        (Level.TRANSACTIONAL, 1),
        (Level.DEDUPLICATING, 1),
        (Level.CONDITIONAL, 1),
        (Level.QUERYABLE, 2),
        (Level.BLIND, 2),
    ],
)
def test_a_late_call_meets_the_second_one(level: Level, effects: int) -> None:
    world, adapter = _late(level)
    adapter.execute(_write(adapter))
    world.land_delayed()
    assert world.write_count == effects


@pytest.mark.parametrize(
    ("level", "heard"),
    [
        (Level.TRANSACTIONAL, FencedError),
        (Level.DEDUPLICATING, Receipt),
        (Level.CONDITIONAL, FencedError),
        (Level.QUERYABLE, Receipt),
        (Level.BLIND, Receipt),
    ],
)
def test_a_late_call_meets_a_newer_lease(level: Level, heard: type[object]) -> None:
    world, adapter = _late(level)
    adapter.take(RUN, SECOND)
    assert [type(answer) for answer in world.land_delayed()] == [heard]


def test_a_late_call_meets_a_forbidden_key() -> None:
    world, adapter = _late(Level.TRANSACTIONAL)
    adapter.forbid(RUN, KEY, "write_file", FIRST)
    assert ([type(answer) for answer in world.land_delayed()], world.write_count) == (
        [RefusedError],
        0,
    )


def test_a_late_call_lands_once() -> None:
    world, _ = _late(Level.BLIND)
    assert (len(world.land_delayed()), world.land_delayed(), world.write_count) == (1, (), 1)


@pytest.mark.parametrize("level", Level, ids="T20 {}".format)
def test_a_look_up_without_an_answer_is_unknown(level: Level) -> None:
    world = _world()
    adapter = SandboxAdapter(world, level=level)
    adapter.execute(_write(adapter))
    world.cut_off()
    assert adapter.look_up(RUN, KEY, "write_file").answer is Answer.UNKNOWN


def test_a_world_that_is_cut_off_comes_back_as_it_was() -> None:
    world = _world()
    adapter = SandboxAdapter(world)
    before = adapter.observe({})
    world.cut_off()
    with pytest.raises(UnavailableError):
        adapter.observe({})
    world.reconnect()
    assert adapter.observe({}) == before


def test_another_actors_write_raises_the_version_and_is_no_effect_of_a_run() -> None:
    world = _world()
    world.other_actor_writes("app.py", "theirs")
    assert (world.version, world.write_count, world.files) == (1, 0, {"app.py": "theirs"})


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda world: world.tamper("app.py", "theirs"), id="content"),
        pytest.param(lambda world: world.other_actor_writes("b", ""), id="version"),
        pytest.param(lambda world: world.replace_instance("world-2"), id="instance"),
        pytest.param(lambda world: world.change_account("other"), id="account"),
    ],
)
@pytest.mark.parametrize("level", [Level.TRANSACTIONAL, Level.CONDITIONAL])
def test_a_write_on_another_state_is_refused(change: Callable[[World], None], level: Level) -> None:
    world = _world()
    adapter = SandboxAdapter(world, level=level)
    stale = _write(adapter)
    change(world)
    with pytest.raises(StaleObservationError):
        adapter.execute(stale)
    assert world.write_count == 0


# ---------------------------------------------------------------- what is on record


def test_a_receipt_that_is_dropped_is_absent() -> None:
    world = _world()
    adapter = SandboxAdapter(world)
    adapter.execute(_write(adapter))
    world.drop_receipt(KEY)
    assert adapter.look_up(RUN, KEY, "write_file").answer is Answer.ABSENT


def test_a_receipt_that_is_altered_is_shown_as_it_is() -> None:
    world = _world()
    adapter = SandboxAdapter(world)
    adapter.execute(_write(adapter))
    world.alter_receipt(KEY, id="forged")
    shown = adapter.look_up(RUN, KEY, "write_file").receipt
    assert shown is not None
    assert shown.id == "forged"


def test_a_receipt_that_is_planted_makes_the_key_a_conflict() -> None:
    world, elsewhere = _world(), _world()
    there = SandboxAdapter(elsewhere)
    world.plant(there.execute(_write(there, "something else")))
    adapter = SandboxAdapter(world)
    with pytest.raises(IdempotencyConflictError):
        adapter.execute(_write(adapter))
    assert (world.write_count, set(world.receipts)) == (0, {KEY})


@pytest.mark.parametrize(
    ("level", "fields"),
    [
        (Level.TRANSACTIONAL, (True, True, True)),
        (Level.DEDUPLICATING, (True, False, True)),
        (Level.CONDITIONAL, (True, False, True)),
        (Level.QUERYABLE, (False, False, True)),
        (Level.BLIND, (False, False, True)),
    ],
)
def test_a_receipt_holds_what_such_a_target_knows(
    level: Level, fields: tuple[bool, bool, bool]
) -> None:
    adapter = SandboxAdapter(_world(), level=level)
    receipt = adapter.execute(_write(adapter))
    assert (bool(receipt.digest), receipt.served is not None, bool(receipt.id)) == fields


@pytest.mark.parametrize(
    ("age_ms", "effects"),
    [
        pytest.param(HOUR_MS - 1, 1, id="kept"),
        pytest.param(HOUR_MS, 2, id="forgotten"),
    ],
)
def test_a_key_is_new_once_it_is_forgotten(age_ms: int, effects: int) -> None:
    clock = [NOW_MS]
    world = _world(lambda: clock[0])
    adapter = SandboxAdapter(world, level=Level.DEDUPLICATING, key_retention_ms=HOUR_MS)
    adapter.execute(_write(adapter))
    clock[0] += age_ms
    adapter.execute(_write(adapter))
    assert world.write_count == effects


@pytest.mark.parametrize("level", [Level.DEDUPLICATING, Level.CONDITIONAL, Level.QUERYABLE])
def test_a_level_that_forbids_nothing_says_so(level: Level) -> None:
    adapter = SandboxAdapter(_world(), level=level)
    with pytest.raises(ContractError):
        adapter.forbid(RUN, KEY, "write_file", FIRST)


def test_a_newer_call_raises_the_fence_by_itself() -> None:
    adapter = SandboxAdapter(_world())
    adapter.execute(_write(adapter, fence=SECOND))
    with pytest.raises(FencedError):
        adapter.take(RUN, FIRST)


def test_a_level_without_a_fence_lets_every_lease_pass() -> None:
    adapter = SandboxAdapter(_world(), level=Level.DEDUPLICATING)
    adapter.take(RUN, SECOND)
    assert adapter.take(RUN, FIRST) is None


def test_what_is_heard_of_a_late_call_is_an_error_of_the_taxonomy_or_a_receipt() -> None:
    world, adapter = _late(Level.TRANSACTIONAL)
    world.other_actor_writes("app.py", "theirs")
    assert all(isinstance(answer, CounterfoilError) for answer in world.land_delayed())
    assert adapter.observe({}).facts == {"app.py": "theirs"}
