"""Pushes to bare remotes over files, HTTP and git's own protocol, where answers get lost."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from counterfoil.adapters.git import pushing
from counterfoil.adapters.git.command import Ran
from counterfoil.core.errors import (
    ContractError,
    CounterfoilError,
    FencedError,
    IdempotencyConflictError,
    PermissionDeniedError,
    StaleObservationError,
    UnavailableError,
    UnknownOutcomeError,
)
from counterfoil.core.receipt import Answer
from counterfoil.core.words import Key
from counterfoil.ports import Operation
from tests.support.git_http import GitServer, served
from tests.support.git_scene import (
    FENCE,
    KEY,
    NEWER,
    RUN,
    SCOPE,
    TAG,
    WORK,
    Scene,
    asked,
    do,
    expect_one_end,
    git,
    in_memory,
    operation,
    planned_only,
    push,
)
from tests.support.sources import ROOT

HOOK = "#!/bin/sh\ntouch {place}/landed\nwhile [ ! -e {place}/go ]; do sleep 0.01; done\n"


@pytest.fixture
def place() -> Iterator[Path]:
    with in_memory() as place:
        yield place


@pytest.fixture
def scene(place: Path) -> Scene:
    return Scene(place)


@pytest.fixture
def server(scene: Scene) -> Iterator[GitServer]:
    git(scene.remote, "config", "http.receivepack", "true")
    with served(scene.place) as server:
        scene.url = f"{server.url}/remote.git"
        yield server


@pytest.fixture
def daemon(scene: Scene) -> Iterator[str]:
    """Serve the remote by git's own protocol."""
    port = _free_port()
    command = ["git", "daemon", f"--base-path={scene.place}", "--export-all", "--reuseaddr"]
    command += [
        "--enable=receive-pack",
        "--listen=127.0.0.1",
        f"--port={port}",
        "--informative-errors",
    ]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True) as process:
        scene.url = f"git://127.0.0.1:{port}/remote.git"
        _until(lambda: _answers(scene))
        yield scene.url
        process.terminate()


def _free_port() -> int:

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _answers(scene: Scene) -> bool:
    ran = subprocess.run(["git", "ls-remote", scene.url], check=False, capture_output=True)
    return ran.returncode == 0


def _until(condition: Any) -> None:
    ends_at = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < ends_at
        time.sleep(0.01)


def hooked(scene: Scene, name: str, text: str) -> None:
    """Give the remote a hook."""
    place = scene.remote / "hooks" / name
    place.parent.mkdir(exist_ok=True)
    place.write_text(text.format(place=scene.place))
    place.chmod(0o755)


def remote_count(scene: Scene) -> int:
    return scene.commits(scene.remote)


@pytest.mark.parametrize("way", ["file", "http", "git"])
def test_a_push_moves_the_ref_with_its_receipt(
    scene: Scene, way: str, request: pytest.FixtureRequest
) -> None:
    if way != "file":
        request.getfixturevalue({"http": "server", "git": "daemon"}[way])
    adapter = scene.open()
    arguments = push(scene)
    receipt = do(adapter, "git.push", arguments)
    assert receipt.result == {
        "remote": "origin",
        "ref": WORK,
        "old": scene.first,
        "new": arguments["target"],
    }
    assert scene.at(WORK, scene.remote) == arguments["target"]
    assert scene.at("refs/counterfoil/receipts/", scene.remote) != ""
    assert asked(scene.open(), "git.push").receipt == receipt
    assert scene.at(WORK) == scene.first


def test_a_tag_is_pushed_like_a_branch(scene: Scene) -> None:
    adapter = scene.open()
    arguments = {"remote": "origin", "ref": TAG, "target": scene.first, "expected": "absent"}
    do(adapter, "git.push", arguments)
    assert scene.at(TAG, scene.remote) == scene.first


