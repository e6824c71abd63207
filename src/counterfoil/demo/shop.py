"""The shop: a program of its own, with its own database, that takes orders by key.

Ordering twice under one key gives the first order again; a key that holds another order
is a conflict. The shop counts its orders itself. It ends when its standard input does,
so it never outlives who started it.
"""

import argparse
import hashlib
import json
import os
import sys
import threading
from collections.abc import Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import TCPServer
from typing import ClassVar, Protocol, cast
from urllib.parse import unquote

import apsw

HOST = "127.0.0.1"
BODY_BYTES_MAX = 16 * 1024
SILENCE_SECONDS_MAX = 5
"""A caller that was killed in the middle of a request says nothing more."""

BUSY_WAIT_MS = 5_000

_SCHEMA = """
CREATE TABLE IF NOT EXISTS orders (
    number INTEGER PRIMARY KEY, key TEXT NOT NULL, run_id TEXT NOT NULL, digest TEXT NOT NULL,
    sku TEXT NOT NULL, quantity INTEGER NOT NULL, at_ms INTEGER NOT NULL
) STRICT
"""
_INSERT = """
INSERT INTO orders (key, run_id, digest, sku, quantity, at_ms)
VALUES (?, ?, ?, ?, ?, CAST(1000 * unixepoch('subsec') AS INTEGER)) RETURNING number
"""
_SELECT = "SELECT number, key, run_id, digest, sku, quantity, at_ms FROM orders "
_FIELDS = ("number", "key", "run_id", "digest", "sku", "quantity", "at_ms")


class _Cursor(Protocol):
    def fetchall(self) -> Sequence[tuple[object, ...]]: ...


class _Connection(Protocol):
    def execute(self, statements: str, bindings: Sequence[object] = (), /) -> _Cursor: ...


class Shop:
    """Owns the shop's database."""

    def __init__(self, connection: _Connection, instance: str, *, forgets_keys: bool) -> None:
        self._connection = connection
        self._instance = instance
        self._forgets_keys = forgets_keys

    def state(self) -> dict[str, object]:
        """Return who the shop is, and a version that each order raises."""
        rows = self._connection.execute(_SELECT + "ORDER BY number").fetchall()
        fingerprint = hashlib.sha256(json.dumps(rows).encode()).hexdigest()
        return {"instance": self._instance, "version": len(rows), "fingerprint": fingerprint}

    def orders(self) -> list[dict[str, object]]:
        """Return every order."""
        rows = self._connection.execute(_SELECT + "ORDER BY number").fetchall()
        return [dict(zip(_FIELDS, row, strict=True)) for row in rows]

    def find(self, key: str) -> dict[str, object] | None:
        """Return the order under a key, or None."""
        rows = self._connection.execute(_SELECT + "WHERE key = ? LIMIT 1", (key,)).fetchall()
        return dict(zip(_FIELDS, rows[0], strict=True)) if rows else None

    def order(self, asked: dict[str, object]) -> tuple[HTTPStatus, dict[str, object]]:
        """Take an order once per key; the same key with another order is a conflict."""
        wanted = tuple(asked[name] for name in ("key", "run_id", "digest", "sku", "quantity"))
        standing = None if self._forgets_keys else self.find(str(asked["key"]))
        if standing is None:
            self._connection.execute(_INSERT, wanted).fetchall()
            return HTTPStatus.CREATED, self.orders()[-1]
        if any(standing[name] != value for name, value in asked.items()):
            return HTTPStatus.CONFLICT, {"error": "the key holds another order"}
        return HTTPStatus.OK, standing


class _Answers(BaseHTTPRequestHandler):
    shop: ClassVar[Shop]
    timeout = SILENCE_SECONDS_MAX

    def do_GET(self) -> None:
        """Answer `/state`, `/orders` and `/orders/KEY`."""
        if self.path == "/state":
            self._answer(HTTPStatus.OK, self.shop.state())
        elif self.path == "/orders":
            self._answer(HTTPStatus.OK, self.shop.orders())
        elif found := self.shop.find(unquote(self.path.removeprefix("/orders/"))):
            self._answer(HTTPStatus.OK, found)
        else:
            self._answer(HTTPStatus.NOT_FOUND, {"error": "no such order"})

    def do_POST(self) -> None:
        """Take an order."""
        size = int(self.headers.get("Content-Length", "0"))
        if size > BODY_BYTES_MAX:
            self._answer(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, {"error": "too long"})
            return
        # The body is what `restock` sends: an object.
        asked = cast("dict[str, object]", json.loads(self.rfile.read(size)))
        self._answer(*self.shop.order(asked))

    def _answer(self, status: HTTPStatus, content: object) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - name of the base
        """Say nothing."""


def open_database(path: Path) -> _Connection:
    """Return a connection to a shop's database; the file is made if it is missing."""
    opened = apsw.Connection(str(path))
    opened.set_busy_timeout(BUSY_WAIT_MS)
    connection = cast("_Connection", opened)  # the part of the driver that is used here
    connection.execute(_SCHEMA)
    return connection


def rows_by_key(path: Path) -> dict[str, int]:
    """Return how many orders a shop's database holds under each key."""
    statement = "SELECT key, count(*) FROM orders GROUP BY key ORDER BY key"
    rows = open_database(path).execute(statement).fetchall()
    return {str(key): int(str(count)) for key, count in rows}


def main(arguments: Sequence[str] | None = None) -> None:
    """Say the port on standard output, and serve until standard input ends."""
    parser = argparse.ArgumentParser(prog="counterfoil.demo.shop")
    parser.add_argument("--database", type=Path, required=True)
    parser.add_argument("--instance", required=True)
    parser.add_argument("--forgets-keys", action="store_true")
    given = parser.parse_args(arguments)
    _Answers.shop = Shop(
        open_database(given.database), given.instance, forgets_keys=given.forgets_keys
    )
    with TCPServer((HOST, 0), _Answers) as server:
        sys.stdout.write(f"{server.server_address[1]}\n")
        sys.stdout.flush()
        threading.Thread(target=_end_with_input, daemon=True).start()
        server.serve_forever()


def _end_with_input() -> None:
    while os.read(0, 1):
        pass
    os._exit(0)


if __name__ == "__main__":
    main()
