"""From settings to wired objects: here and in `backends` alone concrete classes are named."""

import importlib
import secrets
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from counterfoil.adapters.files import open_files
from counterfoil.adapters.function import Effects
from counterfoil.backends import (
    Content,
    OwnedJoint,
    Space,
    contents_of,
    give_space_back,
    open_bell,
    open_checkpoints,
    open_joint,
    open_pair,
    open_register,
    open_statements,
)
from counterfoil.core.errors import ConfigError
from counterfoil.core.intent import KindSpec
from counterfoil.core.trust import NOBODY, TrustRoots
from counterfoil.engine.clock import SystemClock
from counterfoil.engine.grouping import shared
from counterfoil.engine.parts import Parts, Seals
from counterfoil.keeper import Keeper
from counterfoil.keys import (
    Keyring,
    Purpose,
    create_keyring,
    load_keyring,
    load_trust,
    open_source,
    parse_source,
)
from counterfoil.places import Places, places_of, project_name, user_folder
from counterfoil.ports import Adapter, Bell, CheckpointStore, Clock, HeadRegister, Inbox, Joint
from counterfoil.settings import FILE_NAME, FOLDER_NAME, Settings, find_project, read_settings
from counterfoil.stores.holders import this_holder
from counterfoil.stores.place import NETWORK_KINDS, make_folder, mounted_kind
from counterfoil.stores.sqlite import SqliteHeads, SqliteStore

if TYPE_CHECKING:
    from counterfoil.adapters.sql import Installed

__all__ = [
    "Places",
    "Settings",
    "Space",
    "default_effects",
    "file_system_of",
    "floor_ms_of",
    "give_space_back",
    "init_project",
    "install_sql",
    "is_set_up",
    "open_checkpoints",
    "open_keeper",
    "open_records",
    "open_register",
    "open_statements",
    "places_of",
    "pragmas_of",
]

default_effects = Effects()
"""Where `counterfoil.effect` and `counterfoil.observer` declare functions."""


def init_project(folder: Path, *, writes_settings: bool = True) -> Places:
    """Set a project up: its id, its folder, its key, its store, heads and inbox.

    What is there is kept as it is, so that calling it twice changes nothing. Nothing
    else makes schemas, tables or prefixes on servers: a program that finds none there
    may have been given the wrong address, or a database that was lost.

    Raises:
        ConfigError: A file, folder or database cannot be used as it is.
        IntegrityError: One of store and register knows runs, and the other is gone.
        UnavailableError: A server cannot be reached; the settings may be written then,
            and nothing else.
    """
    project = folder.resolve()
    file = project / FILE_NAME
    if writes_settings and not file.exists():
        text = f'[project]\nid = "{_slug(project.name)}-{secrets.token_hex(8)}"\n'
        with file.open("x", encoding="utf-8") as opened:
            opened.write(text)
    settings = read_settings(project)
    places, clock = places_of(project, settings), SystemClock()
    if places.keys is not None and not places.keys.exists():
        _check_key_is_new(places, places.keys, clock)
        create_keyring(places.keys)
    store, heads = open_pair(places, clock, create=True)
    heads.close()
    store.close()
    open_statements(places, create=True).close()
    ignore = project / FOLDER_NAME / ".gitignore"
    if ignore.parent.is_dir() and not ignore.exists():
        ignore.write_text("*\n", encoding="utf-8")
    return places


def _check_key_is_new(places: Places, keys: Path, clock: Clock) -> None:
    """Refuse to make a second key for a store or register that was made with another.

    Raises:
        ConfigError, FormatError: One of them is there.
        UnavailableError: Nobody can say.
    """
    found = contents_of(places, clock)
    if {found.store, found.heads} != {Content.ABSENT}:
        raise ConfigError(
            f"the project was set up before, and its key file {keys} is not there",
            move="bring the key file back, or copy it from where the project was set up: "
            "nothing else opens its runs",
        )


def _slug(name: str) -> str:
    kept = "".join(char if char.isascii() and char.isalnum() else "-" for char in name.lower())
    return kept.strip("-")[:40] or "project"


