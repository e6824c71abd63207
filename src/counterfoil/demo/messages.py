"""What driver and worker tell each other: one line of JSON each."""

from typing import TypeAlias

import msgspec

from counterfoil.core.receipt import Answer
from counterfoil.demo.plan import Item, Moment

LINE_BYTES_MAX = 4_096
"""A shorter write to a pipe is never torn (PIPE_BUF of Linux)."""


class Message(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Base of all messages."""


class Work(Message, frozen=True, kw_only=True):
    """Fork a worker that runs the program.

    Attributes:
        run_id: Run to open or create.
        items: What to restock.
        port: Where the shop listens.
        stop_at: Where to stop and wait for death; None to run to the end.
    """

    run_id: str
    items: tuple[Item, ...]
    port: int
    stop_at: Moment | None = None


class Audit(Message, frozen=True, kw_only=True):
    """Fork a worker that verifies everything of a run."""

    run_id: str
    port: int


class Began(Message, frozen=True, kw_only=True):
    """A worker was forked."""

    pid: int


class Proposed(Message, frozen=True, kw_only=True):
    """An intent is durable."""

    position: int


class Asked(Message, frozen=True, kw_only=True):
    """A target was asked by key."""

    answer: Answer


class Sent(Message, frozen=True, kw_only=True):
    """A write was sent to its target."""


class Adopted(Message, frozen=True, kw_only=True):
    """A receipt that was found is durable."""


class Stopped(Message, frozen=True, kw_only=True):
    """The worker stands still at its moment, and waits.

    Attributes:
        moment: Where.
        position: Position of the intent that passed last; -1 when none did.
    """

    moment: Moment
    position: int


class Completed(Message, frozen=True, kw_only=True):
    """The program came to its end."""


class Audited(Message, frozen=True, kw_only=True):
    """What an audit found to be true."""

    checkpoints: int
    events: int
    root: str
    leftovers: int


class Failed(Message, frozen=True, kw_only=True):
    """The program ended with an error of the taxonomy."""

    error: str
    message: str


class Ended(Message, frozen=True, kw_only=True):
    """A worker is gone; `status` is its exit code, or minus the signal that ended it."""

    status: int


Job: TypeAlias = Work | Audit
Fact: TypeAlias = Proposed | Asked | Sent | Adopted
Report: TypeAlias = Began | Fact | Stopped | Completed | Audited | Failed | Ended


def to_line(message: Job | Report) -> bytes:
    """Return a message as one line."""
    return msgspec.json.encode(message) + b"\n"


def to_job(line: bytes) -> Job:
    """Return the job of one line."""
    return msgspec.json.decode(line, type=Job)


def to_report(line: bytes) -> Report:
    """Return the report of one line."""
    return msgspec.json.decode(line, type=Report)
