"""Ports of a process that can die between two of its calls.

A dead process does nothing: it releases no lease, flushes no receipt, closes nothing.
So after its death every further call raises `Died` again, which nothing in the library
catches. What reached a port before the death has happened.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from counterfoil.core.codec import Checkpoint
from counterfoil.core.intent import KindSpec
from counterfoil.core.receipt import Fence, LookUp, Receipt, Served
from counterfoil.core.words import Digest, Key, RunId
from counterfoil.engine.parts import Parts
from counterfoil.ports import (
    Adapter,
    Advance,
    CheckpointStore,
    Head,
    HeadRegister,
    Joint,
    Mark,
    Observation,
    Operation,
)

_T = TypeVar("_T")

COMMITS = ("heads.create", "heads.advance", "joint.commit")
"""Calls that make a checkpoint the newest one."""


class Died(BaseException):
    """The process is dead here; only what watches it may catch this."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Death:
    """Where a process dies.

    Attributes:
        at: Number of the call, from 0.
        is_after: Whether that call still happens, and only its answer is lost.
    """

    at: int
    is_after: bool = False


class Fate:
    """Counts the port calls of one process, and ends it at one of them.

    Attributes:
        calls: Names of the calls that were begun, in order.
        commits: How many checkpoints became the newest one.
        is_dead: Whether the process has died.
        last_words: Where it died, for people.
    """

    def __init__(self, death: Death | None = None) -> None:
        self.calls: list[str] = []
        self.commits = 0
        self.is_dead = False
        self.last_words = ""
        self._death = death

    def call(self, name: str, act: Callable[[], _T]) -> _T:
        """Let one call happen, unless the process is dead or dies here.

        Raises:
            Died: The process is dead.
        """
        if self.is_dead:
            raise Died(f"a dead process calls {name}")
        number = len(self.calls)
        self.calls.append(name)
        if self._death == Death(at=number):
            self._die(f"before {name}")
        try:
            answer = act()
            self.commits += name in COMMITS
            return answer
        finally:
            if self._death == Death(at=number, is_after=True):
                self._die(f"after {name}")

    def _die(self, where: str) -> None:
        self.is_dead = True
        self.last_words = f"death {where}, call {len(self.calls) - 1}"
        raise Died(self.last_words)


def mortal(parts: Parts, fate: Fate) -> Parts:
    """Return the same engine in a process that has a fate."""
    return replace(
        parts,
        store=MortalStore(parts.store, fate),
        heads=MortalHeads(parts.heads, fate),
        joint=None if parts.joint is None else MortalJoint(parts.joint, fate),
        adapters={name: MortalAdapter(inner, fate) for name, inner in parts.adapters.items()},
    )


class MortalStore:
    """A `CheckpointStore` whose every call goes through a `Fate`."""

    def __init__(self, inner: CheckpointStore, fate: Fate) -> None:
        self._inner = inner
        self._fate = fate

    def put(self, batch: Sequence[Checkpoint]) -> None:
        """Hand on."""
        self._fate.call("store.put", lambda: self._inner.put(batch))

    def get(self, run_id: RunId, checkpoint: Digest) -> Checkpoint | None:
        """Hand on."""
        return self._fate.call("store.get", lambda: self._inner.get(run_id, checkpoint))

    def find(self, run_id: RunId, name: str) -> tuple[Checkpoint, ...]:
        """Hand on."""
        return self._fate.call("store.find", lambda: self._inner.find(run_id, name))

    def trace(self, run_id: RunId, after: int, limit: int) -> tuple[Checkpoint, ...]:
        """Hand on."""
        return self._fate.call("store.trace", lambda: self._inner.trace(run_id, after, limit))

    def mark(self, mark: Mark) -> None:
        """Hand on."""
        self._fate.call("store.mark", lambda: self._inner.mark(mark))

    def marked(self, run_id: RunId) -> Mark | None:
        """Hand on."""
        return self._fate.call("store.marked", lambda: self._inner.marked(run_id))

    def prune(self, run_id: RunId, chain: Mapping[int, Digest], below: int) -> int:
        """Hand on."""
        return self._fate.call("store.prune", lambda: self._inner.prune(run_id, chain, below))

    def archive(self, run_id: RunId, name: str, content: bytes) -> None:
        """Hand on."""
        self._fate.call("store.archive", lambda: self._inner.archive(run_id, name, content))

    def archived(self, run_id: RunId, name: str) -> bytes | None:
        """Hand on."""
        return self._fate.call("store.archived", lambda: self._inner.archived(run_id, name))

    def collect(self, run_id: RunId, checkpoint: Digest, generation: int, limit: int) -> int:
        """Hand on."""
        return self._fate.call(
            "store.collect", lambda: self._inner.collect(run_id, checkpoint, generation, limit)
        )

    def runs(self, after: str, limit: int) -> tuple[RunId, ...]:
        """Hand on."""
        return self._fate.call("store.runs", lambda: self._inner.runs(after, limit))

    def close(self) -> None:
        """Hand on."""
        self._fate.call("store.close", self._inner.close)


