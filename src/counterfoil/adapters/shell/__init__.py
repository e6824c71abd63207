"""Commands from an allow list, each started once per key under a supervisor of its own.

What can be proved of a command: that it was started once, or never will be; and how it
ended, if its supervisor lived to record that. Whatever else a command does, and how far
it came when its supervisor was killed or the machine stopped, only its own traces tell.
Commands are not confined: they may do what their account may do.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from counterfoil.adapters.shell.adapter import ShellAdapter
from counterfoil.adapters.shell.command import Command
from counterfoil.adapters.shell.kinds import allowed
from counterfoil.adapters.shell.reading import sweep
from counterfoil.adapters.shell.site import open_site
from counterfoil.core.errors import ConfigError, ContractError
from counterfoil.core.task import canonical_path

__all__ = ["Command", "ShellAdapter", "open_shell"]

WATCHED_MAX = 64
"""Files that are part of the state: each is read whole at every look."""


def open_shell(
    root: Path,
    commands: Sequence[Command],
    *,
    journal: Path | None = None,
    watched: Sequence[str] = (),
    now_ms: Callable[[], int],
    pause: Callable[[float], None] = time.sleep,
) -> ShellAdapter:
    """Open a folder in which commands may be given.

    Args:
        root: A folder that exists; commands start in it, or in a folder below it.
        commands: What may be given, at least one.
        journal: Folder of the journal, made if it is missing; by default
            `.NAME.counterfoil-shell` beside a root called NAME.
        watched: Files below the root, at most `WATCHED_MAX`, whose content is part of
            the state: if another program changes one, runs notice.
        now_ms: Clock for receipts, UTC, in milliseconds.
        pause: Waits for so many seconds.

    Raises:
        ConfigError: A command or a watched path cannot be used, the root is no folder, or
            the journal lies inside it or can be reached by others.
        FormatError: The journal is damaged.
        UnavailableError: Something cannot be opened now.
    """
    if not commands:
        raise ConfigError("no command is allowed, so there is nothing to open")
    declared = allowed(tuple(commands))
    if len(set(watched)) != len(watched) or len(watched) > WATCHED_MAX:
        raise ConfigError(f"watched names a file twice, or more than {WATCHED_MAX}")
    for path in watched:
        try:
            canonical_path(path, "watched")
        except ContractError as error:
            raise ConfigError(error.message) from error
    site = open_site(root, journal, tuple(watched), pause)
    sweep(site)
    return ShellAdapter(site, allowed=declared, now_ms=now_ms)
