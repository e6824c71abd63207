"""Open ports by the urls of a project: files, memory, and servers whose driver is an extra.

A part that is missing is made only when asked for, and never where the other part knows
a run: an empty register would make a half-done run look new.
"""

import secrets
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from counterfoil.core.errors import ConfigError, HeadMissingError, RollbackError
from counterfoil.places import Places
from counterfoil.ports import Bell, CheckpointStore, Clock, HeadRegister, Inbox, Joint
from counterfoil.stores.facts import EtcdFacts, EtcdMember, PostgresFacts, Space
from counterfoil.stores.holders import is_dead
from counterfoil.stores.late_bell import LateBell
from counterfoil.stores.memory import MemoryHeads, MemoryInbox, MemoryStore
from counterfoil.stores.sqlite import SqliteStore, open_heads, open_inbox, open_store
from counterfoil.urls import Scheme, are_one_database

__all__ = [
    "Content",
    "Contents",
    "EtcdFacts",
    "EtcdMember",
    "OwnedJoint",
    "PostgresFacts",
    "Space",
    "contents_of",
    "give_space_back",
    "grant_roles",
    "heads_facts",
    "open_bell",
    "open_checkpoints",
    "open_joint",
    "open_pair",
    "open_register",
    "open_statements",
    "store_facts",
]

REWRITTEN_BYTES_MAX = 64 * 1024 * 1024
"""What a disk takes in well below the time that a worker waits for another's write."""

DRIVERS = {Scheme.POSTGRESQL: "psycopg", Scheme.ETCD: "httpx"}
"""What each extra installs, by its name in Python."""


class Content(StrEnum):
    """What was found where a port should be."""

    ABSENT = "absent"
    EMPTY = "empty"
    RUNS = "runs"


@dataclass(frozen=True, kw_only=True, slots=True)
class Contents:
    """What was found where the ports of a project should be.

    Attributes:
        store: Of the checkpoint store.
        heads: Of the head register.
    """

    store: Content
    heads: Content


def contents_of(places: Places, clock: Clock) -> Contents:
    """Look at both places, and make nothing.

    Raises:
        ConfigError, FormatError, UnavailableError: One of them cannot be looked at.
    """
    store = heads = Content.ABSENT
    if _may_be_there(places.store_kind, places.store):
        with suppress(RollbackError):
            opened = open_checkpoints(places)
            store = _content(opened, opened.runs)
    if _may_be_there(places.heads_kind, places.heads):
        with suppress(HeadMissingError):
            register = open_register(places, clock)
            heads = _content(register, register.heads)
    return Contents(store=store, heads=heads)


def _may_be_there(kind: Scheme, file: Path | None) -> bool:
    """Return whether there may be something; nothing in memory was there before."""
    return file.exists() if file is not None else kind is not Scheme.MEMORY


def _content(
    port: CheckpointStore | HeadRegister, page: Callable[[str, int], tuple[object, ...]]
) -> Content:
    """Look at the first page of an opened port, and close it."""
    try:
        return Content.RUNS if page("", 1) else Content.EMPTY
    finally:
        port.close()


def open_pair(
    places: Places, clock: Clock, *, create: bool
) -> tuple[CheckpointStore, HeadRegister]:
    """Open a project's checkpoint store and head register.

    Args:
        places: Where they lie.
        clock: For registers that have no clock of their own.
        create: Whether to make what is missing, if what is there knows no run.

    Raises:
        RollbackError: The store is missing.
        HeadMissingError: The register is missing.
        ConfigError: A url, a file or a database cannot be used as it is; an extra is
            not installed; or a project that lies on servers was not set up there.
        FormatError, UnavailableError: One of them is damaged, or cannot be reached.
    """
    if create:
        found = contents_of(places, clock)
        create = Content.RUNS not in {found.store, found.heads}
    try:
        store = open_checkpoints(places, create=create)
        try:
            return store, open_register(places, clock, create=create)
        except BaseException:
            store.close()
            raise
    except (RollbackError, HeadMissingError) as error:
        if places.uses_servers and _is_nowhere(places, clock):
            raise ConfigError(
                "neither the checkpoints nor the heads of the project are where its settings say",
                move="run `counterfoil init` if no run was ever started; else bring both back",
            ) from error
        raise


