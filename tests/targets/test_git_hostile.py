"""A repository that wants to run programs or be taken for another gets nowhere."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from counterfoil.core.errors import ConfigError, CounterfoilError
from counterfoil.core.words import Key
from tests.support.git_scene import (
    ENVIRONMENT,
    LOCAL,
    MAIN,
    RUNNER,
    SCOPE,
    TAG,
    WORK,
    Scene,
    asked,
    commit,
    do,
    git,
    in_memory,
    push,
)

HOOKS = """applypatch-msg pre-applypatch post-applypatch pre-commit prepare-commit-msg commit-msg
post-commit pre-rebase post-checkout post-merge pre-push pre-receive update proc-receive
post-receive post-update reference-transaction push-to-checkout pre-auto-gc post-rewrite
fsmonitor-watchman post-index-change""".split()


@pytest.fixture
def place() -> Iterator[Path]:
    with in_memory() as place:
        yield place


@pytest.fixture
def scene(place: Path) -> Scene:
    return Scene(place)


def ran(scene: Scene) -> list[str]:
    """Return what the repository got to run."""
    place = scene.place / "ran"
    return sorted(place.read_text().split()) if place.exists() else []


def armed(scene: Scene) -> None:
    """Let the repository name a program wherever git lets it."""
    program = scene.place / "program"
    program.write_text(f'#!/bin/sh\nbasename "$0" >> {scene.place}/ran\ncat\n')
    program.chmod(0o755)
    hooks = scene.root / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    for name in HOOKS:
        (hooks / name).unlink(missing_ok=True)
        (hooks / name).symlink_to(program)
    for name, value in SETTINGS.items():
        named = [text.format(program=program, place=scene.place) for text in (name, value)]
        git(scene.root, "config", *named)
    attributes = "* filter=evil diff=evil merge=evil ident text working-tree-encoding=UTF-16\n"
    (scene.root / ".git" / "info").mkdir(exist_ok=True)
    (scene.root / ".git" / "info" / "attributes").write_text(attributes)
    included = scene.place / "included"
    included.write_text(f"[core]\n\tfsmonitor = {program}\n")
    git(scene.root, "config", "include.path", str(included))
    (scene.place / "ran").unlink(missing_ok=True)


SETTINGS = {
    "core.fsmonitor": "{program}",
    "core.sshCommand": "{program}",
    "core.gitProxy": "{program}",
    "core.askPass": "{program}",
    "core.editor": "{program}",
    "core.pager": "{program}",
    "core.alternateRefsCommand": "{program}",
    "core.worktree": "{place}",
    "credential.helper": "{program}",
    "filter.evil.clean": "{program}",
    "filter.evil.smudge": "{program}",
    "filter.evil.process": "{program}",
    "filter.evil.required": "true",
    "diff.evil.textconv": "{program}",
    "diff.evil.command": "{program}",
    "diff.external": "{program}",
    "merge.evil.driver": "{program}",
    "gpg.program": "{program}",
    "gpg.ssh.program": "{program}",
    "commit.gpgSign": "true",
    "tag.gpgSign": "true",
    "tag.forceSignAnnotated": "true",
    "push.gpgSign": "true",
    "push.recurseSubmodules": "on-demand",
    "push.followTags": "true",
    "alias.push": "!{program}",
    "alias.update-ref": "!{program}",
    "trailer.x.command": "{program}",
    "uploadpack.packObjectsHook": "{program}",
    "remote.origin.receivepack": "{program}",
    "remote.origin.uploadpack": "{program}",
    "url.ext::{program}.insteadOf": "file://",
    "protocol.ext.allow": "always",
    "protocol.allow": "always",
    "http.proxy": "http://127.0.0.1:1",
    "gc.auto": "1",
    "maintenance.auto": "true",
}


@pytest.mark.parametrize(
    "row", [pytest.param("T29", id="T29 hooks, filters, configuration, includes")]
)
def test_nothing_that_the_repository_names_is_run(scene: Scene, row: str) -> None:
    arguments, sent = commit(scene), push(scene)
    armed(scene)
    adapter = scene.open()
    adapter.observe(SCOPE)
    do(adapter, "git.commit", {**arguments, "changes": {".gitattributes": "* filter=evil"}})
    tag = {"ref": TAG, "target": scene.first, "message": "m", "tagger": RUNNER}
    do(adapter, "git.tag", tag, key=Key("key-2"))
    do(adapter, "git.push", sent, key=Key("key-3"))
    do(adapter, "git.read", {"ref": MAIN, "path": "app.py"}, key=Key(""))
    do(adapter, "git.check", {"ref": MAIN, "target": scene.first}, key=Key(""))
    adapter.preview("git.push", sent)
    asked(adapter, "git.push", Key("key-4"))
    assert ran(scene) == []
    assert scene.commits(scene.remote) == 1


def test_the_same_repository_does_run_them_for_its_user(scene: Scene) -> None:
    """The test above would see it."""
    armed(scene)
    git_dir = {"GIT_DIR": str(scene.root / ".git")}
    words = ["git", "-c", "core.worktree=.", "update-ref", "refs/heads/x", scene.first]
    subprocess.run(
        words, cwd=scene.root, env={**ENVIRONMENT, **git_dir}, check=False, capture_output=True
    )
    words = ["git", "-c", "core.worktree=.", "add", "app.py"]
    (scene.root / "app.py").write_text("changed")
    subprocess.run(words, cwd=scene.root, env=ENVIRONMENT, check=False, capture_output=True)
    assert {"reference-transaction", "program"} <= set(ran(scene))


def test_hooks_run_where_the_operator_allows_it(scene: Scene) -> None:
    hook = scene.root / ".git" / "hooks" / "reference-transaction"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\necho hook >> {scene.place}/ran\n")
    hook.chmod(0o755)
    do(scene.open(trusts_repository=True), "git.commit", commit(scene))
    assert set(ran(scene)) == {"hook"}
    assert scene.commits() == 1


def test_what_is_promised_whoever_is_trusted_wins_over_every_setting(scene: Scene) -> None:
    url = "https://host/team/a=b.git"
    named = {
        "core.fsync": ("none", "all"),
        "core.fsyncMethod": ("writeout-only", "fsync"),
        "fetch.fsckObjects": ("false", "true"),
        "gc.auto": ("1", "0"),
        "maintenance.auto": ("true", "false"),
        f"http.{url}.followRedirects": ("true", "false"),
    }
    for name, (theirs, _) in named.items():
        git(scene.root, "config", name, theirs)
    hook = scene.root / ".git" / "hooks" / "reference-transaction"
    hook.parent.mkdir(exist_ok=True)
    asks = "".join(f"git config '{name}' >> {scene.place}/ran\n" for name in named)
    hook.write_text(f"#!/bin/sh\n[ $1 = committed ] || exit 0\n{asks}")
    hook.chmod(0o755)
    adapter = scene.open(trusts_repository=True, remotes={"origin": url})
    do(adapter, "git.commit", commit(scene), scope=LOCAL)
    told = (scene.place / "ran").read_text().split()
    assert told[: len(named)] == [ours for _, ours in named.values()]


@pytest.mark.parametrize("row", [pytest.param("T29", id="T29 the caller's own environment")])
def test_what_stands_in_the_environment_of_the_caller_does_not_reach_git(
    scene: Scene, row: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = scene.place / "elsewhere"
    git(scene.place, "init", "-q", "--bare", str(elsewhere))
    for name, value in {
        "GIT_DIR": str(elsewhere),
        "GIT_WORK_TREE": str(scene.place),
        "GIT_INDEX_FILE": str(scene.root / ".git" / "index"),
        "GIT_OBJECT_DIRECTORY": str(elsewhere / "objects"),
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "core.hooksPath",
        "GIT_CONFIG_VALUE_0": str(scene.place),
        "GIT_EXTERNAL_DIFF": "/bin/false",
        "GIT_NAMESPACE": "other",
    }.items():
        monkeypatch.setenv(name, value)
    before = scene.picture()
    new = do(scene.open(), "git.commit", commit(scene)).result["new"]
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    assert scene.at(WORK) == new
    assert scene.picture() == before
    assert git(elsewhere, "for-each-ref") == ""


def _alternates(scene: Scene) -> None:
    (scene.root / ".git/objects/info/alternates").write_text(f"{scene.remote}/objects\n")


def _gitfile(scene: Scene) -> None:
    (scene.root / ".git").rename(scene.place / "private.git")
    (scene.root / ".git").write_text(f"gitdir: {scene.place}/private.git\n")


def _gitlink(scene: Scene) -> None:
    (scene.root / ".git").rename(scene.place / "private.git")
    (scene.root / ".git").symlink_to(scene.place / "private.git")


def _commondir(scene: Scene) -> None:
    (scene.root / ".git/commondir").write_text(f"{scene.remote}\n")


def _objects(scene: Scene) -> None:
    (scene.root / ".git/objects").rename(scene.place / "objects")
    (scene.root / ".git/objects").symlink_to(scene.place / "objects")


def _partial(scene: Scene) -> None:
    git(scene.root, "config", "core.repositoryformatversion", "1")
    git(scene.root, "config", "extensions.partialClone", "origin")


def _prepared(scene: Scene) -> None:
    private = scene.root / ".git/counterfoil"
    private.mkdir(mode=0o700)
    (private / "commondir").write_text(f"{scene.remote}\n")


def _prepared_hooks(scene: Scene) -> None:
    (scene.root / ".git/counterfoil/hooks").mkdir(parents=True)


def _prepared_link(scene: Scene) -> None:
    (scene.root / ".git/counterfoil").mkdir()
    (scene.root / ".git/counterfoil/refs").symlink_to(scene.remote / "refs")


def _prepared_config(scene: Scene) -> None:
    (scene.root / ".git/counterfoil").mkdir()
    (scene.root / ".git/counterfoil/config").symlink_to(scene.root / ".git/config")


def _private_elsewhere(scene: Scene) -> None:
    (scene.root / ".git/counterfoil").symlink_to(scene.place)


def _pipe(scene: Scene) -> None:
    (scene.root / ".git/config").unlink()
    os.mkfifo(scene.root / ".git/config")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        pytest.param(_alternates, "borrows objects", id="T29 alternates"),
        pytest.param(_gitfile, "points at", id="T29 a file that points elsewhere"),
        pytest.param(_gitlink, "points at", id="T29 a link that points elsewhere"),
        pytest.param(_commondir, "refs of its own", id="T29 refs of another repository"),
        pytest.param(_objects, "objects is no folder", id="T29 objects of another repository"),
        pytest.param(_partial, "partialclone", id="T29 objects that are fetched when needed"),
        pytest.param(_prepared, "commondir", id="T29 a private directory that was prepared"),
        pytest.param(_prepared_hooks, "hooks", id="T29 hooks that were put there"),
        pytest.param(_prepared_link, "refs", id="T29 refs that lead elsewhere"),
        pytest.param(_prepared_config, "config", id="T29 configuration that leads elsewhere"),
        pytest.param(_private_elsewhere, "no folder", id="T29 a private directory elsewhere"),
        pytest.param(_pipe, "no file", id="T29 configuration that never ends"),
    ],
)
def test_a_repository_that_is_not_what_it_seems_is_refused(
    scene: Scene, make: object, said: str
) -> None:
    assert callable(make)
    make(scene)
    with pytest.raises(ConfigError, match=said):
        scene.open()


def test_alternates_that_appear_later_are_refused_at_the_next_call(scene: Scene) -> None:
    adapter = scene.open()
    arguments = commit(scene)
    state = adapter.observe(LOCAL).state
    _alternates(scene)
    with pytest.raises(ConfigError, match="borrows objects"):
        do(adapter, "git.commit", arguments, prestate=state)
    with pytest.raises(ConfigError, match="borrows objects"):
        adapter.observe(LOCAL)


@pytest.mark.parametrize("row", [pytest.param("T29", id="T29 replaced objects and grafts")])
def test_an_object_that_the_repository_replaces_is_seen_as_it_is(scene: Scene, row: str) -> None:
    other = scene.made(scene.first, "replacement", "evil.txt")
    git(scene.root, "replace", scene.first, other)
    (scene.root / ".git/info").mkdir(exist_ok=True)
    (scene.root / ".git/info/grafts").write_text(f"{other}\n")
    read = do(scene.open(), "git.read", {"ref": MAIN, "path": "evil.txt"}, key=Key(""))
    assert read.result["content"] is None


@pytest.mark.parametrize(
    "url",
    [
        "ext::sh -c touch% x",
        "--upload-pack=touch x",
        "/tmp/remote.git",
        "remote:path",
        "ftp://host/x",
        "https://user:secret@host/x.git",
        "https://secret@host/x.git",
        "https://@host/x.git",
        "http://host/x.git?access_token=secret",
        "https://host/x.git#secret",
        "https://user:sec/secret@host/x.git",
        "ssh://user:secret@host/x.git",
        "ssh://user@host/x.git?secret",
        "git://secret@host/x.git",
        "https://host/x y",
        "file://x\n",
        "",
    ],
)
def test_a_url_that_is_a_command_a_secret_or_unknown_is_refused(scene: Scene, url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        scene.open(remotes={"origin": url})
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["https://host:8443/x.git", "ssh://git@host/x.git", "git://host/x", "file:///a@b.git"]
)
def test_a_url_of_a_host_and_a_path_is_taken(scene: Scene, url: str) -> None:
    adapter = scene.open(remotes={"origin": url})
    assert url not in adapter.observe(LOCAL).state.instance


@pytest.mark.parametrize("what", ["nothing", "an empty folder"])
def test_what_is_no_repository_is_refused(place: Path, what: str) -> None:
    scene = Scene(place)
    scene.root = place / "none"
    if what == "an empty folder":
        scene.root.mkdir()
    with pytest.raises(ConfigError):
        scene.open()


def test_a_repository_in_another_object_format_works_alike(place: Path) -> None:
    root = place / "repository"
    git(place, "init", "-q", "--bare", "--object-format=sha256", str(root))
    scene = Scene.__new__(Scene)
    scene.place, scene.root, scene.url = place, root, ""
    arguments = {
        "ref": WORK,
        "parent": "absent",
        "changes": {"a": "1", "b": "2"},
        "message": "first",
        "author": RUNNER,
    }
    adapter = scene.open(remotes={})
    first = do(adapter, "git.commit", arguments, scope=LOCAL).result["new"]
    arguments |= {"parent": first, "changes": {"b": None}}
    second = do(adapter, "git.commit", arguments, scope=LOCAL, key=Key("key-2")).result["new"]
    assert (len(second), scene.at(WORK)) == (64, second)
    assert git(root, "ls-tree", "--name-only", second) == "a"


@pytest.mark.parametrize("row", [pytest.param("T30", id="T30 a remote that talks without end")])
def test_what_git_says_is_bounded(scene: Scene, row: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = scene.place / "talker"
    says = 'case " $* " in *" ls-remote "*) exec yes;; esac'
    program.write_text(f'#!/bin/sh\n{says}\nexec git "$@"\n')
    program.chmod(0o755)
    monkeypatch.setattr("counterfoil.adapters.git.shutil.which", lambda _: str(program))
    with pytest.raises(CounterfoilError, match="did not answer"):
        scene.open().observe(SCOPE)
