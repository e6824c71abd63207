"""Starting a supervisor, and handing the lock on to it.

The order goes through a pipe, so variables of a command are on no disk and in no list of
what runs. The answer says whether the command became what it is; if there is none, the
folder of the attempt tells.
"""

import json
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from counterfoil.adapters.shell.command import PATH, Command
from counterfoil.adapters.shell.site import Site
from counterfoil.core.errors import (
    ContractError,
    PermissionDeniedError,
    UnavailableError,
    UnknownOutcomeError,
)
from counterfoil.core.words import Json

START_SECONDS = 4.0
"""Longest wait for a supervisor's answer; then it is found out by asking again."""

_PROGRAM = """
import sys, types
for name in ("counterfoil", "counterfoil.adapters", "counterfoil.adapters.shell"):
    sys.modules[name] = types.ModuleType(name)
sys.modules[name].__path__ = [sys.argv[1]]
from counterfoil.adapters.shell.supervisor import main
main()
"""
"""The supervisor without the library around it: it needs no site, no package, no path."""

LAUNCH: tuple[str, ...] = (
    sys.executable, "-I", "-S", "-B", "-c", _PROGRAM, str(Path(__file__).parent),
)  # fmt: skip
"""How a supervisor is started."""

TOKEN_BYTES = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """The folder of an attempt or a read, open.

    Attributes:
        path: Where it is.
        folder: Its descriptor.
    """

    path: Path
    folder: int


def new_token() -> str:
    """Return a mark by which what a command leaves behind is known."""
    return secrets.token_hex(TOKEN_BYTES)


def make_place(site: Site, group: str, name: str) -> Place:
    """Make a folder durably, in place of one that an attempt without a trace left.

    Raises:
        OSError: It cannot be made.
    """
    path = site.place / group / name
    if path.exists():
        shutil.rmtree(path)
    path.mkdir(mode=0o700)
    above = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(above)
    finally:
        os.close(above)
    return Place(path=path, folder=os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW))


def start(
    site: Site,
    command: Command,
    argv: Sequence[Sequence[str]],
    *,
    place: Place,
    folder: int,
    token: str,
    lock: int,
) -> None:
    """Start a command under a supervisor, which holds the lock until that is on record.

    Args:
        site: Where.
        command: What was allowed.
        argv: The words of each stage.
        place: Folder of the attempt.
        folder: Descriptor of the working folder.
        token: Mark of the attempt.
        lock: Descriptor of the lock.

    Raises:
        ContractError: The words are more than the kernel takes.
        PermissionDeniedError: The program may not be run.
        UnavailableError: Nothing was started, for any other reason.
        UnknownOutcomeError: It may be, later: the supervisor still holds the lock.
    """
    given = {"lock": lock, "place": place.folder, "folder": folder, "root": site.root}
    order: dict[str, Json] = {
        **given,
        "stages": argv,
        "environment": {"PATH": PATH, "LANG": "C.UTF-8", **command.environment},
        "umask": command.umask,
        "token": token,
        "timeout_ms": command.timeout_ms,
        "grace_ms": command.grace_ms,
        "output_bytes_max": command.output_bytes_max,
        "watched": site.watched,
    }
    answer, _, name = _asked(json.dumps(order).encode(), tuple(given.values())).partition(" ")
    match answer:
        case "failed" if name == "E2BIG":
            raise ContractError("the words of the command are more than the system takes")
        case "failed" if name in ("EACCES", "EPERM"):
            raise PermissionDeniedError(f"the program may not be run ({name})")
        case "failed" | "refused":
            raise UnavailableError(f"the command could not be started ({name})")
        case _:
            return  # it died; the folder tells whether before the start or after it


def _asked(order: bytes, given: Sequence[int]) -> str:
    try:
        supervisor = subprocess.Popen(
            LAUNCH,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={"LC_ALL": "C.UTF-8"},
            pass_fds=given,
        )
    except OSError as error:
        raise UnavailableError(f"no supervisor can be started ({error.errno})") from error
    with supervisor:
        try:
            answer, _ = supervisor.communicate(order, timeout=START_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise UnknownOutcomeError("the supervisor did not answer in time") from error
        finally:
            supervisor.kill()  # this one only forks: the supervisor is its child
    return answer.decode("ascii", "replace").strip()
