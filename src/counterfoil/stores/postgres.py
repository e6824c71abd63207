"""Open stores over PostgreSQL: a schema of a database, or of two, for the three ports.

A URL is `postgresql://user@host:port/database?schema=counterfoil&pool=8&prepare=false`,
with any other parameter of libpq. The password comes better from PGPASSWORD, ~/.pgpass
or a service file. Heads beside their checkpoints are restored along with them, and then
cannot tell that time was turned back: keep them in another database.
"""

from collections.abc import Callable
from typing import TypeVar

from counterfoil.stores.postgres_bell import PostgresBell
from counterfoil.stores.postgres_heads import HEADS, PostgresHeads
from counterfoil.stores.postgres_inbox import INBOX, PostgresInbox
from counterfoil.stores.postgres_joint import PostgresJoint
from counterfoil.stores.postgres_pool import Access, PostgresPool, access
from counterfoil.stores.postgres_roles import grant_roles
from counterfoil.stores.postgres_schema import Part, prepare
from counterfoil.stores.postgres_store import STORE, PostgresStore
from counterfoil.stores.postgres_url import parse_url

__all__ = [
    "PostgresBell",
    "PostgresHeads",
    "PostgresInbox",
    "PostgresJoint",
    "PostgresPool",
    "PostgresStore",
    "grant_roles",
    "open_bell",
    "open_heads",
    "open_inbox",
    "open_joint",
    "open_store",
]

Port = TypeVar("Port")


def open_store(url: str, *, create: bool) -> PostgresStore:
    """Open the checkpoint store at `url`.

    Args:
        url: The schema of a database; never shown with its password.
        create: Whether to make the schema and its tables if they are missing.

    Raises:
        RollbackError: They are missing and not to be created: the checkpoints of the runs
            that are expected in it are gone.
        ConfigError: The URL cannot be used, the server does not let us in, its tables are
            of a later release, or it may lose commits in a crash.
        UnavailableError: The server cannot be reached.
        UnknownOutcomeError: The answer was lost while tables were made; open it again.
    """
    return _opened(url, (STORE,), PostgresStore, create=create)


def open_heads(url: str, *, create: bool) -> PostgresHeads:
    """Open the head register at `url`; a register that is created gets a name of its own.

    Args:
        url: The schema of a database; never shown with its password.
        create: Whether to make the schema and its tables if they are missing.

    Raises:
        HeadMissingError: They are missing and not to be created.
        ConfigError, UnavailableError, UnknownOutcomeError: As for `open_store`.
    """
    return _opened(url, (HEADS,), PostgresHeads, create=create)


def open_inbox(url: str, *, create: bool) -> PostgresInbox:
    """Open the inbox at `url`.

    Args:
        url: The schema of a database; never shown with its password.
        create: Whether to make the schema and its tables if they are missing.

    Raises:
        ConfigError: They are missing and not to be created, or as for `open_store`.
        UnavailableError, UnknownOutcomeError: As for `open_store`.
    """
    return _opened(url, (INBOX,), PostgresInbox, create=create)


def open_joint(url: str) -> PostgresJoint:
    """Open what commits to store and register at once, where both are in one schema.

    It shares the connections of the ports that are open at the same URL.

    Raises:
        RollbackError, HeadMissingError: The tables of one of them are missing.
        ConfigError, UnavailableError, UnknownOutcomeError: As for `open_store`.
    """
    return _opened(url, (STORE, HEADS), PostgresJoint, create=False)


def open_bell(url: str) -> PostgresBell:
    """Open what rings when a statement arrives at `url`, or a run there is free at once.

    Raises:
        ConfigError: The URL cannot be used, leads to a pooler, or the server does not
            let us in.
        UnavailableError: The server cannot be reached.
    """
    bell = PostgresBell(parse_url(url))
    try:
        bell.open()
    except BaseException:
        bell.close()
        raise
    return bell


def _opened(
    url: str, parts: tuple[Part, ...], port: Callable[[Access], Port], *, create: bool
) -> Port:
    way = access(parse_url(url))
    try:
        for part in parts:
            prepare(way, part, create=create)
    except BaseException:
        way.close()
        raise
    return port(way)
