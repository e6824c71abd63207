"""Pairs of places for checkpoints and heads, each of which can be saved and brought back.

What is brought back is genuine: a dump, a copied folder or a snapshot of a real server.
"""

import itertools
import os
import shutil
import subprocess
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Protocol

from counterfoil.core.run import Phase
from counterfoil.engine import audit, control
from counterfoil.local.etcd import LocalEtcd
from counterfoil.local.postgres import find_binaries
from counterfoil.ports import CheckpointStore, HeadRegister, Joint
from counterfoil.stores import etcd, postgres, sqlite
from counterfoil.testing.mortal import Fate, mortal
from tests.support.etcd import fresh_prefix
from tests.support.postgres import execute
from tests.support.stages import INCARNATION, Backend, PlayStage

RUNS_MAX = 100
NUMBERS = itertools.count()
Way = Callable[[str], str]
PEER = "http://127.0.0.1:1"
"""Of a cluster of one, which calls no peer."""


def directly(url: str) -> str:
    """Return the way to a server itself."""
    return url


class Place(Protocol):
    """Where checkpoints or heads lie."""

    def save(self) -> None:
        """Keep a copy of everything, as people do at night."""
        ...

    def restore(self) -> None:
        """Bring the copy back; nobody is connected."""
        ...

    def wipe(self) -> None:
        """Lose everything, tables and all."""
        ...


class DatabasePlace:
    """A schema of its own in a database of PostgreSQL."""

    def __init__(self, database: str, folder: Path) -> None:
        self.schema = f"place_{next(NUMBERS)}"
        self.url = f"{database}{'&' if '?' in database else '?'}schema={self.schema}"
        self._database = database
        self._file = folder / f"{self.schema}.dump"

    def save(self) -> None:
        words = ("--format=custom", f"--schema={self.schema}", f"--file={self._file}")
        self._tool("pg_dump", *words, self._database)

    def restore(self) -> None:
        self.wipe()
        words = ("--exit-on-error", f"--dbname={self._database}", str(self._file))
        self._tool("pg_restore", *words)

    def wipe(self) -> None:
        execute(self._database, f"DROP SCHEMA {self.schema} CASCADE")

    def lose_rows(self, *tables: str) -> None:
        """Lose what is in tables, as whoever owns them can."""
        for table in tables:
            name = f"{self.schema}.{table}"
            execute(self._database, f"ALTER TABLE {name} DISABLE TRIGGER USER")
            execute(self._database, f"DELETE FROM {name}")  # noqa: S608 - names of our own
            execute(self._database, f"ALTER TABLE {name} ENABLE TRIGGER USER")

    def _tool(self, name: str, *words: str) -> None:
        subprocess.run([find_binaries() / name, *words], check=True, capture_output=True)


class FolderPlace:
    """A folder with files of SQLite."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._copy = folder.with_name(f"{folder.name}-yesterday")

    def save(self) -> None:
        shutil.copytree(self.folder, self._copy)

    def restore(self) -> None:
        self.wipe()
        shutil.copytree(self._copy, self.folder)

    def wipe(self) -> None:
        shutil.rmtree(self.folder)


class EtcdPlace:
    """A prefix of an etcd that nothing else is in."""

    def __init__(self, server: LocalEtcd, folder: Path) -> None:
        self.server = server
        self.url = server.url(fresh_prefix())
        self._file = folder / "etcd.snapshot"

    def save(self) -> None:
        self.server.save(self._file)

    def restore(self) -> None:
        self.server.restore(self._file)

    def restore_as_another_cluster(self) -> None:
        """Bring the copy back under a new cluster id, as etcd's manual advises."""
        self.server.stop()
        data = self.server.folder / "data" / "node0"
        shutil.rmtree(data)
        subprocess.run(
            [
                *("etcdctl", "snapshot", "restore", self._file),
                *(f"--data-dir={data}", "--name=node0", f"--initial-cluster=node0={PEER}"),
                *(f"--initial-advertise-peer-urls={PEER}", "--initial-cluster-token=another"),
            ],
            check=True,
            capture_output=True,
            env={**os.environ, "ETCDCTL_API": "3"},
        )
        self.server.start()

    def wipe(self) -> None:
        self.server.stop()
        shutil.rmtree(self.server.folder / "data" / "node0")
        self.server.start()


class Kind(Enum):
    """Which places go together."""

    FILES = "two files of SQLite"
    JOINT = "one PostgreSQL database"
    APART = "two PostgreSQL databases"
    MIXED = "SQLite and PostgreSQL"
    ETCD = "PostgreSQL and etcd"


SERVERS = tuple(kind for kind in Kind if kind is not Kind.FILES)


