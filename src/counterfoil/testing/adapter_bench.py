"""What a clause needs of an adapter under test, and how it makes its calls.

A bench is one target, made anew for each clause. It counts effects on the target
itself: a count that the adapter keeps would believe the adapter.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NoReturn

from counterfoil.core.errors import CounterfoilError
from counterfoil.core.intent import (
    EnvironmentState,
    Intent,
    KindSpec,
    Pending,
    intent_digest,
)
from counterfoil.core.receipt import Fence, Receipt, Served, identity
from counterfoil.core.words import Digest, IntentDigest, Json, Key, RunId
from counterfoil.ports import Adapter, Operation
from counterfoil.testing.expect import ConformanceError, expect

RUN = RunId("run-1")
OTHER_RUN = RunId("run-2")
KEY = Key("key-1")
FENCE = Fence(lease_version=1, nonce="first")
NEWER = Fence(lease_version=2, nonce="second")
RIVAL = Fence(lease_version=2, nonce="another holder of the same version")
SERVED = Served(generation=1, checkpoint=Digest("1" * 64))
AT_MS = 1_700_000_000_000
"""When a pending intent of a clause was sent; no clause waits."""


class Trait(Enum):
    """What a clause needs: the first of the declared kind, the others of the bench."""

    ASKABLE = "the target can be asked by key"
    BLIND = "the target cannot be asked"
    KEYED = "a repeated call is one effect"
    FENCING = "a call under an older lease is refused"
    FORBIDDING = "a key can be made impossible"
    PRIVATE_KEYS = "a key belongs to one run"
    SHARED_KEYS = "a key of one run is the same key in another"
    DISTURBS = "the bench can change the environment as somebody else would"
    CHECKS_PRESTATE = "the target refuses a write that was built on another state"
    LOSES_ANSWERS = "the bench can lose the answer of the next call"
    CUTS_OFF = "the bench can make the target unreachable"


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """A kind with its arguments."""

    kind: str
    arguments: Mapping[str, Json]


def _cannot() -> NoReturn:
    raise ConformanceError("the bench can do what its traits say")


@dataclass(frozen=True, kw_only=True, slots=True)
class AdapterBench:
    """One fresh target, and ways to reach it.

    Attributes:
        open: Opens an adapter on the target; each call another one.
        write: The n-th write; different numbers are different intents of one kind.
        count: Effects that the target itself shows.
        close: Tears everything down.
        reads: Calls that change nothing: reads and verifications.
        garbled: Calls whose arguments are out of contract.
        scope: The policy's lists for this adapter.
        traits: Which of the following work, and what else is known of the target.
        disturb: Changes the environment as somebody else would.
        lose_answer: Lets the next call happen and loses its answer.
        cut_off: Makes the target unreachable.
        effects: Names the effects that `count` counts, each write another one. A number
            alone hides one that is done twice where another is missing.
    """

    open: Callable[[], Adapter]
    write: Callable[[int], Call]
    count: Callable[[], int]
    close: Callable[[], None]
    reads: tuple[Call, ...] = ()
    garbled: tuple[Call, ...] = ()
    scope: Mapping[str, tuple[str, ...]]
    traits: frozenset[Trait] = frozenset()
    disturb: Callable[[], None] = _cannot
    lose_answer: Callable[[], None] = _cannot
    cut_off: Callable[[], None] = _cannot
    effects: Callable[[], Sequence[str]] | None = None


def spec_of(adapter: Adapter, kind: str) -> KindSpec:
    """Return what an adapter declares of a kind."""
    for spec in adapter.kinds:
        if spec.name == kind:
            return spec
    raise ConformanceError(f"the adapter declares the kind {kind}")


def operation(
    bench: AdapterBench,
    adapter: Adapter,
    call: Call,
    *,
    run_id: RunId = RUN,
    key: Key = KEY,
    fence: Fence = FENCE,
    prestate: EnvironmentState | None = None,
) -> Operation:
    """Return the call as the engine would make it, built on the state as it is."""
    spec = spec_of(adapter, call.kind)
    arguments = spec.normalise(dict(call.arguments))
    state = prestate or adapter.observe(bench.scope).state
    return Operation(
        run_id=run_id,
        kind=call.kind,
        arguments=arguments,
        key=key if spec.risk.writes else Key(""),
        digest=_digest(spec, arguments, state),
        fence=fence,
        served=SERVED if spec.risk.writes else None,
        prestate=state,
        scope=bench.scope,
        timeout_ms=spec.call_ms,
    )


def pending(adapter: Adapter, sent: Operation) -> Pending:
    """Return the pending intent that the engine would hold beside a call."""
    spec = spec_of(adapter, sent.kind)
    return Pending(
        action_id="action-1",
        position=0,
        key=sent.key,
        intent=_intent(spec, sent.arguments, sent.prestate),
        digest=sent.digest,
        level=spec.level,
        prestate=sent.prestate,
        first_sent_at_ms=AT_MS,
        last_sent_at_ms=AT_MS,
    )


def expect_refused(
    act: Callable[[], object], families: tuple[type[CounterfoilError], ...], sentence: str
) -> None:
    """Hold an act to being refused with one of the families.

    Raises:
        ConformanceError: It went through, or raised something else.
    """
    try:
        act()
    except families:
        return
    except (CounterfoilError, OSError) as error:
        raise ConformanceError(f"{sentence}, not {type(error).__name__}") from error
    raise ConformanceError(sentence)


def is_same(one: Receipt | None, other: Receipt | None) -> bool:
    """Return whether two receipts name one effect."""
    if one is None or other is None:
        return False
    return identity(one) == identity(other)


def expect_count(bench: AdapterBench, count: int) -> None:
    """Hold the target itself to a number of effects, no two of them alike where it names them."""
    seen = bench.count()
    expect(seen == count, f"the target shows {count} effects, not {seen}")
    if bench.effects is None:
        return
    names = Counter(bench.effects())
    expect(names.total() == count, f"the bench names {count} effects, not {names.total()}")
    expect(len(names) == count, f"each effect is there once, not {dict(names)}")


def _intent(spec: KindSpec, arguments: dict[str, Json], state: EnvironmentState) -> Intent:
    lasting = {name: value for name, value in arguments.items() if name not in spec.volatile}
    return Intent(
        adapter=spec.adapter,
        kind=spec.name,
        arguments=lasting,
        risk=spec.risk,
        target=state.instance,
    )


def _digest(spec: KindSpec, arguments: dict[str, Json], state: EnvironmentState) -> IntentDigest:
    return intent_digest(_intent(spec, arguments, state))
