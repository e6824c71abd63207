"""A real repository with a working tree, a bare remote, and calls on both."""

import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from counterfoil.adapters.git import GitAdapter, open_git, pushing, refs
from counterfoil.adapters.git.command import Ran
from counterfoil.adapters.git.pushing import PROBE, PROBE_TEXT
from counterfoil.adapters.git.site import Site
from counterfoil.core.canonical import canonical, digest, normalise
from counterfoil.core.intent import EnvironmentState
from counterfoil.core.receipt import Answer, Fence, LookUp, Receipt, Served
from counterfoil.core.words import Digest, IntentDigest, Json, Key, RunId
from counterfoil.ports import Adapter, Operation

NOW_MS = 1_700_000_000_000
RUN = RunId("run-1")
OTHER_RUN = RunId("run-2")
KEY = Key("key-1")
FENCE = Fence(lease_version=1, nonce="first")
NEWER = Fence(lease_version=2, nonce="second")

WORK = "refs/heads/work"
MAIN = "refs/heads/main"
TAG = "refs/tags/v1"
SCOPE = {"refs": (WORK, MAIN, TAG), "remotes": ("origin",), "paths": (".",)}
LOCAL = {"refs": (WORK, MAIN, TAG), "paths": (".",)}

RUNNER = {"name": "Runner", "email": "run@example.org", "date": "2026-01-02T03:04:05+01:00"}
ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_AUTHOR_NAME": "Somebody",
    "GIT_AUTHOR_EMAIL": "else@example.org",
    "GIT_COMMITTER_NAME": "Somebody",
    "GIT_COMMITTER_EMAIL": "else@example.org",
}

IMPATIENT = {
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "core.filesRefLockTimeout",
    "GIT_CONFIG_VALUE_0": "10",
}
"""Variables with which git does not wait long for a lock that nobody gives up."""


