"""The error taxonomy: six families, grouped by what the caller may do next.

The family gives the exit code of commands and the HTTP status of the console. A
message is one sentence that names the run, the key and the next move; it carries no
secret and no payload, and is printable and bounded whatever it quotes. Constructors
pass all arguments on, so that every class survives pickle.

Source: docs/reference/errors.md, the same table for people.
"""

from enum import Enum
from typing import ClassVar

MESSAGE_CHARS_MAX = 1000
"""A message is one sentence; what it quotes may be as long as a planner likes."""


def one_line(text: str) -> str:
    """Return text as a person can be shown it: one printable line, cut at the bound.

    What is printable and short enough stays as it is, so a message may pass twice.
    """
    cut = text[:MESSAGE_CHARS_MAX]
    if not cut.isprintable():
        cut = "".join(c if c.isprintable() else _escaped(c) for c in cut)
    if len(text) <= MESSAGE_CHARS_MAX >= len(cut):
        return cut
    return f"{cut[: MESSAGE_CHARS_MAX - 1]}…"


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


class Remedy(Enum):
    """What the caller of a failed operation may do next."""

    FIX = "fix the caller"
    REPLAN = "plan anew, or ask a person"
    STOP = "stop"
    RELOAD = "reload"
    QUERY = "look up, never repeat"
    RETRY = "retry with backoff"


class CounterfoilError(Exception):
    """Base of every error that Counterfoil raises on purpose.

    Attributes:
        message: What happened, as a clause without a full stop.
        run_id: The run it happened to; empty when there is none.
        key: The idempotency key concerned; empty when there is none.
        move: The next move, in place of the class's own.
    """

    remedy: ClassVar[Remedy] = Remedy.STOP
    exit_code: ClassVar[int] = 1
    http_status: ClassVar[int] = 500
    next_move: ClassVar[str] = ""

    def __init__(self, message: str, run_id: str = "", key: str = "", move: str = "") -> None:
        message, run_id, key, move = map(one_line, (message, run_id, key, move))
        super().__init__(message, run_id, key, move)
        self.message = message
        self.run_id = run_id
        self.key = key
        self.move = move

    def __str__(self) -> str:
        names: list[str] = []
        if self.run_id:
            names.append(f"run {self.run_id}")
        if self.key:
            names.append(f"key {self.key}")
        where = f" ({', '.join(names)})" if names else ""
        return f"{self.message}{where}; {self.move or self.next_move}"


class UsageError(CounterfoilError):
    """The call itself is wrong; nothing happened and nothing was counted outside."""

    remedy = Remedy.FIX
    exit_code = 2
    http_status = 400
    next_move = "correct the call and make it again"


class ContractError(UsageError):
    """A value breaks the contract of the door it came through."""

    next_move = "correct the named field and propose it again"


class ConfigError(UsageError):
    """A setting, a key file or a declaration cannot be used as it is."""

    next_move = "correct the setting and start again"


class UnknownRunError(UsageError):
    """No run of this name exists where we looked."""

    next_move = "check the run id with `counterfoil runs`"


class RefusedError(CounterfoilError):
    """The proposal is refused; nothing happened outside."""

    remedy = Remedy.REPLAN
    exit_code = 3
    http_status = 403
    next_move = "plan anew, or ask a person"


class PermissionDeniedError(RefusedError):
    """The policy does not allow this action or this target."""

    next_move = "stay inside the policy, or have the task changed by a person"


class BudgetError(RefusedError):
    """The budget does not cover the action."""

    next_move = "finish within the budget, or have the task changed by a person"


class ApprovalError(RefusedError):
    """No live statement allows exactly this action."""

    next_move = "ask a person to approve exactly this action"


class StaleObservationError(RefusedError):
    """The environment is not the one that the action was built on."""

    http_status = 409
    next_move = "observe again and plan anew"


class IdempotencyConflictError(RefusedError):
    """The key is already bound to another intent."""

    http_status = 409
    next_move = "repeat the recorded intent, or use another key"


class FrozenError(RefusedError):
    """The run is in review; it proposes and executes nothing."""

    http_status = 409
    next_move = "look at the case with `counterfoil show`, then decide or abort"


class TerminalError(RefusedError):
    """The run has ended."""

    http_status = 409
    next_move = "start another run"


class VerificationError(RefusedError):
    """There is no live evidence that the task is done."""

    next_move = "verify the environment as it is, then finish"


class IntegrityError(CounterfoilError):
    """What was read is not what was written; nothing is trusted any more."""

    remedy = Remedy.STOP
    exit_code = 4
    next_move = "stop, keep every file as it is, and run `counterfoil verify`"


class SignatureError(IntegrityError):
    """A signature is missing, unknown or wrong."""


class FormatError(IntegrityError):
    """Bytes are not the one form that we write."""


class RollbackError(IntegrityError):
    """Time was turned back in a store or a register."""

    next_move = "stop, find the newest copy of both stores, and restore that"


class HeadMissingError(IntegrityError):
    """The register holds no head for a run that exists."""

    next_move = "stop, and bring back the head register that this run was written with"


class BindingError(IntegrityError):
    """A genuine record belongs to another run, task or environment."""

    next_move = "open the run with the task and environment that it was started with"


class InvariantError(IntegrityError):
    """A run value breaks a rule that holds for every run."""


class LostRaceError(CounterfoilError):
    """Another worker moved on; what this one holds in memory is old."""

    remedy = Remedy.RELOAD
    exit_code = 5
    http_status = 409
    next_move = "drop this session and open the run again"


class LeaseLostError(LostRaceError):
    """Another worker holds the run, or this one's time to act is over."""

    next_move = "wait until the other worker is done, then open the run again"


class StaleHeadError(LostRaceError):
    """The head moved between a read and a commit."""


class FencedError(LostRaceError):
    """An adapter refused a call under a lease that was taken over."""


class UnknownOutcomeError(CounterfoilError):
    """The write may or may not have happened; only a look-up by key can tell.

    Never repeat the write: settle the run, or open it again, which asks the adapter
    under `key` before anything else.
    """

    remedy = Remedy.QUERY
    exit_code = 6
    http_status = 504
    next_move = "do not repeat it; open the run again, which asks by key first"


class UnavailableError(CounterfoilError):
    """A store, register or target cannot be reached; nothing happened."""

    remedy = Remedy.RETRY
    exit_code = 7
    http_status = 503
    next_move = "try again after a pause"


FATAL = (IntegrityError, LostRaceError, UnknownOutcomeError)
"""Families after which a session refuses every further verb, so that a framework
that turns exceptions into text for a model cannot go on as if nothing was."""