def _is_nowhere(places: Places, clock: Clock) -> bool:
    absent = Contents(store=Content.ABSENT, heads=Content.ABSENT)
    return contents_of(places, clock) == absent


def open_checkpoints(places: Places, *, create: bool = False) -> CheckpointStore:
    """Open a project's checkpoint store alone; errors are those of `open_pair`."""
    if places.store_kind is Scheme.MEMORY:
        return MemoryStore()
    if places.store is not None:
        return open_store(places.store, create=create)
    with _driver(places.store_kind, "store.url"):
        from counterfoil.stores import postgres  # noqa: PLC0415 - its driver is an extra

        return postgres.open_store(places.store_url, create=create)


def give_space_back(places: Places, *, is_whole: bool) -> Space:
    """Give the room of dropped checkpoints back, as far as the store can.

    Args:
        places: Where the store lies.
        is_whole: Whether to rewrite any file that has room, for when no worker is there.

    Raises:
        UnavailableError: Others write all the time; nothing happened.
        CounterfoilError: As `open_pair`.
    """
    store = open_checkpoints(places)
    try:
        if isinstance(store, MemoryStore):
            return Space()
        if isinstance(store, SqliteStore):
            return store.give_back(None if is_whole else REWRITTEN_BYTES_MAX)
        with _driver(places.store_kind, "store.url"):
            from counterfoil.stores import postgres  # noqa: PLC0415 - its driver is an extra

            return store.give_back() if isinstance(store, postgres.PostgresStore) else Space()
    finally:
        store.close()


def open_register(places: Places, clock: Clock, *, create: bool = False) -> HeadRegister:
    """Open a project's head register alone; errors are those of `open_pair`.

    The register of a server has a clock of its own. There a holder is never seen to be
    dead: its lease ends by release or by that clock.
    """
    if places.heads_kind is Scheme.MEMORY:
        return MemoryHeads(now_ms=clock.now_ms, incarnation=secrets.token_hex(16))
    if places.heads is not None:
        return open_heads(
            places.heads,
            create=create,
            now_ms=clock.now_ms,
            incarnation=lambda: secrets.token_hex(16),
            is_dead=is_dead,
        )
    with _driver(places.heads_kind, "heads.url"):
        if places.heads_kind is Scheme.ETCD:
            from counterfoil.stores import etcd  # noqa: PLC0415 - its client is an extra

            return etcd.open_heads(places.heads_url, create=create)
        from counterfoil.stores import postgres  # noqa: PLC0415 - its driver is an extra

        return postgres.open_heads(places.heads_url, create=create)


def open_statements(places: Places, *, create: bool = False) -> Inbox:
    """Open a project's inbox alone, where checkpoints lie.

    A file is made where there is none, since it decides nothing. On a server it is made
    only with `create`, as everything there.

    Raises:
        ConfigError: It is missing and not to be made, or as for `open_pair`.
        FormatError, UnavailableError: It is damaged, or cannot be reached.
    """
    if places.store_kind is Scheme.MEMORY:
        return MemoryInbox()
    if places.inbox is not None:
        return open_inbox(places.inbox, create=True)
    with _driver(places.store_kind, "store.url"):
        from counterfoil.stores import postgres  # noqa: PLC0415 - its driver is an extra

        return postgres.open_inbox(places.store_url, create=create)


class OwnedJoint(Joint, Protocol):
    """A `Joint` with connections of its own."""

    def close(self) -> None:
        """Let go of them; a second time does nothing."""
        ...


def open_joint(places: Places) -> OwnedJoint | None:
    """Return what commits to store and register at once; None where they are two databases."""
    if not are_one_database(places.store_url, places.heads_url):
        return None
    with _driver(places.store_kind, "store.url"):
        from counterfoil.stores import postgres  # noqa: PLC0415 - its driver is an extra

        return postgres.open_joint(places.store_url)


