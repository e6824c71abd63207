"""A git repository and its remotes: commits, branches, tags and pushes, each exactly once.

Level `transactional`. Within the repository, the ref, its receipt and the lease are one
ref transaction; what a killed git leaves between its renames is settled in `settling`.
At a remote, the ref and its receipt are one atomic push with explicit old values; the
remote's own git must keep that transaction whole. The working tree and the index of the
user are never opened; hooks and configuration of the repository do not apply.
"""

import re
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from counterfoil.adapters.git.adapter import GitAdapter
from counterfoil.adapters.git.kinds import PUSH_MS
from counterfoil.adapters.git.site import open_site
from counterfoil.core.errors import ConfigError, ContractError
from counterfoil.core.words import identifier

__all__ = ["GitAdapter", "open_git"]

_SCHEMES = ("file", "git", "http", "https", "ssh")

_URL = re.compile(r"file://\S+|git://[^@?#\s]+|https?://[^@?#\s]+|ssh://([^/@:?#\s]+@)?[^@?#\s]+")
"""A user name only where it is no secret; neither a query nor a fragment."""


def open_git(
    repository: Path,
    *,
    now_ms: Callable[[], int],
    remotes: Mapping[str, str] | None = None,
    account: str = "",
    environment: Mapping[str, str] | None = None,
    push_ms: int = PUSH_MS,
    trusts_repository: bool = False,
    may_move_checked_out: bool = False,
    pause: Callable[[float], None] = time.sleep,
) -> GitAdapter:
    """Open a repository as an environment.

    Args:
        repository: A bare repository, or one with a working tree, which stays as it is.
        now_ms: Clock for receipts, UTC, in milliseconds.
        remotes: URLs by name, of host and path alone but for the user of ssh. All are
            asked for receipts of pushes; the repository's own are not used.
        account: Account to report with each state.
        environment: Variables for git, such as GIT_ASKPASS: the one way to credentials.
        push_ms: Longest push, in milliseconds, at least 1; below the term of a lease.
        trusts_repository: Whether its hooks, configuration and alternates apply; never
            what is said there of syncs, redirects and garbage.
        may_move_checked_out: Whether a branch may move that is checked out somewhere.
        pause: Waits for so many seconds, between two tries for the lock.

    Raises:
        ConfigError: There is no usable git or repository, or a URL or time is out of bounds.
        UnavailableError: Something cannot be opened now.
    """
    if push_ms < 1:
        raise ConfigError(f"push_ms is {push_ms}, the least is 1")
    for name, url in (remotes or {}).items():
        _check_remote(name, url)
    site = open_site(
        repository,
        program=_program(),
        remotes=remotes or {},
        environment=environment or {},
        trusts=trusts_repository,
        now_ms=now_ms,
        pause=pause,
    )
    return GitAdapter(
        site,
        account=account,
        push_ms=push_ms,
        may_move_checked_out=may_move_checked_out,
    )


def _program() -> str:
    program = shutil.which("git")
    if program is None:
        raise ConfigError("there is no git program", move="install git 2.36 or later")
    return program


def _check_remote(name: str, url: str) -> None:
    try:
        identifier(name, "a remote")
    except ContractError as error:
        raise ConfigError(error.message) from error
    if not url.isprintable() or url.partition("://")[0] not in _SCHEMES:
        raise ConfigError(f"the URL of {name} is none of file, git, http, https or ssh")
    if _URL.fullmatch(url) is None:
        raise ConfigError(
            f"the URL of {name} holds more than a host and a path; with ssh, a user name",
            move="leave out user, password, query and fragment, and let GIT_ASKPASS in the "
            "environment give what the remote asks for",
        )
