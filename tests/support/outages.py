"""A network between a program and a server that can be cut, stalled and made to lose answers.

It carries bytes over TCP and knows nothing of protocols, so that it stands before any server.
"""

import contextlib
import random
import select
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

HOST = "127.0.0.1"
BYTES_MAX = 65_536
LOOK_SECONDS = 0.02
RESET = struct.pack("ii", 1, 0)
"""Of SO_LINGER: closing at once, so that the other side sees a reset."""


class Mode(Enum):
    """What becomes of bytes."""

    CARRIES = "carries"
    REFUSES = "refuses"
    STALLS = "stalls"


@dataclass(frozen=True, kw_only=True, slots=True)
class Cut:
    """Where the next connection breaks that carries something.

    Attributes:
        of_answers: Whether answers count, or requests.
        after_bytes: How many of these bytes still arrive. The server has then heard all
            of a request whose answer is cut.
    """

    of_answers: bool
    after_bytes: int


LOST_ANSWER = Cut(of_answers=True, after_bytes=0)
LOST_REQUEST = Cut(of_answers=False, after_bytes=0)
HALF_ANSWER = Cut(of_answers=True, after_bytes=7)
HALF_REQUEST = Cut(of_answers=False, after_bytes=7)


class Network:
    """Carries connections to one port; a context manager.

    Args:
        port: The server's, on this machine.
        losing: Share of answers that never arrive, and end their connection.
        seed: Decides which.
        quiet_until: Answers are lost only after one of these came, such as what ends
            a greeting.

    Attributes:
        port: Where it listens.
    """

    def __init__(
        self, port: int, *, losing: float = 0, seed: int = 0, quiet_until: tuple[bytes, ...] = ()
    ) -> None:
        self.port = 0
        self._server_port = port
        self._losing = losing
        self._quiet_until = quiet_until
        self._chance = random.Random(seed)
        self._lock = threading.Lock()
        self._mode = Mode.CARRIES
        self._cut: Cut | None = None
        self._cuts = 0
        self._listener: socket.socket | None = None
        self._links: set[tuple[socket.socket, socket.socket]] = set()
        self._threads: list[threading.Thread] = []
        self._is_over = False

    def __enter__(self) -> "Network":
        self._listen()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        self._stop_listening()
        self._break_links()
        for thread in self._threads:
            thread.join()

    def through(self, url: str) -> str:
        """Return a url of the server as it is behind this network."""
        return url.replace(f":{self._server_port}/", f":{self.port}/")

    @property
    def cuts(self) -> int:
        """How many connections were broken on purpose, by `cut` or by chance."""
        return self._cuts

    def refuse(self) -> None:
        """Break every connection, and refuse new ones."""
        self._mode = Mode.REFUSES
        self._stop_listening()
        self._break_links()

    def stall(self) -> None:
        """Keep every connection, and carry nothing."""
        self._mode = Mode.STALLS

    def cut(self, where: Cut) -> None:
        """Break the next connection that carries what is to be cut, once."""
        with self._lock:
            self._cut = where

    def heal(self) -> None:
        """Carry everything again; what was stalled arrives now."""
        with self._lock:
            self._cut = None
        self._mode = Mode.CARRIES
        if self._listener is None:
            self._listen()

    def _listen(self) -> None:
        self._listener = socket.create_server((HOST, self.port))
        self.port = self._listener.getsockname()[1]
        self._begin(self._accept, self._listener)

    def _stop_listening(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()

    def _break_links(self) -> None:
        with self._lock:
            for link in self._links:
                for end in link:
                    with contextlib.suppress(OSError):
                        end.shutdown(socket.SHUT_RDWR)

    def _begin(self, target: Callable[..., None], *given: socket.socket) -> None:
        thread = threading.Thread(target=target, args=given)
        self._threads.append(thread)
        thread.start()

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                self._begin(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        with (
            client,
            contextlib.suppress(OSError),
            socket.create_connection((HOST, self._server_port)) as server,
        ):
            link = client, server
            for end in link:
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._links.add(link)
            try:
                _Link(self, client, server).carry()
            finally:
                with self._lock:
                    self._links.discard(link)
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)


class _Link:
    """One connection: what came so far decides where it breaks."""

    def __init__(self, network: Network, client: socket.socket, server: socket.socket) -> None:
        self._network = network
        self._client = client
        self._server = server
        self._cut: Cut | None = None
        self._is_quiet = bool(network._quiet_until)

    def carry(self) -> None:
        ends = {self._client: self._server, self._server: self._client}
        while not self._network._is_over:
            if self._network._mode is Mode.STALLS:
                select.select([], [], [], LOOK_SECONDS)
                continue
            readable, _, _ = select.select(list(ends), [], [], LOOK_SECONDS)
            for end in readable:
                if self._network._mode is not Mode.CARRIES:
                    break
                content = end.recv(BYTES_MAX)
                if not content:
                    return
                left = self._left_of(content, is_answer=end is self._server)
                ends[end].sendall(content if left is None else content[:left])
                if left is not None:
                    return

    def _left_of(self, content: bytes, *, is_answer: bool) -> int | None:
        """Return how many bytes still arrive; None for all of them."""
        network = self._network
        with network._lock:
            if self._is_quiet:
                self._is_quiet = not content.endswith(network._quiet_until)
                return None
            cut = self._cut or network._cut
            if cut is not None and cut.of_answers and not is_answer:
                self._cut, network._cut = cut, None  # what follows is the answer to this
                return None
            if cut is not None and cut.of_answers == is_answer:
                network._cut = None
                network._cuts += 1
                return min(cut.after_bytes, len(content))
            if is_answer and network._chance.random() < network._losing:
                network._cuts += 1
                return 0
            return None
