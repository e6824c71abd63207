"""Stands between an adapter and a service, and does to one request what networks do.

A connection carries one request, so what becomes of a connection becomes of a request.
"""

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress

PIECE = 65_536
SECONDS_MAX = 20
CONDITIONS = (b"counterfoil-client", b"counterfoil-commits")
RESET = struct.pack("ii", 1, 0)

Fits = Callable[[bytes], bool]


def is_write(head: bytes) -> bool:
    """Whether a request is an order, and no fence and no question."""
    return head.startswith((b"POST ", b"PATCH ")) and b"/orders" in head.split(b"\r\n", 1)[0]


class HttpProxy:
    """A proxy for one service.

    Fates of a request: "lose" (it is carried out, its answer is lost), "drop" (it is read
    and goes nowhere), "late" (it goes nowhere until `arrive`), "twice" (it arrives
    twice), "bare" (it loses its conditions), and any text that begins with "HTTP/" (it goes
    nowhere and gets that answer). While it `is_down`, each request is dropped.
    """

    def __init__(self, port: int) -> None:
        self._service = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = self._listener.getsockname()[1]
        self.seen: list[bytes] = []
        self.is_down = False
        self._armed: list[tuple[str, Fits]] = []
        self._late: list[bytes] = []
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def arm(self, fate: str, fits: Fits = is_write) -> None:
        """Give the next request that fits a fate."""
        self._armed.append((fate, fits))

    def writes(self) -> int:
        """Return how many orders were on the wire."""
        return sum(map(is_write, self.seen))

    def arrive(self) -> None:
        """Let late requests arrive, one after the other."""
        while self._late:
            self._deliver(self._late.pop(0))

    def close(self) -> None:
        """Refuse every further connection."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _fate(self, head: bytes) -> str:
        with self._lock:
            self.seen.append(head)
            if self.is_down:
                return "drop"
            for armed in self._armed:
                if armed[1](head):
                    self._armed.remove(armed)
                    return armed[0]
        return ""

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            client.settimeout(SECONDS_MAX)
            request = _whole(client)
            match self._fate(request):
                case "lose":
                    self._deliver(request)
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                case "drop":
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                case "late":
                    self._late.append(request)
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                case "bare":
                    self._pass_on(_without_conditions(request), client)
                case str() as answer if answer.startswith("HTTP/"):
                    client.sendall(answer.encode())
                    client.shutdown(socket.SHUT_RDWR)
                case "twice":
                    self._deliver(request)
                    self._pass_on(request, client)
                case _:
                    self._pass_on(request, client)

    def _deliver(self, request: bytes) -> None:
        """Have a request carried out, and hear of it."""
        with socket.create_connection(self._service, SECONDS_MAX) as service:
            service.sendall(request)
            service.recv(PIECE)

    def _pass_on(self, request: bytes, client: socket.socket) -> None:
        with socket.create_connection(self._service, SECONDS_MAX) as service:
            service.sendall(request)
            threading.Thread(target=_hang_up, args=(client, service), daemon=True).start()
            while piece := service.recv(PIECE):
                client.sendall(piece)
        client.shutdown(socket.SHUT_RDWR)  # another thread still reads from it


def said(status: str, body: str, kind: str = "application/problem+json") -> str:
    """Return an answer for a request to get."""
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
    return f"{head}\r\n{body}"


def _without_conditions(request: bytes) -> bytes:
    """Return a request without headers that a service may not know."""
    head, _, body = request.partition(b"\r\n\r\n")
    kept = [line for line in head.split(b"\r\n") if not line.lower().startswith(CONDITIONS)]
    return b"\r\n".join(kept) + b"\r\n\r\n" + body


def _hang_up(client: socket.socket, service: socket.socket) -> None:
    """End the connection to the service when the client ends its own."""
    with suppress(OSError):
        client.recv(1)
    with suppress(OSError):
        service.shutdown(socket.SHUT_RDWR)


def _whole(client: socket.socket) -> bytes:
    """Read one request with its body."""
    request = b""
    while b"\r\n\r\n" not in request:
        request += _some(client)
    head, _, body = request.partition(b"\r\n\r\n")
    length = 0
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            length = int(value)
    while len(body) < length:
        body += _some(client)
    return head + b"\r\n\r\n" + body


def _some(client: socket.socket) -> bytes:
    piece = client.recv(PIECE)
    if not piece:
        raise ConnectionError("the client hung up")
    return piece
