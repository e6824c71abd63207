"""Actions that planners propose, intents that digests name, and the pending one.

An intent is the part of an action that identifies its effect. Volatile arguments
(a token that changes with each try) travel beside it and are in no digest.
"""

import hmac
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from counterfoil.core.bounds import ARGUMENTS_BYTES_MAX, INTEGER_MAX
from counterfoil.core.canonical import canonical, digest, encode, shaped, strict_json
from counterfoil.core.errors import ContractError
from counterfoil.core.plain import sorted_plain
from counterfoil.core.words import IntentDigest, Json, Key, Level, Risk, RunId

DIGEST_VERSION = "i1"
"""Canonicalisation that a digest was made with; old digests keep their own."""

KEY_CHARS = 52
"""Length of a derived key: all 256 bits in base32, without padding."""

KEY_PADDING_BITS = 5 * KEY_CHARS - 256
_KEY_SHIFTS = range(5 * KEY_CHARS - 10, -1, -10)
_PAIRS = tuple(map("".join, product("abcdefghijklmnopqrstuvwxyz234567", repeat=2)))
"""Base32 of each ten bits: the library's own takes as long as the code itself."""

CODES_KEPT = 16
"""Runs of one process whose codes are at hand; starting one takes longer than the rest."""

DIGESTS_KEPT = 2
"""Digests that are at hand again for the same bytes: one that is judged, one that is kept."""

ACTION_BYTES_MAX = 2 * ARGUMENTS_BYTES_MAX
"""An action as text: its arguments may be spelled at greater length there."""

Fact = Literal["instance", "version", "fingerprint"]
"""What a planner may have seen of an environment."""


@dataclass(frozen=True, kw_only=True, slots=True)
class KindSpec:
    """What an adapter declares about one kind of action.

    Attributes:
        name: The kind, unique among the adapters of a keeper.
        adapter: Name of the adapter.
        risk: Its risk class; a planner cannot lower it.
        level: What can be proved about a lost call.
        permission: Capability that the policy must grant.
        normalise: Pure; returns the checked arguments, or raises `ContractError`.
        touches: Pure; the (scope list, value) pairs that the arguments touch.
        volatile: Arguments that are in no digest.
        call_ms: Longest that one call may take.
        in_flight_ms: How long after a call it may still land; None when unknown.
        key_retention_ms: How long keys and receipts are kept; None when for ever.
        can_be_asked: Whether there is a look-up at all. Without one, a target that
            dedupes is sent the same call again, as long as it keeps the key.
        linearizable: Whether a look-up sees every effect that has landed.
        fences: Whether the adapter refuses a call under an older lease.
        forbids: Whether it can make a key impossible.
        cost_micros: Declared cost of one execution.
    """

    name: str
    adapter: str
    risk: Risk
    level: Level
    permission: str
    normalise: Callable[[dict[str, Json]], dict[str, Json]]
    touches: Callable[[dict[str, Json]], tuple[tuple[str, str], ...]]
    volatile: tuple[str, ...] = ()
    call_ms: int = 10_000
    in_flight_ms: int | None = None
    key_retention_ms: int | None = None
    can_be_asked: bool = True
    linearizable: bool = True
    fences: bool = False
    forbids: bool = False
    cost_micros: int = 0

    @property
    def has_look_up(self) -> bool:
        """Whether asking by key can tell anything."""
        return self.can_be_asked and self.level is not Level.BLIND


