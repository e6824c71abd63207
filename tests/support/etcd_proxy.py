"""Stands between a register and a node of etcd, and does to one request what networks do."""

import http.client
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

SECONDS_MAX = 30


class Fate(Enum):
    """What becomes of a request."""

    LOSE_REQUEST = auto()
    LOSE_ANSWER = auto()
    CUT_ANSWER = auto()
    DELIVER_TWICE = auto()
    DELIVER_LATE = auto()


@dataclass(frozen=True)
class Answer:
    """An answer that is not the node's; the node may have been asked or not."""

    status: int
    body: bytes
    asks_node: bool = False


def writes(path: str, body: bytes) -> bool:
    """Whether a request is a transaction that sets something."""
    return path == "/v3/kv/txn" and b'"request_put"' in body


def on(path: str) -> Callable[[str, bytes], bool]:
    return lambda asked, _: asked == path


@dataclass
class _Armed:
    fate: Fate | Answer
    fits: Callable[[str, bytes], bool]
    spared: int


@dataclass
class EtcdProxy:
    """A proxy for one node; a context manager.

    `seen` holds the path of each request that came.
    """

    endpoint: str
    seen: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._armed: list[_Armed] = []
        self._late: list[tuple[str, bytes]] = []
        self._lock = threading.Lock()
        self.has_struck = threading.Event()

    def __enter__(self) -> "EtcdProxy":
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                proxy._serve(self)

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def through(self, url: str) -> str:
        return url.replace(self.endpoint, f"127.0.0.1:{self._server.server_address[1]}")

    def arm(
        self,
        fate: Fate | Answer,
        fits: Callable[[str, bytes], bool] = writes,
        *,
        spared: int = 0,
    ) -> None:
        """Let the next request that fits have a fate, after sparing some."""
        with self._lock:
            self.has_struck.clear()
            self._armed.append(_Armed(fate=fate, fits=fits, spared=spared))

    def deliver(self) -> None:
        """Hand late requests on, and wait for the node's word."""
        with self._lock:
            late, self._late = self._late, []
        for path, body in late:
            self._asked(path, body, {})

    def _fate(self, path: str, body: bytes) -> Fate | Answer | None:
        with self._lock:
            self.seen.append(path)
            for armed in self._armed:
                if armed.fits(path, body):
                    if armed.spared:
                        armed.spared -= 1
                        return None
                    self._armed.remove(armed)
                    self.has_struck.set()
                    return armed.fate
        return None

    def _asked(self, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        host, _, port = self.endpoint.partition(":")
        node = http.client.HTTPConnection(host, int(port), timeout=SECONDS_MAX)
        try:
            node.request("POST", path, body, headers)
            answer = node.getresponse()
            return answer.status, answer.read()
        finally:
            node.close()

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length", "0")))
        token = handler.headers.get("Authorization")
        headers = {"Authorization": token} if token else {}
        fate = self._fate(handler.path, body)
        if fate is Fate.DELIVER_LATE:
            with self._lock:
                self._late.append((handler.path, body))
        if fate in {Fate.LOSE_REQUEST, Fate.DELIVER_LATE}:
            handler.close_connection = True
            return
        if fate is Fate.DELIVER_TWICE:
            self._asked(handler.path, body, headers)
        if isinstance(fate, Answer):
            if fate.asks_node:
                self._asked(handler.path, body, headers)
            self._reply(handler, fate.status, fate.body)
            return
        try:
            status, answer = self._asked(handler.path, body, headers)
        except OSError:
            handler.close_connection = True
            return
        if fate is Fate.LOSE_ANSWER:
            handler.close_connection = True
            return
        self._reply(handler, status, answer, is_cut=fate is Fate.CUT_ANSWER)

    def _reply(
        self, handler: BaseHTTPRequestHandler, status: int, body: bytes, *, is_cut: bool = False
    ) -> None:
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body[: len(body) // 2] if is_cut else body)
        handler.close_connection = handler.close_connection or is_cut