class MortalHeads:
    """A `HeadRegister` whose every call goes through a `Fate`."""

    def __init__(self, inner: HeadRegister, fate: Fate) -> None:
        self._inner = inner
        self._fate = fate

    def create(
        self, run_id: RunId, checkpoint: Digest, owner: str, nonce: str, ttl_ms: int
    ) -> Head:
        """Hand on."""
        return self._fate.call(
            "heads.create", lambda: self._inner.create(run_id, checkpoint, owner, nonce, ttl_ms)
        )

    def read(self, run_id: RunId) -> Head | None:
        """Hand on."""
        return self._fate.call("heads.read", lambda: self._inner.read(run_id))

    def acquire(self, expected: Head, owner: str, nonce: str, ttl_ms: int) -> Head:
        """Hand on."""
        return self._fate.call(
            "heads.acquire", lambda: self._inner.acquire(expected, owner, nonce, ttl_ms)
        )

    def renew(self, held: Head, ttl_ms: int) -> Head:
        """Hand on."""
        return self._fate.call("heads.renew", lambda: self._inner.renew(held, ttl_ms))

    def advance(self, batch: Sequence[Advance]) -> tuple[Head, ...]:
        """Hand on."""
        return self._fate.call("heads.advance", lambda: self._inner.advance(batch))

    def release(self, held: Head, pause_ms: int = 0) -> None:
        """Hand on."""
        self._fate.call("heads.release", lambda: self._inner.release(held, pause_ms))

    def claimable(self, limit: int) -> tuple[Head, ...]:
        """Hand on."""
        return self._fate.call("heads.claimable", lambda: self._inner.claimable(limit))

    def heads(self, after: str, limit: int) -> tuple[Head, ...]:
        """Hand on."""
        return self._fate.call("heads.heads", lambda: self._inner.heads(after, limit))

    def close(self) -> None:
        """Hand on."""
        self._fate.call("heads.close", self._inner.close)


class MortalJoint:
    """A `Joint` whose every commit goes through a `Fate`; there is no instant inside one."""

    def __init__(self, inner: Joint, fate: Fate) -> None:
        self._inner = inner
        self._fate = fate

    def commit(self, rows: Sequence[Checkpoint], moves: Sequence[Advance]) -> tuple[Head, ...]:
        """Hand on."""
        return self._fate.call("joint.commit", lambda: self._inner.commit(rows, moves))


class MortalAdapter:
    """An `Adapter` whose every call goes through a `Fate`; what it declares is no call."""

    def __init__(self, inner: Adapter, fate: Fate) -> None:
        self._inner = inner
        self._fate = fate

    @property
    def name(self) -> str:
        """Name of the adapter inside."""
        return self._inner.name

    @property
    def kinds(self) -> tuple[KindSpec, ...]:
        """Kinds of the adapter inside."""
        return self._inner.kinds

    def take(self, run_id: RunId, fence: Fence) -> Served | None:
        """Hand on."""
        return self._fate.call("adapter.take", lambda: self._inner.take(run_id, fence))

    def observe(self, scope: Mapping[str, tuple[str, ...]]) -> Observation:
        """Hand on."""
        return self._fate.call("adapter.observe", lambda: self._inner.observe(scope))

    def look_up(self, run_id: RunId, key: Key, kind: str) -> LookUp:
        """Hand on."""
        return self._fate.call("adapter.look_up", lambda: self._inner.look_up(run_id, key, kind))

    def execute(self, operation: Operation) -> Receipt:
        """Hand on."""
        return self._fate.call("adapter.execute", lambda: self._inner.execute(operation))

    def forbid(self, run_id: RunId, key: Key, kind: str, fence: Fence) -> LookUp:
        """Hand on."""
        return self._fate.call(
            "adapter.forbid", lambda: self._inner.forbid(run_id, key, kind, fence)
        )

    def close(self) -> None:
        """Hand on."""
        self._fate.call("adapter.close", self._inner.close)
