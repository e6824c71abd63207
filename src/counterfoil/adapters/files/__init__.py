"""Files below one root: read, written, deleted and moved, each change exactly once.

Level `transactional`. The journal beside the root keeps fences, receipts and the plan
of the change that is under way, and survives any kill. What can be promised about other
programs in the same folder stands in `swap`; what makes a folder the same environment
in `site`. Folders are not part of the state, and extended attributes are not kept.
"""

import time
from collections.abc import Callable
from pathlib import Path

from counterfoil.adapters.files.adapter import FilesAdapter
from counterfoil.adapters.files.disk import Disk
from counterfoil.adapters.files.site import open_site

__all__ = ["FilesAdapter", "open_files"]


def open_files(
    root: Path,
    *,
    journal: Path | None = None,
    now_ms: Callable[[], int],
    account: str = "",
    disk: Disk | None = None,
    pause: Callable[[float], None] = time.sleep,
) -> FilesAdapter:
    """Open a folder as an environment.

    Args:
        root: A folder that exists; the actions cannot leave it.
        journal: Folder of the journal, made if it is missing; by default
            `.NAME.counterfoil-journal` beside a root called NAME.
        now_ms: Clock for receipts, UTC, in milliseconds.
        account: Account to report with each state.
        disk: File system to use; tests pass one that fails.
        pause: Waits for so many seconds, between two tries for the lock.

    Raises:
        ConfigError: The root is no folder, the journal lies inside it or can be read by
            others, or a file system cannot exchange two names in one act.
        FormatError: The journal is damaged.
        UnavailableError: Something cannot be opened now.
    """
    site = open_site(root, journal, Disk() if disk is None else disk, pause)
    return FilesAdapter(site, now_ms=now_ms, account=account)