def git(folder: Path, *words: str, given: str = "", **extra: str) -> str:
    """Run git as the user does, and return what it prints."""
    ran = subprocess.run(
        ["git", *words],
        cwd=folder,
        env={**ENVIRONMENT, **extra},
        input=given,
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 0, f"git {words}: {ran.stderr}"
    return ran.stdout.strip()


@contextmanager
def in_memory() -> Iterator[Path]:
    """Lend a folder whose files are never written to a disk."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


@cache
def _template(date: str) -> tuple[dict[str, bytes | None], str]:
    """Return what git makes of a fresh scene, by path, and its first commit."""
    with in_memory() as place:
        root, remote = place / "repository", place / "remote.git"
        git(place, "init", "-q", "--template=", "-b", "main", str(root))
        (root / "app.py").write_text("broken\n")
        (root / "docs").mkdir()
        (root / "docs" / "note.md").write_text("old\n")
        git(root, "add", "-A")
        dates = {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date} if date else {}
        git(root, "commit", "-q", "-m", "one", **dates)
        git(root, "branch", "work")
        git(place, "clone", "-q", "--template=", "--bare", str(root), str(remote))
        git(root, "remote", "add", "origin", "{url}")
        git(remote, "remote", "remove", "origin")
        files = {
            path.relative_to(place).as_posix(): None if path.is_dir() else path.read_bytes()
            for path in sorted(place.rglob("*"))
        }
        return files, git(root, "rev-parse", "HEAD")


class Scene:
    """A repository on its branch main, with a branch work, and a bare remote that has both."""

    def __init__(self, place: Path, *, date: str = "") -> None:
        self.place = place
        self.root = place / "repository"
        self.remote = place / "remote.git"
        self.url = f"file://{self.remote}"
        files, self.first = _template(date)
        for name, content in files.items():
            if content is None:
                (place / name).mkdir()
            else:
                (place / name).write_bytes(content)
        config = self.root / ".git" / "config"
        config.write_text(config.read_text().replace("{url}", self.url))

    def open(self, **options: Any) -> GitAdapter:
        """Open an adapter."""
        settings: dict[str, Any] = {"now_ms": lambda: NOW_MS, "remotes": {"origin": self.url}}
        return open_git(self.root, **(settings | options))

    def at(self, ref: str, place: Path | None = None) -> str:
        """Return where a ref is, in the repository or at the remote; empty for nowhere."""
        listed = git(place or self.root, "for-each-ref", "--format=%(objectname)", ref)
        return listed.strip()

    def ready(self) -> None:
        """Let the remote have been pushed to before: it is known to take receipts."""
        text = PROBE_TEXT.decode()
        blob = git(self.remote, "hash-object", "-w", "--stdin", given=text)
        git(self.remote, "update-ref", PROBE, blob)

    def made(self, parent: str, message: str, path: str = "made.txt") -> str:
        """Return a commit of somebody that is on no branch."""
        object_id = git(self.root, "hash-object", "-w", "--stdin", given=message)
        tree = git(self.root, "mktree", given=f"100644 blob {object_id}\t{path}\n")
        author = {"GIT_AUTHOR_EMAIL": RUNNER["email"], "GIT_AUTHOR_DATE": "@1700000000 +0000"}
        return git(self.root, "commit-tree", tree, "-p", parent, "-m", message, **author)

    def teammate_pushes(self, message: str = "theirs", *, onto: str = "") -> str:
        """Push a commit to work from another clone, as somebody else does."""
        clone = self.place / "teammate"
        if not clone.exists():
            git(self.place, "clone", "-q", str(self.remote), str(clone))
        git(clone, "fetch", "-q", "origin")
        git(clone, "checkout", "-q", "--detach", onto or "origin/work")
        git(clone, "commit", "-q", "--allow-empty", "-m", message)
        git(clone, "push", "-q", "--force", "origin", "HEAD:refs/heads/work")
        return git(clone, "rev-parse", "HEAD")

    def commits(self, place: Path | None = None, ref: str = WORK) -> int:
        """Count the commits of runs that a ref brought, in the repository or at the remote."""
        if ref != WORK and not self.at(ref, place):
            return 0
        words = ("rev-list", "--count", "--author=run@example.org", f"{self.first}..{ref}")
        return int(git(place or self.root, *words))

    def picture(self) -> dict[str, bytes]:
        """Return every byte of the working tree and of the user's own index."""
        seen = {
            path.relative_to(self.root).as_posix(): path.read_bytes()
            for path in sorted(self.root.rglob("*"))
            if path.is_file() and ".git" not in path.relative_to(self.root).parts
        }
        return seen | {"index": (self.root / ".git" / "index").read_bytes()}


def commit(scene: Scene, number: int = 1, **more: Json) -> dict[str, Json]:
    """Return the arguments of a commit on top of work as it is."""
    return {
        "ref": WORK,
        "parent": scene.at(WORK),
        "changes": {f"{number}.txt": f"{number}\n"},
        "message": f"change {number}",
        "author": RUNNER,
        **more,
    }


def push(scene: Scene, number: int = 1, **more: Json) -> dict[str, Json]:
    """Return the arguments of a push of a commit onto work of the remote as it is."""
    at = scene.at(WORK, scene.remote)
    return {
        "remote": "origin",
        "ref": WORK,
        "target": scene.made(at, f"change {number}"),
        "expected": at,
        **more,
    }


def branch(scene: Scene) -> dict[str, Json]:
    """Return the arguments of a move of work to a commit ahead."""
    target = scene.made(scene.first, "ahead")
    return {"ref": WORK, "target": target, "expected": scene.first}


def tag(scene: Scene) -> dict[str, Json]:
    """Return the arguments of a tag, with an object of its own, on a commit ahead."""
    target = scene.made(scene.first, "ahead")
    return {"ref": TAG, "target": target, "message": "first", "tagger": RUNNER}


def operation(
    adapter: Adapter,
    kind: str,
    arguments: Mapping[str, Json],
    *,
    key: Key = KEY,
    run_id: RunId = RUN,
    fence: Fence = FENCE,
    scope: Mapping[str, tuple[str, ...]] = SCOPE,
    prestate: EnvironmentState | None = None,
    generation: int = 1,
    timeout_ms: int = 20_000,
) -> Operation:
    """Return a call on the state as it is, or on `prestate`."""
    given = normalise(dict(arguments), "arguments")
    return Operation(
        run_id=run_id,
        kind=kind,
        arguments=given,
        key=key,
        digest=IntentDigest(f"i1:{digest(canonical({'arguments': given, 'kind': kind}))}"),
        fence=fence,
        served=Served(generation=generation, checkpoint=Digest(f"{generation:064x}")),
        prestate=prestate or adapter.observe(scope).state,
        scope=scope,
        timeout_ms=timeout_ms,
    )


def do(adapter: Adapter, kind: str, arguments: Mapping[str, Json], **options: Any) -> Receipt:
    """Make a call on the state as it is."""
    return adapter.execute(operation(adapter, kind, arguments, **options))


def asked(adapter: Adapter, kind: str, key: Key = KEY, run_id: RunId = RUN) -> LookUp:
    """Return what is on record under a key."""
    return adapter.look_up(run_id, key, kind)


class Died(BaseException):
    """The process is dead here."""


def planned_only(scene: Scene, call: Operation, patch: pytest.MonkeyPatch) -> None:
    """Let a worker die with the call on its desk, before a push leaves or a ref is renamed.

    Within the repository git is dead too, and somebody has removed its locks.
    """
    genuine = refs.transaction

    def die(*_: object) -> None:
        raise Died

    def begin(site: Site, lines: tuple[str, ...], holder: int) -> Ran:
        ran = genuine(site, lines[:1], holder)
        if len(lines) > 1:
            raise Died
        return ran

    with patch.context() as bent:
        bent.setattr(pushing, "push", die)
        bent.setattr(refs, "transaction", begin)
        with pytest.raises(Died):
            scene.open().execute(call)


def expect_one_end(scene: Scene, call: Operation, *, is_at_remote: bool = False) -> Answer:
    """Hold a scene after a kill to one of its two ends, then to the effect being there once.

    A fresh adapter looks, takes the run over and makes the call again.
    """
    place, ref = scene.remote if is_at_remote else scene.root, call.arguments["ref"]
    adapter = scene.open()
    found = asked(adapter, call.kind).answer
    assert found in (Answer.FOUND, Answer.ABSENT)
    assert scene.commits(place, ref) == (found is Answer.FOUND)
    adapter.take(RUN, FENCE)
    receipt = adapter.execute(call)
    assert receipt.replayed is (found is Answer.FOUND)
    assert adapter.observe(call.scope).state == receipt.poststate
    assert scene.commits(place, ref) == 1
    git(place, "fsck", "--strict")
    return found
