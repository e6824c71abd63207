"""A side's program as its parent sees it: a process that answers each line with a line."""

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks.peers.environments import ROOT
from benchmarks.peers.sides import Side

PROGRAMS = Path(__file__).parent / "programs"
ANSWER_SECONDS_MAX = 1_900
END_SECONDS = 20
SAID_MAX = 300


class ProgramError(Exception):
    """A program died, or said that it could not do what it was asked; the message is its own."""


class Program:
    """Owns one process; a context manager.

    Attributes:
        side: Whose it is.
    """

    def __init__(self, side: Side, python: Path, folder: Path) -> None:
        self.side = side
        self._log = folder / f"{side.name}.log"
        folder.mkdir(parents=True, exist_ok=True)
        paths = [PROGRAMS, ROOT] if not side.environment else [PROGRAMS]
        told = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, [*paths, *_own_paths(side)])),
            "PYTHONWARNINGS": "ignore",
        }
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [python, PROGRAMS / f"{side.program}.py"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=folder,
                env=told,
                text=True,
            )

    def ask(self, **said: object) -> dict[str, Any]:
        """Give one command, and return its answer.

        Raises:
            ProgramError: It died, was too slow, or could not.
        """
        self.tell(**said)
        return self.hear()

    def tell(self, **said: object) -> None:
        """Give one command, whose answer is heard later."""
        try:
            print(json.dumps(said), file=self._process.stdin, flush=True)
        except OSError as error:
            raise ProgramError(f"{self.side.name} is gone: {self._end_of_log()}") from error

    def hear(self) -> dict[str, Any]:
        """Return the answer to the earliest command that has none."""
        answers = self._process.stdout
        if answers is None or not select.select([answers], [], [], ANSWER_SECONDS_MAX)[0]:
            raise ProgramError(f"{self.side.name} did not answer in {ANSWER_SECONDS_MAX} s")
        line = answers.readline()
        if not line:
            raise ProgramError(f"{self.side.name} ended: {self._end_of_log()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise ProgramError(str(answer["error"]))
        return answer

    @property
    def is_running(self) -> bool:
        """Whether the process has not ended."""
        return self._process.poll() is None

    def kill(self) -> None:
        """Kill the process at once, and wait until it is gone."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(END_SECONDS)

    def wait_for_death(self, seconds: float) -> bool:
        """Return whether the process dies by itself in this time."""
        try:
            return self._process.wait(seconds) != 0
        except subprocess.TimeoutExpired:
            return False

    def close(self) -> None:
        """End the process: in order if it answers, and at once if it does not."""
        if self._process.poll() is None and self._process.stdin is not None:
            try:
                self._process.stdin.close()
                self._process.wait(END_SECONDS)
            except (OSError, subprocess.TimeoutExpired):
                self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None and not pipe.closed:
                pipe.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _end_of_log(self) -> str:
        text = self._log.read_text(encoding="utf-8", errors="replace")
        return " ".join(text.split())[-SAID_MAX:] or "it said nothing"


def _own_paths(side: Side) -> list[str]:
    """Return where our own package is found; a peer must not see it."""
    return [] if side.environment else [path for path in sys.path if path]
