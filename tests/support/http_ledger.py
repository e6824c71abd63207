"""What the shops behind HTTP keep: orders, changes by others, and faults, by tenant."""

import json
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import apsw

BUSY_MS = 20_000
TABLES = """
CREATE TABLE IF NOT EXISTS orders (
    tenant TEXT NOT NULL, number INTEGER NOT NULL, key TEXT NOT NULL, shown TEXT NOT NULL,
    PRIMARY KEY (tenant, number));
CREATE TABLE IF NOT EXISTS keys (
    tenant TEXT NOT NULL, key TEXT NOT NULL, request BLOB NOT NULL, status INTEGER, body BLOB,
    PRIMARY KEY (tenant, key));
CREATE TABLE IF NOT EXISTS changes (tenant TEXT NOT NULL PRIMARY KEY, count INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS faults (
    number INTEGER PRIMARY KEY, tenant TEXT NOT NULL, fault TEXT NOT NULL);
"""


def create(place: str) -> None:
    with connected(place) as db:
        db.execute(TABLES)


@contextmanager
def connected(place: str) -> Generator[apsw.Connection]:
    db = apsw.Connection(place)
    db.set_busy_timeout(BUSY_MS)
    db.pragma("synchronous", 0)
    try:
        yield db
    finally:
        db.close()


def rows(db: apsw.Connection, statement: str, *values: Any) -> list[tuple[Any, ...]]:
    return list(db.execute(statement, values))


def lock(db: apsw.Connection) -> None:
    """Begin to write, so that nothing that is read meanwhile is old."""
    db.execute("INSERT INTO changes VALUES ('', 0) ON CONFLICT DO NOTHING")


def order(db: apsw.Connection, tenant: str, key: str, body: Any) -> dict[str, Any]:
    """Add an order: the effect."""
    lock(db)
    ((count,),) = rows(db, "SELECT count(*) FROM orders WHERE tenant = ?", tenant)
    shown = dict(body) | {"id": f"{tenant}-{count + 1}", "created": time.time_ns() // 1_000_000}
    rows(db, "INSERT INTO orders VALUES (?, ?, ?, ?)", tenant, count + 1, key, json.dumps(shown))
    return shown


def orders(db: apsw.Connection, tenant: str) -> list[dict[str, Any]]:
    found = rows(db, "SELECT shown FROM orders WHERE tenant = ? ORDER BY number", tenant)
    return [json.loads(shown) for (shown,) in found]


def by_key(db: apsw.Connection, tenant: str, key: str) -> dict[str, Any] | None:
    found = rows(db, "SELECT shown FROM orders WHERE tenant = ? AND key = ?", tenant, key)
    return json.loads(found[0][0]) if found else None


def disturb(db: apsw.Connection, tenant: str) -> None:
    """Change something that is no order, as somebody else would."""
    added = "ON CONFLICT (tenant) DO UPDATE SET count = count + 1"
    rows(db, f"INSERT INTO changes VALUES (?, 1) {added}", tenant)  # noqa: S608 - no input


def version(db: apsw.Connection, tenant: str) -> int:
    ((count,),) = rows(db, "SELECT count(*) FROM orders WHERE tenant = ?", tenant)
    changes = rows(db, "SELECT count FROM changes WHERE tenant = ?", tenant)
    return int(count) + (int(changes[0][0]) if changes else 0)


def set_fault(db: apsw.Connection, tenant: str, fault: str) -> None:
    """Let the next order of a tenant meet a fault; several wait in line."""
    rows(db, "INSERT INTO faults (tenant, fault) VALUES (?, ?)", tenant, fault)


def has_fault(db: apsw.Connection, tenant: str) -> bool:
    """Whether a fault waits for a tenant, which stays there."""
    return bool(rows(db, "SELECT 1 FROM faults WHERE tenant = ?", tenant))


def claims(db: apsw.Connection, tenant: str) -> int:
    """Count the keys of a tenant whose first request is or was under way."""
    ((count,),) = rows(db, "SELECT count(*) FROM keys WHERE tenant = ?", tenant)
    return int(count)


def next_fault(db: apsw.Connection, tenant: str) -> str:
    found = rows(
        db,
        "DELETE FROM faults WHERE number = (SELECT min(number) FROM faults WHERE tenant = ?)"
        " RETURNING fault",
        tenant,
    )
    return str(found[0][0]) if found else ""
