"""What workers ask of the counting target: one line of JSON there, one back."""

import socket
from dataclasses import dataclass

import msgspec

from counterfoil.core.errors import UnavailableError, UnknownOutcomeError

HOST = "127.0.0.1"
LINE_BYTES_MAX = 16 * 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """What the target promises of one kind of effect.

    Attributes:
        level: As it is declared.
        dedupes: Whether a repeated key gives the earlier effect.
        fences: Whether a call under an old lease is refused.
    """

    level: str
    dedupes: bool
    fences: bool


KINDS = {
    "target.keyed": Kind(level="deduplicating", dedupes=True, fences=False),
    "target.fenced": Kind(level="conditional", dedupes=False, fences=True),
    "target.booked": Kind(level="transactional", dedupes=True, fences=True),
}


class Message(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Base of questions and answers."""


class Fence(msgspec.Struct, frozen=True, kw_only=True):
    """The lease that a call is made under."""

    run_id: str
    lease_version: int
    nonce: str


class Do(Message, frozen=True, kw_only=True):
    """Have an effect.

    Attributes:
        kind: Of `KINDS`.
        what: The business id: what the effect is about, whoever asks for it and how often.
        run_id: For which run.
        key: Idempotency key.
        digest: Digest of the intent.
        fence: Lease of the caller.
        generation: Of the checkpoint that carries the intent.
        checkpoint: Its digest.
    """

    kind: str
    what: str
    run_id: str
    key: str
    digest: str
    fence: Fence
    generation: int
    checkpoint: str


class Find(Message, frozen=True, kw_only=True):
    """Say what is known of a key."""

    key: str


class Take(Message, frozen=True, kw_only=True):
    """Refuse every older lease of a run from here on, and say what was served last."""

    fence: Fence


class Check(Message, frozen=True, kw_only=True):
    """Say whether a run has all of these effects."""

    run_id: str
    what: tuple[str, ...]


class Look(Message, frozen=True, kw_only=True):
    """Say how many arrivals are under way."""


class Done(Message, frozen=True, kw_only=True):
    """The effect is there."""

    number: int
    digest: str
    at_ms: int
    replayed: bool = False


class Effect(Message, frozen=True, kw_only=True):
    """What stands under a key."""

    number: int
    run_id: str
    digest: str
    at_ms: int


class Nothing(Message, frozen=True, kw_only=True):
    """Nothing stands under the key."""


class Fenced(Message, frozen=True, kw_only=True):
    """The lease of the caller is old."""


class Conflicts(Message, frozen=True, kw_only=True):
    """Another intent stands under the key."""


class Taken(Message, frozen=True, kw_only=True):
    """The fence stands; `generation` is -1 where nothing was served."""

    generation: int
    checkpoint: str


class Checked(Message, frozen=True, kw_only=True):
    """Whether all was there."""

    passed: bool


class Seen(Message, frozen=True, kw_only=True):
    """How many arrivals are under way."""

    flying: int


Asked = Do | Find | Take | Check | Look
Answer = Done | Effect | Nothing | Fenced | Conflicts | Taken | Checked | Seen


def to_asked(line: bytes) -> Asked:
    """Return the question of a line."""
    return msgspec.json.decode(line, type=Asked)


def to_line(message: Message) -> bytes:
    """Return a question or an answer as a line."""
    return msgspec.json.encode(message) + b"\n"


def ask(port: int, asked: Asked, *, timeout_ms: int) -> Answer:
    """Return the target's answer, over a connection of its own.

    Raises:
        UnavailableError: Nobody listens; nothing was sent.
        UnknownOutcomeError: The question may have arrived, and there is no answer.
    """
    try:
        connection = socket.create_connection((HOST, port), timeout=timeout_ms / 1000)
    except OSError as error:
        raise UnavailableError("the counting target does not listen") from error
    with connection:
        try:
            connection.sendall(to_line(asked))
            line = connection.makefile("rb").readline(LINE_BYTES_MAX)
        except OSError as error:
            raise UnknownOutcomeError("the counting target gave no answer") from error
    if not line.endswith(b"\n"):
        raise UnknownOutcomeError("the counting target gave no answer")
    return msgspec.json.decode(line, type=Answer)