def install_sql(url: str) -> "Installed":
    """Make the tables of receipts of the `sql` adapter in the database that a URL names.

    Raises:
        ConfigError: The URL, the database or its driver cannot be used.
        UnavailableError: It cannot be reached.
    """
    from counterfoil.adapters import sql  # noqa: PLC0415 - few programs have a database

    return sql.install_sql(url)


def is_set_up(places: Places) -> bool:
    """Return whether there is a project: a key, store or heads, or a server that is named.

    Servers are not asked here: what they lack is said when they are opened.
    """
    files = (places.keys, places.store, places.heads)
    return places.uses_servers or any(file is not None and file.exists() for file in files)


def open_keeper(
    folder: Path | str = ".",
    *,
    settings: Settings | None = None,
    effects: Effects | None = None,
    adapters: Sequence[Adapter] = (),
    clock: Clock | None = None,
) -> Keeper:
    """Open a project's keeper: `counterfoil.toml`, or all defaults.

    A project in files of which nothing exists yet is set up. One of which a part is
    missing is refused: an empty register would make half-done runs look new. On servers
    `counterfoil init` alone sets up.

    Args:
        folder: Where to look for the project, upwards.
        settings: In place of the file.
        effects: Declared functions; those of `counterfoil.effect` by default.
        adapters: Further adapters.
        clock: In place of the system's clocks, for tests.

    Raises:
        ConfigError: A setting, a key or a file cannot be used as it is.
        IntegrityError: A store or register is missing or damaged.
        UnavailableError: A server cannot be reached.
    """
    project = find_project(Path(folder))
    settings = settings if settings is not None else read_settings(project)
    places = places_of(project, settings)
    if not is_set_up(places) and _sets_itself_up(places):
        init_project(project, writes_settings=False)
    used_clock = clock or SystemClock()
    declared = effects if effects is not None else default_effects

    def found() -> Sequence[Adapter]:
        files = _files(project, settings, used_clock)
        return (*declared.adapters(used_clock.now_ms), *adapters, files)

    creates = places.keys is None and not places.uses_servers
    return _keeper(places, settings, found, used_clock, create=creates)


def open_records(folder: Path | str = ".", *, clock: Clock | None = None) -> Keeper:
    """Open a project's keeper without any adapter: to read, verify, prove and abort.

    Nothing is set up, and no target is touched.

    Raises:
        ConfigError: There is no project, or as `open_keeper`.
        IntegrityError: A store or register is missing or damaged.
        UnavailableError: A server cannot be reached.
    """
    project = find_project(Path(folder))
    settings = read_settings(project)
    places = places_of(project, settings)
    if not is_set_up(places):
        raise ConfigError(
            f"there is no project at {project}",
            move="run `counterfoil init` there, or name its folder with --project",
        )
    return _keeper(places, settings, tuple, clock or SystemClock(), create=False)


def _keeper(
    places: Places,
    settings: Settings,
    adapters: Callable[[], Sequence[Adapter]],
    clock: Clock,
    *,
    create: bool,
) -> Keeper:
    keyring, roots = _keyring(places), load_trust(places.trust)
    with ExitStack() as opened:
        store, heads = open_pair(places, clock, create=create)
        opened.callback(store.close)
        opened.callback(heads.close)
        joint = open_joint(places)
        if joint is not None:
            opened.callback(joint.close)
        parts = wire(
            settings,
            keyring,
            store,
            heads,
            adapters(),
            clock=clock,
            owner=this_holder(),
            inbox=open_statements(places),
            roots=roots,
            joint=joint,
            bell=open_bell(places),
        )
        opened.pop_all()
    return Keeper(parts) if joint is None else _JointKeeper(parts, joint)


class _JointKeeper(Keeper):
    """A keeper that also owns what commits to its store and register at once."""

    def __init__(self, parts: Parts, joint: OwnedJoint) -> None:
        super().__init__(parts)
        self._joint = joint

    def close(self) -> None:
        super().close()
        self._joint.close()


def file_system_of(folder: Path) -> tuple[str, bool]:
    """Return the kind of file system of a folder, if known, and if it is a network's."""
    kind = mounted_kind(folder.resolve())
    return kind, kind in NETWORK_KINDS


