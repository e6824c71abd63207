"""Watches one command to its end, whatever becomes of the program that ordered it.

A program of its own, see `launch`: it needs the standard library alone. It leaves its
parent's session, and records in the folder of the attempt: `start` before the command
runs, its output in bounded files, and `exit` in one rename. Until `start` is durable it
holds the lock that it was given, so that whoever takes that lock next finds the start
decided. It adopts what its descendants leave behind, so all of them can be stopped,
whatever session they went to.
"""

import ctypes
import errno
import json
import os
import select
import signal
import struct
import time
from typing import Any, NoReturn

from counterfoil.adapters.shell.kernel import (
    CHUNK_BYTES,
    EXIT,
    KILL_MS,
    SPARE,
    START,
    STDERR,
    STDOUT,
    TOKEN_NAME,
    Life,
    boot_id,
    boot_ms,
    digests,
    life,
    lives,
    pid_namespace,
    send,
)

RECORD_BYTES_MAX = 32 * 1024
"""A record: the pids of a pipeline, or 64 digests; room for `exit` is taken beforehand."""

SURVIVORS_MAX = 64
"""Survivors that a record names."""

TURN_MS, ENDING_TURN_MS = 1_000, 20
_PR_SET_CHILD_SUBREAPER = 36
_FAILURE = struct.Struct("II")
_RESET = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
"""What a command finds as the system has it, whatever this or the runtime ignores."""


class _Sink:
    """A bounded file; what is beyond the bound, or does not fit the disk, is counted."""

    def __init__(self, place: int, name: str, bytes_max: int) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        self.file = os.open(name, flags, 0o600, dir_fd=place)
        self.pipe, self.mouth = os.pipe()
        os.set_blocking(self.pipe, False)
        self.left = bytes_max
        self.kept = 0
        self.seen = 0
        self.trouble = ""

    def drain(self) -> bool:
        """Take one chunk; return whether there was one."""
        if self.pipe < 0:
            return False
        try:
            chunk = os.read(self.pipe, CHUNK_BYTES)
        except BlockingIOError:
            return False
        if not chunk:
            os.close(self.pipe)
            self.pipe = -1
        self.seen += len(chunk)
        view = memoryview(chunk)[: self.left]
        while view and not self.trouble:
            try:
                written = os.write(self.file, view)
            except OSError as error:
                self.trouble = _name(error)
                break
            view = view[written:]
            self.kept += written
            self.left -= written
        return bool(chunk)

    def sync(self) -> None:
        try:
            os.fsync(self.file)
        except OSError as error:
            self.trouble = self.trouble or _name(error)


