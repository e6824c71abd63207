"""A way to PostgreSQL on which a COMMIT can be lost, its answer too, or land late.

It reads what programs ask, so that it meets that one message and no other.
"""

import contextlib
import select
import socket
import threading
from collections.abc import Callable
from enum import Enum

COMMIT = b"Q\x00\x00\x00\x0bCOMMIT\x00"
"""One simple query (PostgreSQL, message formats)."""

READY_FOR_QUERY = b"Z\x00\x00\x00\x05"
BYTES_MAX = 65_536
LOOK_SECONDS = 0.02


class Loss(Enum):
    """What becomes of the next COMMIT; the program's connection ends, but for silence."""

    REQUEST = "it never arrives"
    ANSWER = "it arrives, and its answer does not"
    LATE = "it arrives when it is let go"
    SILENCE = "it arrives, and nothing comes back"


class CommitProxy:
    """Carries connections to one port of this machine; a context manager."""

    def __init__(self, port: int) -> None:
        self._server_port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._loss: Loss | None = None
        self._spared = 0
        self._threads: list[threading.Thread] = []
        self._is_over = threading.Event()
        self._is_refusing = threading.Event()
        self._let_go = threading.Event()
        self.has_cut = threading.Event()
        self.has_landed = threading.Event()

    def __enter__(self) -> "CommitProxy":
        self._begin(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._let_go.set()
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def through(self, url: str) -> str:
        return url.replace(f":{self._server_port}/", f":{self._listener.getsockname()[1]}/")

    def lose(self, loss: Loss, *, nth: int = 1) -> None:
        """Lose the n-th COMMIT from here on in this way, once."""
        with self._lock:
            self._loss, self._spared = loss, nth - 1
            self._let_go.clear()
            self.has_cut.clear()
            self.has_landed.clear()

    def let_go(self) -> None:
        """Let a COMMIT arrive that was held back."""
        self._let_go.set()

    def refuse(self) -> None:
        """End every connection, and each that comes."""
        self._is_refusing.set()

    def accept(self) -> None:
        """Carry connections again."""
        self._is_refusing.clear()

    def _begin(self, target: Callable[..., None], *given: object) -> None:
        thread = threading.Thread(target=target, args=given)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._is_over.is_set():
            readable, _, _ = select.select([self._listener], [], [], LOOK_SECONDS)
            if not readable:
                continue
            client, _ = self._listener.accept()
            if self._is_refusing.is_set():
                client.close()
            else:
                self._begin(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        with (
            client,
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", self._server_port)) as server,
        ):
            self._carry(client, server)

    def _carry(self, client: socket.socket, server: socket.socket) -> None:
        while not (self._is_over.is_set() or self._is_refusing.is_set()):
            readable, _, _ = select.select([client, server], [], [], LOOK_SECONDS)
            if client in readable:
                asked = client.recv(BYTES_MAX)
                if not asked:
                    return
                loss = self._taken() if asked == COMMIT else None
                if loss is not None:
                    self._lost(loss, client, server)
                    return
                server.sendall(asked)
            if server in readable:
                answer = server.recv(BYTES_MAX)
                if not answer:
                    return
                client.sendall(answer)

    def _taken(self) -> Loss | None:
        with self._lock:
            if self._loss is not None and self._spared:
                self._spared -= 1
                return None
            loss, self._loss = self._loss, None
            return loss

    def _lost(self, loss: Loss, client: socket.socket, server: socket.socket) -> None:
        if loss is Loss.LATE:
            client.close()
            self.has_cut.set()
            self._let_go.wait()
        if loss is not Loss.REQUEST:
            server.sendall(COMMIT)
            said = b""
            while READY_FOR_QUERY not in said:
                piece = server.recv(BYTES_MAX)
                if not piece:
                    break
                said += piece
            self.has_landed.set()
        if loss is Loss.SILENCE:
            client.recv(BYTES_MAX)  # until the program has had enough
        client.close()
        self.has_cut.set()
