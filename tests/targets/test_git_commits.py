"""Commits, branches and tags within a repository that somebody else works in too."""

import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from counterfoil.adapters.git.reading import FILE_BYTES_MAX
from counterfoil.core.errors import (
    ContractError,
    CounterfoilError,
    FencedError,
    PermissionDeniedError,
    StaleObservationError,
    UnavailableError,
)
from counterfoil.core.receipt import Answer
from counterfoil.core.words import Json, Key
from tests.support.git_scene import (
    ENVIRONMENT,
    FENCE,
    IMPATIENT,
    LOCAL,
    MAIN,
    NEWER,
    NOW_MS,
    RUN,
    RUNNER,
    TAG,
    WORK,
    Scene,
    asked,
    commit,
    do,
    expect_one_end,
    git,
    in_memory,
    operation,
)


@pytest.fixture
def place() -> Iterator[Path]:
    with in_memory() as place:
        yield place


@pytest.fixture
def scene(place: Path) -> Scene:
    return Scene(place)


def dirty(scene: Scene) -> None:
    """Leave staged, unstaged and untracked changes in the working tree."""
    (scene.root / "staged.txt").write_text("staged\n")
    git(scene.root, "add", "staged.txt")
    (scene.root / "app.py").write_text("half done\n")
    (scene.root / "untracked.txt").write_text("untracked\n")


def test_the_id_of_a_commit_follows_from_the_intent_alone(place: Path) -> None:
    places = [place / "one", place / "other"]
    made: list[str] = []
    for folder in places:
        folder.mkdir()
        scene = Scene(folder)
        arguments = commit(scene, parent="absent", expected="absent", ref="refs/heads/new")
        scope = {**LOCAL, "refs": ("refs/heads/new",)}
        made.append(do(scene.open(), "git.commit", arguments, scope=scope).result["new"])
    text = git(places[0] / "repository", "cat-file", "commit", made[0])
    assert made[0] == made[1]
    assert text.splitlines()[1:] == [
        "author Runner <run@example.org> 1767319445 +0100",
        "committer Runner <run@example.org> 1767319445 +0100",
        "",
        "change 1",
    ]


def test_a_commit_holds_the_changes_and_all_else_of_its_parent(scene: Scene) -> None:
    changes = {
        "app.py": "sound\n",
        "docs/note.md": None,
        "docs/deep/er/raw.bin": b"\x00\xff",
        "run.sh": "#!/bin/sh\n",
    }
    arguments = commit(scene, changes=changes, executable=["run.sh"])
    result = do(scene.open(), "git.commit", arguments).result
    listed = git(scene.root, "ls-tree", "-r", "--format=%(objectmode) %(path)", result["new"])
    assert result == {"ref": WORK, "old": scene.first, "new": scene.at(WORK)}
    assert listed.splitlines() == ["100644 app.py", "100644 docs/deep/er/raw.bin", "100755 run.sh"]
    assert git(scene.root, "show", f"{WORK}:app.py") == "sound"
    read = do(scene.open(), "git.read", {"ref": WORK, "path": "docs/deep/er/raw.bin"}, key=Key(""))
    assert read.result == {"ref": WORK, "id": scene.at(WORK), "content": b"\x00\xff"}


def test_the_dirty_working_tree_of_the_user_stays_as_it_is_to_the_byte(scene: Scene) -> None:
    dirty(scene)
    before, status = scene.picture(), git(scene.root, "status", "--porcelain")
    before = scene.picture()
    adapter = scene.open()
    new = do(adapter, "git.commit", commit(scene, changes={"app.py": "sound\n"})).result["new"]
    tag = {"ref": TAG, "target": new, "message": "first", "tagger": RUNNER}
    do(adapter, "git.tag", tag, key=Key("key-2"))
    assert scene.picture() == before
    assert git(scene.root, "status", "--porcelain") == status
    assert git(scene.root, "rev-parse", "HEAD") == scene.first
    assert not (scene.root / ".git" / "index.lock").exists()


