"""A project in real files or on real servers, as killed workers leave it, and a shop.

The shop is a SQLite database of its own. It writes down every arrival and the lease it
came under, so that a test counts on the target what happened, whoever is dead by then.
"""

from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import apsw

from counterfoil.adapters.files import open_files
from counterfoil.adapters.files.disk import Disk
from counterfoil.adapters.function import Effects
from counterfoil.adapters.function.call import Call, Found
from counterfoil.adapters.function.effects import Bounds
from counterfoil.compose import wire
from counterfoil.core.errors import FencedError
from counterfoil.core.receipt import Fence
from counterfoil.core.task import Budgets, Policy, Task, Verification
from counterfoil.core.words import RunId
from counterfoil.engine.clock import SystemClock
from counterfoil.engine.parts import Parts
from counterfoil.engine.session import Session
from counterfoil.keys import keyring_of
from counterfoil.ports import CheckpointStore, HeadRegister, Joint
from counterfoil.settings import Commit, Lease, Settings
from counterfoil.stores import postgres, sqlite
from counterfoil.stores.holders import is_dead, this_holder
from counterfoil.urls import are_one_database
from tests.support.folders import RESERVED

Program = Callable[[Session], object]
RUN_ID = RunId("order-1")
SECRET = bytes(range(32))
IN_FLIGHT_MS = 10
BUSY_MS = 10_000
ETCD = "etcd:"
FENCING = ("transactional", "conditional")
"""Levels at which the shop refuses the token of a lease that was taken over."""

DEDUPING = ("transactional", "deduplicating")
"""Levels at which it answers a repeated key with the effect that the key has earned."""

ARRIVED = ("order A-7", "ship A-7")
CHANGED = ("new.txt", "old.txt")
TEXTS = {"new.txt": "new", "old.txt": "replaced"}
TASK = Task(
    id="fulfil",
    policy=Policy(
        permissions=("shop.order", "shop.ship", "shop.check", "files.write"),
        scope={"files": {"paths": (".",)}},
    ),
    budgets=Budgets(proposals=8, steps=6),
    verifier=Verification(kind="shop.check"),
)


def fulfil(run: Session) -> None:
    """Order, write, ship, replace, verify, finish."""
    run.do("shop.order", sku="A-7")
    after_ordering(run)


def after_ordering(run: Session) -> None:
    """Do what `fulfil` does after its first effect."""
    run.do("files.write", path="new.txt", content="new")
    run.do("shop.ship", sku="A-7")
    run.do("files.write", path="old.txt", content="replaced")
    run.verify()
    run.finish()


def order_only(run: Session) -> None:
    """Order, and go home."""
    run.do("shop.order", sku="A-7")


def ship_only(run: Session) -> None:
    """Ship, and go home."""
    run.do("shop.ship", sku="A-7")


def write_only(run: Session) -> None:
    """Write, and go home."""
    run.do("files.write", path="new.txt", content="new")


class LoggingDisk(Disk):
    """The file system as it is; each change of a name becomes a line of a file."""

    def __init__(self, log: Path) -> None:
        self._log = log

    def rename(self, folder: int, name: str, other_folder: int, other: str, flags: int) -> None:
        super().rename(folder, name, other_folder, other, flags)
        if not other.startswith(RESERVED):
            with self._log.open("a") as opened:
                opened.write(f"{other}\n")


class SkewedClock(SystemClock):
    """The clocks of a machine whose wall clock is wrong."""

    def __init__(self, ahead_ms: int) -> None:
        self._ahead_ms = ahead_ms

    def now_ms(self) -> int:
        return super().now_ms() + self._ahead_ms


def fresh_workshop(folder: Path, name: str, **fields: Any) -> "Workshop":
    """Set a workshop up, on servers in a schema or prefix of its own.

    Args:
        folder: Holds all workshops.
        name: Lower-case letters and digits; unique on the servers.
        **fields: Those of `Workshop`, with urls of whole databases.
    """
    for field in ("store_url", "heads_url"):
        url = fields.get(field, "")
        if url:
            end = f"-{name}" if url.startswith(ETCD) else f"?schema=w_{name}"
            fields = {**fields, field: f"{url}{end}"}
    workshop = Workshop(place=folder / name, **fields)
    workshop.set_up()
    return workshop


