"""What the programs of a drill tell each other: one line of JSON each.

Moments are read from the monotonic clock of the machine, which all of them share.
"""

import os
import time
from collections.abc import Callable

import msgspec

LINE_BYTES_MAX = 4_096
"""A shorter write to a pipe is never torn (PIPE_BUF of Linux), whoever is killed meanwhile."""

REASON_CHARS_MAX = 300
"""With every character escaped, still a part of a line."""


class Line(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Base of all lines."""


class Ready(Line, frozen=True, kw_only=True):
    """The premises are there.

    Attributes:
        folder: The temporary folder of the drill.
        store_url: Where checkpoints are to lie.
        heads_url: Where heads are to lie.
    """

    folder: str
    store_url: str
    heads_url: str


class Failed(Line, frozen=True, kw_only=True):
    """The premises cannot be made.

    Attributes:
        is_ours: Whether the caller must correct something; otherwise it may help to try again.
        message: What happened.
        move: The next move; empty where the class of the error says it.
    """

    is_ours: bool
    message: str
    move: str


class Hire(Line, frozen=True, kw_only=True):
    """Fork a worker; `serial` sets its luck apart from that of the others."""

    serial: int


class Born(Line, frozen=True, kw_only=True):
    """A worker leads a process group of its own."""

    pid: int


class Gone(Line, frozen=True, kw_only=True):
    """A worker is gone; `status` is its exit code, or minus the signal that ended it."""

    pid: int
    status: int


class Stands(Line, frozen=True, kw_only=True):
    """A worker stands still for a moment, right before or right after a call of a port.

    Attributes:
        pid: The worker.
        call: Which call.
        is_before_a_write: Whether the call is to come, and moves something.
    """

    pid: int
    call: str
    is_before_a_write: bool


class Took(Line, frozen=True, kw_only=True):
    """A worker took the lease of a run."""

    pid: int
    run_id: str
    lease_version: int
    at_ns: int


class Gave(Line, frozen=True, kw_only=True):
    """A worker gives a lease back."""

    pid: int
    run_id: str
    lease_version: int


class Refused(Line, frozen=True, kw_only=True):
    """A port refused a worker whose lease or head is old."""

    pid: int
    call: str


class Told(Line, frozen=True, kw_only=True):
    """What a worker logged of a run.

    Attributes:
        pid: The worker.
        event: As `counterfoil worker` prints it: "ended", "failed", "lost", …
        run_id: The run; empty where the event is of none.
        reason: Why, as far as it was said.
    """

    pid: int
    event: str
    run_id: str = ""
    reason: str = ""


FromPremises = Ready | Failed
FromCrew = Born | Gone | Stands | Took | Gave | Refused | Told
Tell = Callable[[FromCrew], None]


def write_line(line: Line) -> None:
    """Write a line to standard output, whole."""
    os.write(1, msgspec.json.encode(line) + b"\n")


def now_ns() -> int:
    """Return the clock that all programs of a drill share."""
    return time.monotonic_ns()