@pytest.mark.parametrize("how", ["main working tree", "linked working tree", "a rebase"])
def test_a_branch_that_is_checked_out_is_not_moved_under_anybody(scene: Scene, how: str) -> None:
    if how == "a rebase":
        (scene.root / ".git" / "rebase-merge").mkdir()
        (scene.root / ".git" / "rebase-merge" / "head-name").write_text(f"{WORK}\n")
    if how == "linked working tree":
        git(scene.root, "worktree", "add", "-q", str(scene.place / "linked"), "work")
    ref = MAIN if how == "main working tree" else WORK
    arguments = commit(scene, ref=ref)
    with pytest.raises(PermissionDeniedError, match="is checked out"):
        do(scene.open(), "git.commit", arguments)
    assert scene.at(ref) == scene.first
    assert asked(scene.open(), "git.commit").answer is Answer.ABSENT
    do(scene.open(may_move_checked_out=True), "git.commit", arguments)
    assert scene.at(ref) != scene.first


def test_a_commit_takes_no_commits_off_its_branch(scene: Scene) -> None:
    adapter = scene.open()
    new = do(adapter, "git.commit", commit(scene)).result["new"]
    arguments = commit(scene, parent=scene.first, expected=new)
    with pytest.raises(PermissionDeniedError, match="does not contain"):
        do(adapter, "git.commit", arguments, key=Key("key-2"))
    assert scene.at(WORK) == new


def test_a_person_is_shown_what_a_write_would_do(scene: Scene) -> None:
    adapter, ahead = scene.open(), scene.made(scene.first, "ahead")
    arguments = commit(scene, changes={"a": "text\n", "b": b"\x00", "docs/note.md": None})
    move = {"ref": WORK, "target": ahead, "expected": scene.first}
    shown = adapter.preview("git.branch", move)
    assert adapter.preview("git.commit", arguments).splitlines() == [
        f"commit to {WORK} on top of {scene.first}:",
        "change 1",
        "+++ a",
        "text",
        "+++ b (1 bytes)",
        "--- delete docs/note.md",
    ]
    assert shown == f"move {WORK} from {scene.first} to {ahead}\n{ahead[:7]} ahead"
    assert len(adapter.preview("git.commit", commit(scene, changes={"a": "x" * 9_000}))) == 8_192


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        pytest.param({"link": "x"}, PermissionDeniedError, "is a link", id="a link"),
        pytest.param({"link/x": "x"}, PermissionDeniedError, "no folder", id="below a link"),
        pytest.param({"sub": "x"}, PermissionDeniedError, "is a commit", id="T29 a submodule"),
        pytest.param({"sub/x": "x"}, PermissionDeniedError, "no folder", id="T29 below one"),
        pytest.param({"docs": "x"}, PermissionDeniedError, "is a tree", id="a folder"),
        pytest.param({"app.py/x": "x"}, PermissionDeniedError, "no folder", id="below a file"),
        pytest.param({"gone": None}, StaleObservationError, "not there", id="nothing to delete"),
    ],
)
def test_a_path_that_is_no_plain_file_is_refused(
    scene: Scene, changes: dict[str, Json], error: type[CounterfoilError], said: str
) -> None:
    link = git(scene.root, "hash-object", "-w", "--stdin", given="app.py")
    git(scene.root, "update-index", "--add", "--cacheinfo", f"120000,{link},link")
    git(scene.root, "update-index", "--add", "--cacheinfo", f"160000,{scene.first},sub")
    git(scene.root, "commit", "-q", "-m", "odd entries")
    git(scene.root, "branch", "-f", "work", "main")
    with pytest.raises(error, match=said):
        do(scene.open(), "git.commit", commit(scene, changes=changes))
    assert scene.commits() == 0