def test_a_receipt_is_fetched_where_it_is_no_longer_at_hand(
    scene: Scene, server: GitServer
) -> None:
    receipt = do(scene.open(), "git.push", push(scene))
    kept = scene.at("refs/counterfoil/receipts/", scene.remote)
    git(scene.root, "gc", "-q", "--prune=now")
    assert "missing" in git(scene.root, "cat-file", "--batch-check", given=kept)
    assert asked(scene.open(), "git.push").receipt == receipt
    assert not (scene.root / ".git" / "FETCH_HEAD").exists()
    assert scene.open().observe(SCOPE).state == receipt.poststate


# ---------------------------------------------------------------- C21


def killed_push(scene: Scene, call: Operation) -> None:
    """Start the call in another process, and kill it once the remote has moved."""
    (scene.place / "call").write_bytes(msgspec.msgpack.encode(call))
    line = f"{scene.place} whole 0\n"
    with subprocess.Popen(
        [sys.executable, "-m", "tests.support.git_worker"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        text=True,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    ) as worker:
        assert worker.stdin is not None
        worker.stdin.write(line)
        worker.stdin.flush()
        _until((scene.place / "landed").exists)

        os.killpg(worker.pid, signal.SIGKILL)


@pytest.mark.parametrize(
    "then",
    [
        pytest.param("nothing", id="C21 a killed after the ref update"),
        pytest.param("ahead", id="C21 c and a teammate pushed on top"),
    ],
)
def test_a_push_that_landed_before_its_client_died_is_adopted(scene: Scene, then: str) -> None:
    scene.ready()
    hooked(scene, "post-receive", HOOK)
    call = operation(scene.open(), "git.push", push(scene))
    killed_push(scene, call)
    (scene.place / "go").touch()
    newest = scene.teammate_pushes() if then == "ahead" else call.arguments["target"]
    adapter = scene.open()
    found = asked(adapter, "git.push")
    adapter.take(RUN, NEWER)
    assert found.answer is Answer.FOUND
    assert found.receipt is not None
    assert found.receipt.result["old"] == scene.first
    assert found.receipt.result["new"] == call.arguments["target"]
    assert scene.at(WORK, scene.remote) == newest
    assert remote_count(scene) == 1


@pytest.mark.parametrize("row", [pytest.param("C21", id="C21 b killed before the ref update")])
def test_a_push_that_was_held_up_is_sent_again_from_the_same_old_value(
    scene: Scene, row: str
) -> None:
    scene.ready()
    hooked(scene, "pre-receive", HOOK)
    call = operation(scene.open(), "git.push", push(scene))
    killed_push(scene, call)
    _until(lambda: not _at_work(scene))
    assert scene.at(WORK, scene.remote) == scene.first
    (scene.place / "go").touch()
    assert expect_one_end(scene, call, is_at_remote=True) is Answer.ABSENT
    assert scene.at(WORK, scene.remote) == call.arguments["target"]


def _at_work(scene: Scene) -> bool:
    """End what the killed client's remote still runs, as a host that is cut off does."""
    found = False
    for place in Path("/proc").glob("[0-9]*"):
        try:
            line = (place / "cmdline").read_bytes()
            inside = (place / "cwd").readlink().is_relative_to(scene.remote)
        except OSError:
            continue
        if inside and (b"receive-pack" in line or b"pre-receive" in line):
            os.kill(int(place.name), signal.SIGKILL)
            found = True
    return found


@pytest.mark.parametrize("row", [pytest.param("C21", id="C21 d the remote moved elsewhere")])
def test_a_remote_that_moved_elsewhere_is_for_a_person_and_never_forced(
    scene: Scene, row: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = operation(scene.open(), "git.push", push(scene))
    planned_only(scene, call, monkeypatch)
    theirs = scene.teammate_pushes()
    adapter = scene.open()
    found = asked(adapter, "git.push")
    adapter.take(RUN, NEWER)
    assert (found.answer, found.receipt) == (Answer.FOUND_OTHER, None)
    assert theirs in found.reason
    with pytest.raises(UnknownOutcomeError):
        adapter.execute(msgspec.structs.replace(call, fence=NEWER))
    assert scene.at(WORK, scene.remote) == theirs


def test_a_remote_whose_git_was_killed_between_ref_and_receipt_gets_its_receipt(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = operation(scene.open(), "git.push", push(scene))
    planned_only(scene, call, monkeypatch)
    git(scene.root, "push", "-q", scene.url, f"{call.arguments['target']}:{WORK}")
    found = asked(scene.open(), "git.push")
    assert found.answer is Answer.FOUND
    assert scene.at("refs/counterfoil/receipts/", scene.remote) != ""
    scene.teammate_pushes()
    assert asked(scene.open(), "git.push") == found
    assert remote_count(scene) == 1


# ---------------------------------------------------------------- answers, time and refusals


def test_an_answer_that_is_lost_on_the_way_back_is_found(scene: Scene, server: GitServer) -> None:
    scene.ready()
    adapter = scene.open()
    call = operation(adapter, "git.push", push(scene))
    server.loses = True
    receipt = adapter.execute(call)
    assert remote_count(scene) == 1
    assert asked(scene.open(), "git.push").receipt == receipt
    assert adapter.execute(call).id == receipt.id
    assert remote_count(scene) == 1


def test_an_answer_that_is_lost_with_the_remote_is_unknown(
    scene: Scene, server: GitServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.ready()
    adapter, genuine = scene.open(), pushing._pushed
    call = operation(adapter, "git.push", push(scene))

    def then_down(*given: Any) -> Any:
        ran = genuine(*given)
        server.refuses = True
        return ran

    server.loses = True
    with monkeypatch.context() as patch:
        patch.setattr(pushing, "_pushed", then_down)
        with pytest.raises(UnknownOutcomeError):
            adapter.execute(call)
    assert asked(scene.open(), "git.push").answer is Answer.UNKNOWN
    server.refuses = False
    assert asked(scene.open(), "git.push").answer is Answer.FOUND
    assert remote_count(scene) == 1


def test_a_push_that_takes_too_long_is_unknown_and_then_found(scene: Scene) -> None:
    scene.ready()
    hooked(scene, "post-receive", HOOK)
    adapter = scene.open()
    call = operation(adapter, "git.push", push(scene), timeout_ms=1_500)
    with pytest.raises((UnknownOutcomeError, UnavailableError)):
        adapter.execute(call)
    (scene.place / "go").touch()
    has_landed = (scene.place / "landed").exists()
    found = expect_one_end(scene, call, is_at_remote=True)
    assert found is (Answer.FOUND if has_landed else Answer.ABSENT)


def test_a_remote_that_is_down_is_unavailable_and_nothing_happened(
    scene: Scene, server: GitServer
) -> None:
    adapter = scene.open()
    call = operation(adapter, "git.push", push(scene))
    server.refuses = True
    with pytest.raises(UnavailableError):
        adapter.execute(call)
    assert asked(adapter, "git.push").answer is Answer.UNKNOWN
    server.refuses = False
    assert asked(adapter, "git.push").answer is Answer.ABSENT
    expect_one_end(scene, call, is_at_remote=True)


@pytest.mark.parametrize(
    ("settings", "hook", "said"),
    [
        pytest.param({}, "exit 1", "hook declined", id="a rule of the remote"),
        pytest.param({"receive.maxInputSize": "10"}, "exit 0", "unpack", id="the remote is full"),
        pytest.param({"receive.advertiseAtomic": "false"}, "exit 0", "atomic", id="no atomic push"),
        pytest.param(
            {"receive.hideRefs": "refs/counterfoil"}, "exit 0", "hidden", id="no receipts taken"
        ),
        pytest.param(
            {"uploadpack.hideRefs": "refs/counterfoil"}, "exit 0", "not show", id="none shown"
        ),
    ],
)
def test_what_a_remote_refuses_did_not_happen(
    scene: Scene, settings: dict[str, str], hook: str, said: str
) -> None:
    for name, value in settings.items():
        git(scene.remote, "config", name, value)
    hooked(scene, "pre-receive", f"#!/bin/sh\n{hook}\n")
    adapter = scene.open()
    with pytest.raises(CounterfoilError, match=said) as caught:
        do(adapter, "git.push", push(scene))
    assert isinstance(caught.value, PermissionDeniedError)
    assert asked(adapter, "git.push").answer is Answer.ABSENT
    assert scene.at(WORK, scene.remote) == scene.first
    assert scene.at("refs/counterfoil/receipts/", scene.remote) == ""


def test_a_remote_that_takes_the_ref_and_not_the_receipt_is_believed_by_its_ref(
    scene: Scene,
) -> None:
    adapter = scene.open()
    call = operation(adapter, "git.push", push(scene))
    do(adapter, "git.push", push(scene, 7), key=Key("an earlier push"))
    git(scene.remote, "update-ref", WORK, scene.first)
    git(scene.remote, "config", "receive.hideRefs", "refs/counterfoil")
    with pytest.raises(UnknownOutcomeError):
        adapter.execute(call)
    found = asked(scene.open(), "git.push")
    assert found.answer is Answer.FOUND
    assert found.receipt is not None
    assert found.receipt.result["new"] == scene.at(WORK, scene.remote)
    assert remote_count(scene) == 1


# ---------------------------------------------------------------- others at work


def test_a_teammate_between_observation_and_call_is_not_overwritten(scene: Scene) -> None:
    adapter = scene.open()
    call = operation(adapter, "git.push", push(scene))
    theirs = scene.teammate_pushes()
    with pytest.raises(StaleObservationError):
        adapter.execute(call)
    assert scene.at(WORK, scene.remote) == theirs
    assert asked(adapter, "git.push").answer is Answer.ABSENT


def test_a_teammate_between_the_last_look_and_the_push_is_not_overwritten(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.ready()
    adapter, genuine, theirs = scene.open(), pushing._pushed, list[str]()
    call = operation(adapter, "git.push", push(scene))

    def late(*given: Any) -> Any:
        theirs.append(scene.teammate_pushes())
        return genuine(*given)

    with monkeypatch.context() as patch:
        patch.setattr(pushing, "_pushed", late)
        with pytest.raises(StaleObservationError):
            adapter.execute(call)
    assert scene.at(WORK, scene.remote) == theirs[0]
    assert asked(adapter, "git.push").answer is Answer.ABSENT


def test_a_push_that_would_take_commits_away_needs_force_and_the_old_value(scene: Scene) -> None:
    adapter = scene.open()
    do(adapter, "git.push", push(scene))
    at = scene.at(WORK, scene.remote)
    aside = scene.made(scene.first, "aside")
    arguments = {"remote": "origin", "ref": WORK, "target": aside, "expected": at}
    with pytest.raises(PermissionDeniedError, match="only force"):
        do(adapter, "git.push", arguments, key=Key("key-2"))
    assert scene.at(WORK, scene.remote) == at
    do(adapter, "git.push", {**arguments, "force": True}, key=Key("key-3"))
    assert scene.at(WORK, scene.remote) == aside


def test_a_worker_whose_lease_was_followed_pushes_nothing(scene: Scene) -> None:
    former, present = scene.open(), scene.open()
    former.take(RUN, FENCE)
    call = operation(former, "git.push", push(scene))
    present.take(RUN, NEWER)
    with pytest.raises(FencedError):
        former.execute(call)
    assert scene.at(WORK, scene.remote) == scene.first


def test_a_key_that_is_forbidden_while_a_push_is_on_its_way_lets_one_through(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:

    former, genuine = scene.open(), pushing._pushed
    call = operation(former, "git.push", push(scene))
    answers: list[Answer] = []

    def late(site: Any, remote: str, pairs: Any, left: Any) -> Any:
        if len(tuple(pairs)) == 2:
            present = scene.open()
            present.take(RUN, NEWER)
            answers.append(present.forbid(RUN, KEY, "git.push", NEWER).answer)
        return genuine(site, remote, pairs, left)

    with monkeypatch.context() as patch:
        patch.setattr(pushing, "_pushed", late)
        with pytest.raises((PermissionDeniedError, StaleObservationError)):
            former.execute(call)
    assert answers == [Answer.ABSENT]
    assert scene.at(WORK, scene.remote) == scene.first


def test_the_same_key_with_another_intent_is_a_conflict_at_the_remote(scene: Scene) -> None:
    adapter = scene.open()
    do(adapter, "git.push", push(scene))
    with pytest.raises(IdempotencyConflictError):
        do(adapter, "git.push", push(scene, 2))
    assert remote_count(scene) == 1


@pytest.mark.parametrize(
    "trusts",
    [
        pytest.param(False, id="T27 a redirect to another host"),
        pytest.param(True, id="T27 one that a trusted repository would follow"),
    ],
)
def test_a_remote_that_sends_us_elsewhere_is_not_followed(
    scene: Scene, server: GitServer, trusts: bool
) -> None:
    for name in ("http.followRedirects", f"http.{scene.url}.followRedirects"):
        git(scene.root, "config", name, "true")
    with served(scene.place) as other:
        server.redirects_to = other.url
        with pytest.raises(UnavailableError):
            scene.open(trusts_repository=trusts).observe(SCOPE)
        assert other.asked == []


@pytest.mark.parametrize("how", ["plain", "a setting with a secret"])
def test_what_git_says_of_a_remote_is_told_without_its_url(
    scene: Scene, server: GitServer, how: str
) -> None:
    secret = server.url.replace("://", "://user:secret@")
    if how != "plain":
        git(scene.root, "config", f"url.{secret}/.insteadOf", f"{server.url}/")
    adapter = scene.open(trusts_repository=how != "plain")
    call = operation(adapter, "git.push", push(scene))
    server.refuses = True
    with pytest.raises(UnavailableError, match="503") as caught:
        adapter.execute(call)
    reason = asked(adapter, "git.push").reason
    assert "503" in reason
    for text in (repr(caught.value), reason):
        assert "secret" not in text
        assert "://" not in text


def test_what_a_remote_says_as_it_refuses_is_told_without_urls() -> None:
    line = b"!\ta:b\t[remote rejected] (see https://user:secret@host/rules)\n"
    reasons = pushing._refusals(Ran(code=1, out=line, trouble=""), 1)
    assert reasons == "[remote rejected] (see (a URL)"


def test_a_password_comes_by_a_program_and_stands_in_no_record(
    scene: Scene, server: GitServer
) -> None:
    server.password = "a well kept secret"
    with pytest.raises(UnavailableError):
        scene.open().observe(SCOPE)
    program = scene.place / "ask"
    program.write_text(f'#!/bin/sh\necho "{server.password}"\n')
    program.chmod(0o755)
    adapter = scene.open(environment={"GIT_ASKPASS": str(program)})
    receipt = do(adapter, "git.push", push(scene))
    names = git(scene.root, "for-each-ref", "--format=%(objectname)", "refs/counterfoil")
    names += "\n" + git(scene.remote, "for-each-ref", "--format=%(objectname)", "refs/counterfoil")
    kept = [git(scene.root, "cat-file", "-p", name) for name in names.split()]
    assert remote_count(scene) == 1
    assert len(kept) >= 3
    assert not any(server.password in text for text in (*kept, repr(receipt)))


def test_a_remote_that_was_not_named_is_refused(scene: Scene) -> None:
    adapter = scene.open()
    with pytest.raises(PermissionDeniedError, match="remotes"):
        do(adapter, "git.push", push(scene, remote="upstream"))
    with pytest.raises(ContractError, match="upstream"):
        adapter.observe({**SCOPE, "remotes": ("upstream",)})
