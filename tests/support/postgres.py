"""A real PostgreSQL for tests: one server for each test process, one database for each bench."""

import contextlib
import itertools
import os
import pwd
import select
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import psycopg
import pytest

from counterfoil.core.words import Digest
from counterfoil.local.postgres import LocalPostgres
from counterfoil.ports import Advance, Head
from counterfoil.stores.postgres import open_heads, open_inbox, open_joint, open_store
from counterfoil.testing.conformance_joints import JointBench
from counterfoil.testing.store_bench import HeadBench, InboxBench, StoreBench

NOW_MS = 1_700_000_000_000
NUMBERS = itertools.count()

Wrap = Callable[..., Any]
Route = Callable[[str], str]


def directly(url: str) -> str:
    """Return the way to the server itself."""
    return url


@pytest.fixture(scope="module")
def fragile() -> Generator[LocalPostgres]:
    """A server for tests that stop it: it holds little, so it is soon back."""
    with LocalPostgres() as server:
        yield server


@pytest.fixture(scope="session")
def postgres() -> Generator[LocalPostgres]:
    """A server of this test process, which no test stops."""
    with LocalPostgres() as server:
        yield server


def fresh_database(server: LocalPostgres) -> str:
    """Return the URL of an empty database; it names no pooler."""
    return server.create_database(f"test_{os.getpid()}_{next(NUMBERS)}")


def fresh_schema(server: LocalPostgres) -> str:
    """Return the URL of a schema that nobody has used, which takes the server less work."""
    if server not in _shared:
        _shared[server] = fresh_database(server)
    return f"{_shared[server]}?schema=bench_{next(NUMBERS)}"


_shared: WeakKeyDictionary[LocalPostgres, str] = WeakKeyDictionary()


def execute(url: str, statement: str, *bindings: object) -> list[tuple[Any, ...]]:
    """Run raw SQL by itself, on a connection of its own."""
    base = url.partition("?")[0]
    with psycopg.connect(base, autocommit=True) as connection:
        cursor = connection.execute(statement.encode(), bindings or None)
        return cursor.fetchall() if cursor.description else []


def advance_to(head: Head, checkpoint: Digest) -> Advance:
    return Advance(expected=head, checkpoint=checkpoint, status="active", ttl_ms=10_000)


@dataclass
class ServerWall:
    """The server's clock in one schema, as far as the register can see it."""

    url: str
    at_ms: int = NOW_MS

    def begin(self) -> None:
        self._run("CREATE TABLE {schema}.wall AS SELECT %s::bigint AS at_ms", self.at_ms)
        self._run(
            "CREATE OR REPLACE FUNCTION {schema}.now_ms() RETURNS bigint LANGUAGE sql "
            "VOLATILE AS 'SELECT at_ms FROM {schema}.wall'"
        )

    def now_ms(self) -> int:
        return self.at_ms

    def advance(self, ms: int) -> None:
        self.at_ms += ms
        self._run("UPDATE {schema}.wall SET at_ms = %s", self.at_ms)

    def _run(self, statement: str, *bindings: object) -> None:
        schema = self.url.partition("?schema=")[2] or "counterfoil"
        execute(self.url, statement.replace("{schema}", schema), *bindings)


def _closing(stack: ExitStack, opens: Callable[[], Any]) -> Callable[[], Any]:
    def opened() -> Any:
        port = opens()
        stack.callback(port.close)
        return port

    return opened


@contextmanager
def postgres_store(
    server: LocalPostgres, wrap: Wrap | None = None, route: Route = directly
) -> Generator[StoreBench]:
    url = route(fresh_schema(server))
    with ExitStack() as stack:
        plain = _closing(stack, lambda: open_store(url, create=True))
        plain()
        yield StoreBench(open=plain if wrap is None else lambda: wrap(plain()))


@contextmanager
def postgres_heads(
    server: LocalPostgres, wrap: Wrap | None = None, route: Route = directly
) -> Generator[HeadBench]:
    schema = fresh_schema(server)
    url, wall = route(schema), ServerWall(schema)
    with ExitStack() as stack:
        plain = _closing(stack, lambda: open_heads(url, create=True))
        plain()
        wall.begin()
        opened = plain if wrap is None else lambda: wrap(plain(), wall.now_ms)
        yield HeadBench(open=opened, advance_clock=wall.advance)


@contextmanager
def postgres_inbox(
    server: LocalPostgres, wrap: Wrap | None = None, route: Route = directly
) -> Generator[InboxBench]:
    url = route(fresh_schema(server))
    with ExitStack() as stack:
        plain = _closing(stack, lambda: open_inbox(url, create=True))
        plain()
        yield InboxBench(open=plain if wrap is None else lambda: wrap(plain()))