def open_bell(places: Places) -> Bell | None:
    """Return what wakes workers; None where nothing lies in PostgreSQL.

    Heads ring for runs that are new or given back, checkpoints for statements: with both
    in PostgreSQL, and apart, only heads do.
    """
    if places.heads_kind is Scheme.POSTGRESQL:
        return LateBell(lambda: _postgres_bell("heads.url", places.heads_url))
    if places.store_kind is Scheme.POSTGRESQL:
        return LateBell(lambda: _postgres_bell("store.url", places.store_url))
    return None


def _postgres_bell(field: str, url: str) -> Bell:
    with _driver(Scheme.POSTGRESQL, field):
        from counterfoil.stores import postgres  # noqa: PLC0415 - its driver is an extra

        return postgres.open_bell(url)


def store_facts(places: Places, clock: Clock) -> PostgresFacts | None:
    """Return what the server of checkpoints says of itself; None where there is none.

    Raises:
        ConfigError: It does not let us in, or its driver is not installed.
        UnavailableError: It cannot be reached.
    """
    if places.store_kind is not Scheme.POSTGRESQL:
        return None
    return _postgres_facts("store.url", places.store_url, clock)


def heads_facts(places: Places, clock: Clock) -> PostgresFacts | EtcdFacts | None:
    """Return what the server of heads says of itself; as `store_facts`."""
    if places.heads_kind is Scheme.ETCD:
        with _driver(Scheme.ETCD, "heads.url"):
            from counterfoil.stores import etcd_facts  # noqa: PLC0415 - its client is an extra

            return etcd_facts.etcd_facts(places.heads_url)
    if places.heads_kind is not Scheme.POSTGRESQL:
        return None
    return _postgres_facts("heads.url", places.heads_url, clock)


def _postgres_facts(field: str, url: str, clock: Clock) -> PostgresFacts:
    with _driver(Scheme.POSTGRESQL, field):
        from counterfoil.stores import postgres_facts  # noqa: PLC0415 - its driver is an extra

        return postgres_facts.postgres_facts(url, clock.now_ms)


def grant_roles(places: Places, *, worker: str, reader: str) -> None:
    """Let roles of PostgreSQL work, and read, wherever something lies there; twice is once.

    Args:
        places: Whose urls connect as the role that owns the tables.
        worker: Name of a role that exists; empty to leave it out.
        reader: Name of a role that exists; empty to leave it out.

    Raises:
        ConfigError: Nothing lies in PostgreSQL, there is no such role, no rule holds it,
            or whoever is connected may not grant.
        UnavailableError: A server cannot be reached.
        UnknownOutcomeError: An answer was lost; grant again.
    """
    kinds = (
        ("store.url", places.store_kind, places.store_url),
        ("heads.url", places.heads_kind, places.heads_url),
    )
    fields = {url: field for field, kind, url in reversed(kinds) if kind is Scheme.POSTGRESQL}
    if not fields:
        raise ConfigError(
            "neither checkpoints nor heads lie in PostgreSQL, which alone has roles",
            move="leave the roles out, or name a database in counterfoil.toml",
        )
    for url, field in fields.items():
        with _driver(Scheme.POSTGRESQL, field):
            from counterfoil.stores import postgres  # noqa: PLC0415 - its driver is an extra

            postgres.grant_roles(url, worker=worker, reader=reader)


@contextmanager
def _driver(kind: Scheme, field: str) -> Generator[None]:
    """Name the setting in what is wrong with it, and the extra in what is not installed."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{field}: {error.message}", move=error.move) from error
    except ImportError as error:
        missing = (error.name or DRIVERS[kind]).partition(".")[0]
        if missing == "counterfoil":
            raise
        raise ConfigError(
            f"{field} names a place in {kind.value}, and {missing} is not installed",
            move=f"install the extra: pip install 'counterfoil[{kind.value}]'",
        ) from error
