"""The state that is kept step by step is the state that a fresh look would find."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from counterfoil.adapters.files import FilesAdapter, catalog, realm, scan
from counterfoil.adapters.files.disk import Disk
from counterfoil.adapters.files.realm import Entry
from counterfoil.core.canonical import digest
from counterfoil.core.errors import ContractError, StaleObservationError, UnavailableError
from counterfoil.core.words import Key
from tests.support.files_scene import EVERYTHING, NOW_MS, Scene, do, no_pause, operation

SCOPES = (EVERYTHING, {"paths": ("d/",)}, {"paths": ("a", "d/b")}, {"paths": ()})
PATHS = ("a", "b", "d/a", "d/b", "d/e/c")


class LookingDisk(Disk):
    """Counts the files that are read."""

    def __init__(self) -> None:
        self.reads = 0

    def open_file(self, folder: int, name: str) -> int:
        self.reads += 1
        return super().open_file(folder, name)


def entry(sha256: str, kind: str = realm.FILE) -> Entry:
    return Entry(
        kind=kind,
        sha256=sha256,
        dev=0,
        inode=0,
        size=0,
        mtime_ns=0,
        ctime_ns=0,
        is_settled=False,
    )


def states(adapter: FilesAdapter) -> list[tuple[int, str]]:
    observed = [adapter.observe(scope).state for scope in SCOPES]
    return [(state.version, state.fingerprint) for state in observed]


def fresh(scene: Scene) -> list[str]:
    """Return the fingerprints that a journal without memory finds."""
    number = len(list(scene.place.iterdir()))
    adapter = scene.open(journal=scene.place / f"fresh-{number}")
    try:
        return [fingerprint for _, fingerprint in states(adapter)]
    finally:
        adapter.close()


path = st.sampled_from(PATHS)
text = st.sampled_from(["", "1", "22"])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("write"), path, text),
        st.tuples(st.just("delete"), path, text),
        st.tuples(st.just("move"), path, path),
        st.tuples(st.just("theirs"), path, text),
        st.tuples(st.just("they replace"), path, text),
        st.tuples(st.just("they delete"), path, text),
        st.tuples(st.just("look"), st.sampled_from(range(len(SCOPES))), text),
    ),
    max_size=12,
)


def apply(scene: Scene, adapter: FilesAdapter, number: int, step: tuple[str, str, str]) -> None:
    what, one, other = step
    key = Key(f"key-{number}")
    match what:
        case "write":
            do(adapter, "write", key=key, path=one, content=other)
        case "delete":
            do(adapter, "delete", key=key, path=one)
        case "move":
            if one != other:
                do(adapter, "move", key=key, source=one, target=other)
        case "theirs":
            scene.put(one, other)
        case "they replace":
            scene.put(one, other)
            scene.replace(one, other)
        case "they delete":
            (scene.root / one).unlink(missing_ok=True)
        case _:
            adapter.observe(SCOPES[int(one)])


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=steps)
def test_kept_state_and_a_fresh_look_agree(
    steps: list[tuple[str, str, str]], swift_path: Path
) -> None:
    place = swift_path / str(len(list(swift_path.iterdir())))
    place.mkdir()
    scene = Scene(place, {"a": "1"})
    adapter = scene.open()
    versions = [version for version, _ in states(adapter)]
    for number, step in enumerate(steps):
        try:
            apply(scene, adapter, number, step)
        except StaleObservationError:
            continue
    kept = states(adapter)
    adapter.close()
    assert [fingerprint for _, fingerprint in kept] == fresh(scene)
    assert all(after >= before for before, (after, _) in zip(versions, kept, strict=True))


def test_a_version_rises_in_the_realms_that_cover_the_change(tmp_path: Path) -> None:
    scene = Scene(tmp_path, {"a": "1"})
    adapter = scene.open()
    before = states(adapter)
    do(adapter, "write", path="d/b", content="2")
    after = states(adapter)
    moved = [one != other for one, other in zip(before, after, strict=True)]
    assert moved == [True, True, True, False]
    assert [version for version, _ in after] == [1, 1, 1, 0]
    adapter.close()


def test_writing_what_is_there_already_is_a_change(tmp_path: Path) -> None:
    scene = Scene(tmp_path, {"a": "1"})
    adapter = scene.open()
    before = adapter.observe(EVERYTHING).state
    receipt = do(adapter, "write", path="a", content="1")
    assert receipt.poststate == adapter.observe(EVERYTHING).state
    assert (receipt.poststate.version, receipt.poststate.fingerprint) == (1, before.fingerprint)
    adapter.close()


def test_a_change_of_others_raises_the_version_once_it_is_seen(tmp_path: Path) -> None:
    scene = Scene(tmp_path, {"a": "1", "b": "2"})
    adapter = scene.open()
    before = adapter.observe(EVERYTHING).state
    scene.put("a", "3")
    scene.put("b", "3")
    seen = adapter.observe(EVERYTHING).state
    assert (before.version, seen.version) == (0, 1)
    assert adapter.observe(EVERYTHING).state == seen
    adapter.close()


def test_content_changed_back_has_the_fingerprint_and_not_the_version(tmp_path: Path) -> None:
    scene = Scene(tmp_path, {"a": "1"})
    adapter = scene.open()
    before = adapter.observe(EVERYTHING).state
    scene.put("a", "3")
    adapter.observe(EVERYTHING)
    scene.put("a", "1")
    after = adapter.observe(EVERYTHING).state
    assert (after.fingerprint, after.version) == (before.fingerprint, 2)
    adapter.close()


def test_the_facts_are_the_digests_of_the_files(tmp_path: Path) -> None:
    scene = Scene(tmp_path, {"a": "1", "d/b": "2", "x": "3"})
    adapter = scene.open()
    facts = adapter.observe({"paths": ("a", "d/")}).facts
    assert facts == {"a": digest(b"1"), "d/b": digest(b"2")}
    adapter.close()


def test_folders_are_no_part_of_the_state(tmp_path: Path) -> None:
    scene = Scene(tmp_path, {"a": "1"})
    adapter = scene.open()
    before = adapter.observe(EVERYTHING)
    (scene.root / "empty/er").mkdir(parents=True)
    assert adapter.observe(EVERYTHING) == before
    adapter.close()


def test_our_own_names_are_no_part_of_the_state(tmp_path: Path) -> None:
    scene = Scene(tmp_path, {"a": "1"})
    adapter = scene.open()
    before = adapter.observe(EVERYTHING)
    scene.put(".counterfoil/store.db", "x")
    scene.put("d/.counterfoil-other-1.new", "of another journal")
    scene.put(".d.counterfoil-journal/journal.db", "x")
    assert adapter.observe(EVERYTHING) == before
    assert len(scene.files) == 4
    adapter.close()


def test_a_name_that_is_no_text_is_seen_and_shown(tmp_path: Path) -> None:
    scene = Scene(tmp_path, {"a": "1"})
    adapter = scene.open()
    (scene.root / os.fsdecode(b"\xff")).write_text("2")
    assert adapter.observe(EVERYTHING).facts == {"a": digest(b"1"), "\\xff": digest(b"2")}
    adapter.close()


def test_an_unchanged_file_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The files are as young as the test; without the grain of coarse clocks they may settle.
    monkeypatch.setattr(scan, "GRAIN_NS", -(10**12))
    scene = Scene(tmp_path, {"a": "1", "b": "2"})
    disk = LookingDisk()
    adapter = scene.open(disk)
    adapter.observe(EVERYTHING)
    disk.reads = 0
    first = adapter.observe(EVERYTHING)
    assert disk.reads == 0
    scene.put("a", "3")
    assert adapter.observe(EVERYTHING).state != first.state
    assert disk.reads == 1
    adapter.close()


def test_a_file_that_changed_just_before_a_look_is_read_again(tmp_path: Path) -> None:
    scene = Scene(tmp_path, {"a": "1"})
    disk = LookingDisk()
    adapter = scene.open(disk)
    adapter.observe(EVERYTHING)
    disk.reads = 0
    adapter.observe(EVERYTHING)
    assert disk.reads == 1
    adapter.close()


def test_a_step_reads_no_file_but_its_own(tmp_path: Path) -> None:
    scene = Scene(tmp_path, {f"f{number}": str(number) for number in range(50)})
    disk = LookingDisk()
    adapter = scene.open(disk)
    asked = operation(adapter, "write", path="f1", content="new")
    disk.reads = 0
    adapter.execute(asked)
    assert disk.reads == 2
    adapter.close()


def test_more_files_than_the_bound_are_refused_with_the_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "FILES_MAX", 3)
    scene = Scene(tmp_path, {"a": "", "b": "", "c": ""})
    adapter = scene.open()
    adapter.observe(EVERYTHING)
    scene.put("d", "")
    with pytest.raises(UnavailableError, match="more than 3 files"):
        adapter.observe(EVERYTHING)
    adapter.close()


def test_folders_deeper_than_the_bound_are_refused_with_the_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "DEPTH_MAX", 3)
    scene = Scene(tmp_path, {"a/b/c/d": ""})
    adapter = scene.open()
    adapter.observe(EVERYTHING)
    scene.put("a/b/c/d2/e", "")
    with pytest.raises(UnavailableError, match="deeper than 3"):
        adapter.observe(EVERYTHING)
    adapter.close()


@pytest.mark.parametrize("entry_path", ["..", "a//b", "/a", "a/../b/"])
def test_a_scope_that_climbs_out_is_refused(entry_path: str, tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    adapter = scene.open()
    with pytest.raises(ContractError):
        adapter.observe({"paths": (entry_path,)})
    adapter.close()


def test_a_dropped_realm_comes_back_under_a_version_that_it_never_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog, "REALMS_MAX", 2)
    scene = Scene(tmp_path, {"a": "1"})
    adapter = scene.open()
    asked = operation(adapter, "write", path="a", content="2")
    for name in ("b", "c"):
        adapter.observe({"paths": (name,)})
    with pytest.raises(StaleObservationError, match="never observed"):
        adapter.execute(asked)
    state = adapter.observe(EVERYTHING).state
    assert state.version > asked.prestate.version
    assert state.fingerprint == asked.prestate.fingerprint
    adapter.close()


def test_the_realm_in_use_is_not_the_one_that_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog, "REALMS_MAX", 2)
    scene = Scene(tmp_path, {"a": "1"})
    adapter = scene.open()
    asked = operation(adapter, "write", path="a", content="2")
    adapter.observe({"paths": ("b",)})
    adapter.observe(EVERYTHING)
    adapter.observe({"paths": ("c",)})
    adapter.execute(asked)
    adapter.close()


def test_what_a_killed_call_left_is_cleared_by_the_next_look(tmp_path: Path) -> None:
    scene = Scene(tmp_path, {"a": "1"})
    adapter = scene.open()
    state = adapter.observe(EVERYTHING).state
    ours = f".counterfoil-{state.instance[:12]}"
    scene.put(f"{ours}-1.new", "half a file, before the first plan")
    scene.put(f"d/{ours}-7.own", "a witness that a power cut brought back")
    scene.put(f"{ours}-7.old", "perhaps of others")
    adapter.observe(EVERYTHING)
    assert set(scene.files) == {"a", f"{ours}-7.old"}
    adapter.close()


PAIRS = [
    (("a", entry("0" * 64)), ("b", entry("0" * 64))),
    (("a", entry("0" * 64)), ("a", entry("1" * 64))),
    (("a", entry("0" * 64)), ("a", entry("0" * 64, realm.LINK))),
]


@pytest.mark.parametrize(("one", "other"), PAIRS, ids=["path", "content", "kind"])
def test_different_objects_add_different_terms(
    one: tuple[str, Entry], other: tuple[str, Entry]
) -> None:
    assert realm.term(*one) != realm.term(*other)


def test_a_sum_does_not_depend_on_the_order() -> None:
    terms = [realm.term(name, entry("0" * 64)) for name in PATHS]
    assert realm.total(terms) == realm.total(reversed(terms))
    assert realm.total((*terms, -terms[0])) == realm.total(terms[1:])
    assert realm.from_bytes(realm.to_bytes(realm.total(terms))) == realm.total(terms)


def test_two_workers_see_one_state(tmp_path: Path) -> None:
    scene = Scene(tmp_path, {"a": "1"})
    one, other = scene.open(), scene.open(now_ms=lambda: NOW_MS + 1, pause=no_pause)
    receipt = do(one, "write", path="a", content="2")
    assert other.observe(EVERYTHING).state == receipt.poststate
    with pytest.raises(StaleObservationError):
        do(
            other,
            "write",
            key=Key("key-2"),
            path="a",
            content="3",
            prestate=None,
            expected="absent",
        )
    one.close()
    other.close()