@contextmanager
def postgres_joint(
    server: LocalPostgres, wrap: Wrap | None = None, route: Route = directly
) -> Generator[JointBench]:
    url = route(fresh_schema(server))
    with ExitStack() as stack:

        def opened() -> Any:
            store = open_store(url, create=True)
            stack.callback(store.close)
            heads = open_heads(url, create=True)
            stack.callback(heads.close)
            joint = open_joint(url)
            stack.callback(joint.close)
            return store, heads, joint if wrap is None else wrap(joint, store, heads)

        opened()
        yield JointBench(open=opened)


READY_FOR_QUERY = (b"Z\x00\x00\x00\x05I", b"Z\x00\x00\x00\x05T")
"""End of each answer, outside and inside a transaction (PostgreSQL, message formats)."""

BYTES_MAX = 65_536


class LossyProxy:
    """Stands between a program and the server, and loses one request or answer when told to.

    `lose_request` ends the next connection that asks before the server hears of it;
    `lose_answer` lets the server do it, waits until it has said so in full, and ends it then.
    """

    def __init__(self, port: int) -> None:
        self._server_port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._armed, self._spared = "", 0
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self.has_cut = threading.Event()
        self.requests = 0
        """What came from programs so far, each sent at once."""

    def __enter__(self) -> "LossyProxy":
        self._begin(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join()

    def through(self, url: str) -> str:
        return url.replace(f":{self._server_port}/", f":{self._listener.getsockname()[1]}/")

    def lose_request(self) -> None:
        self._arm("request")

    def lose_answer(self, *, nth: int = 1) -> None:
        self._arm("answer", nth)

    def _arm(self, what: str, nth: int = 1) -> None:
        with self._lock:
            self._armed, self._spared = what, nth - 1
            self.has_cut.clear()

    def _disarmed(self) -> str:
        with self._lock:
            if self._armed and self._spared:
                self._spared -= 1
                return ""
            armed, self._armed = self._armed, ""
            return armed

    def _begin(self, target: Callable[..., None], *given: object) -> None:
        thread = threading.Thread(target=target, args=given)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._begin(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        with (
            client,
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", self._server_port)) as server,
        ):
            self._carry(client, server)

    def _carry(self, client: socket.socket, server: socket.socket) -> None:
        is_doomed, swallowed = False, b""
        while True:
            readable, _, _ = select.select([client, server], [], [])
            if client in readable:
                asked = client.recv(BYTES_MAX)
                with self._lock:
                    self.requests += 1
                armed = self._disarmed() if asked else ""
                if not asked or armed == "request":
                    if armed:
                        self.has_cut.set()
                    return
                is_doomed = is_doomed or armed == "answer"
                server.sendall(asked)
            if server in readable:
                answer = server.recv(BYTES_MAX)
                if not answer:
                    return
                if not is_doomed:
                    client.sendall(answer)
                    continue
                swallowed = (swallowed + answer)[-len(READY_FOR_QUERY[0]) :]
                if swallowed in READY_FOR_QUERY:
                    self.has_cut.set()
                    return


class Pooler:
    """A real pgbouncer that lends each transaction a connection, in turn, of `size`."""

    def __init__(self, server: LocalPostgres, size: int) -> None:
        self._server = server
        self._size = size
        self._folder = Path()
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    def __enter__(self) -> "Pooler":
        binary = shutil.which("pgbouncer") or "/usr/sbin/pgbouncer"
        assert Path(binary).is_file(), "pgbouncer is not installed: apt-get install pgbouncer"
        self._folder = Path(tempfile.mkdtemp(prefix="counterfoil-pgbouncer-"))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        users = self._folder / "users.txt"
        users.write_text(f'"app" "{self._server.password}"\n', encoding="ascii")
        settings = self._folder / "pgbouncer.ini"
        settings.write_text(self._settings(users), encoding="ascii")
        identity: dict[str, Any] = {}
        if os.geteuid() == 0:
            user = pwd.getpwnam("postgres")
            identity = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
            for path in (self._folder, users, settings):
                os.chown(path, user.pw_uid, user.pw_gid)
        self._process = subprocess.Popen(
            [binary, "-q", settings], cwd=self._folder, stderr=subprocess.DEVNULL, **identity
        )
        for _ in range(500):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
                return self
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(0.02)
        raise AssertionError("pgbouncer does not start")

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
        shutil.rmtree(self._folder)

    def through(self, url: str) -> str:
        return url.replace(f":{self._server.port}/", f":{self.port}/")

    def _settings(self, users: Path) -> str:
        return f"""
[databases]
* = host=127.0.0.1 port={self._server.port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {self.port}
unix_socket_dir =
auth_type = scram-sha-256
auth_file = {users}
pool_mode = transaction
default_pool_size = {self._size}
server_round_robin = 1
logfile = {self._folder / "log"}
"""
