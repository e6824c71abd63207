"""The processes of the demo, as the driver owns them: each is ended, whatever happens."""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import counterfoil as cf
from counterfoil.demo import messages
from counterfoil.demo.messages import Began, Ended, Job, Report, Stopped

SILENCE_SECONDS_MAX = 30
"""An attempt takes a tenth of a second; a child that says nothing for so long hangs."""

END_SECONDS_MAX = 5


class Child:
    """Owns one process: its input, its output, its end.

    It runs in a session of its own, so that an interrupt from the keyboard reaches the
    driver alone.
    """

    def __init__(
        self, module: str, arguments: Sequence[str], *, log: Path, settings: Mapping[str, str]
    ) -> None:
        with log.open("ab") as errors:
            self._child = subprocess.Popen(
                [sys.executable, "-c", f"from {module} import main; main()", *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=os.environ | settings,
                start_new_session=True,
            )
        self._name = module
        self._unread = b""

    def line(self) -> bytes:
        """Return the next line of output.

        Raises:
            UnavailableError: The process ended, or says nothing.
        """
        give_up_at = time.monotonic() + SILENCE_SECONDS_MAX
        output = self._output()
        while b"\n" not in self._unread:
            left = give_up_at - time.monotonic()
            if left <= 0 or not select.select([output], [], [], left)[0]:
                raise cf.UnavailableError(f"{self._name} says nothing")
            read = os.read(output, messages.LINE_BYTES_MAX)
            if not read:
                raise cf.UnavailableError(f"{self._name} has ended")
            self._unread += read
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def send(self, line: bytes) -> None:
        """Write a line to the input.

        Raises:
            UnavailableError: The process has ended.
        """
        if self._child.stdin is None:
            raise cf.UnavailableError(f"{self._name} has no input")
        try:
            self._child.stdin.write(line)
            self._child.stdin.flush()
        except BrokenPipeError as error:
            raise cf.UnavailableError(f"{self._name} has ended") from error

    def close(self) -> None:
        """End the process, by closing its input or by force."""
        for stream in (self._child.stdin, self._child.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()
        try:
            self._child.wait(END_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _output(self) -> int:
        if self._child.stdout is None:
            raise cf.UnavailableError(f"{self._name} has no output")
        return self._child.stdout.fileno()


class ShopChild(Child):
    """The shop, in a process of its own."""

    def __init__(self, database: Path, instance: str, *, log: Path, forgets_keys: bool) -> None:
        flags = ["--forgets-keys"] if forgets_keys else []
        super().__init__(
            "counterfoil.demo.shop",
            ["--database", str(database), "--instance", instance, *flags],
            log=log,
            settings={},
        )
        self.database = database
        try:
            self.port = int(self.line())
        except BaseException:
            self.close()
            raise


class WorkerChild(Child):
    """The warm parent of all workers."""

    def __init__(self, project: Path, home: Path, *, log: Path, is_sabotaged: bool) -> None:
        flags = ["--is-sabotaged"] if is_sabotaged else []
        super().__init__(
            "counterfoil.demo.worker",
            ["--project", str(project), *flags],
            log=log,
            settings={
                "XDG_CONFIG_HOME": str(home / "config"),
                "XDG_STATE_HOME": str(home / "state"),
            },
        )

    def attempt(self, job: Job) -> Iterator[Report]:
        """Have a worker forked for a job, and yield its reports until it is gone.

        One that stands at its moment is killed with SIGKILL.
        """
        self.send(messages.to_line(job))
        pid: int | None = None
        while True:
            report = messages.to_report(self.line())
            yield report
            match report:
                case Began():
                    pid = report.pid
                case Stopped() if pid is not None:
                    os.kill(pid, signal.SIGKILL)
                case Ended():
                    return
                case _:
                    pass
