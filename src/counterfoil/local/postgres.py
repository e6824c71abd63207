"""A throwaway PostgreSQL server: a real one, in a folder of its own, gone afterwards.

It keeps what it acknowledges, as any other does, so that crashing it means something.
"""

import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TypedDict
from urllib.parse import quote

import psycopg
from psycopg import sql

from counterfoil.core.errors import ConfigError, UnavailableError, UsageError

DEBIAN = Path("/usr/lib/postgresql")
OWNER = "app"
"""Superuser of the server."""

SYSTEM_USER = "postgres"
"""Who runs it when we are root, which it refuses to be."""

STARTS_MAX = 5
"""Another program may take a port between our look and the server's."""

READY_LOOKS_MAX = 3_000
LOOK_SECONDS = 0.02
"""Together a minute: recovery on a busy disk, many times over."""

STOP_SECONDS = 60
SETTINGS = {
    "fsync": "on",
    "full_page_writes": "on",
    "listen_addresses": "127.0.0.1",
    "max_connections": "100",
    "shared_buffers": "32MB",
    "logging_collector": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
}
READY = "ready"


class _Identity(TypedDict):
    """Who a program runs as; None for who we are."""

    user: int | None
    group: int | None
    extra_groups: list[int] | None


OURSELVES: _Identity = {"user": None, "group": None, "extra_groups": None}


class LocalPostgres:
    """A server on 127.0.0.1 and on a socket in its folder; a context manager.

    Attributes:
        folder: Where everything of it is; empty before it is started.
        port: Where it listens; 0 before it is started.
        password: Of every role that is made with it; random.
    """

    def __init__(self) -> None:
        self.folder = Path()
        self.port = 0
        self.password = secrets.token_urlsafe(24)
        self._process: subprocess.Popen[bytes] | None = None
        self._binaries = Path()
        self._identity = OURSELVES

    def __enter__(self) -> "LocalPostgres":
        """Make a server and start it.

        Raises:
            ConfigError: PostgreSQL is not installed, or cannot be used by this user.
            UnavailableError: It does not start.
        """
        self._binaries = find_binaries()
        self._identity = _identity()
        self.folder = Path(tempfile.mkdtemp(prefix="counterfoil-postgres-"))
        try:
            self._hand_over(self.folder)
            self._initialise()
            self.start()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop the server, and remove its folder."""
        self._remove()

    @property
    def pid(self) -> int:
        """Process id of the server.

        Raises:
            UsageError: It does not run.
        """
        return self._running().pid

    def url(self, database: str = "postgres", *, user: str = OWNER) -> str:
        """Return how to connect; it holds the password."""
        return f"postgresql://{quote(user)}:{self.password}@127.0.0.1:{self.port}/{quote(database)}"

    def create_database(self, name: str) -> str:
        """Make an empty database, and return its URL.

        Raises:
            UnavailableError: The server does not answer, or refuses.
        """
        try:
            with psycopg.connect(self.url(), autocommit=True) as connection:
                connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        except psycopg.Error as error:
            raise UnavailableError(f"the database {name} could not be made") from error
        return self.url(name)

    def start(self) -> None:
        """Start the server; nothing if it runs.

        Raises:
            UnavailableError: It does not start; the message holds the end of its log.
        """
        if self._process is not None:
            return
        for _ in range(STARTS_MAX):
            is_first = self.port == 0
            self.port = self.port or _free_port()
            if self._is_started():
                return
            if not is_first:
                break
            self.port = 0
        raise UnavailableError(f"the PostgreSQL server does not start: {self._log_end()}")

    def stop(self) -> None:
        """Stop the server in order; nothing if it does not run."""
        self._end(signal.SIGINT)

    def crash(self) -> None:
        """Stop the server at once, as a crash would; nothing if it does not run."""
        self._end(signal.SIGQUIT)

    def restart(self) -> None:
        """Stop the server in order, if it runs, and start it on the same port."""
        self.stop()
        self.start()

    def _hand_over(self, path: Path) -> None:
        user, group = self._identity["user"], self._identity["group"]
        if user is not None and group is not None:
            os.chown(path, user, group)

    def _initialise(self) -> None:
        secret = self.folder / "password"
        secret.write_text(self.password + "\n", encoding="ascii")
        self._hand_over(secret)
        answer = subprocess.run(
            [
                self._binaries / "initdb",
                f"--pgdata={self.folder / 'data'}",
                f"--username={OWNER}",
                "--auth=scram-sha-256",
                f"--pwfile={secret}",
                "--encoding=UTF8",
                "--no-locale",
                "--no-sync",
            ],
            check=False,
            capture_output=True,
            text=True,
            cwd=self.folder,
            **self._identity,
        )
        secret.unlink()
        if answer.returncode != 0:
            raise UnavailableError(f"initdb failed: {' '.join(answer.stderr.split())[-300:]}")

    def _is_started(self) -> bool:
        settings = [f"--{name}={value}" for name, value in SETTINGS.items()]
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(
                [
                    self._binaries / "postgres",
                    "-D",
                    self.folder / "data",
                    "-k",
                    self.folder,
                    "-p",
                    str(self.port),
                    *settings,
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
                **self._identity,
            )
        self._process = process
        for _ in range(READY_LOOKS_MAX):
            if self._is_ready(process.pid):
                return True
            try:
                process.wait(LOOK_SECONDS)
            except subprocess.TimeoutExpired:
                continue
            self._process = None
            return False
        self._end(signal.SIGQUIT)
        return False

    def _is_ready(self, pid: int) -> bool:
        """Return whether the server says so in its pid file, whose last line is its state."""
        try:
            lines = (self.folder / "data" / "postmaster.pid").read_text().split("\n")
        except OSError:
            return False
        return lines[0] == str(pid) and READY in (line.strip() for line in lines[7:])

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # its children hold its memory
            process.wait(STOP_SECONDS)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise UsageError("the PostgreSQL server does not run")
        return self._process

    def _remove(self) -> None:
        self._end(signal.SIGQUIT)
        if self.folder != Path():
            shutil.rmtree(self.folder, ignore_errors=True)

    def _log_end(self) -> str:
        try:
            text = (self.folder / "log").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return "it wrote no log"
        return " ".join(text.split())[-300:]


def find_binaries() -> Path:
    """Return the folder of PostgreSQL's programs.

    Raises:
        ConfigError: PostgreSQL is not installed.
    """
    folders = sorted(DEBIAN.glob("*/bin"), key=_version, reverse=True)
    tool = shutil.which("pg_config")
    if tool is not None:
        answer = subprocess.run([tool, "--bindir"], check=False, capture_output=True, text=True)
        folders.insert(0, Path(answer.stdout.strip()))
    for folder in folders:
        if (folder / "initdb").is_file() and (folder / "postgres").is_file():
            return folder
    raise ConfigError(
        "PostgreSQL is not installed on this machine",
        move="install its server, as with `apt-get install postgresql`, and start again",
    )


def _version(folder: Path) -> int:
    name = folder.parent.name
    return int(name) if name.isdigit() else 0


def _identity() -> _Identity:
    if os.geteuid() != 0:
        return OURSELVES
    try:
        user = pwd.getpwnam(SYSTEM_USER)
    except KeyError:
        raise ConfigError(
            f"PostgreSQL does not run as root, and there is no user {SYSTEM_USER}",
            move="start this as another user",
        ) from None
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