class _Watch:
    """Holds the stages of one command, from their start to the record of their end."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.order = order
        self.place: int = order["place"]
        self.sinks = tuple(
            _Sink(self.place, name, order["output_bytes_max"]) for name in (STDOUT, STDERR)
        )
        self.variables: list[tuple[str, str]] = list(order["environment"].items())
        self.pids: list[int] = []
        self.ends: dict[int, int] = {}
        self.failures: dict[int, str] = {}
        self.started_at_ms = time.time_ns() // 1_000_000
        self.deadline = boot_ms() + order["timeout_ms"]
        self.key = self.failing = -1
        self.is_stopped = False
        self.is_timed_out = False
        self.left_behind = 0
        self.survivors: list[Life] = []
        self.bell, self.clapper = os.pipe()
        os.set_blocking(self.bell, False)
        os.set_blocking(self.clapper, False)

    def listen(self) -> None:
        """Note signals: SIGTERM stops the command, a terminal's are none of our business."""
        signal.set_wakeup_fd(self.clapper, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _note)
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def _stop(self, *_: object) -> None:
        self.is_stopped = True

    def start(self) -> None:
        """Fork the stages, and record them durably; they wait for `release`.

        Raises:
            OSError: Nothing was started; `FileExistsError` when that was made impossible.
        """
        gate, self.key = os.pipe()
        self.failing, failed = os.pipe()
        source = os.open(os.devnull, os.O_RDONLY)
        stages = self.order["stages"]
        for number, words in enumerate(stages):
            reader, target = (-1, self.sinks[0].mouth)
            if number < len(stages) - 1:
                reader, target = os.pipe()
            pid = os.fork()
            if pid == 0:
                os.close(self.key)
                os.close(self.order["lock"])
                self._become(number, words, (source, target), gate, failed)
            self.pids.append(pid)
            _group(pid, self.pids[0])
            os.close(source)
            if target != self.sinks[0].mouth:
                os.close(target)
            source = reader
        for descriptor in (gate, failed, *(sink.mouth for sink in self.sinks)):
            os.close(descriptor)
        self._record_start()

    def release(self) -> None:
        """Let the stages become the command; note which of them could not."""
        os.write(self.key, b"!" * len(self.pids))
        os.close(self.key)
        while raw := os.read(self.failing, _FAILURE.size):
            number, code = _FAILURE.unpack(raw)
            self.failures[number] = errno.errorcode.get(code, str(code))
        os.close(self.failing)

    def _become(
        self, number: int, words: list[str], ends: tuple[int, int], gate: int, failed: int
    ) -> NoReturn:
        """Turn this fork into one stage, once its start is on record."""
        try:
            _group(0, self.pids[0] if self.pids else 0)
            os.dup2(ends[0], 0)
            os.dup2(ends[1], 1)
            os.dup2(self.sinks[1].mouth, 2)
            signal.set_wakeup_fd(-1)
            for number_of_signal in _RESET:
                signal.signal(number_of_signal, signal.SIG_DFL)
            os.umask(self.order["umask"])
            if os.read(gate, 1) != b"!":
                os._exit(127)
            argv = [word.encode() for word in words]
            environment = {
                name.encode(): value.encode()
                for name, value in ((TOKEN_NAME, self.order["token"]), *self.variables)
            }
            os.execve(argv[0], argv, environment)  # noqa: S606 - what was allowed, and no shell
        except OSError as error:
            os.write(failed, _FAILURE.pack(number, error.errno or 0))
        finally:
            os._exit(127)

    def _record_start(self) -> None:
        me = os.getpid()
        record = {
            "boot": boot_id(),
            "namespace": pid_namespace(),
            "supervisor": _identity(me),
            "stages": [_identity(pid) for pid in self.pids],
            "session": os.getsid(0),
            "token": self.order["token"],
            "started_at_ms": self.started_at_ms,
            "ends_boot_ms": self.deadline + self.order["grace_ms"] + KILL_MS,
        }
        spare = f"{START}.new"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        descriptor = os.open(spare, flags, 0o600, dir_fd=self.place)
        _write(descriptor, record)
        os.link(spare, START, src_dir_fd=self.place, dst_dir_fd=self.place)
        os.unlink(spare, dir_fd=self.place)
        os.fsync(self.place)

    def see_to_the_end(self) -> None:
        """Pass output on until all stages have ended and nothing of them is left."""
        is_ending, kill_at = False, 0
        while True:
            self._wait(ENDING_TURN_MS if is_ending else TURN_MS)
            now = boot_ms()
            if not is_ending:
                have_ended = len(self.ends) == len(self.pids)
                self.is_timed_out = not have_ended and not self.is_stopped and now >= self.deadline
                if not (have_ended or self.is_stopped or self.is_timed_out or self.failures):
                    continue
                is_ending, kill_at = True, now + self.order["grace_ms"]
                alive = _descendants()
                self.left_behind = len(alive) if have_ended else 0
                _send_all(alive, signal.SIGTERM)
            alive = _descendants()
            if not alive:
                break
            if now >= kill_at:
                _send_all(alive, signal.SIGKILL)
            if now >= kill_at + KILL_MS:
                self.survivors = alive
                break
        self._reap()
        for sink in self.sinks:
            while sink.drain():
                pass

    def _wait(self, turn_ms: int) -> None:
        poll = select.poll()
        for sink in self.sinks:
            if sink.pipe >= 0:
                poll.register(sink.pipe, select.POLLIN)
        poll.register(self.bell, select.POLLIN)
        left_ms = max(0, self.deadline - boot_ms()) if turn_ms == TURN_MS else turn_ms
        ready = {descriptor for descriptor, _ in poll.poll(min(turn_ms, left_ms))}
        for sink in self.sinks:
            if sink.pipe in ready:
                sink.drain()
        if self.bell in ready:
            os.read(self.bell, CHUNK_BYTES)
        self._reap()

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid in self.pids:
                self.ends[pid] = os.waitstatus_to_exitcode(status)

    def record_exit(self) -> None:
        """Record the end in one rename, into room that was taken before the start."""
        for sink in self.sinks:
            sink.sync()
        try:
            seen = digests(self.order["root"], self.order["watched"])
        except OSError:
            seen = None
        out, err = self.sinks
        record = {
            "stages": [self._end(number, pid) for number, pid in enumerate(self.pids)],
            "is_timed_out": self.is_timed_out,
            "is_stopped": self.is_stopped,
            "left_behind": self.left_behind,
            "survivors": [[one.pid, one.start] for one in self.survivors[:SURVIVORS_MAX]],
            "stdout_bytes": out.seen,
            "stderr_bytes": err.seen,
            "stdout_kept": out.kept,
            "stderr_kept": err.kept,
            "output_trouble": out.trouble or err.trouble,
            "watched": seen,
            "started_at_ms": self.started_at_ms,
            "ended_at_ms": time.time_ns() // 1_000_000,
        }
        _write(os.open(SPARE, os.O_WRONLY | os.O_NOFOLLOW, dir_fd=self.place), record)
        os.rename(SPARE, EXIT, src_dir_fd=self.place, dst_dir_fd=self.place)
        os.fsync(self.place)

    def _end(self, number: int, pid: int) -> dict[str, object]:
        if number in self.failures:
            return {"failed": self.failures[number]}
        code = self.ends.get(pid)
        if code is None:
            return {"alive": pid}
        return {"signal": -code} if code < 0 else {"code": code}


