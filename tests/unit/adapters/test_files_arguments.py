"""Arguments are judged before anything is durable, and kept as they are."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterfoil.adapters.files.kinds import ABSENT, check_path, content, is_reserved, kinds
from counterfoil.core.canonical import normalise
from counterfoil.core.errors import ContractError, PermissionDeniedError
from counterfoil.core.judge import check_kinds
from counterfoil.core.words import Json, Key, RunId
from tests.support.files_scene import FENCE, Scene, answer, do, operation

SPECS = {spec.name.removeprefix("files."): spec for spec in kinds()}
SHA = "a" * 64

BAD_PATHS = [
    pytest.param("../a", id="[T14 climbs out]"),
    pytest.param("a/../../b", id="[T14 climbs out in the middle]"),
    pytest.param("a//b", id="[T14 a doubled slash]"),
    pytest.param("./a", id="[T14 a dot]"),
    pytest.param("a/", id="[T14 a folder]"),
    pytest.param(".", id="[T14 the root]"),
    pytest.param("", id="[T14 nothing]"),
    pytest.param("/etc/passwd", id="[T14 absolute]"),
    pytest.param("/proc/self/root", id="[T14 proc]"),
    pytest.param("a\\b", id="[T14 a backslash]"),
    pytest.param("a\x00b", id="[T14 NUL]"),
    pytest.param("a\nb", id="[T14 a newline]"),
    pytest.param("a\u202eb", id="[T14 turns the writing around]"),
    pytest.param("a\u200db", id="[T14 an invisible character]"),
    pytest.param("a\ud800b", id="[T14 half a character]"),
    pytest.param("a/" * 3_000 + "b", id="[T14 over the bound]"),
    pytest.param("a" * 256, id="[T14 a part over the bound]"),
    pytest.param(".counterfoil", id="[T14 our own store]"),
    pytest.param("a/.counterfoil-x.new", id="[T14 our own spare file]"),
    pytest.param(".Counterfoil/store.db", id="[T14 our own store in another case]"),
    pytest.param("a/.root.counterfoil-journal/journal.db", id="[T14 our own journal]"),
    pytest.param(7, id="[T14 a number]"),
    pytest.param(None, id="[T14 null]"),
]


def test_the_kinds_promise_what_their_level_can_hold() -> None:
    check_kinds({spec.name: spec for spec in kinds()})


@pytest.mark.parametrize("path", BAD_PATHS)
def test_a_path_has_one_spelling_below_the_root(path: Json) -> None:
    for kind, arguments in (
        ("read", {"path": path}),
        ("write", {"path": path, "content": ""}),
        ("delete", {"path": path}),
        ("move", {"source": path, "target": "b"}),
        ("move", {"source": "b", "target": path}),
    ):
        with pytest.raises(ContractError):
            SPECS[kind].normalise(arguments)


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        ("read", {}),
        ("read", {"path": "a", "encoding": "utf-16"}),
        ("read", {"path": "a", "mode": "r"}),
        ("write", {"path": "a"}),
        ("write", {"content": "a"}),
        ("write", {"path": "a", "content": "b", "expected": SHA.upper()}),
        ("write", {"path": "a", "content": "b", "expected": None}),
        ("write", {"path": "a", "content": "b", "expected": SHA[1:]}),
        ("write", {"path": "a", "content": "b", "expected_target": SHA}),
        ("write", {"path": "a", "content": {"$counterfoil": "text", "base64": ""}}),
        ("delete", {"path": "a", "content": ""}),
        ("move", {"source": "a"}),
        ("move", {"source": "a", "target": "a"}),
        ("move", {"source": "a", "target": "b", "expected": SHA}),
    ],
)
def test_arguments_out_of_contract_are_refused(kind: str, arguments: dict[str, Json]) -> None:
    with pytest.raises(ContractError):
        SPECS[kind].normalise(arguments)


def test_a_move_touches_both_its_paths() -> None:
    pairs = SPECS["move"].touches({"source": "a", "target": "b"})
    assert pairs == (("paths", "a"), ("paths", "b"))


@pytest.mark.parametrize(
    ("value", "raw"),
    [
        pytest.param("one\r\ntwo", b"one\r\ntwo", id="text as it is"),
        pytest.param("\u00e4\U0001f600", b"\xc3\xa4\xf0\x9f\x98\x80", id="text as UTF-8"),
        pytest.param(b"\xff\x00", b"\xff\x00", id="bytes as they are"),
        pytest.param(
            {"b": 1, "a": ["\u00e4"]}, '{\n  "a": [\n    "ä"\n  ],\n  "b": 1\n}\n', id="object"
        ),
        pytest.param(None, b"null\n", id="null"),
        pytest.param(True, b"true\n", id="truth"),
        pytest.param([1.5], b"[\n  1.5\n]\n", id="list"),
    ],
)
def test_content_is_written_in_one_form(value: object, raw: bytes | str) -> None:
    expected = raw.encode() if isinstance(raw, str) else raw
    assert content(normalise(value, "content")) == expected


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
NAMES = ("path", "content", "expected", "encoding", "source", "target", "expected_target")


@pytest.mark.parametrize("row", [pytest.param("", id="[acc-A17]")])
@given(
    kind=st.sampled_from(sorted(SPECS)),
    arguments=st.dictionaries(st.sampled_from(NAMES) | st.text(), anything, max_size=4),
)
def test_whatever_comes_is_normalised_for_good_or_refused(
    row: str, kind: str, arguments: dict[str, Json]
) -> None:
    try:
        once = SPECS[kind].normalise(arguments)
    except ContractError:
        return
    assert SPECS[kind].normalise(once) == once
    assert all(all(pair) for pair in SPECS[kind].touches(once))


@given(st.text(max_size=40))
def test_only_printable_parts_that_are_not_ours_pass(text: str) -> None:
    try:
        path = check_path(text, "path")
    except ContractError:
        return
    parts = path.split("/")
    assert path == text
    assert path.isprintable()
    assert not any(part in ("", ".", "..") or is_reserved(part) for part in parts)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("a'; DROP TABLE receipt; --", id="[T26 SQL]"),
        pytest.param('"quoted"', id="[T26 quotes]"),
        pytest.param("%s{0}$HOME", id="[T26 templates]"),
        pytest.param("--force", id="[T26 looks like an option]"),
        pytest.param("*?[a]", id="[T26 wildcards]"),
        pytest.param("CON", id="[T14 T26 a device elsewhere]"),
        pytest.param("\u00e4\U0001f600", id="[T26 beyond ASCII]"),
    ],
)
def test_odd_names_are_stored_and_shown_as_they_are(name: str, tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    adapter = scene.open()
    receipt = do(adapter, "write", key=Key(name), run_id=RunId(name), path=name, content=name)
    found = answer(adapter, Key(name), RunId(name)).receipt
    assert (found, scene.files) == (receipt, {name: name})
    assert (receipt.run_id, receipt.key, receipt.result["path"]) == (name, name, name)
    assert list(adapter.observe({"paths": (name,)}).facts) == [name]
    adapter.close()


def test_a_path_out_of_scope_is_refused_by_the_adapter_too(tmp_path: Path) -> None:
    scene = Scene(tmp_path, {"a/x": "1", "b": "2"})
    adapter = scene.open()
    scope = {"paths": ("a/",)}
    for call in (
        {"kind": "write", "path": "b", "content": "3"},
        {"kind": "delete", "path": "b"},
        {"kind": "move", "source": "a/x", "target": "x"},
        {"kind": "read", "path": "b", "key": Key("")},
    ):
        with pytest.raises(PermissionDeniedError, match="outside the scope"):
            do(adapter, scope=scope, **call)
    assert scene.files == {"a/x": "1", "b": "2"}
    adapter.close()


def test_an_unknown_kind_is_refused(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    adapter = scene.open()
    with pytest.raises(ContractError, match="declares no kind"):
        do(adapter, "append", path="a", content=ABSENT)
    adapter.take(RunId("run-1"), FENCE)
    with pytest.raises(ContractError):
        adapter.execute(operation(adapter, "write", path="../a", content=""))
    adapter.close()
