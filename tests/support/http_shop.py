"""A shop as a service of the standard library: `python -m tests.support.http_shop FD PLACE TLS`.

`/keyed/orders` keeps one order per Idempotency-Key, as the IETF draft has it;
`/plain/orders` adds one for every call. Each bearer of a token is a tenant of its own.
`TLS` names a certificate and its key, with a comma between; without it nothing is encrypted.
"""

import json
import socket
import ssl
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import apsw

from tests.support import http_ledger as ledger

LOOKS_MAX = 1_000
HUGE = 3 * 1024 * 1024
NAMES: list[str] = []
"""Server names that were asked for by TLS."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    place = ""

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        with ledger.connected(self.place) as db:
            match url.path.strip("/").split("/"):
                case ["state"]:
                    self._state(db)
                case ["orders"]:
                    wanted = parse_qs(url.query).get("reference", [""])[0]
                    found = ledger.orders(db, self.tenant)
                    self._say(200, {"data": [o for o in found if o.get("reference") == wanted]})
                case ["lagging"]:
                    wanted = parse_qs(url.query).get("reference", [""])[0]
                    is_listed = ledger.has_fault(db, f"{self.tenant}/listed")
                    found = ledger.orders(db, self.tenant) if is_listed else []
                    self._say(200, {"data": [o for o in found if o.get("reference") == wanted]})
                case ["receipts", key]:
                    shown = ledger.by_key(db, self.tenant, unquote(key))
                    self._say(200, shown) if shown else self._problem(404, "no such order")
                case ["moved"]:
                    self._send(302, b"", {"Location": "http://169.254.169.254/latest"})
                case ["echo"]:
                    self._say(
                        200, {"headers": dict(self.headers), "path": self.path, "sni": NAMES[-1:]}
                    )
                case ["huge"]:
                    self._send(200, b"x" * HUGE, {"Content-Type": "text/plain"})
                case ["drip"]:
                    self._drip()
                case _:
                    self._problem(404, "no such place")

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length", "0"))
        self._body = self.rfile.read(length)
        if len(self._body) < length:  # half a request is none
            self.close_connection = True
            return
        with ledger.connected(self.place) as db:
            match self.path.strip("/").split("/"):
                case [("keyed" | "plain") as form, "orders"]:
                    try:
                        self._order(db, is_keyed=form == "keyed")
                    except (apsw.FullError, apsw.IOError):
                        self._problem(507, "the disk is full")
                case ["elsewhere"]:
                    self._say(200, {"landed": True})
                case _:
                    self._problem(404, "no such place")

    @property
    def tenant(self) -> str:
        return self.headers.get("Authorization", "").removeprefix("Bearer token-of-")

    def _state(self, db: Any) -> None:
        version = ledger.version(db, self.tenant)
        shown = {"version": version, "instance": f"shop-{self.tenant}", "account": self.tenant}
        tag = f'"v{version}"'
        if ledger.has_fault(db, f"{self.tenant}/weak"):
            tag = f"W/{tag}"
        tags = {} if ledger.has_fault(db, f"{self.tenant}/untagged") else {"ETag": tag}
        self._send(200, json.dumps(shown).encode(), tags)

    def _order(self, db: Any, *, is_keyed: bool) -> None:
        fault = ledger.next_fault(db, self.tenant)
        if fault.startswith("instead:"):
            self._instead(fault.removeprefix("instead:"))
            return
        if fault == "drip":
            self._drip()
            return
        key = self.headers.get("Idempotency-Key", "").strip('"')
        if is_keyed and not key:
            self._problem(400, "a key is missing")
            return
        if not is_keyed:
            with db:
                status, body = 201, json.dumps(ledger.order(db, self.tenant, key, self._json()))
            self._answer(fault, status, body.encode(), is_replay=False)
            return
        with db:
            stored = self._claim(db, key)
        if stored is None:
            self._finish(db, key, fault)
        elif stored[0] != self._body:
            self._problem(422, "the key holds another request")
        elif stored[1] is None:
            self._problem(409, "the first request is under way")
        else:
            self._answer(fault, stored[1], stored[2], is_replay=True)

    def _claim(self, db: Any, key: str) -> tuple[bytes, int | None, bytes] | None:
        ledger.lock(db)
        found = ledger.rows(
            db,
            "SELECT request, status, body FROM keys WHERE tenant = ? AND key = ?",
            self.tenant,
            key,
        )
        if found:
            return found[0]
        ledger.rows(
            db, "INSERT INTO keys VALUES (?, ?, ?, NULL, NULL)", self.tenant, key, self._body
        )
        return None

    def _finish(self, db: Any, key: str, fault: str) -> None:
        if fault == "hold":
            for _ in range(LOOKS_MAX):
                if ledger.next_fault(db, f"{self.tenant}/go"):
                    break
                time.sleep(0.01)
        with db:
            ledger.lock(db)
            status, body = self._effect(db, key)
            ledger.rows(
                db,
                "UPDATE keys SET status = ?, body = ? WHERE tenant = ? AND key = ?",
                status,
                body,
                self.tenant,
                key,
            )
        self._answer(fault, status, body, is_replay=False)

    def _effect(self, db: Any, key: str) -> tuple[int, bytes]:
        tag = f'"v{ledger.version(db, self.tenant)}"'
        if self.headers.get("If-Match", tag) != tag:
            return 412, b"{}"
        body = self._json()
        if body.get("sku") == "unknown":
            return 400, json.dumps({"error": {"type": "no such sku"}}).encode()
        return 201, json.dumps(ledger.order(db, self.tenant, key, body)).encode()

    def _instead(self, what: str) -> None:
        """Answer without doing anything."""
        match what:
            case "307":
                self._send(307, b"", {"Location": "/elsewhere"})
            case "400-conflict":
                self._say(400, {"error": {"type": "idempotency_error"}})
            case "429" | "503" | "507" | "401":
                self._problem(int(what), "not now")
            case _:
                self.close_connection = True

    def _answer(self, fault: str, status: int, body: bytes, *, is_replay: bool) -> None:
        headers = {"Idempotent-Replayed": "true"} if is_replay else {}
        match fault:
            case "echo":
                body = json.dumps(
                    json.loads(body) | {"seen": self.headers["Authorization"]}
                ).encode()
            case "503-after":
                status = 503
            case "huge":
                body = json.dumps(json.loads(body) | {"padding": "x" * HUGE}).encode()
            case "packed":
                headers["Content-Encoding"] = "gzip"
            case "cut":
                self._start(status, len(body) + 10, headers)
                self.wfile.write(body)
                self.close_connection = True
                return
            case _:
                pass
        self._send(status, body, headers)

    def _drip(self) -> None:
        """Answer one byte at a time, without end."""
        try:
            self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
            for _ in range(LOOKS_MAX):
                self.wfile.write(b"x")
                time.sleep(0.02)
        except OSError:
            pass
        self.close_connection = True

    def _json(self) -> dict[str, Any]:
        if "form" in self.headers.get("Content-Type", ""):
            return {name: value for name, (value,) in parse_qs(self._body.decode()).items()}
        return dict(json.loads(self._body or b"{}"))

    def _say(self, status: int, shown: Any) -> None:
        self._send(status, json.dumps(shown).encode(), {})

    def _problem(self, status: int, title: str) -> None:
        body = json.dumps({"type": "about:blank", "title": title}).encode()
        self._send(status, body, {"Content-Type": "application/problem+json"})

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self._start(status, len(body), headers)
        self.wfile.write(body)

    def _start(self, status: int, length: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in ({"Content-Type": "application/json"} | headers).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        """A client that hangs up is no news."""


def encrypted(listener: socket.socket, certificate: str, key: str) -> socket.socket:
    def note(_: Any, name: str | None, __: Any) -> None:
        NAMES.append(name or "")

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.sni_callback = note
    return context.wrap_socket(listener, server_side=True)


def main() -> None:
    Handler.place = sys.argv[2]
    server = Server(("127.0.0.1", 0), Handler, bind_and_activate=False)
    listener = socket.socket(fileno=int(sys.argv[1]))
    server.socket = encrypted(listener, *sys.argv[3].split(",")) if sys.argv[3:] else listener
    server.serve_forever()


if __name__ == "__main__":
    main()