def _note(*_: object) -> None:
    """Let a signal end the wait; without a function the kernel would reap by itself."""


def _group(pid: int, group: int) -> None:
    try:
        os.setpgid(pid, group)
    except OSError:  # it became the command already, or is gone
        return


def _identity(pid: int) -> list[int]:
    found = life(pid)
    return [pid, -1 if found is None else found.start]


def _name(error: OSError) -> str:
    return errno.errorcode.get(error.errno or 0, type(error).__name__)


def _descendants() -> list[Life]:
    """Return all that descends from here: what lost its parent has become our own child."""
    children: dict[int, list[Life]] = {}
    for one in lives():
        children.setdefault(one.parent, []).append(one)
    found = list(children.get(os.getpid(), ()))
    for one in found:
        found += children.get(one.pid, ())
    return found


def _send_all(alive: list[Life], number: int) -> None:
    for one in alive:
        send(one.pid, one.start, number)


def _write(descriptor: int, record: dict[str, Any]) -> None:
    """Write a record over what is there, make it durable and close it."""
    raw = json.dumps(record, separators=(",", ":")).encode()
    os.write(descriptor, raw)
    os.ftruncate(descriptor, len(raw))
    os.fsync(descriptor)
    os.close(descriptor)


def _take_room(place: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    descriptor = os.open(SPARE, flags, 0o600, dir_fd=place)
    os.posix_fallocate(descriptor, 0, RECORD_BYTES_MAX)
    os.fsync(descriptor)
    os.close(descriptor)


def _say(text: str) -> None:
    try:
        os.write(1, f"{text}\n".encode())
    except OSError:  # whoever ordered it is gone; it is done all the same
        return


def main() -> None:
    """Take an order, and see to it until it is on record how it ended."""
    if os.fork():
        os._exit(0)
    os.setsid()
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with os.fdopen(0, "rb", closefd=False) as given:
        order = json.loads(given.read())
    for name in ("lock", "place", "folder", "root"):
        os.set_inheritable(order[name], False)
    try:
        os.fchdir(order["folder"])
        _take_room(order["place"])
        watch = _Watch(order)
        watch.listen()
        watch.start()
    except OSError as error:
        _say(f"refused {_name(error)}")
        os._exit(1)
    watch.release()
    if len(watch.failures) == len(watch.pids):
        watch.see_to_the_end()
        watch.record_exit()
        _say(f"failed {watch.failures[0]}")
        os._exit(1)
    _say("started")
    os.dup2(os.open(os.devnull, os.O_RDWR), 1)
    os.close(order["lock"])
    watch.see_to_the_end()
    watch.record_exit()
