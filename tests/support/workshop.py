"""A project in real files, as killed workers leave it: stores, a folder, a shop.

The shop is a SQLite database of its own. It writes down every arrival, so that a test
counts on the target what happened, whoever is dead by then.
"""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import apsw

from counterfoil.adapters.files import open_files
from counterfoil.adapters.files.disk import Disk
from counterfoil.adapters.function import Effects
from counterfoil.adapters.function.call import Call
from counterfoil.adapters.function.effects import Bounds
from counterfoil.compose import wire
from counterfoil.core.task import Budgets, Policy, Task, Verification
from counterfoil.core.words import RunId
from counterfoil.engine.clock import SystemClock
from counterfoil.engine.parts import Parts
from counterfoil.engine.session import Session
from counterfoil.keys import keyring_of
from counterfoil.settings import Commit, Lease, Settings
from counterfoil.stores.holders import is_dead, this_holder
from counterfoil.stores.sqlite import open_heads, open_store
from tests.support.folders import RESERVED

Program = Callable[[Session], object]
RUN_ID = RunId("order-1")
SECRET = bytes(range(32))
IN_FLIGHT_MS = 10
BUSY_MS = 10_000
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
    run.do("files.write", path="new.txt", content="new")
    run.do("shop.ship", sku="A-7")
    run.do("files.write", path="old.txt", content="replaced")
    run.verify()
    run.finish()


def order_only(run: Session) -> None:
    """Order, and go home."""
    run.do("shop.order", sku="A-7")


class LoggingDisk(Disk):
    """The file system as it is; each change of a name becomes a line of a file."""

    def __init__(self, log: Path) -> None:
        self._log = log

    def rename(self, folder: int, name: str, other_folder: int, other: str, flags: int) -> None:
        super().rename(folder, name, other_folder, other, flags)
        if not other.startswith(RESERVED):
            with self._log.open("a") as opened:
                opened.write(f"{other}\n")


@dataclass(frozen=True, kw_only=True, slots=True)
class Workshop:
    """Where everything lies.

    Attributes:
        place: The folder that holds it all.
        state: The folder of the head register.
        merges: Whether receipts ride.
        ttl_ms: Term of a lease.
        call_ms: Longest call of the shop.
        runs_background: Whether workers renew their lease by themselves.
    """

    place: Path
    state: str = "state"
    merges: bool = True
    ttl_ms: int = 30_000
    call_ms: int = 1_000
    runs_background: bool = False

    def set_up(self) -> None:
        root = self.place / "root"
        root.mkdir(parents=True)
        (root / "old.txt").write_text("old")
        with self._shop() as shop:
            shop.execute("PRAGMA journal_mode = WAL")
            shop.execute("CREATE TABLE effect (key TEXT PRIMARY KEY, what TEXT) STRICT")
            shop.execute("CREATE TABLE arrival (number INTEGER PRIMARY KEY, what TEXT) STRICT")

    def parts(self, *, owner: str | None = None) -> Parts:
        """Open everything anew, as each worker does."""
        clock = SystemClock()
        return wire(
            Settings(commit=Commit(merge=self.merges), lease=Lease(ttl_ms=self.ttl_ms)),
            keyring_of(SECRET),
            open_store(self.place / "project" / "checkpoints.db", create=True),
            open_heads(
                self.place / self.state / "heads.db",
                create=True,
                now_ms=clock.now_ms,
                incarnation=lambda: "register-1",
                is_dead=is_dead,
            ),
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
        )

    def arrived(self) -> tuple[str, ...]:
        """Return what reached the shop, in order."""
        with self._shop() as shop:
            return tuple(what for (what,) in shop.execute("SELECT what FROM arrival"))

    def changed(self) -> tuple[str, ...]:
        """Return which names were changed in the folder, in order."""
        log = self.place / "changes.log"
        return tuple(log.read_text().split()) if log.exists() else ()

    def texts(self) -> dict[str, str]:
        root = self.place / "root"
        return {path.name: path.read_text() for path in root.iterdir() if path.is_file()}

    def _shop(self) -> "closing[apsw.Connection]":
        connection = apsw.Connection(str(self.place / "shop.db"))
        connection.set_busy_timeout(BUSY_MS)
        return closing(connection)

    def _effects(self) -> Effects:
        effects = Effects()

        def look_up(key: str) -> object:
            with self._shop() as shop:
                found = shop.execute("SELECT what FROM effect WHERE key = ?", (key,)).fetchone()
            return None if found is None else {"what": found[0]}

        @effects.effect(
            "shop.order",
            level="deduplicating",
            look_up=look_up,
            bounds=Bounds(call_ms=self.call_ms),
        )
        def order(call: Call, *, sku: str) -> dict[str, str]:
            return self._do(call.key, f"order {sku}", dedupes=True)

        @effects.effect(
            "shop.ship",
            level="queryable",
            look_up=look_up,
            bounds=Bounds(call_ms=self.call_ms, in_flight_ms=IN_FLIGHT_MS),
        )
        def ship(call: Call, *, sku: str) -> dict[str, str]:
            return self._do(call.key, f"ship {sku}", dedupes=False)

        @effects.effect("shop.check", risk="verification", level="queryable")
        def check(call: Call) -> dict[str, bool]:
            return {"passed": self.texts() == TEXTS}

        return effects

    def _do(self, key: str, what: str, *, dedupes: bool) -> dict[str, str]:
        with self._shop() as shop, shop:
            known = shop.execute("SELECT 1 FROM effect WHERE key = ?", (key,)).fetchone()
            if known is None or not dedupes:
                shop.execute("INSERT INTO arrival (what) VALUES (?)", (what,))
                shop.execute("INSERT OR REPLACE INTO effect VALUES (?, ?)", (key, what))
        return {"what": what}
