"""One desk for all tests of a session, since each process of it takes seconds to start."""

import pytest

from tests.support.mcp_bench import Desk, running

_DESK = pytest.StashKey[Desk]()


def shared(session: pytest.Session, folders: pytest.TempPathFactory) -> Desk:
    """Return the desk of a session, which ends with it."""
    if _DESK not in session.stash:
        opened = running(folders.mktemp("desk"))
        session.stash[_DESK] = opened.__enter__()
        session.addfinalizer(lambda: opened.__exit__(None, None, None))
    return session.stash[_DESK]
