"""A worker dies while it pushes; the next one asks the remote, and pushes nothing again."""

import multiprocessing
import os
import subprocess
import time
from pathlib import Path

import counterfoil as cf
from counterfoil.adapters.git import open_git

BRANCH = "refs/heads/fix-42"
HERE = Path.cwd()
BOT = {"name": "Bot", "email": "bot@example.org", "date": "2026-01-02T03:04:05+00:00"}

task = cf.Task(
    id="fix",
    policy=cf.Policy(
        permissions=("git.read", "git.commit", "git.push", "git.check"),
        scope={"git": {"refs": (BRANCH,), "remotes": ("origin",), "paths": ("src/",)}},
    ),
)


def git(folder: str, *words: str) -> str:
    command = ["git", "-c", "user.name=Ann", "-c", "user.email=ann@example.org", *words]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


def set_up() -> None:
    git(".", "init", "-q", "-b", "main", "project")
    Path("project/src").mkdir()
    Path("project/src/app.py").write_text("broken\n")
    git("project", "add", "-A")
    git("project", "commit", "-q", "-m", "one")
    git("project", "branch", "fix-42")
    git(".", "clone", "-q", "--bare", "project", "remote.git")
    Path("project/src/app.py").write_text("what Ann is trying out\n")
    hook = Path("remote.git/hooks/post-receive")  # here the ref has moved, the answer has not left
    hook.write_text(f"#!/bin/sh\n[ -e {HERE}/pid ] && kill -9 $(cat {HERE}/pid); rm {HERE}/pid\n")
    hook.chmod(0o755)


def work(dies: bool) -> None:
    if dies:
        Path("pid").write_text(str(os.getpid()))
    adapter = open_git(
        Path("project"),
        remotes={"origin": f"file://{HERE}/remote.git"},
        now_ms=lambda: time.time_ns() // 1_000_000,
    )
    with cf.open(adapters=(adapter,)) as keeper, keeper.run(task, run_id="fix-1") as run:
        base = run.do("git.read", ref=BRANCH)["id"]
        made = run.do(
            "git.commit",
            ref=BRANCH,
            parent=base,
            changes={"src/app.py": "sound\n"},
            message="Repair the app",
            author=BOT,
        )
        print("committed to", made["ref"], flush=True)
        sent = {"remote": "origin", "ref": BRANCH, "target": made["new"], "expected": base}
        pushed = run.do("git.push", **sent)
        print("pushed from the old commit:", pushed["old"] == base, flush=True)


def start(dies: bool) -> multiprocessing.Process:
    process = multiprocessing.get_context("fork").Process(target=work, args=(dies,))
    process.start()
    return process


if __name__ == "__main__":
    set_up()
    first = start(dies=True)
    first.join()
    print("the first worker died of signal", -(first.exitcode or 0), flush=True)
    start(dies=False).join()
    commits = git("remote.git", "rev-list", "--author=bot@", BRANCH)
    print("commits of the bot at the remote:", len(commits.split()))
    print("Ann's file:", Path("project/src/app.py").read_text().strip())

# output:
# committed to refs/heads/fix-42
# the first worker died of signal 9
# committed to refs/heads/fix-42
# pushed from the old commit: True
# commits of the bot at the remote: 1
# Ann's file: what Ann is trying out