ODD = ("-x", "--output=x", "a b", "a'\"$(touch x);`id`", "ä", "a*?[", "%s%n", ":(top)x", "=x,y")


@pytest.mark.parametrize(
    "text", [pytest.param(text, id=f"T26 T28 {number}") for number, text in enumerate(ODD)]
)
def test_names_that_look_like_options_or_commands_are_data(scene: Scene, text: str) -> None:
    arguments = commit(
        scene,
        changes={f"docs/{text}": text, text: text},
        message=f"--amend {text}\n\n-m {text}",
        author={**RUNNER, "name": f"R {text} r"},
    )
    result = do(scene.open(), "git.commit", arguments).result
    listed = git(scene.root, "ls-tree", "-rz", "--name-only", result["new"]).split("\0")
    said = git(scene.root, "log", "-1", "--format=%an%n%B", result["new"])
    assert {text, f"docs/{text}"} < set(listed)
    assert said == f"R {text} r\n--amend {text}\n\n-m {text}"


def test_a_branch_is_created_moved_forward_and_with_force_anywhere(scene: Scene) -> None:
    adapter, ref = scene.open(), "refs/heads/release"
    scope = {"refs": (ref,)}
    ahead, aside = scene.made(scene.first, "ahead"), scene.made(scene.first, "aside")

    def move(target: str, expected: str, key: str, *, force: bool = False) -> Json:
        arguments = {"ref": ref, "target": target, "expected": expected, "force": force}
        return do(adapter, "git.branch", arguments, scope=scope, key=Key(key)).result

    assert move(scene.first, "absent", "k1") == {"ref": ref, "old": None, "new": scene.first}
    move(ahead, scene.first, "k2")
    with pytest.raises(PermissionDeniedError, match="does not contain"):
        move(aside, ahead, "k3")
    with pytest.raises(StaleObservationError, match="not at"):
        move(aside, scene.first, "k4", force=True)
    assert move(aside, ahead, "k5", force=True)["new"] == scene.at(ref) == aside


def test_a_tag_is_made_once_with_and_without_an_object_of_its_own(scene: Scene) -> None:
    adapter, light = scene.open(), "refs/tags/light"
    scope = {"refs": (TAG, light)}
    annotated = {"ref": TAG, "target": scene.first, "message": "first\n\nnotes", "tagger": RUNNER}
    new = do(adapter, "git.tag", annotated, scope=scope).result["new"]
    do(adapter, "git.tag", {"ref": light, "target": scene.first}, scope=scope, key=Key("key-2"))
    with pytest.raises(StaleObservationError):
        do(adapter, "git.tag", {"ref": TAG, "target": scene.first}, scope=scope, key=Key("key-3"))
    assert (scene.at(TAG), scene.at(light)) == (new, scene.first)
    assert git(scene.root, "cat-file", "tag", "v1").splitlines()[1:] == [
        "type commit",
        "tag v1",
        "tagger Runner <run@example.org> 1767319445 +0100",
        "",
        "first",
        "",
        "notes",
    ]


@pytest.mark.parametrize("path", ["no such file", "a missing", "app.py 1", "docs/note.md/x"])
def test_a_file_that_is_not_there_is_read_as_nothing(scene: Scene, path: str) -> None:
    read = do(scene.open(), "git.read", {"ref": MAIN, "path": path}, key=Key(""))
    assert read.result == {"ref": MAIN, "id": scene.first, "content": None}


def test_a_file_beyond_the_bound_is_refused_and_one_at_it_is_read(scene: Scene) -> None:
    for size in (FILE_BYTES_MAX, FILE_BYTES_MAX + 1):
        (scene.root / f"{size}").write_bytes(b"x" * size)
    git(scene.root, "add", "-A")
    git(scene.root, "commit", "-q", "-m", "large")
    adapter = scene.open()
    at = {"ref": MAIN, "path": f"{FILE_BYTES_MAX}"}
    assert len(do(adapter, "git.read", at, key=Key("")).result["content"]) == FILE_BYTES_MAX
    with pytest.raises(ContractError, match=f"bound is {FILE_BYTES_MAX}"):
        do(adapter, "git.read", {**at, "path": f"{FILE_BYTES_MAX + 1}"}, key=Key(""))


