"""Inputs of the state machine: everything that can happen to a run, as values."""

from collections.abc import Mapping

import msgspec

from counterfoil.core.errors import ContractError, CounterfoilError
from counterfoil.core.intent import Action, EnvironmentState, KindSpec
from counterfoil.core.judge import Admitted
from counterfoil.core.receipt import Receipt
from counterfoil.core.review import Case
from counterfoil.core.run import Run
from counterfoil.core.task import Task
from counterfoil.core.trace import Event, Outcome
from counterfoil.core.trust import NOBODY, TrustRoots
from counterfoil.core.words import IntentDigest, Json

Facts = Mapping[str, Mapping[str, Json]]


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What a run is held to.

    Attributes:
        task: Its task.
        kinds: Declared kinds by name.
        now_ms: Time of the input, UTC.
        roots: Who may sign statements.
    """

    task: Task
    kinds: Mapping[str, KindSpec]
    now_ms: int
    roots: TrustRoots = NOBODY


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What followed: the next run, its trace events, and what the caller is told.

    Attributes:
        run: The next value; it is in force once a checkpoint with it is the head.
        events: To be sealed with it; empty while an admitted read is under way.
        settles: Names under which this commit answers a replay.
        error: Raised to the caller after the commit.
        admitted: A read or verification to execute before `Settled` is applied.
    """

    run: Run
    events: tuple[Event, ...] = ()
    settles: tuple[str, ...] = ()
    error: CounterfoilError | None = None
    admitted: Admitted | None = None


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """What the trace and the adapter say of a key that is settled.

    Attributes:
        digest: Intent digest in the trace.
        receipt: Receipt in the trace; None where the level keeps none.
        standing: Receipt that the adapter shows; None when it shows none.
        was_asked: Whether the adapter can be asked and was.
    """

    digest: IntentDigest
    receipt: Receipt | None
    standing: Receipt | None = None
    was_asked: bool = False


class Proposed(msgspec.Struct, frozen=True, kw_only=True):
    """A planner proposes an action; the challenge and preview serve if it must wait."""

    action: Action
    action_id: str
    challenge: str = ""
    preview: str = ""
    recorded: Recorded | None = None
    environments: tuple[EnvironmentState, ...] = ()
    facts: Facts | None = None


class Garbled(msgspec.Struct, frozen=True, kw_only=True):
    """Something came through the planner's door that is no action."""

    error: ContractError


class Settled(msgspec.Struct, frozen=True, kw_only=True):
    """An admitted read or verification has its result."""

    admitted: Admitted
    action_id: str
    result: Json
    environments: tuple[EnvironmentState, ...] = ()
    passed: bool = False


class Failed(msgspec.Struct, frozen=True, kw_only=True):
    """An admitted read or verification raised."""

    admitted: Admitted
    error: CounterfoilError


class Remembered(msgspec.Struct, frozen=True, kw_only=True):
    """A value was computed once."""

    name: str
    digest: IntentDigest
    value: Json


class ReceiptSeen(msgspec.Struct, frozen=True, kw_only=True):
    """The pending effect is done."""

    receipt: Receipt
    was_recovered: bool
    observed: EnvironmentState | None = None


class Stumbled(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's program ended with an error, or without an end of the run.

    Attributes:
        reason: How, one sentence without payload.
        tries_max: How often in a row it may, at one position, before the run is parked.
    """

    reason: str
    tries_max: int


class Unparked(msgspec.Struct, frozen=True, kw_only=True):
    """A person gives a parked run back to the workers."""

    actor: str
    reason: str


class Resent(msgspec.Struct, frozen=True, kw_only=True):
    """The pending call is about to leave again under the same key.

    Attributes:
        answer: What the look-up before it said, see `Answer`; empty when none was made.
    """

    answer: str = ""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """The adapter was asked by key, and nothing is certain yet.

    Attributes:
        answer: What it said, see `Answer`.
        reason: Why that is not enough, for people.
    """

    answer: str
    reason: str


class GivenUp(msgspec.Struct, frozen=True, kw_only=True):
    """The pending effect has not happened and never will."""

    outcome: Outcome
    error: CounterfoilError
    observed: EnvironmentState | None = None


class CaseOpened(msgspec.Struct, frozen=True, kw_only=True):
    """A person must decide."""

    case: Case


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """Environments were looked at."""

    environments: tuple[EnvironmentState, ...]


class Aborted(msgspec.Struct, frozen=True, kw_only=True):
    """An operator ends the run, whatever stands open."""

    actor: str
    reason: str
    finding: str = ""
    receipt: Receipt | None = None


class Approved(msgspec.Struct, frozen=True, kw_only=True):
    """An approval of the pending intent is at hand; `envelope` is its text."""

    envelope: str


class Denied(msgspec.Struct, frozen=True, kw_only=True):
    """A denial of the pending intent is at hand."""

    envelope: str


class Revoked(msgspec.Struct, frozen=True, kw_only=True):
    """A revocation of a bound approval is at hand."""

    envelope: str


class Released(msgspec.Struct, frozen=True, kw_only=True):
    """The approved call is about to leave for the first time."""


class Lapsed(msgspec.Struct, frozen=True, kw_only=True):
    """The time of bound approvals was seen to be over, before the call left."""

    reason: str


class Withdrawn(msgspec.Struct, frozen=True, kw_only=True):
    """The planner takes back what has not been sent."""

    reason: str


class StatementRefused(msgspec.Struct, frozen=True, kw_only=True):
    """A genuine statement was refused."""

    envelope: str
    signer: str
    reason: str


class Decided(msgspec.Struct, frozen=True, kw_only=True):
    """A decision on the open case is at hand, and the matter was looked at again."""

    envelope: str
    receipt: Receipt | None = None
    observed: EnvironmentState | None = None


class Migrated(msgspec.Struct, frozen=True, kw_only=True):
    """A reviewer lets the run go on under another version of its task."""

    envelope: str


Input = (
    Proposed
    | Garbled
    | Settled
    | Failed
    | Remembered
    | Stumbled
    | Unparked
    | ReceiptSeen
    | Resent
    | Asked
    | GivenUp
    | CaseOpened
    | Observed
    | Aborted
    | Approved
    | Denied
    | Revoked
    | Released
    | Lapsed
    | Withdrawn
    | StatementRefused
    | Decided
    | Migrated
)
