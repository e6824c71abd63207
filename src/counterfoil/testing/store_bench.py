"""What a clause needs of a store, a register or an inbox under test.

A bench is one fresh backend, made anew for each clause, and ways to reach it. Values
are made here, so that a clause says only what matters to it.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from typing import TypeVar

from counterfoil.core.codec import Checkpoint
from counterfoil.core.errors import CounterfoilError
from counterfoil.core.words import Digest, RunId
from counterfoil.ports import Advance, CheckpointStore, Head, HeadRegister, Inbox
from counterfoil.testing.expect import ConformanceError

RUN = RunId("run-1")
OTHER_RUN = RunId("run-2")
TTL_MS = 60_000
"""Term of a lease in clauses that do not wait for its end."""

ODD_TEXTS = (
    "'; DROP TABLE run; --",
    '"quoted" `quoted` [quoted]',
    "100%_?*[a-z]\\",
    "../../etc/passwd",
    "a/b\\c:d",
    "line\nbreak\ttab",
    "NULL",
    "0x00",
    "naïve Ångström 東京 \U0001f9fe",
    "NAÏVE",
    "e\u0301 is not \u00e9",
    "\u202egnp.exe",
    " surrounded by spaces ",
    "-option",
    "$(id) ${HOME} {braces} %s",
    "a\x00b",
    "x" * 200,
)
"""Identifiers that something between here and the disk might take for its own syntax."""

Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True, slots=True)
class StoreBench:
    """One fresh checkpoint store.

    Attributes:
        open: Opens it; each call another connection.
    """

    open: Callable[[], CheckpointStore]


@dataclass(frozen=True, kw_only=True, slots=True)
class HeadBench:
    """One fresh head register with a clock of its own.

    Attributes:
        open: Opens it; each call another connection.
        advance_clock: Moves the register's clock by milliseconds, back if negative. Where
            a clock cannot be moved, waits until so much of it has passed, and until the
            register has seen what is over by then.
        ttl_ms: Term of leases that clauses see the end of; at least 1000 where the
            register counts in seconds.
    """

    open: Callable[[], HeadRegister]
    advance_clock: Callable[[int], None]
    ttl_ms: int = TTL_MS


@dataclass(frozen=True, kw_only=True, slots=True)
class InboxBench:
    """One fresh inbox.

    Attributes:
        open: Opens it; each call another connection.
    """

    open: Callable[[], Inbox]


def digest_of(seed: str) -> Digest:
    """Return a digest that differs for every seed."""
    return Digest(sha256(seed.encode()).hexdigest())


def checkpoint(
    generation: int,
    *,
    run_id: RunId = RUN,
    salt: str = "",
    lease_version: int = 1,
    settles: tuple[str, ...] = (),
) -> Checkpoint:
    """Return a checkpoint; another `salt` is another one of the same generation."""
    name = f"{run_id} {generation} {salt}"
    return Checkpoint(
        run_id=run_id,
        generation=generation,
        digest=digest_of(name),
        lease_version=lease_version,
        envelope=f"envelope of {name}".encode(),
        state=f"state of {name}".encode(),
        events=f"events of {name}".encode(),
        settles=settles,
    )


def created(heads: HeadRegister, run_id: RunId = RUN, *, ttl_ms: int = TTL_MS) -> Head:
    """Return a fresh head, held by `one` under lease version 1."""
    return heads.create(run_id, digest_of(f"{run_id} 0"), "one", f"nonce of {run_id}", ttl_ms)


def move(
    expected: Head, *, salt: str = "", status: str = "active", ttl_ms: int = TTL_MS
) -> Advance:
    """Return the next advance from a head."""
    name = f"{expected.run_id} {expected.generation + 1} {salt}"
    return Advance(expected=expected, checkpoint=digest_of(name), status=status, ttl_ms=ttl_ms)


def refused(call: Callable[[], object], *kinds: type[CounterfoilError]) -> CounterfoilError:
    """Return the error of a call that must be refused with one of `kinds`.

    Raises:
        ConformanceError: The call went through.
        CounterfoilError: It was refused with another error.
    """
    try:
        call()
    except kinds as error:
        return error
    raise ConformanceError(f"the call is refused with {' or '.join(k.__name__ for k in kinds)}")


def raced(calls: Sequence[Callable[[], Result]]) -> list[Result | CounterfoilError]:
    """Return what each of several calls, made at once, returned or raised."""

    def settled(call: Callable[[], Result]) -> Result | CounterfoilError:
        try:
            return call()
        except CounterfoilError as error:
            return error

    with ThreadPoolExecutor(max_workers=len(calls)) as pool:
        return list(pool.map(settled, calls))