def test_a_symbolic_ref_is_refused_since_it_moves_another(scene: Scene) -> None:
    git(scene.root, "symbolic-ref", "refs/heads/alias", MAIN)
    scope = {"refs": ("refs/heads/alias",), "paths": (".",)}
    with pytest.raises(PermissionDeniedError, match="another name of"):
        scene.open().observe(scope)


# ---------------------------------------------------------------- others at work


def test_another_actor_between_observation_and_call_is_not_overwritten(scene: Scene) -> None:
    adapter = scene.open()
    call = operation(adapter, "git.commit", commit(scene), scope=LOCAL)
    theirs = scene.made(scene.first, "theirs")
    git(scene.root, "update-ref", WORK, theirs)
    with pytest.raises(StaleObservationError):
        adapter.execute(call)
    assert scene.at(WORK) == theirs


def test_a_worker_whose_lease_was_followed_does_nothing(scene: Scene) -> None:
    former, present = scene.open(), scene.open()
    former.take(RUN, FENCE)
    call = operation(former, "git.commit", commit(scene), fence=FENCE)
    present.take(RUN, NEWER)
    with pytest.raises(FencedError):
        former.execute(call)
    assert scene.at(WORK) == scene.first


def test_a_lease_that_is_taken_within_a_transaction_makes_it_fail(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker without our lock, on another host say, takes over at the worst instant."""
    from counterfoil.adapters.git import refs, writing

    adapter, genuine = scene.open(), refs.transaction
    call = operation(adapter, "git.commit", commit(scene), scope=LOCAL)
    adapter.take(RUN, FENCE)

    def late(site: object, lines: tuple[str, ...], holder: int) -> object:
        if any(WORK in line for line in lines):
            desk = refs.desk(adapter._site, RUN)
            assert desk is not None
            refs.set_desk(adapter._site, _followed(desk), holder)
        return genuine(adapter._site, lines, holder)

    monkeypatch.setattr(writing.refs, "transaction", late)
    with pytest.raises((UnavailableError, FencedError)):
        adapter.execute(call)
    monkeypatch.undo()
    assert scene.at(WORK) == scene.first
    with pytest.raises(FencedError):
        adapter.execute(call)


def _followed(desk: object) -> object:
    from msgspec.structs import replace

    return replace(desk, fence=NEWER)  # type: ignore[type-var] # any record has a fence


@pytest.fixture
def busy(scene: Scene) -> object:
    """A commit of the user that waits in a slow hook, holding the index."""
    hook = scene.root / ".git" / "hooks" / "pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\ntouch started\nwhile [ ! -e go ]; do sleep 0.01; done\n")
    hook.chmod(0o755)
    git(scene.root, "config", "core.hooksPath", str(hook.parent))
    (scene.root / "app.py").write_text("by hand")
    with subprocess.Popen(
        ["git", "commit", "-q", "-a", "-m", "by hand"],
        cwd=scene.root,
        env=ENVIRONMENT,
        stderr=subprocess.PIPE,
    ) as user:
        while not (scene.root / "started").exists():
            time.sleep(0.005)
        yield user
        (scene.root / "go").touch()
        user.communicate(timeout=30)


@pytest.mark.parametrize("row", [pytest.param("C23", id="C23 b a live git holds the index")])
def test_an_index_that_somebody_holds_is_reported_and_left(
    scene: Scene, busy: "subprocess.Popen[bytes]", row: str
) -> None:
    lock = scene.root / ".git" / "index.lock"
    before = lock.read_bytes()
    adapter = scene.open()
    do(adapter, "git.commit", commit(scene))
    (shown,) = adapter.locks(LOCAL)
    (fact,) = adapter.observe(LOCAL).facts["locks"]
    owner, since_ms = lock.owner(), lock.stat().st_mtime_ns // 1_000_000
    assert shown.startswith(f"index.lock is {max(0, NOW_MS - since_ms) // 1000} s old and belongs")
    assert shown.endswith(f"to {owner}; git is at work there as pid {busy.pid}")
    assert fact == {"path": "index.lock", "owner": owner, "since_ms": since_ms}
    assert lock.read_bytes() == before
    (scene.root / "go").touch()
    busy.communicate(timeout=30)
    assert busy.returncode == 0
    assert (scene.commits(), scene.at(MAIN)) == (1, git(scene.root, "rev-parse", "HEAD"))
    git(scene.root, "fsck", "--strict")


@pytest.mark.parametrize(
    "row", [pytest.param("C23", id="C23 a d the holder was killed, the user had staged changes")]
)
def test_an_index_lock_that_was_left_stops_nobody_and_stays(scene: Scene, row: str) -> None:
    dirty(scene)
    lock = scene.root / ".git" / "index.lock"
    lock.write_bytes(b"DIRC half")
    before = scene.picture()
    receipt = do(scene.open(), "git.commit", commit(scene))
    assert (scene.commits(), lock.read_bytes()) == (1, b"DIRC half")
    assert git(scene.root, "ls-tree", "--name-only", receipt.result["new"]).splitlines() == [
        "1.txt",
        "app.py",
        "docs",
    ]
    assert scene.picture() == before


def test_a_ref_that_somebody_locked_is_reported_with_age_and_owner(scene: Scene) -> None:
    adapter = scene.open(environment=IMPATIENT)
    call = operation(adapter, "git.commit", commit(scene), scope=LOCAL)
    lock = scene.root / ".git" / f"{WORK}.lock"
    lock.write_text("")
    os.utime(lock, (NOW_MS / 1000 - 90, NOW_MS / 1000 - 90))
    with pytest.raises(
        UnavailableError, match=f"work.lock is 90 s old and belongs to {lock.owner()}"
    ):
        adapter.execute(call)
    assert lock.exists()
    assert asked(adapter, "git.commit").answer is Answer.ABSENT
    lock.unlink()
    expect_one_end(scene, call)


def test_a_foreign_lock_that_holds_what_we_would_write_is_left_too(scene: Scene) -> None:
    adapter = scene.open(environment=IMPATIENT)
    call = operation(adapter, "git.commit", commit(scene), scope=LOCAL)
    new = do(scene.open(), "git.commit", commit(scene), key=Key("other")).result["new"]
    git(scene.root, "update-ref", WORK, scene.first)
    lock = scene.root / ".git" / f"{WORK}.lock"
    lock.write_text(f"{new}\n")
    with pytest.raises(UnavailableError, match=r"work\.lock"):
        adapter.execute(call)
    assert lock.read_text() == f"{new}\n"


# ---------------------------------------------------------------- full and slow


SHIM = '#!/bin/sh\nexec strace -f -qq -o /dev/null -e trace={calls} -e inject={fault} git "$@"\n'


def doomed(scene: Scene, calls: str, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the file system fail under each git of an adapter that is opened after this."""
    program = scene.place / "bin" / "git-that-fails"
    program.parent.mkdir()
    program.write_text(SHIM.format(calls=calls, fault=fault))
    program.chmod(0o755)
    monkeypatch.setattr("counterfoil.adapters.git.shutil.which", lambda _: str(program))


@pytest.mark.parametrize(
    ("calls", "fault"),
    [
        pytest.param("fsync", "fsync:error=ENOSPC", id="the disk is full"),
        pytest.param("fsync", "fsync:error=EIO", id="syncs fail"),
        pytest.param("rename", "rename:error=EROFS", id="nothing can be renamed"),
        pytest.param("rename", "rename:error=ENOSPC:when=3", id="the receipt cannot be renamed"),
    ],
)
def test_a_disk_that_fails_gets_no_effect_or_one(
    scene: Scene, calls: str, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = scene.open()
    good.take(RUN, FENCE)
    call = operation(good, "git.commit", commit(scene), scope=LOCAL)
    with monkeypatch.context() as patch:
        doomed(scene, calls, fault, patch)
        try:
            receipt = scene.open().execute(call)
        except CounterfoilError as error:
            assert isinstance(error, UnavailableError)  # noqa: PT017 - either end is right
            assert scene.at(WORK) == scene.first
        else:
            assert receipt.result["new"] == scene.at(WORK)
    expect_one_end(scene, call)


def test_a_trusted_repository_cannot_turn_off_what_makes_it_durable(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(scene.root, "config", "core.fsync", "none")
    call = operation(scene.open(), "git.commit", commit(scene), scope=LOCAL)
    with monkeypatch.context() as patch:
        doomed(scene, "fsync", "fsync:error=EIO", patch)
        with pytest.raises(UnavailableError):
            scene.open(trusts_repository=True).execute(call)
    assert expect_one_end(scene, call) is Answer.ABSENT


def test_records_outlive_what_the_user_does_to_keep_the_repository_small(scene: Scene) -> None:
    adapter = scene.open()
    receipt = do(adapter, "git.commit", commit(scene))
    git(scene.root, "pack-refs", "--all", "--prune")
    git(scene.root, "gc", "-q", "--prune=now")
    assert asked(scene.open(), "git.commit").receipt == receipt
    assert adapter.take(RUN, NEWER) == receipt.served
    do(adapter, "git.commit", commit(scene, 2), key=Key("key-2"), fence=NEWER)
    assert scene.commits() == 2
    git(scene.root, "fsck", "--strict")


def test_a_check_tells_what_a_ref_contains(scene: Scene) -> None:
    adapter, ahead = scene.open(), scene.made(scene.first, "ahead")
    git(scene.root, "update-ref", WORK, ahead)

    def passes(ref: str, target: str, **more: str) -> bool:
        arguments = {"ref": ref, "target": target, **more}
        return bool(do(adapter, "git.check", arguments, key=Key("")).result["passed"])

    assert passes(WORK, ahead)
    assert passes(WORK, scene.first)
    assert not passes(MAIN, ahead)
    assert not passes(TAG, ahead)
    assert not passes(WORK, ahead, remote="origin")
    scene.teammate_pushes()
    with pytest.raises(UnavailableError, match="cannot be told"):
        passes(WORK, ahead, remote="origin")


def test_a_record_that_somebody_wrote_over_is_an_alarm_and_no_absence(scene: Scene) -> None:
    do(scene.open(), "git.commit", commit(scene))
    ref = git(scene.root, "for-each-ref", "--format=%(refname)", "refs/counterfoil/receipts/")
    forged = git(scene.root, "hash-object", "-w", "--stdin", given='{"effect":null}')
    git(scene.root, "update-ref", ref, forged)
    with pytest.raises(CounterfoilError, match="receipt"):
        asked(scene.open(), "git.commit")


def test_a_copy_of_a_repository_is_another_environment(scene: Scene) -> None:
    adapter = scene.open()
    state = adapter.observe(LOCAL).state
    copied = scene.place / "copy"
    subprocess.run(["cp", "-a", str(scene.root), str(copied)], check=True)
    moved: Mapping[str, Path] = {"root": copied}
    there = Scene.__new__(Scene)
    there.__dict__.update(vars(scene), **moved)
    seen = there.open().observe(LOCAL).state
    assert (seen.fingerprint, seen.version) == (state.fingerprint, state.version)
    assert seen.instance != state.instance
    assert scene.open().observe(LOCAL).state == state
