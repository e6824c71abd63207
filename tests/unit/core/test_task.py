"""A task is what people wrote, in one reading, or it is refused with the field named."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from counterfoil.core.bounds import PATH_BYTES_MAX, TASK_BYTES_MAX
from counterfoil.core.errors import ContractError
from counterfoil.core.intent import ACTION_BYTES_MAX, parse_action
from counterfoil.core.task import (
    Budgets,
    Policy,
    Task,
    Verification,
    canonical_path,
    check_task,
    covers,
    fingerprint,
    is_in_scope,
    parse_task,
    policy_fingerprint,
)
from counterfoil.core.words import Json, Risk
from tests.support.runs import TASK

SMALL = '{"id": "t"%s}'


def parsed(members: str) -> Task:
    return parse_task(SMALL % members, syntax="json")


def test_a_task_is_read_from_json() -> None:
    assert parsed(', "budgets": {"steps": 2, "proposals": 3}') == Task(
        id="t", budgets=Budgets(steps=2, proposals=3)
    )


def test_a_task_is_read_from_toml() -> None:
    text = 'id = "t"\n[policy]\npermissions = ["a"]\n[policy.scope.files]\npaths = ["src/"]\n'
    assert parse_task(text, syntax="toml") == Task(
        id="t", policy=Policy(permissions=("a",), scope={"files": {"paths": ("src/",)}})
    )


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        pytest.param(', "id": "u"', "named twice", id="T9 a member named twice"),
        pytest.param(', "initial": {"a": 1, "a": 1}', "named twice", id="T9 the same, further in"),
        pytest.param(', "initial": {"a": NaN}', "NaN", id="T9 NaN"),
        pytest.param(', "initial": {"a": 1e999}', "finite", id="acc-A16 T9 an overflow"),
        pytest.param(', "extra": 1', "unknown field `extra`", id="an unknown field"),
        pytest.param(', "policy": {"allow": []}', "unknown field", id="an unknown policy field"),
        pytest.param(', "budgets": {"steps": true}', r"\$.budgets.steps", id="a bool for steps"),
        pytest.param(', "budgets": {"steps": "3"}', r"\$.budgets.steps", id="text for steps"),
        pytest.param(', "budgets": {"steps": 1.5}', r"\$.budgets.steps", id="a half step"),
        pytest.param(', "budgets": {"steps": -1}', r"\$.budgets.steps", id="less than no step"),
        pytest.param(', "budgets": {"steps": null}', r"\$.budgets.steps", id="no step at all"),
        pytest.param(
            ', "budgets": {"steps": 3, "proposals": 2}',
            "below the 3",
            id="fewer proposals than steps",
        ),
        pytest.param(
            ', "policy": {"approval_risks": ["harmless"]}', "Invalid enum", id="an unknown risk"
        ),
        pytest.param(', "policy": {"permissions": "all"}', "permissions", id="a text for a list"),
        pytest.param(
            ', "policy": {"permissions": ["a", "a"]}', "twice", id="a permission listed twice"
        ),
        pytest.param(
            ', "policy": {"scope": {"t": {"targets": ["unit", "unit"]}}}',
            "scope.t.targets names an entry twice",
            id="a target listed twice",
        ),
        pytest.param(
            ', "policy": {"scope": {"t": {"paths": ["a", "a"]}}}', "twice", id="a path listed twice"
        ),
        pytest.param(
            ', "policy": {"approval_kinds": ["a", "a"]}', "twice", id="a kind listed twice"
        ),
        pytest.param(
            ', "policy": {"approval_risks": ["control", "control"]}', "twice", id="a risk twice"
        ),
        pytest.param(
            ', "verifier": {"kind": ""}', "verifier.kind is empty", id="a nameless verifier"
        ),
        pytest.param(', "verifier": {}', "missing required field", id="a verifier without a kind"),
        pytest.param(', "goal": "\\u001b[2J"', "control character", id="T16 a goal with an escape"),
        pytest.param(
            ', "initial": {"$counterfoil": "bytes"}',
            "reserved",
            id="a forged mark in the beginning",
        ),
    ],
)
def test_a_task_is_refused(members: str, reason: str) -> None:
    with pytest.raises(ContractError, match=reason):
        parsed(members)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("[]", id="T9 a list"),
        pytest.param("null", id="T9 null"),
        pytest.param("{}", id="T9 no id"),
        pytest.param("", id="T9 nothing"),
        pytest.param(b"\xff", id="T9 invalid UTF-8"),
        pytest.param(" " * (TASK_BYTES_MAX + 1), id="T9 one byte too long"),
    ],
)
@pytest.mark.parametrize("syntax", ["json", "toml"])
def test_no_task_is_read_from(text: str | bytes, syntax: str) -> None:
    with pytest.raises(ContractError):
        parse_task(text, syntax=syntax)


@pytest.mark.parametrize(
    "line",
    [
        pytest.param('id = "u"', id="T9 a member named twice"),
        pytest.param("initial.a = nan", id="T9 NaN"),
        pytest.param("initial.a = inf", id="T9 infinity"),
        pytest.param("initial.a = 9007199254740992", id="T9 2^53"),
        pytest.param("initial.a = 2026-01-02T12:00:00", id="T9 a moment in no zone"),
        pytest.param("initial.a = 2026-01-02", id="T9 a day in no zone"),
        pytest.param("initial.a = 0001-01-01T00:00:00+23:00", id="T9 before the first year"),
        pytest.param("budgets.steps = true", id="a bool for steps"),
        pytest.param("initial.a = " + "[" * 5_000 + "]" * 5_000, id="T9 deeper than the stack"),
    ],
)
def test_a_toml_task_is_refused_for(line: str) -> None:
    with pytest.raises(ContractError):
        parse_task(f'id = "t"\n{line}\n', syntax="toml")


def test_a_toml_moment_is_kept_in_utc() -> None:
    task = parse_task('id = "t"\ninitial.a = 2026-01-02T12:00:00+02:00\n', syntax="toml")
    assert task.initial == {"a": "2026-01-02T10:00:00Z"}


# Paths and scope


@pytest.mark.parametrize(
    "path",
    [
        pytest.param("../a", id="T14 climbs out"),
        pytest.param("a/../../b", id="T14 climbs out further in"),
        pytest.param("a/..", id="T14 ends above"),
        pytest.param("a//b", id="T14 a doubled slash"),
        pytest.param("/a", id="T14 absolute"),
        pytest.param("/proc/self/root/a", id="T14 the root by another name"),
        pytest.param("./a", id="T14 a dot first"),
        pytest.param("a/./b", id="T14 a dot inside"),
        pytest.param("a/", id="T14 a slash last"),
        pytest.param("a\\b", id="T14 a backslash"),
        pytest.param("..\\a", id="T14 climbs out by a backslash"),
        pytest.param("a\x00b", id="T14 a NUL"),
        pytest.param("a\nb", id="T14 a new line"),
        pytest.param("a\ud800", id="T14 half a character"),
        pytest.param("", id="T14 nothing"),
        pytest.param("é" * (PATH_BYTES_MAX // 2) + "a", id="T14 one byte too long"),
        pytest.param(None, id="T14 no text"),
    ],
)
def test_a_path_is_refused(path: object) -> None:
    with pytest.raises(ContractError, match=r"^path "):
        canonical_path(path, "path")


@pytest.mark.parametrize("path", ["a", "a/b", "...", "a..b", ".hidden", "é", "a b", "~", "-rf"])
def test_a_canonical_path_is_kept(path: str) -> None:
    assert canonical_path(path, "path") == path


@pytest.mark.parametrize(
    "entry", ["..", "../a/", "a//", "/", "//", "./", "a/../", "/a/", "", "a\\", "a\x00"]
)
def test_a_scope_path_is_refused(entry: str) -> None:
    with pytest.raises(ContractError):
        check_task(Task(id="t", policy=Policy(scope={"files": {"paths": (entry,)}})))


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(".", id="everything"),
        pytest.param("a/b/", id="a folder"),
        pytest.param("d/" * 500 + "f", id="a path longer than an identifier"),
    ],
)
def test_a_scope_path_is_taken(entry: str) -> None:
    check_task(Task(id="t", policy=Policy(scope={"files": {"paths": (entry,)}})))


@pytest.mark.parametrize(
    ("entry", "path", "expected"),
    [
        pytest.param("a", "a", True, id="the file itself"),
        pytest.param("a", "a/b", False, id="a file is no folder"),
        pytest.param("a", "ab", False, id="a name is no prefix"),
        pytest.param("a/", "a/b", True, id="a file in the folder"),
        pytest.param("a/", "a/b/c", True, id="a file further down"),
        pytest.param("a/", "a", False, id="the folder itself"),
        pytest.param("a/", "ab", False, id="a folder is no prefix"),
        pytest.param("a/", "A/b", False, id="T14 another case"),
        pytest.param("caf\u00e9/", "cafe\u0301/b", False, id="T14 another Unicode form"),
        pytest.param(".", "any/thing", True, id="everything"),
    ],
)
def test_a_scope_entry_covers(entry: str, path: str, expected: bool) -> None:
    assert covers(entry, path) is expected


@pytest.mark.parametrize(
    ("adapter", "name", "value", "expected"),
    [
        pytest.param("files", "paths", "src/a", True, id="a path below"),
        pytest.param("files", "paths", "doc/a", False, id="a path beside"),
        pytest.param("files", "hosts", "src/", True, id="an exact word in another list"),
        pytest.param("files", "hosts", "src/a", False, id="words are not folders"),
        pytest.param("files", "tables", "a", False, id="a list that is not there"),
        pytest.param("shell", "paths", "src/a", False, id="an adapter that is not there"),
    ],
)
def test_the_policy_lets_an_adapter_touch(
    adapter: str, name: str, value: str, expected: bool
) -> None:
    policy = Policy(scope={"files": {"paths": ("src/",), "hosts": ("src/",)}})
    assert is_in_scope(policy, adapter, name, value) is expected


def test_more_adapters_than_a_task_may_touch_are_refused() -> None:
    scope: dict[str, dict[str, tuple[str, ...]]] = {f"a{n}": {} for n in range(17)}
    with pytest.raises(ContractError, match="more than 16 adapters"):
        check_task(Task(id="t", policy=Policy(scope=scope)))


# Fingerprints

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(replace(TASK, id="task-2"), id="id"),
        pytest.param(replace(TASK, version="2"), id="version"),
        pytest.param(replace(TASK, goal="g"), id="goal"),
        pytest.param(replace(TASK, subject="s"), id="subject"),
        pytest.param(replace(TASK, accounts={"box": "a"}), id="accounts"),
        pytest.param(replace(TASK, initial={"a": 1}), id="initial state"),
        pytest.param(replace(TASK, policy=replace(TASK.policy, version="2")), id="policy version"),
        pytest.param(replace(TASK, policy=replace(TASK.policy, permissions=())), id="permissions"),
        pytest.param(replace(TASK, policy=replace(TASK.policy, scope={})), id="scope"),
        pytest.param(
            replace(TASK, policy=replace(TASK.policy, approval_risks=(Risk.CONTROL,))), id="risks"
        ),
        pytest.param(replace(TASK, budgets=Budgets()), id="budgets"),
        pytest.param(replace(TASK, verifier=None), id="no verifier"),
        pytest.param(replace(TASK, verifier=Verification(kind="box.check")), id="verifier"),
    ],
)
def test_another_task_has_another_fingerprint(other: Task) -> None:
    assert fingerprint(other) != fingerprint(TASK)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(b"ab", "YWI=", id="C10 bytes and their base64"),
        pytest.param(1, True, id="C10 one and true"),
        pytest.param(NOON, NOON + timedelta(microseconds=1), id="C10 two moments"),
        pytest.param(None, [], id="C10 null and empty list"),
    ],
)
def test_another_beginning_has_another_fingerprint(one: Json, other: Json) -> None:
    first, second = (Task(id="t", initial={"a": value}) for value in (one, other))
    assert fingerprint(first) != fingerprint(second)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(5, 5.0, id="C10 a whole float"),
        pytest.param((1,), [1], id="C10 tuple and list"),
        pytest.param(NOON, "2026-01-02T12:00:00Z", id="C10 a moment and its text in UTC"),
    ],
)
def test_another_spelling_has_the_same_fingerprint(one: Json, other: Json) -> None:
    first, second = (Task(id="t", initial={"a": value}) for value in (one, other))
    assert fingerprint(first) == fingerprint(second)


def test_a_policy_has_a_fingerprint_of_its_own() -> None:
    assert policy_fingerprint(TASK.policy) != policy_fingerprint(Policy())


# Doors

ODD_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["id", "version", "policy", "scope", "budgets", "steps", "verifier", "a"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.text() | st.binary() | ODD_JSON.map(str) | ODD_JSON.map(repr))
@pytest.mark.parametrize(
    "syntax", [pytest.param(s, id=f"acc-A17 T9 {s}") for s in ("json", "toml")]
)
def test_only_a_contract_error_leaves_the_door_of_tasks(syntax: str, text: str | bytes) -> None:
    try:
        parse_task(text, syntax=syntax)
    except ContractError:
        return


@given(ODD_JSON)
@pytest.mark.parametrize("syntax", [pytest.param("json", id="acc-A17 T9 well-formed JSON")])
def test_only_a_contract_error_leaves_the_door_for_json(syntax: str, value: Json) -> None:
    import json

    text = json.dumps({"id": "t"} | (value if isinstance(value, dict) else {"policy": value}))
    try:
        parse_task(text, syntax=syntax)
        parse_action(text)
    except ContractError:
        return


# Actions

ACTION = '{"kind": "k", "preconditions": {"version": 1}%s}'


def test_an_action_is_read() -> None:
    found = parse_action(ACTION % ', "arguments": {"a": 1.0}, "key": "k-1"')
    assert (found.kind, found.arguments, found.key) == ("k", {"a": 1}, "k-1")


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        pytest.param(', "approval": {}', "unknown field", id="T14 an approval"),
        pytest.param(', "permission": "all"', "unknown field", id="T14 a permission"),
        pytest.param(', "run_id": "r"', "unknown field", id="T14 another run"),
        pytest.param(', "key": 1', r"\$.key", id="T14 a key that is no text"),
        pytest.param(', "deadline": true', r"\$.deadline", id="T14 a bool for the deadline"),
        pytest.param(', "deadline": -1', r"\$.deadline", id="T14 a deadline before the first"),
        pytest.param(', "arguments": []', r"\$.arguments", id="T14 arguments in a list"),
        pytest.param(', "arguments": null', r"\$.arguments", id="T14 no arguments"),
        pytest.param(', "kind": "k"', "named twice", id="T9 a kind named twice"),
        pytest.param(', "arguments": {"a": NaN}', "NaN", id="T9 NaN"),
        pytest.param(', "arguments": {"a": 1e999}', "finite", id="acc-A16 T9 an overflow"),
    ],
)
def test_an_action_is_refused(members: str, reason: str) -> None:
    with pytest.raises(ContractError, match=reason):
        parse_action(ACTION % members)


@pytest.mark.parametrize(
    "facts",
    [
        pytest.param('{"versions": 1}', id="T14 an unknown fact"),
        pytest.param('{"version": 1.5}', id="T14 half a version"),
        pytest.param('{"version": null}', id="T14 no version"),
        pytest.param('{"version": true}', id="T14 a bool for a version"),
        pytest.param("[]", id="T14 a list"),
    ],
)
def test_a_fact_is_refused(facts: str) -> None:
    with pytest.raises(ContractError, match="preconditions"):
        parse_action(f'{{"kind": "k", "preconditions": {facts}}}')


@pytest.mark.parametrize("text", [pytest.param('"' * (ACTION_BYTES_MAX + 1), id="T9 too long")])
def test_a_long_action_is_refused_by_its_size(text: str) -> None:
    with pytest.raises(ContractError, match=f"the bound is {ACTION_BYTES_MAX}"):
        parse_action(text)


@given(st.text() | st.binary() | ODD_JSON.map(repr))
@pytest.mark.parametrize("door", [pytest.param("parse_action", id="acc-A17 T9 parse_action")])
def test_only_a_contract_error_leaves_the_door_of_actions(door: str, text: str | bytes) -> None:
    try:
        parse_action(text)
    except ContractError:
        return
