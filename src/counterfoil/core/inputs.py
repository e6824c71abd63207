"""Inputs of the state machine: everything that can happen to a run, as values."""

from collections.abc import Mapping
from dataclasses import dataclass

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


@dataclass(frozen=True, kw_only=True, slots=True)
class Rules:
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Recorded:
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Proposed:
    """A planner proposes an action; the challenge and preview serve if it must wait."""

    action: Action
    action_id: str
    challenge: str = ""
    preview: str = ""
    recorded: Recorded | None = None
    environments: tuple[EnvironmentState, ...] = ()
    facts: Facts | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Garbled:
    """Something came through the planner's door that is no action."""

    error: ContractError


@dataclass(frozen=True, kw_only=True, slots=True)
class Settled:
    """An admitted read or verification has its result."""

    admitted: Admitted
    action_id: str
    result: Json
    environments: tuple[EnvironmentState, ...] = ()
    passed: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Failed:
    """An admitted read or verification raised."""

    admitted: Admitted
    error: CounterfoilError


@dataclass(frozen=True, kw_only=True, slots=True)
class Remembered:
    """A value was computed once."""

    name: str
    digest: IntentDigest
    value: Json


@dataclass(frozen=True, kw_only=True, slots=True)
class ReceiptSeen:
    """The pending effect is done."""

    receipt: Receipt
    was_recovered: bool
    observed: EnvironmentState | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Stumbled:
    """A worker's program ended with an error, or without an end of the run.

    Attributes:
        reason: How, one sentence without payload.
        tries_max: How often in a row it may, at one position, before the run is parked.
    """

    reason: str
    tries_max: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Unparked:
    """A person gives a parked run back to the workers."""

    actor: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Resent:
    """The pending call is about to leave again under the same key."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GivenUp:
    """The pending effect has not happened and never will."""

    outcome: Outcome
    error: CounterfoilError
    observed: EnvironmentState | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class CaseOpened:
    """A person must decide."""

    case: Case


@dataclass(frozen=True, kw_only=True, slots=True)
class Observed:
    """Environments were looked at."""

    environments: tuple[EnvironmentState, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Aborted:
    """An operator ends the run, whatever stands open."""

    actor: str
    reason: str
    finding: str = ""
    receipt: Receipt | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Approved:
    """An approval of the pending intent is at hand; `envelope` is its text."""

    envelope: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Denied:
    """A denial of the pending intent is at hand."""

    envelope: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Revoked:
    """A revocation of a bound approval is at hand."""

    envelope: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Released:
    """The approved call is about to leave for the first time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Lapsed:
    """The time of bound approvals was seen to be over, before the call left."""

    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Withdrawn:
    """The planner takes back what has not been sent."""

    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class StatementRefused:
    """A genuine statement was refused."""

    envelope: str
    signer: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Decided:
    """A decision on the open case is at hand, and the matter was looked at again."""

    envelope: str
    receipt: Receipt | None = None
    observed: EnvironmentState | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Migrated:
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