@dataclass(frozen=True, kw_only=True, slots=True)
class Workshop:
    """Where everything lies.

    Attributes:
        place: The folder that holds it all.
        project: The folder of the checkpoint store.
        state: The folder of the head register.
        store_url: Checkpoints on a server; empty for a file in `project`.
        heads_url: Heads on a server; empty for a file in `state`.
        merges: Whether receipts ride.
        ttl_ms: Term of a lease.
        call_ms: Longest call of any kind.
        runs_background: Whether workers renew their lease by themselves.
        order_level: What the shop proves about orders.
        ship_level: What it proves about shipments.
        ahead_ms: How far the wall clock of workers is ahead of the true one.
    """

    place: Path
    project: str = "project"
    state: str = "state"
    store_url: str = ""
    heads_url: str = ""
    merges: bool = True
    ttl_ms: int = 30_000
    call_ms: int = 1_000
    runs_background: bool = False
    order_level: str = "deduplicating"
    ship_level: str = "queryable"
    ahead_ms: int = 0

    def set_up(self) -> None:
        root = self.place / "root"
        root.mkdir(parents=True)
        (self.place / "words").mkdir()
        (root / "old.txt").write_text("old")
        with self._shop() as shop:
            shop.execute("PRAGMA journal_mode = WAL")
            shop.execute(
                "CREATE TABLE effect (key TEXT PRIMARY KEY, what TEXT, run TEXT, digest TEXT, "
                "at_ms INTEGER) STRICT"
            )
            shop.execute(
                "CREATE TABLE arrival (number INTEGER PRIMARY KEY, what TEXT, lease INTEGER) STRICT"
            )
            shop.execute("CREATE TABLE refusal (what TEXT, lease INTEGER) STRICT")
            shop.execute("CREATE TABLE fence (run TEXT PRIMARY KEY, lease INTEGER, nonce TEXT)")
        if self.store_url:
            postgres.open_store(self.store_url, create=True).close()
        if self.heads_url:
            self._server_heads(create=True).close()

    def parts(self, *, owner: str | None = None, joins: bool = True) -> Parts:
        """Open everything anew, as each worker does; after the fork, where there is one.

        Args:
            owner: Name of the worker.
            joins: Whether commits are joint where store and heads are one database.
        """
        clock = SkewedClock(self.ahead_ms)
        store = self._store()
        heads = self.heads()
        parts = wire(
            Settings(
                commit=Commit(durability="merged" if self.merges else "strict"),
                lease=Lease(ttl_ms=self.ttl_ms),
            ),
            keyring_of(SECRET),
            store,
            heads,
            (
                open_files(
                    self.place / "root",
                    journal=self.place / "journal",
                    now_ms=clock.now_ms,
                    disk=LoggingDisk(self.place / "changes.log"),
                ),
                *self._effects().adapters(clock.now_ms),
            ),
            clock=clock,
            owner=owner or this_holder(),
            runs_background=self.runs_background,
            joint=self._joint() if joins else None,
        )
        kinds = {
            name: replace(spec, call_ms=min(spec.call_ms, self.call_ms))
            for name, spec in parts.kinds.items()
        }
        return replace(parts, kinds=kinds)

    def heads(self) -> HeadRegister:
        """Open the head register alone."""
        if self.heads_url:
            return self._server_heads(create=False)
        return sqlite.open_heads(
            self.place / self.state / "heads.db",
            create=True,
            now_ms=SkewedClock(self.ahead_ms).now_ms,
            incarnation=lambda: "register-1",
            is_dead=is_dead,
        )

    def arrived(self) -> tuple[str, ...]:
        """Return what reached the shop, in order."""
        with self._shop() as shop:
            return tuple(what for (what,) in shop.execute("SELECT what FROM arrival"))

    def leases(self) -> tuple[int, ...]:
        """Return under which lease each arrival came, in order."""
        with self._shop() as shop:
            return tuple(lease for (lease,) in shop.execute("SELECT lease FROM arrival"))

    def refused(self) -> tuple[str, ...]:
        """Return what the shop refused under an old token, in order."""
        with self._shop() as shop:
            return tuple(what for (what,) in shop.execute("SELECT what FROM refusal"))

    def changed(self) -> tuple[str, ...]:
        """Return which names were changed in the folder, in order."""
        log = self.place / "changes.log"
        return tuple(log.read_text().split()) if log.exists() else ()

    def texts(self) -> dict[str, str]:
        root = self.place / "root"
        return {path.name: path.read_text() for path in root.iterdir() if path.is_file()}

    def say(self, pid: int, words: str) -> None:
        """Keep what a worker has to say; it may be gone when somebody asks."""
        with (self.place / "words" / f"{pid}").open("a") as opened:
            opened.write(f"{words}\n")

    def words(self, pid: int) -> list[str]:
        """Return what a worker said, line by line."""
        said = self.place / "words" / f"{pid}"
        return said.read_text().splitlines() if said.exists() else []

    def _store(self) -> CheckpointStore:
        if self.store_url:
            return postgres.open_store(self.store_url, create=False)
        return sqlite.open_store(self.place / self.project / "checkpoints.db", create=True)

    def _server_heads(self, *, create: bool) -> HeadRegister:
        if self.heads_url.startswith(ETCD):
            from counterfoil.stores import etcd

            return etcd.open_heads(self.heads_url, create=create)
        return postgres.open_heads(self.heads_url, create=create)

    def _joint(self) -> Joint | None:
        if not are_one_database(self.store_url, self.heads_url):
            return None
        return postgres.open_joint(self.store_url)

    def _shop(self) -> "closing[apsw.Connection]":
        connection = apsw.Connection(str(self.place / "shop.db"))
        connection.set_busy_timeout(BUSY_MS)
        return closing(connection)

    @contextmanager
    def _visit(self) -> Generator[apsw.Connection]:
        """Do one atomic act in the shop."""
        with self._shop() as shop:
            shop.execute("BEGIN IMMEDIATE")
            yield shop
            shop.execute("COMMIT")

    def _effects(self) -> Effects:
        effects = Effects()

        def look_up(key: str) -> object:
            with self._shop() as shop:
                return self._found(shop, key)

        @effects.effect(
            "shop.order",
            level=self.order_level,
            look_up=look_up,
            take=self._take if self.order_level in FENCING else None,
            bounds=Bounds(call_ms=self.call_ms),
        )
        def order(call: Call, *, sku: str) -> Found:
            return self._do(call, f"order {sku}", self.order_level)

        @effects.effect(
            "shop.ship",
            level=self.ship_level,
            look_up=look_up,
            take=self._take if self.ship_level in FENCING else None,
            bounds=Bounds(call_ms=self.call_ms, in_flight_ms=IN_FLIGHT_MS),
        )
        def ship(call: Call, *, sku: str) -> Found:
            return self._do(call, f"ship {sku}", self.ship_level)

        @effects.effect("shop.check", risk="verification", level="queryable")
        def check(call: Call) -> dict[str, bool]:
            return {"passed": self.texts() == TEXTS}

        return effects

    def _do(self, call: Call, what: str, level: str) -> Found:
        lease = call.fence.lease_version
        with self._visit() as shop:
            is_refused = level in FENCING and self._is_old(shop, call.run_id, call.fence)
            found = self._found(shop, call.key)
            if is_refused:
                shop.execute("INSERT INTO refusal VALUES (?, ?)", (what, lease))
            elif found is None or level not in DEDUPING:
                row = (call.key, what, call.run_id, call.digest, SystemClock().now_ms())
                shop.execute("INSERT INTO arrival (what, lease) VALUES (?, ?)", (what, lease))
                shop.execute("INSERT OR REPLACE INTO effect VALUES (?, ?, ?, ?, ?)", row)
                found = self._found(shop, call.key)
        if is_refused or found is None:
            raise FencedError(f"the shop refuses lease {lease}", call.run_id, call.key)
        return found

    def _found(self, shop: apsw.Connection, key: str) -> Found | None:
        query = "SELECT what, run, digest, at_ms FROM effect WHERE key = ?"
        for what, run_id, digest, at_ms in shop.execute(query, (key,)):
            result = {"what": what}
            return Found(result=result, run_id=run_id, digest=digest, committed_at_ms=at_ms)
        return None

    def _take(self, run_id: str, fence: Fence) -> None:
        with self._visit() as shop:
            is_refused = self._is_old(shop, run_id, fence)
            if not is_refused:
                row = (run_id, fence.lease_version, fence.nonce)
                shop.execute("INSERT OR REPLACE INTO fence VALUES (?, ?, ?)", row)
        if is_refused:
            raise FencedError(f"the shop refuses lease {fence.lease_version}", run_id)

    def _is_old(self, shop: apsw.Connection, run_id: str, fence: Fence) -> bool:
        query = "SELECT lease, nonce FROM fence WHERE run = ?"
        for lease, nonce in shop.execute(query, (run_id,)):
            is_other = lease == fence.lease_version and nonce != fence.nonce
            return bool(lease > fence.lease_version or is_other)
        return False