class Action(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a planner proposes, as it comes through the JSON door.

    Attributes:
        kind: A kind that some adapter declares.
        arguments: Its arguments.
        preconditions: What the planner saw of the environment; at least one fact.
        key: Idempotency key; for kinds that write, and only for them.
        deadline: Last proposal count at which this may be judged; 0 means none.
        risk: The kind's own risk class, when named at all.
    """

    kind: str
    arguments: dict[str, Json] = {}
    preconditions: dict[Fact, int | str]
    key: str | None = None
    deadline: Annotated[int, Meta(ge=0, le=INTEGER_MAX)] = 0
    risk: str | None = None


class Intent(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The normalised action that digests name.

    Attributes:
        adapter: Who executes it.
        kind: What it is.
        arguments: Normalised; nothing volatile.
        risk: Risk class of the kind.
        target: Instance of the environment it is meant for.
    """

    adapter: str
    kind: str
    arguments: dict[str, Json]
    risk: Risk
    target: str


class EnvironmentState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which environment, and in which exact state.

    Attributes:
        adapter: Who observed it.
        instance: Identity of the environment, stable while it lives.
        generation: Raised when the environment is set up anew under one instance.
        version: Raised by every change that the adapter knows of.
        fingerprint: Digest of the state; empty when it cannot be observed.
        account: External account the adapter acts as; empty when there is none.
    """

    adapter: str
    instance: str
    generation: int = 0
    version: int = 0
    fingerprint: str = ""
    account: str = ""


class Pending(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An intent made durable before its effect.

    Attributes:
        action_id: Given by the runtime.
        position: Place in the plan.
        key: Idempotency key, for good.
        intent: What is to happen.
        digest: Its digest.
        level: Level of the kind when it was proposed.
        prestate: State of the environment that it was built on.
        first_sent_at_ms: Earliest moment at which it can have been sent, UTC.
        last_sent_at_ms: The same for the latest call.
        sends: Calls under this key that may have left; 0 while it waits for a person.
        approvals_required: How many distinct approvers must sign; 0 for none.
        policy_version: Version of the policy that asks for them; empty when none does.
        challenge: Random, issued with the request; empty when none is needed.
        requested_at_ms: When the request was issued, UTC.
        preview: What would change, for people.
        approvals: Envelopes of the approvals that were bound, as they were signed.
        revoked: By approver, until when what he signed was taken back, UTC.
        released: What the latest call left under, see `approval.statement_digest`.
        released_until_ms: First moment at which that no longer covers a commit, UTC.
        is_cleared: A reviewer confirmed that it has not happened: one more call.
    """

    action_id: str
    position: int
    key: Key
    intent: Intent
    digest: IntentDigest
    level: Level
    prestate: EnvironmentState
    first_sent_at_ms: int
    last_sent_at_ms: int
    sends: int = 1
    approvals_required: int = 0
    policy_version: str = ""
    challenge: str = ""
    requested_at_ms: int = 0
    preview: str = ""
    approvals: tuple[str, ...] = ()
    revoked: dict[str, int] = {}
    released: str = ""
    released_until_ms: int = 0
    is_cleared: bool = False


def parse_action(text: str | bytes) -> Action:
    """Read an action that a planner wrote as JSON.

    Raises:
        ContractError: Not strict JSON, or a member is missing, unknown or mistyped.
    """
    return shaped(strict_json(text, "action", bytes_max=ACTION_BYTES_MAX), Action, "action")


def intent_digest(intent: Intent) -> IntentDigest:
    """Return the digest that approvals, receipts and replays compare.

    Raises:
        ContractError: The canonical arguments exceed `ARGUMENTS_BYTES_MAX`.
    """
    return _digest_of(encode(intent))


@lru_cache(maxsize=DIGESTS_KEPT)
def _digest_of(written: bytes) -> IntentDigest:
    raw = sorted_plain(written) or canonical(msgspec.json.decode(written))
    if len(raw) > ARGUMENTS_BYTES_MAX:
        raise ContractError(
            f"the arguments have {len(raw)} bytes, the bound is {ARGUMENTS_BYTES_MAX}"
        )
    return IntentDigest(f"{DIGEST_VERSION}:{digest(raw)}")


@lru_cache(maxsize=CODES_KEPT)
def _started_code(salt: bytes) -> hmac.HMAC:
    return hmac.new(salt, digestmod="sha256")


def derived_key(salt: bytes, run_id: RunId, position: int, attempt: int) -> Key:
    """Return the key of an action that the caller did not name.

    The same for every worker of the run, and not to be guessed without its salt. The
    intent is left out, so that a changed intent under one key shows as a conflict.
    """
    code = _started_code(salt).copy()
    code.update(f"{run_id}\n{position}\n{attempt}".encode())
    number = int.from_bytes(code.digest()) << KEY_PADDING_BITS
    return Key("".join([_PAIRS[number >> shift & 0x3FF] for shift in _KEY_SHIFTS]))
