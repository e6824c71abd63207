"""What is taken for evidence: a receipt, or a ref at the very commit that it was to go to."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from counterfoil.core.errors import (
    ContractError,
    CounterfoilError,
    FormatError,
    UnavailableError,
    UnknownOutcomeError,
)
from counterfoil.core.receipt import Answer
from counterfoil.core.words import Json, Key
from tests.support.git_scene import (
    FENCE,
    KEY,
    LOCAL,
    MAIN,
    NEWER,
    RUN,
    SCOPE,
    WORK,
    Scene,
    asked,
    commit,
    do,
    git,
    in_memory,
    operation,
    planned_only,
    push,
)

RECEIPTS = "refs/counterfoil/receipts/"


@pytest.fixture
def scene() -> Iterator[Scene]:
    with in_memory() as place:
        yield Scene(place)


def put(scene: Scene, kind: str, target: str) -> None:
    """Move work to a commit as somebody else does, or remove it; where the kind writes."""
    if kind == "git.push":
        git(scene.root, "push", "-q", scene.url, f"+{target}:{WORK}")
    elif target:
        git(scene.root, "update-ref", WORK, target)
    else:
        git(scene.root, "update-ref", "-d", WORK)


def place_of(scene: Scene, kind: str) -> Path:
    return scene.remote if kind == "git.push" else scene.root


@pytest.mark.parametrize("kind", ["git.branch", "git.push"])
@pytest.mark.parametrize(
    "how", ["forced back", "made at an old commit", "deleted and made again", "moved on from it"]
)
def test_a_move_that_never_left_is_not_found_in_what_others_did(
    scene: Scene, how: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, ahead = scene.first, scene.made(scene.first, "ahead")
    further = scene.made(ahead, "further")
    old, new, theirs = {
        "forced back": (ahead, first, (further,)),
        "made at an old commit": ("", first, (ahead,)),
        "deleted and made again": (first, ahead, ("", further)),
        "moved on from it": (first, ahead, (further,)),
    }[how]
    put(scene, kind, old)
    arguments = {"ref": WORK, "target": new, "expected": old or "absent", "force": True}
    if kind == "git.push":
        arguments["remote"] = "origin"
    call = operation(scene.open(), kind, arguments)
    planned_only(scene, call, monkeypatch)
    for target in theirs:
        put(scene, kind, target)
    adapter = scene.open()
    found = asked(adapter, kind)
    adapter.take(RUN, NEWER)
    assert (found.answer, found.receipt) == (Answer.FOUND_OTHER, None)
    with pytest.raises(UnknownOutcomeError):
        adapter.execute(msgspec.structs.replace(call, fence=NEWER))
    assert scene.at(WORK, place_of(scene, kind)) == theirs[-1]
    assert scene.at(RECEIPTS, place_of(scene, kind)) == ""


@pytest.mark.parametrize("kind", ["git.branch", "git.push"])
def test_a_ref_at_the_very_commit_is_evidence_and_cannot_be_forbidden(
    scene: Scene, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = scene.made(scene.first, "ahead")
    arguments = {"ref": WORK, "target": ahead, "expected": scene.first}
    if kind == "git.push":
        arguments["remote"] = "origin"
    planned_only(scene, operation(scene.open(), kind, arguments), monkeypatch)
    put(scene, kind, ahead)
    answer = scene.open().forbid(RUN, KEY, kind, NEWER)
    assert answer.answer is Answer.FOUND
    assert answer.receipt is not None
    assert answer.receipt.result["new"] == ahead
    assert asked(scene.open(), kind) == answer


@pytest.mark.parametrize("kind", ["git.branch", "git.push"])
def test_a_move_to_where_a_ref_is_to_be_already_is_refused(scene: Scene, kind: str) -> None:
    arguments: dict[str, Json] = {"ref": WORK, "target": scene.first, "expected": scene.first}
    if kind == "git.push":
        arguments["remote"] = "origin"
    (spec,) = (spec for spec in scene.open().kinds if spec.name == kind)
    with pytest.raises(ContractError, match="there already"):
        spec.normalise(arguments)


# ---------------------------------------------------------------- what is lost


def lose(place: Path, ref: str, how: str) -> None:
    """Lose what a ref names, or what the ref holds."""
    git_dir = place if (place / "refs").exists() else place / ".git"
    name = git(place, "for-each-ref", "--format=%(refname)", ref)
    object_id = git(place, "rev-parse", name)
    if how == "its object is gone":
        (git_dir / "objects" / object_id[:2] / object_id[2:]).unlink()
    else:
        (git_dir / name).write_bytes(b"")


LOST = [("its object is gone", FormatError), ("the ref is empty", UnavailableError)]


@pytest.mark.parametrize(("how", "error"), LOST)
def test_a_lost_receipt_is_no_absence(
    scene: Scene, how: str, error: type[CounterfoilError]
) -> None:
    adapter = scene.open()
    call = operation(adapter, "git.commit", commit(scene), scope=LOCAL)
    adapter.execute(call)
    lose(scene.root, RECEIPTS, how)
    if error is FormatError:
        with pytest.raises(FormatError, match="gone"):
            asked(adapter, call.kind)
    else:
        assert asked(adapter, call.kind).answer is Answer.UNKNOWN
    with pytest.raises(error):
        adapter.execute(call)
    assert scene.commits() == 1


@pytest.mark.parametrize(("how", "error"), LOST)
def test_a_lost_desk_lets_no_older_lease_in(
    scene: Scene, how: str, error: type[CounterfoilError]
) -> None:
    adapter = scene.open()
    call = operation(adapter, "git.commit", commit(scene), scope=LOCAL, fence=FENCE)
    adapter.take(RUN, NEWER)
    lose(scene.root, "refs/counterfoil/desks/", how)
    with pytest.raises(error):
        adapter.execute(call)
    with pytest.raises(error):
        adapter.take(RUN, FENCE)
    assert scene.commits() == 0


@pytest.mark.parametrize("how", ["its object is gone", "the ref is empty"])
def test_a_receipt_that_a_remote_lost_is_unknown(scene: Scene, how: str) -> None:
    do(scene.open(), "git.push", push(scene))
    git(scene.root, "gc", "-q", "--prune=now")
    lose(scene.remote, RECEIPTS, how)
    assert asked(scene.open(), "git.push").answer is Answer.UNKNOWN


@pytest.mark.parametrize("where", ["here", "there"])
def test_a_branch_that_cannot_be_read_is_not_seen_as_nothing(scene: Scene, where: str) -> None:
    adapter = scene.open()
    lose(scene.root if where == "here" else scene.remote, WORK, "the ref is empty")
    with pytest.raises(UnavailableError, match="broken"):
        adapter.observe(SCOPE)


def test_a_file_whose_content_is_lost_is_not_read_as_nothing(scene: Scene) -> None:
    object_id = git(scene.root, "rev-parse", f"{MAIN}:app.py")
    (scene.root / ".git/objects" / object_id[:2] / object_id[2:]).unlink()
    with pytest.raises(UnavailableError, match="cannot be read"):
        do(scene.open(), "git.read", {"ref": MAIN, "path": "app.py"}, key=Key(""))
