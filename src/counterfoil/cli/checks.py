"""What `doctor` looks at: each check is a line that says what is, and how to mend it.

A check never changes anything that a program would not, and never stops the others.
"""

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import apsw

from counterfoil.backends import (
    EtcdFacts,
    PostgresFacts,
    heads_facts,
    open_checkpoints,
    open_register,
    open_statements,
    store_facts,
)
from counterfoil.cli.lines import Line, failed, ok, unfit, warned
from counterfoil.cli.protection import Closeness, Pair, Protection, protections
from counterfoil.cli.screen import duration
from counterfoil.cli.server_checks import etcd_lines, postgres_lines
from counterfoil.compose import Places, file_system_of, floor_ms_of, pragmas_of
from counterfoil.core.errors import CounterfoilError
from counterfoil.keys import KeyStatus, load_keyring, open_source, parse_source
from counterfoil.ports import CheckpointStore, Clock, HeadRegister
from counterfoil.settings import Settings
from counterfoil.urls import SERVERS, Scheme, are_one_database, is_on_this_machine

Facts = TypeVar("Facts")

SQLITE_MIN = (3, 46, 0)
"""Oldest SQLite that the declared driver brings."""

FREE_BYTES_FAIL = 16 * 1024 * 1024
"""A few thousand commits: less, and the next run may stop in the middle."""

FREE_BYTES_WARN = 256 * 1024 * 1024

