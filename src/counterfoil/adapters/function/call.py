"""What a user's function is given and may answer with."""

from enum import Enum
from typing import Final, Literal

import msgspec

from counterfoil.core.intent import EnvironmentState
from counterfoil.core.receipt import Fence, Served
from counterfoil.core.words import IntentDigest, Key, RunId


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One call of an effect.

    Attributes:
        run_id: For which run.
        kind: Which effect.
        key: Idempotency key: hand it to the target, so that it can be asked for again.
        digest: Digest of the intent, for targets that can keep it.
        fence: Token of the lease, for targets that can refuse an older one.
        served: Checkpoint that carries the intent; None for reads and verifications.
        prestate: State that the intent was built on.
        timeout_ms: The declared bound of this call.
        statement: Digest of the approval; empty when there is none.
    """

    run_id: RunId
    kind: str
    key: Key
    digest: IntentDigest
    fence: Fence
    served: Served | None
    prestate: EnvironmentState
    timeout_ms: int
    statement: str = ""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """An effect as its target has it: what a function or a look-up may return.

    Attributes:
        result: What `do` returns.
        id: The target's own id of the effect.
        digest: Intent digest that the target kept; empty when it keeps none.
        committed_at_ms: When, UTC, by the target; 0 when unknown.
        replayed: Whether the target answered a repeated key with its earlier effect.
        run_id: Run that the target kept with the key; empty when it keeps none.
    """

    result: object = None
    id: str = ""
    digest: str = ""
    committed_at_ms: int = 0
    replayed: bool = False
    run_id: str = ""


class State(msgspec.Struct, frozen=True, kw_only=True):
    """What an observer may return.

    Attributes:
        instance: Identity of the environment.
        version: Raised by every change.
        fingerprint: Digest of the state; empty when it cannot be observed.
        generation: Raised when the environment is set up anew under one instance.
        account: External account that the effects act as.
        facts: Named facts that a task may expect at the end.
    """

    instance: str
    version: int = 0
    fingerprint: str = ""
    generation: int = 0
    account: str = ""
    facts: dict[str, object] = {}


class Unknown(Enum):
    """The type of `UNKNOWN`."""

    UNKNOWN = "unknown"


UNKNOWN: Final[Literal[Unknown.UNKNOWN]] = Unknown.UNKNOWN
"""What a look-up returns when it cannot say; None means that there is no such effect."""