def pragmas_of(port: CheckpointStore | HeadRegister) -> dict[str, str]:
    """Return the pragmas of an opened file, as read back; none in memory."""
    return port.pragmas() if isinstance(port, SqliteStore | SqliteHeads) else {}


def floor_ms_of(heads: HeadRegister) -> int:
    """Return the latest moment that a register has acted on; 0 when it keeps none."""
    return heads.floor_ms() if isinstance(heads, SqliteHeads) else 0


def _files(project: Path, settings: Settings, clock: Clock) -> Adapter:
    """Open the files adapter, its journal beside the root.

    Beside the project itself would be somebody else's folder, so the journal of a root
    that holds the project lies in the user's state folder.
    """
    root = (project / settings.adapters.files.root).resolve()
    journal = None
    if project.resolve().is_relative_to(root):
        state = user_folder("XDG_STATE_HOME", ".local/state")
        journal = state / project_name(project, settings) / "files"
        make_folder(journal.parent)
    return open_files(root, journal=journal, now_ms=clock.now_ms)


def _sets_itself_up(places: Places) -> bool:
    return places.keys is not None


def wire(
    settings: Settings,
    keyring: Keyring,
    store: CheckpointStore,
    heads: HeadRegister,
    adapters: Sequence[Adapter],
    *,
    clock: Clock,
    owner: str,
    inbox: Inbox | None = None,
    roots: TrustRoots = NOBODY,
    random_bytes: Callable[[int], bytes] = secrets.token_bytes,
    runs_background: bool = True,
    joint: Joint | None = None,
    bell: Bell | None = None,
) -> Parts:
    """Return the engine's parts from opened ports.

    Durable writes of several sessions go together where they meet.

    Raises:
        ConfigError: Two adapters share a name, or two kinds do.
    """
    by_name, kinds = _by_name(adapters)
    store, heads, joint = shared(store, heads, joint)
    return Parts(
        store=store,
        heads=heads,
        seals=Seals(
            signer=keyring.signer(Purpose.CHECKPOINT),
            verifiers=keyring.verifiers(Purpose.CHECKPOINT),
        ),
        lease_seals=Seals(
            signer=keyring.signer(Purpose.LEASE), verifiers=keyring.verifiers(Purpose.LEASE)
        ),
        adapters=by_name,
        kinds=kinds,
        clock=clock,
        random_bytes=random_bytes,
        owner=owner,
        ttl_ms=settings.lease.ttl_ms,
        merges=settings.commit.durability == "merged",
        marks=settings.commit.marker,
        inbox=inbox,
        roots=roots,
        runs_background=runs_background,
        joint=joint,
        bell=bell,
    )


def _by_name(adapters: Sequence[Adapter]) -> tuple[dict[str, Adapter], dict[str, KindSpec]]:
    by_name: dict[str, Adapter] = {}
    kinds: dict[str, KindSpec] = {}
    for adapter in adapters:
        if adapter.name in by_name:
            raise ConfigError(f"two adapters are named {adapter.name}")
        by_name[adapter.name] = adapter
        for spec in adapter.kinds:
            if spec.name in kinds:
                raise ConfigError(f"two adapters declare kind {spec.name}")
            kinds[spec.name] = spec
    return by_name, kinds


def _keyring(places: Places) -> Keyring:
    if places.keys is None:
        return open_source(parse_source(places.key_source))
    if not places.keys.exists():
        raise ConfigError(
            f"there is no key file at {places.keys}", move="run `counterfoil init`, or restore it"
        )
    return load_keyring(places.keys)


def import_app(name: str, folder: Path) -> None:
    """Import the module that declares a project's effects.

    Raises:
        ConfigError: There is no such module, or it cannot be loaded.
    """
    sys.path.insert(0, str(folder))
    try:
        importlib.import_module(name)
    except (ImportError, SyntaxError) as error:
        raise ConfigError(f"app {name!r:.100} cannot be imported: {error!s:.200}") from error
    finally:
        sys.path.remove(str(folder))
