"""A warm worker that makes each call on a repository in a process of its own, and dies there.

Started as `python -m tests.support.git_worker`. A line `FOLDER HOW AT` makes it fork; the
child makes the call that lies in `call` of the folder, and the answer is how it ended.
HOW is `after`, for a SIGKILL of the process behind its git command number AT; or `within`,
for a SIGKILL of git itself inside the transaction that moves a ref, at the place that the
folder's own `git` names; or `both`, where the worker dies with that git; or `whole`, for
no death, with the names of the git commands in `commands` of the folder.
"""

import itertools
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from counterfoil.adapters.git import open_git
from counterfoil.adapters.git.command import Git, Ran
from counterfoil.core.errors import CounterfoilError
from counterfoil.ports import Operation
from tests.support.git_scene import NOW_MS

WITHIN = ("within", "both")
MOVED = (b" refs/heads/", b" refs/tags/")


def work(place: Path) -> None:
    """Make the call."""
    sent = msgspec.msgpack.decode((place / "call").read_bytes(), type=Operation)
    remotes = {"origin": f"file://{place / 'remote.git'}"}
    adapter = open_git(place / "repository", now_ms=lambda: NOW_MS, remotes=remotes)
    adapter.execute(sent)


def doom(place: Path, how: str, at: int) -> None:
    """Let this process, or a git of it, die at its place."""
    numbers, genuine = itertools.count(), Git.run

    def run(self: Git, *words: str, **options: Any) -> Ran:
        number = next(numbers)
        given = options.get("given", b"")
        is_move = words[0] == "update-ref" and any(start in given for start in MOVED)
        if how in WITHIN and is_move:
            self = replace(self, program=str(place / "git"))
        ran = genuine(self, *words, **options)
        if how == "whole":
            with (place / "commands").open("a") as file:
                file.write(f"{words[0]}\n")
        is_last = number == at if how == "after" else how == "both" and ran.code not in (0, 1, 128)
        if is_last:
            os.kill(os.getpid(), signal.SIGKILL)
        return ran

    Git.run = run  # type: ignore[method-assign] # the process that dies is a test's own


def serve() -> None:
    """Start one process after the other, and say how each ended."""
    while line := sys.stdin.readline().split():
        place, how, at = Path(line[0]), line[1], int(line[2])
        child = os.fork()
        if child == 0:
            try:
                doom(place, how, at)
                work(place)
            except CounterfoilError as error:
                (place / "error").write_text(f"{type(error).__name__}: {error}")
                os._exit(3)
            except BaseException as error:  # noqa: BLE001 # a forked process must end here
                sys.stderr.write(f"{error!r}\n")
                os._exit(1)
            os._exit(0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    serve()