class Pair(Backend):
    """A `Backend` on servers, with a clock for workers that stands still.

    Attributes:
        kind: Which places.
        store_place: Where checkpoints lie.
        heads_place: Where heads lie; the same place for a joint pair.
        store_way: What leads to the server of the store, by url.
        heads_way: What leads to that of the heads.
        patience: How long etcd is waited for.
    """

    def __init__(self, kind: Kind, folder: Path, servers: "Servers") -> None:
        super().__init__()
        self.kind = kind
        self.store_way: Way = directly
        self.heads_way: Way = directly
        self.patience = etcd.Patience()
        self.store_place: DatabasePlace | FolderPlace
        self.heads_place: DatabasePlace | FolderPlace | EtcdPlace
        if kind in {Kind.FILES, Kind.MIXED}:
            self.store_place = FolderPlace(folder / "project")
        else:
            self.store_place = DatabasePlace(servers.databases()[0], folder)
        if kind is Kind.FILES:
            self.heads_place = FolderPlace(folder / "state")
        elif kind is Kind.ETCD:
            self.heads_place = EtcdPlace(servers.etcd(), folder)
        elif kind is Kind.JOINT and isinstance(self.store_place, DatabasePlace):
            self.heads_place = self.store_place
        else:
            self.heads_place = DatabasePlace(servers.databases()[1], folder)
        self._joints: list[Joint] = []
        for port in (self.open_store(create=True), self.open_heads(create=True)):
            port.close()

    @property
    def places(self) -> tuple[Place, ...]:
        """Both places, or the one that they are."""
        if self.kind is Kind.JOINT:
            return (self.store_place,)
        return self.store_place, self.heads_place

    @property
    def commit(self) -> str:
        """Name of the call that makes a checkpoint the newest."""
        return "joint.commit" if self.kind is Kind.JOINT else "heads.advance"

    def open(self) -> tuple[CheckpointStore, HeadRegister]:
        return self.open_store(), self.open_heads()

    def open_store(self, *, create: bool = False) -> CheckpointStore:
        if isinstance(self.store_place, FolderPlace):
            return sqlite.open_store(self.store_place.folder / "checkpoints.db", create=create)
        return postgres.open_store(self.store_way(self.store_place.url), create=create)

    def open_heads(self, *, create: bool = False) -> HeadRegister:
        if isinstance(self.heads_place, FolderPlace):
            return sqlite.open_heads(
                self.heads_place.folder / "heads.db",
                create=create,
                now_ms=self.clock.now_ms,
                incarnation=lambda: INCARNATION,
            )
        if isinstance(self.heads_place, EtcdPlace):
            url = self.heads_way(self.heads_place.url)
            return etcd.open_heads(url, create=create, patience=self.patience)
        return postgres.open_heads(self.heads_way(self.heads_place.url), create=create)

    @contextmanager
    def joint(self) -> Generator[Joint | None]:
        """Open what commits to both, where they are one database."""
        if self.kind is not Kind.JOINT or not isinstance(self.store_place, DatabasePlace):
            yield None
            return
        joint = postgres.open_joint(self.store_way(self.store_place.url))
        try:
            yield joint
        finally:
            joint.close()

    def end_leases(self) -> None:
        """Give up what dead workers hold, as time would."""
        heads = self.open_heads()
        try:
            for head in heads.heads("", RUNS_MAX):
                heads.release(head)
        finally:
            heads.close()

    def empty_store(self) -> None:
        """Lose every row of the checkpoint store, and keep its tables."""
        if isinstance(self.store_place, FolderPlace):
            self.store_place.wipe()
            self.open_store(create=True).close()
        else:
            self.store_place.lose_rows("settled", "state", "checkpoint", "run")

    def empty_heads(self) -> None:
        """Lose every head, and keep the register and its name."""
        if isinstance(self.heads_place, FolderPlace):
            self.heads_place.wipe()
            self.open_heads(create=True).close()
        elif isinstance(self.heads_place, EtcdPlace):
            prefix = self.heads_place.url.rpartition("/")[2]
            for kind in ("head", "hold", "until"):
                self.heads_place.server._tell("del", "--prefix", f"{prefix}/{kind}/")
        else:
            self.heads_place.lose_rows("head")


class Servers(Protocol):
    """Starts what a pair needs, and nothing else."""

    def databases(self) -> tuple[str, str]: ...

    def etcd(self) -> LocalEtcd: ...


def works(pair: Pair, stage: PlayStage, fate: Fate | None = None) -> None:
    """Let a worker do a stage's program, and close what it opened, whatever happens."""
    try:
        with pair.joint() as joint:
            parts = replace(stage.parts(), joint=joint)
            stage.work(parts if fate is None else mortal(parts, fate))
    finally:
        stage.close()


def has_completed(stage: PlayStage) -> bool:
    """Return whether the run is completed, and its whole record holds."""
    try:
        parts = stage.parts()
        audit.audit(parts, stage.run_id)
        return control.show(parts, stage.run_id).run.phase is Phase.COMPLETED
    finally:
        stage.close()
