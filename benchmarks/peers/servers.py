"""The servers that sides need, each started when first asked for, and gone afterwards."""

import json
import os
import platform
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.error import URLError

import apsw
import psycopg

from benchmarks.peers.environments import ENVIRONMENTS, RESTATE
from benchmarks.peers.sides import Keeps, Side
from counterfoil.local.etcd import LocalEtcd
from counterfoil.local.postgres import LocalPostgres, find_binaries

HOST = "127.0.0.1"
READY_SECONDS = 60
LOOK_SECONDS = 0.05
END_SECONDS = 20
BUSY_MS = 10_000
ARCHITECTURE = {"x86_64": "x64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
RESTATE_SERVER = f"node_modules/@restatedev/restate-server-linux-{ARCHITECTURE}/bin/restate-server"

_S = TypeVar("_S")


class ServerError(Exception):
    """A server does not come up; the message says which, and how its log ends."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where one side keeps things in one scenario.

    Attributes:
        folder: A folder of its own.
        told: What its program is told.
        database: URL of a database of its own; empty for none.
        grows: Folders that grow with its runs.
    """

    folder: Path
    told: dict[str, Any]
    database: str = ""
    grows: tuple[Path, ...] = ()


@dataclass(kw_only=True)
class Servers:
    """Owns one server of each kind."""

    _home: Path
    _stack: ExitStack
    _started: dict[Keeps, Any] = field(default_factory=dict)
    _count: int = 0

    def place(self, side: Side) -> Place:
        """Return a place that nothing has used.

        Raises:
            ServerError, CounterfoilError: What it needs does not start.
        """
        self._count += 1
        name = f"{side.name}-{self._count}".replace("-", "_")
        folder = self._home / name
        kept = folder / "kept"
        kept.mkdir(parents=True)
        told: dict[str, Any] = {"folder": str(kept), "url": "", "store": "", "heads": ""}
        database, grows = "", (kept,)
        if {Keeps.POSTGRESQL, Keeps.ABSURD} & set(side.keeps):
            database = told["url"] = self._postgres.create_database(name)
            told["store"] = told["heads"] = database
        if Keeps.ABSURD in side.keeps:
            _install_schema(database)
        if Keeps.ETCD in side.keeps:
            told["heads"] = self._etcd.url(name)
            told["etcd"] = self._etcd.endpoints[0]
        if Keeps.RESTATE in side.keeps:
            told |= self._restate.told | {"port": free_ports(1)[0], "queue": name}
            grows = (self._restate.folder,)
        if Keeps.TEMPORAL in side.keeps:
            told |= self._temporal.told | {"queue": name}
            grows = (self._temporal.folder,)
        told["durability"] = "merged" if side.merges else "strict"
        return Place(folder=folder, told=told, database=database, grows=grows)

    def size_bytes(self, side: Side, place: Place) -> int:
        """Return what a side's runs take on disk at present, once logs are written back."""
        for folder in place.grows:
            for path in folder.rglob("*.db"):
                _write_back(path)
        total = sum(
            path.stat().st_size
            for folder in place.grows
            for path in folder.rglob("*")
            if path.is_file()
        )
        if place.database:
            with psycopg.connect(place.database, autocommit=True) as connection:
                connection.execute("CHECKPOINT")
                row = connection.execute("SELECT pg_database_size(current_database())").fetchone()
            total += int(row[0]) if row else 0
        if Keeps.ETCD in side.keeps:
            total += self._etcd_bytes()
        return total

    def wal_position(self, place: Place) -> int:
        """Return how much PostgreSQL has logged; 0 for a side that does not use it."""
        if not place.database:
            return 0
        with psycopg.connect(place.database, autocommit=True) as connection:
            query = "SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn"
            row = connection.execute(query).fetchone()
        return int(row[0]) if row else 0

    def _etcd_bytes(self) -> int:
        url = f"http://{self._etcd.endpoints[0]}/v3/maintenance/status"
        return int(_posted(url, {})["dbSizeInUse"])

    @property
    def _postgres(self) -> LocalPostgres:
        return self._once(Keeps.POSTGRESQL, LocalPostgres)

    @property
    def _etcd(self) -> LocalEtcd:
        return self._once(Keeps.ETCD, LocalEtcd)

    @property
    def _restate(self) -> "_Daemon":
        return self._once(Keeps.RESTATE, lambda: _restate(self._home / "restate"))

    @property
    def _temporal(self) -> "_Daemon":
        return self._once(Keeps.TEMPORAL, lambda: _temporal(self._home / "temporal"))

    def _once(self, what: Keeps, start: Callable[[], AbstractContextManager[_S]]) -> _S:
        if what not in self._started:
            self._started[what] = self._stack.enter_context(start())
        started: _S = self._started[what]
        return started


@contextmanager
def servers(home: Path) -> Iterator[Servers]:
    """Give servers that are gone afterwards; what they keep lies below `home`."""
    with ExitStack() as stack:
        yield Servers(_home=home, _stack=stack)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Daemon:
    folder: Path
    told: dict[str, Any]


@contextmanager
def _restate(folder: Path) -> Iterator[_Daemon]:
    """Run Restate's server; its log is synced on each commit, as by default."""
    ingress, admin, node = free_ports(3)
    settings = {
        "RESTATE_INGRESS__BIND_PORT": ingress,
        "RESTATE_ADMIN__BIND_PORT": admin,
        "RESTATE_BIND_PORT": node,
        "RESTATE_BIND_IP": HOST,
        "RESTATE_LISTEN_MODE": "tcp",
        "DO_NOT_TRACK": 1,
    }
    words = [str(RESTATE / RESTATE_SERVER), "--no-logo", "--base-dir", str(folder / "base")]
    with _daemon("restate-server", words, folder, settings):
        _until(lambda: _got(f"http://{HOST}:{admin}/health"), "Restate", folder)
        _until(lambda: _got(f"http://{HOST}:{ingress}/restate/health"), "Restate", folder)
        yield _Daemon(folder=folder / "base", told={"ingress": ingress, "admin": admin})


@contextmanager
def _temporal(folder: Path) -> Iterator[_Daemon]:
    """Run Temporal's dev server on a file, each commit of it synced."""
    port = free_ports(1)[0]
    kept = folder / "kept"
    kept.mkdir(parents=True)
    words = [
        str(ENVIRONMENTS / "temporal" / "bin" / "temporal"),
        *["server", "start-dev", "--headless", "--log-level", "error"],
        *("--ip", HOST, "--port", str(port), "--db-filename", str(kept / "temporal.db")),
        *("--sqlite-pragma", "journal_mode=WAL", "--sqlite-pragma", "synchronous=FULL"),
    ]
    with _daemon("temporal", words, folder, {}):
        _until(lambda: _connects(port), "Temporal", folder)
        yield _Daemon(folder=kept, told={"address": f"{HOST}:{port}"})


@contextmanager
def _daemon(
    name: str, words: list[str], folder: Path, settings: dict[str, object]
) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    told = {**os.environ, **{key: str(value) for key, value in settings.items()}}
    with (folder / f"{name}.log").open("wb") as log:
        try:
            process = subprocess.Popen(words, cwd=folder, env=told, stdout=log, stderr=log)
        except OSError as error:
            raise ServerError(f"{words[0]}: {error.strerror}") from error
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(END_SECONDS)


def _until(is_ready: Callable[[], bool], name: str, folder: Path) -> None:
    until = time.monotonic() + READY_SECONDS
    while not is_ready():
        if time.monotonic() > until:
            logs = " ".join(path.read_text(errors="replace") for path in folder.glob("*.log"))
            raise ServerError(f"{name} does not come up: {' '.join(logs.split())[-300:]}")
        time.sleep(LOOK_SECONDS)


def _got(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310 - our own server
            return bool(answer.status == 200)
    except (URLError, OSError):
        return False


def _posted(url: str, body: dict[str, object]) -> dict[str, Any]:
    with urllib.request.urlopen(url, json.dumps(body).encode(), timeout=10) as answer:  # noqa: S310 - our own server
        answered: dict[str, Any] = json.loads(answer.read())
    return answered


def _write_back(path: Path) -> None:
    """Move what stands in the log of a SQLite file into the file."""
    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(BUSY_MS)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.close()


def _connects(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), timeout=1).close()
    except OSError:
        return False
    return True


def _install_schema(url: str) -> None:
    """Have Absurd's own tool make its tables; it calls PostgreSQL's `psql`."""
    tool = ENVIRONMENTS / "absurd" / "bin" / "absurdctl"
    path = f"{find_binaries()}{os.pathsep}{os.environ.get('PATH', '')}"
    done = subprocess.run(
        [tool, "init", "--database", url],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": path},
    )
    if done.returncode != 0:
        raise ServerError(f"absurdctl init: {' '.join(done.stderr.split())[-300:]}")


def free_ports(count: int) -> list[int]:
    """Return ports of this machine that nobody listened on a moment ago."""
    sockets = [socket.create_server((HOST, 0)) for _ in range(count)]
    ports = [int(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports
