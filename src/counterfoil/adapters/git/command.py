"""One git command: a closed environment, a time limit, bounded output.

Nothing of the caller's environment reaches git but the search path: neither another
repository, nor configuration, nor a program to run. What a command needs beyond that
(an agent's socket, a program that asks for a password) is given when the adapter opens.
What git prints is kept without URLs: one that a remote or a setting names may hold a
secret.
"""

import os
import re
import selectors
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from counterfoil.core.errors import UnavailableError

OUT_BYTES_MAX = 1024 * 1024
"""Answer of one command: a few refs, or one record."""

LOCAL_MS = 5_000
"""One command within the repository."""

STOP_SECONDS = 2.0
"""For git to put its locks away when it is asked to end, before it is made to."""

CHUNK = 64 * 1024

SAID_CHARS_MAX = 4096
"""What is looked through of what a command says in words."""

_URL = re.compile(r"['\"<(]?[A-Za-z0-9+.-]{0,32}://\S*")

_ALWAYS = (
    "core.fsync=all",
    "core.fsyncMethod=fsync",
    "fetch.fsckObjects=true",
    "gc.auto=0",
    "maintenance.auto=false",
    "http.followRedirects=false",
)

_NEVER = "COUNTERFOIL_NEVER"
"""Variable that says no, for a setting whose name may hold an equals sign."""

_CLOSED = {
    "LC_ALL": "C",
    "TZ": "UTC",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_SYSTEM": os.devnull,
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "",
    "SSH_ASKPASS": "",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_ALLOW_PROTOCOL": "file:git:http:https:ssh",
    "GIT_PROTOCOL_FROM_USER": "0",
    "GIT_COMMITTER_NAME": "counterfoil",
    "GIT_COMMITTER_EMAIL": "counterfoil@localhost",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Ran:
    """How a command ended.

    Attributes:
        code: Its exit status; None when it was stopped, and nobody knows what it did.
        out: What it printed.
        trouble: What it printed as errors, as one text, without URLs.
    """

    code: int | None
    out: bytes
    trouble: str

    @property
    def is_done(self) -> bool:
        """Whether it ended well."""
        return self.code == 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Git:
    """How git is called.

    Attributes:
        program: Path of the git program.
        folder: Working directory of each command.
        git_dir: The repository; None for commands that need none.
        environment: Variables that the operator adds.
        settings: Words before the command: configuration that wins over any file.
    """

    program: str
    folder: Path
    git_dir: Path | None = None
    environment: Mapping[str, str] = field(repr=False)
    settings: tuple[str, ...] = ()

    def run(
        self,
        *words: str,
        given: bytes = b"",
        extra: Mapping[str, str] | None = None,
        limit_ms: int = LOCAL_MS,
        out_bytes_max: int = OUT_BYTES_MAX,
        kept: tuple[int, ...] = (),
    ) -> Ran:
        """Run one command to its end, or stop it with all its children.

        Args:
            *words: The command and its arguments.
            given: What it reads.
            extra: Variables of this command.
            limit_ms: Longest time, in milliseconds.
            out_bytes_max: Longest answer; a command that says more is stopped.
            kept: Descriptors that it inherits, and holds for as long as it lives.

        Raises:
            UnavailableError: It could not be started.
        """
        home = str(self.folder)
        variables = {**_CLOSED, "PATH": os.environ.get("PATH", os.defpath), "HOME": home}
        variables |= {"XDG_CONFIG_HOME": home, **self.environment, **(extra or {})}
        variables[_NEVER] = "false"
        if self.git_dir is not None:
            variables["GIT_DIR"] = str(self.git_dir)
        try:
            child = subprocess.Popen(
                [self.program, *self.settings, *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=self.folder,
                env=variables,
                start_new_session=True,
                pass_fds=kept,
            )
        except OSError as error:
            raise UnavailableError(f"git cannot be started ({type(error).__name__})") from error
        talk = _Talk(child, given, out_bytes_max)
        try:
            code = talk.to_end(limit_ms / 1000)
        finally:
            _end(child)
        text = without_urls(bytes(talk.trouble).decode("utf-8", "backslashreplace"))
        return Ran(code=code, out=bytes(talk.out), trouble=" ".join(text.split())[:500])


def promised(urls: Iterable[str]) -> tuple[str, ...]:
    """Return the words before a command that set what is promised whoever is trusted.

    A setting for one URL wins over the one for all, so each URL has one of its own.
    """
    web = sorted(url for url in urls if url.startswith("http"))
    return (
        *(word for setting in _ALWAYS for word in ("-c", setting)),
        *(f"--config-env=http.{url}.followRedirects={_NEVER}" for url in web),
    )


def without_urls(text: str) -> str:
    """Return the beginning of what git or a remote printed, with each URL left out."""
    return _URL.sub("(a URL)", text[:SAID_CHARS_MAX])


class _Talk:
    """Feeds a command and reads it, both without waiting for the other."""

    def __init__(self, child: subprocess.Popen[bytes], given: bytes, out_bytes_max: int) -> None:
        self._child = child
        self._given = memoryview(given)
        self._out_bytes_max = out_bytes_max
        self.out = bytearray()
        self.trouble = bytearray()

    def to_end(self, seconds: float) -> int | None:
        """Return the exit status; None when the time is over or the answer is too long."""
        ends_at = time.monotonic() + seconds
        with selectors.DefaultSelector() as waiting:
            for pipe, event, into in (
                (self._child.stdin, selectors.EVENT_WRITE, None),
                (self._child.stdout, selectors.EVENT_READ, self.out),
                (self._child.stderr, selectors.EVENT_READ, self.trouble),
            ):
                if pipe is not None:
                    os.set_blocking(pipe.fileno(), False)
                    waiting.register(pipe, event, into)
            while waiting.get_map():
                ready = waiting.select(max(0.0, ends_at - time.monotonic()))
                if not ready or len(self.out) + len(self.trouble) > self._out_bytes_max:
                    return None
                for key, _ in ready:
                    is_over = self._feed(key.fd) if key.data is None else _read(key.fd, key.data)
                    if is_over:
                        waiting.unregister(key.fileobj)
                        if key.data is None and self._child.stdin is not None:
                            self._child.stdin.close()
        try:
            return self._child.wait(max(0.0, ends_at - time.monotonic()))
        except subprocess.TimeoutExpired:
            return None

    def _feed(self, descriptor: int) -> bool:
        if not self._given:
            return True
        try:
            self._given = self._given[os.write(descriptor, self._given[:CHUNK]) :]
        except BrokenPipeError:
            return True
        return not self._given


def _read(descriptor: int, into: bytearray) -> bool:
    chunk = os.read(descriptor, CHUNK)
    into += chunk
    return not chunk


def _end(child: subprocess.Popen[bytes]) -> None:
    """Stop what still lives of a command, and let go of its pipes."""
    if child.poll() is None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(child.pid, number)
            with suppress(subprocess.TimeoutExpired):
                child.wait(STOP_SECONDS)
                break
        child.wait()
    for pipe in (child.stdin, child.stdout, child.stderr):
        if pipe is not None:
            with suppress(BrokenPipeError):
                pipe.close()
