"""Stands between an adapter and an S3 service, and does to one request what networks do."""

import contextlib
import http.client
import re
import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass
from enum import Enum, auto
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, NamedTuple

SECONDS_MAX = 30


class Fate(Enum):
    """What becomes of a request."""

    LOSE_REQUEST = auto()
    LOSE_ANSWER = auto()
    DELIVER_LATE = auto()


class Answer(NamedTuple):
    """An answer that is not the service's; the service may have been asked or not."""

    status: int
    code: str = "InternalError"
    asks_service: bool = False
    location: str = ""
    body: bytes | None = None
    is_of_s3: bool = True

    def headers(self) -> list[tuple[str, str]]:
        """Return the headers of the answer."""
        told = [("Location", self.location)] if self.location else []
        return told + ([("x-amz-request-id", "1"), ("ETag", '"a"')] if self.is_of_s3 else [])

    def raw(self) -> bytes:
        """Return the body of the answer."""
        told = f'<?xml version="1.0"?><Error><Code>{self.code}</Code><Message>no</Message></Error>'
        return told.encode() if self.body is None else self.body


class Request(NamedTuple):
    """One request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


def is_effect(request: Request) -> bool:
    """Whether a request has an effect: it is signed with a deadline, and no probe."""
    return is_signed(request.path)


def is_signed(path: str) -> bool:
    """Whether a path is one of a request that has an effect."""
    return "X-Amz-Signature=" in path and "/.counterfoil/" not in path


def is_note(request: Request) -> bool:
    """Whether a request writes the record of a key."""
    return request.method == "PUT" and "/.counterfoil/keys/" in request.path


def is_look(request: Request) -> bool:
    """Whether a request looks at an object that is no record."""
    return request.method in ("GET", "HEAD") and "/.counterfoil/" not in request.path


def _turned(raw: bytes) -> bytes:
    """Return a body with each MD5 in it the other way round."""
    return re.sub(rb"\b[0-9a-f]{32}\b", lambda match: match[0][::-1], raw)


@dataclass
class _Armed:
    fate: Fate | Answer | Callable[[], object]
    fits: Callable[[Request], bool]
    spared: int


class S3Proxy:
    """A proxy for one service; a context manager.

    Attributes:
        seen: Method and path of each request that came.
        encrypts: Whether ETags of parts are other than their MD5, as they are where a
            service encrypts.
    """

    def __init__(self, address: tuple[str, int]) -> None:
        self.seen: list[tuple[str, str]] = []
        self.encrypts = False
        self._address = address
        self._armed: list[_Armed] = []
        self._late: list[Request] = []
        self._lock = threading.Lock()
        self._calm = threading.Condition()
        self._under_way = 0
        self._is_down = False

    def __enter__(self) -> "S3Proxy":
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = SECONDS_MAX
            disable_nagle_algorithm = True

            def serve(self) -> None:
                with proxy._counted(), contextlib.suppress(ConnectionError):
                    proxy._serve(self)
                    return
                self.close_connection = True  # whoever asked is dead

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = serve  # noqa: N815 - the server's

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_down = True
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def endpoint(self) -> str:
        """Address to give to an adapter."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def arm(
        self,
        fate: Fate | Answer | Callable[[], object],
        fits: Callable[[Request], bool] = is_effect,
        *,
        spared: int = 0,
    ) -> None:
        """Let the next request that fits have a fate, after sparing some.

        A function is called before the request is handed on.
        """
        with self._lock:
            self._armed.append(_Armed(fate, fits, spared))

    def cut_off(self) -> None:
        """Answer nothing any more."""
        for _ in range(SECONDS_MAX * 10):
            self.arm(Fate.LOSE_REQUEST, lambda _: True)

    def stop_listening(self) -> None:
        """Refuse every further connection; those that stand go on."""
        self._server.shutdown()
        self._server.socket.close()

    def effects(self) -> int:
        """Return how many requests with an effect came."""
        return sum(is_signed(path) for _, path in self.seen)

    def wait_until_calm(self) -> None:
        """Return once no request is on its way to the service."""
        with self._calm:
            assert self._calm.wait_for(lambda: not self._under_way, SECONDS_MAX)

    @contextlib.contextmanager
    def _counted(self) -> Generator[None]:
        with self._calm:
            self._under_way += 1
        try:
            yield
        finally:
            with self._calm:
                self._under_way -= 1
                self._calm.notify_all()

    def deliver(self) -> list[int]:
        """Hand late requests on, and return the statuses of their answers."""
        with self._lock:
            late, self._late = self._late, []
        return [self._asked(request)[0] for request in late]

    def _fate(self, request: Request) -> Fate | Answer | Callable[[], object] | None:
        with self._lock:
            self.seen.append((request.method, request.path))
            for armed in self._armed:
                if armed.fits(request):
                    if armed.spared:
                        armed.spared -= 1
                        return None
                    self._armed.remove(armed)
                    return armed.fate
        return None

    def _asked(self, request: Request) -> tuple[int, list[tuple[str, str]], bytes]:
        service = http.client.HTTPConnection(*self._address, timeout=SECONDS_MAX)
        try:
            service.putrequest(
                request.method, request.path, skip_host=True, skip_accept_encoding=True
            )
            for name, value in request.headers.items():
                if name.lower() not in ("connection", "expect"):
                    service.putheader(name, value)
            service.endheaders(request.body)
            answer = service.getresponse()
            raw = answer.read()
            return answer.status, answer.getheaders(), raw
        finally:
            service.close()

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        request = Request(handler.command, handler.path, dict(handler.headers.items()), body)
        fate = self._fate(request)
        if fate is Fate.DELIVER_LATE:
            with self._lock:
                self._late.append(request)
        if self._is_down or fate in (Fate.LOSE_REQUEST, Fate.DELIVER_LATE):
            handler.close_connection = True
            return
        if isinstance(fate, Answer):
            if fate.asks_service:
                self._asked(request)
            self._reply(handler, fate.status, fate.headers(), fate.raw())
            return
        if fate is not None and not isinstance(fate, Fate):
            fate()
        try:
            status, headers, raw = self._asked(self._in(request))
        except OSError:
            handler.close_connection = True
            return
        if fate is Fate.LOSE_ANSWER:
            handler.close_connection = True
            return
        headers, raw = self._out(request, headers, raw)
        self._reply(handler, status, headers, raw)

    def _in(self, request: Request) -> Request:
        """Give the service the ETags of parts that it knows."""
        if not self.encrypts or request.method != "POST":
            return request
        return request._replace(body=_turned(request.body))

    def _out(
        self, request: Request, headers: list[tuple[str, str]], raw: bytes
    ) -> tuple[list[tuple[str, str]], bytes]:
        """Show ETags of parts that are not their MD5."""
        if not self.encrypts or "uploadId=" not in request.path or request.method == "POST":
            return headers, raw
        turned = [(n, v[::-1] if n.lower() == "etag" else v) for n, v in headers]
        return turned, _turned(raw)

    def _reply(
        self,
        handler: BaseHTTPRequestHandler,
        status: int,
        headers: list[tuple[str, str]],
        raw: bytes,
    ) -> None:
        handler.send_response_only(status)
        lower = {name.lower() for name, _ in headers}
        for name, value in headers:
            if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                handler.send_header(name, value)
        if "date" not in lower:
            handler.send_header("Date", handler.date_time_string())
        told = next((v for n, v in headers if n.lower() == "content-length"), str(len(raw)))
        length = told if handler.command == "HEAD" else str(len(raw))
        if status != 204:
            handler.send_header("Content-Length", length)
        if handler.close_connection:
            handler.send_header("Connection", "close")
        handler.end_headers()
        if handler.command != "HEAD":
            handler.wfile.write(raw)