CLOCK_AHEAD_MS_MAX = 60_000
"""Register time ahead of the wall clock that people notice: leases outlive it by as much."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """What `doctor` found.

    Attributes:
        lines: In the order in which a person would look.
        protections: What the pair of places does in each case.
    """

    lines: tuple[Line, ...]
    protections: tuple[Protection, ...]


def report(places: Places, settings: Settings, clock: Clock) -> Report:
    """Look at everything."""
    servers = Servers.asked(places, clock)
    pair = _pair(places, settings, servers)
    return Report(
        lines=tuple(_all_lines(places, servers, pair.closeness, clock)),
        protections=tuple(protections(pair)),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Servers:
    """What servers say, or why they do not; None where there is no server."""

    store: PostgresFacts | CounterfoilError | None
    heads: PostgresFacts | EtcdFacts | CounterfoilError | None

    @classmethod
    def asked(cls, places: Places, clock: Clock) -> "Servers":
        """Ask each server once."""
        store = _asked(lambda: store_facts(places, clock))
        if places.heads_url == places.store_url:
            return cls(store=store, heads=store)
        return cls(store=store, heads=_asked(lambda: heads_facts(places, clock)))


def _asked(ask: Callable[[], Facts]) -> Facts | CounterfoilError:
    try:
        return ask()
    except CounterfoilError as error:
        return error


def _all_lines(
    places: Places, servers: Servers, closeness: Closeness, clock: Clock
) -> Iterator[Line]:
    yield _driver()
    yield from _guarded("keys", lambda: _keys(places))
    yield from _port("checkpoints", servers.store, lambda: _checkpoints(places))
    yield from _port("heads", servers.heads, lambda: _heads(places, clock))
    yield from _server_lines(places, servers)
    yield _independence(places, closeness)
    for folder in _folders(places):
        yield _folder(folder)


def _port(
    name: str,
    facts: PostgresFacts | EtcdFacts | CounterfoilError | None,
    check: Callable[[], Sequence[Line]],
) -> Sequence[Line]:
    """Open a port, unless its server has said already that this will not do."""
    if isinstance(facts, CounterfoilError):
        return [failed(name, facts)]
    return _guarded(name, check)


def _server_lines(places: Places, servers: Servers) -> Iterator[Line]:
    store, heads = servers.store, servers.heads
    if isinstance(store, PostgresFacts):
        is_both = heads is store
        ports = "checkpoints and heads" if is_both else "checkpoints"
        url = places.store_url
        yield from postgres_lines(ports, "store.url", url, store, keeps_heads=is_both)
    if isinstance(heads, PostgresFacts) and heads is not store:
        url = places.heads_url
        yield from postgres_lines("heads", "heads.url", url, heads, keeps_heads=True)
    if isinstance(heads, EtcdFacts):
        yield from etcd_lines(places.heads_url, heads)


def _guarded(name: str, check: Callable[[], Sequence[Line]]) -> Sequence[Line]:
    try:
        return check()
    except CounterfoilError as error:
        return [failed(name, error)]


def _driver() -> Line:
    version = apsw.sqlite_lib_version()
    if tuple(int(part) for part in version.split(".")[:3]) < SQLITE_MIN:
        return warned(
            "sqlite", f"version {version} is old", "install the apsw wheel, which brings its own"
        )
    return ok("sqlite", f"version {version}")


def _keys(places: Places) -> list[Line]:
    source = parse_source(places.key_source)
    ring = load_keyring(places.keys) if places.keys else open_source(source)
    active = next(row.id for row in ring.rows if row.status is KeyStatus.ACTIVE)
    opening = sum(row.status is KeyStatus.OPENING for row in ring.rows)
    where = f"{places.keys}, for you alone" if places.keys else source.title
    return [ok("keys", f"{where}; {active} signs, {opening} more open")]


def _checkpoints(places: Places) -> list[Line]:
    store = open_checkpoints(places)
    try:
        lines = [_opened("checkpoints", places.store_shown, store)]
    finally:
        store.close()
    if places.store_kind in SERVERS:
        open_statements(places).close()
    return lines


def _heads(places: Places, clock: Clock) -> list[Line]:
    register = open_register(places, clock)
    try:
        lines = [_opened("heads", places.heads_shown, register)]
        if places.heads_kind not in SERVERS:
            lines.append(_clock(floor_ms_of(register), clock.now_ms()))
        return lines
    finally:
        register.close()


def _opened(name: str, where: str, port: CheckpointStore | HeadRegister) -> Line:
    if not where:
        return warned(name, "in memory: gone with the process", f"set the url of {name} to a file")
    pragmas = ", ".join(f"{pragma} {value}" for pragma, value in pragmas_of(port).items())
    return ok(name, f"{where}, for you alone; {pragmas}" if pragmas else where)


def _clock(floor_ms: int, now_ms: int) -> Line:
    ahead_ms = floor_ms - now_ms
    if ahead_ms > CLOCK_AHEAD_MS_MAX:
        return warned(
            "clock",
            f"the register has seen a moment {duration(ahead_ms)} ahead of this clock",
            "set the clock right; until it gets there, leases of workers that died elsewhere "
            "end by release alone",
        )
    return ok("clock", "the wall clock is not behind the register")


def _pair(places: Places, settings: Settings, servers: Servers) -> Pair:
    store, heads = servers.store, servers.heads
    return Pair(
        store=places.store_kind,
        heads=places.heads_kind,
        closeness=_closeness(places, servers),
        store_is_here=_is_here(places.store_kind, places.store_url),
        heads_are_here=_is_here(places.heads_kind, places.heads_url),
        marks=settings.commit.marker,
        store_waits=_waits(store),
        heads_wait=_waits(heads),
        heads_members=heads.cluster_size if isinstance(heads, EtcdFacts) else 1,
    )


def _is_here(kind: Scheme, url: str) -> bool:
    return kind not in SERVERS or is_on_this_machine(url)


def _waits(facts: PostgresFacts | EtcdFacts | CounterfoilError | None) -> bool:
    if not isinstance(facts, PostgresFacts):
        return False
    return facts.synchronous_standbys and facts.synchronous_commit not in {"off", "local"}


def _closeness(places: Places, servers: Servers) -> Closeness:
    """Say what one restore brings back of both, as far as anybody can see."""
    store, heads = servers.store, servers.heads
    if are_one_database(places.store_url, places.heads_url):
        return Closeness.ONE_DATABASE
    if isinstance(store, PostgresFacts) and isinstance(heads, PostgresFacts):
        if store.identity[:2] == heads.identity[:2]:
            return Closeness.ONE_DATABASE
        if store.identity[0] == heads.identity[0]:
            return Closeness.ONE_SERVER
    if places.store is not None and places.heads is not None:
        return _closeness_of_files(places.store, places.heads, places.project)
    are_here = (
        _is_here(places.store_kind, places.store_url),
        _is_here(places.heads_kind, places.heads_url),
    )
    return Closeness.ONE_MACHINE if all(are_here) else Closeness.APART


def _closeness_of_files(store: Path, heads: Path, project: Path) -> Closeness:
    if heads.parent.resolve() == store.parent.resolve():
        return Closeness.ONE_FOLDER
    if heads.resolve().is_relative_to(project.resolve()):
        return Closeness.ONE_FOLDER
    return Closeness.ONE_MACHINE


def _independence(places: Places, closeness: Closeness) -> Line:
    if Scheme.MEMORY in {places.store_kind, places.heads_kind}:
        return ok("independence", "nothing in memory outlives its process")
    if places.store is not None and places.heads is not None:
        return _independence_of_files(places.store, places.heads, places.project)
    return _INDEPENDENCE[closeness]


_ELSEWHERE = "point heads.url to another server, or to etcd"
_INDEPENDENCE = {
    Closeness.ONE_DATABASE: warned(
        "independence",
        "heads and checkpoints are one database: each commit is one transaction, and "
        "restoring that database turns back both",
        _ELSEWHERE,
    ),
    Closeness.ONE_SERVER: warned(
        "independence",
        "heads and checkpoints are two databases of one server: restoring that server turns "
        "back both",
        _ELSEWHERE,
    ),
    Closeness.ONE_MACHINE: warned(
        "independence",
        "heads and checkpoints lie apart, on this machine: restoring the whole machine turns "
        "back both",
        "point heads.url to another machine if whole machines are restored here",
    ),
    Closeness.APART: ok("independence", "heads lie on another machine than checkpoints"),
}
"""What is said where at least one of both is a server."""


def _independence_of_files(store: Path, heads: Path, project: Path) -> Line:
    name = "independence"
    mend = "leave heads.url unset, or point it to a file outside the project, best on another disk"
    if heads.resolve() == store.resolve():
        return warned(name, "heads and checkpoints are one file", mend)
    if heads.parent.resolve() == store.parent.resolve():
        return warned(
            name, "heads lie beside checkpoints: restoring that folder turns back both", mend
        )
    if heads.resolve().is_relative_to(project.resolve()):
        return warned(
            name, "heads lie inside the project: restoring or copying it turns back both", mend
        )
    if _device(heads) == _device(store):
        return warned(
            name,
            "heads lie apart from checkpoints, on the same disk: restoring the whole disk "
            "turns back both",
            "put heads.url on another disk if whole disks are restored here; adapters that "
            "remember refuse it all the same",
        )
    return ok(name, "heads lie on another disk than checkpoints")


def _device(file: Path) -> int:
    """Return the disk of a file, or the one on which it would be made."""
    return next(at.stat().st_dev for at in file.resolve().parents if at.exists())


def _folders(places: Places) -> list[Path]:
    files = (places.store, places.heads, places.keys)
    return list(
        dict.fromkeys(file.parent for file in files if file is not None and file.parent.is_dir())
    )


def _folder(folder: Path) -> Line:
    kind, is_network = file_system_of(folder)
    free_bytes = shutil.disk_usage(folder).free
    found = f"{folder}: {kind or 'of unknown kind'}, {free_bytes // 1024 // 1024} MiB free"
    if is_network:
        return unfit("disk", f"{found}; a network's, which loses commits", "choose a local disk")
    if free_bytes < FREE_BYTES_FAIL:
        return unfit("disk", found, "make room before a run goes on")
    if free_bytes < FREE_BYTES_WARN:
        return warned("disk", found, "make room soon")
    return ok("disk", found)
