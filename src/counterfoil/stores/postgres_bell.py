"""A bell over LISTEN: the database rings when a statement arrives or a run is free at once.

It has one connection of its own, which leads to the server itself: behind a pooler that
lends connections nobody would hear anything.
"""

import os
import select
import socket
from contextlib import suppress
from threading import Lock
from time import monotonic

import psycopg

from counterfoil.core.errors import ConfigError, UnavailableError
from counterfoil.stores.postgres_driver import BoundedConnection, connect
from counterfoil.stores.postgres_url import Place

PAUSE_MS = 500
"""Between two attempts to connect again."""


class PostgresBell:
    """A `Bell` over one connection that listens; one thread at a time waits."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._waiting = Lock()
        self._connection: BoundedConnection | None = None
        self._is_closed = False
        self._process_id = os.getpid()
        self._wakes, self._woken = socket.socketpair()

    def open(self) -> None:
        """Begin to listen.

        Raises:
            ConfigError: The server does not let us in, or the URL leads to a pooler.
            UnavailableError: It cannot be reached.
        """
        connection = connect(self._place)
        try:
            row = connection.execute("SELECT pg_backend_pid()").fetchone()
            connection.execute(f'LISTEN "counterfoil {self._place.schema}"'.encode())
        except psycopg.Error as error:
            connection.close()
            raise UnavailableError(f"{self._place.name} does not listen") from error
        if row != (connection.info.backend_pid,):
            connection.close()
            raise ConfigError(
                f"{self._place.name} is behind a pooler, where nobody hears a bell",
                move="give the bell a URL that leads to the server itself",
            )
        self._connection = connection

    def wait(self, timeout_ms: int) -> bool:
        """Return True as soon as something may be due, False when the time is over.

        A lost connection is made again, and counts as a ring: one may have been missed.
        Closing ends every wait.
        """
        end = monotonic() + max(0, timeout_ms) / 1000
        if not self._waiting.acquire(timeout=max(0.0, end - monotonic())):
            return False
        try:
            while not self._is_closed:
                if self._connection is None and self._is_open_again():
                    return True
                left = end - monotonic()
                if self._has_rung(left if self._connection else min(left, PAUSE_MS / 1000)):
                    return True
                if left <= 0:
                    break
            return False
        finally:
            self._waiting.release()

    def close(self) -> None:
        """Let go of the connection; a second time does nothing."""
        self._is_closed = True
        with suppress(OSError):
            self._wakes.send(b"!")
        with self._waiting:
            self._drop()
            self._wakes.close()
            self._woken.close()

    def _is_open_again(self) -> bool:
        with suppress(UnavailableError, ConfigError):
            self.open()
        return self._connection is not None

    def _has_rung(self, seconds: float) -> bool:
        """Wait for something to read, and return whether it was a ring."""
        connection = self._connection
        poll = select.poll()
        poll.register(self._woken, select.POLLIN)
        if connection is not None:
            poll.register(connection.fileno(), select.POLLIN)
        if not poll.poll(max(0.0, seconds) * 1000) or connection is None or self._is_closed:
            return False
        try:
            return len(list(connection.notifies(timeout=0))) > 0
        except psycopg.Error:
            self._drop()
            return False

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None and self._process_id == os.getpid():
            connection.close()
