"""Ports that tell what passes and, now and then, stand still right before or after a call.

A worker that is killed or paused there has done all its checks and not yet called, or
has called and not yet heard: the instants that matter, made wide enough to be hit.
"""

import os
import random
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar, cast

from counterfoil.core.errors import LostRaceError
from counterfoil.drill.lines import Gave, Refused, Stands, Tell, Took, now_ns
from counterfoil.engine.parts import Parts
from counterfoil.ports import Adapter, CheckpointStore, Head, HeadRegister, Joint

_T = TypeVar("_T")

DWELL_SHARE = 0.02
"""Of the sides of calls, before and after, that a worker stands still at."""

DWELL_SHARE_OF_WRITES = 0.2
"""The same, for calls that move something: there a late one does harm."""

DWELL_S = (0.005, 0.04)
"""How long: enough for the drill to hear of it, and to strike."""

COMMITS = frozenset({"store.put", "store.mark", "heads.advance", "joint.commit"})
"""Calls that make something durable, and that a worker under an old lease must not get through."""

WRITES = COMMITS | {"target.execute"}


class Pace:
    """Draws where a worker stands still, and tells the drill of it."""

    def __init__(self, *, seed: str, tell: Tell) -> None:
        self._draw = random.Random(seed)  # noqa: S311 - to be repeatable, not secret
        self._tell = tell
        self._pid = os.getpid()

    def call(self, name: str, act: Callable[[], _T]) -> _T:
        """Make a call, standing still before or after it now and then."""
        self._dwell(name, is_before=True)
        try:
            answer = act()
        except LostRaceError:
            if name in COMMITS:
                self._tell(Refused(pid=self._pid, call=name))
            raise
        self._dwell(name, is_before=False)
        return answer

    def took(self, head: Head) -> None:
        """Tell that the lease of a run is this worker's."""
        self._tell(
            Took(
                pid=self._pid,
                run_id=head.run_id,
                lease_version=head.lease_version,
                at_ns=now_ns(),
            )
        )

    def gives(self, head: Head) -> None:
        """Tell that a lease is given back."""
        self._tell(Gave(pid=self._pid, run_id=head.run_id, lease_version=head.lease_version))

    def _dwell(self, name: str, *, is_before: bool) -> None:
        writes = name in WRITES
        if self._draw.random() < (DWELL_SHARE_OF_WRITES if writes else DWELL_SHARE):
            stands = Stands(pid=self._pid, call=name, is_before_a_write=is_before and writes)
            self._tell(stands)
            time.sleep(self._draw.uniform(*DWELL_S))


class Dwelling:
    """A port under a pace; it adds nothing and leaves nothing out."""

    def __init__(self, port: object, name: str, pace: Pace) -> None:
        self._port = port
        self._name = name
        self._pace = pace

    def __getattr__(self, name: str) -> object:
        """Return a method that is paced, or whatever else the port has."""
        found: object = getattr(self._port, name)
        if not callable(found) or name == "close":
            return found
        pace, words = self._pace, f"{self._name}.{name}"

        def paced(*given: object, **named: object) -> object:
            return pace.call(words, lambda: found(*given, **named))

        return paced


class DwellingHeads(Dwelling):
    """A register under a pace; who holds which run is told at once."""

    def acquire(self, expected: Head, owner: str, nonce: str, ttl_ms: int) -> Head:
        """Take the lease, and tell it before anything can happen to the worker."""
        heads = cast("HeadRegister", self._port)  # what it was made with

        def act() -> Head:
            head = heads.acquire(expected, owner, nonce, ttl_ms)
            self._pace.took(head)
            return head

        return self._pace.call("heads.acquire", act)

    def release(self, held: Head, pause_ms: int = 0) -> None:
        """Tell it, and give the lease up."""
        heads = cast("HeadRegister", self._port)  # what it was made with
        self._pace.gives(held)
        self._pace.call("heads.release", lambda: heads.release(held, pause_ms))


def dwelling(parts: Parts, pace: Pace) -> Parts:
    """Return the same parts with their ports under a pace."""
    joint = None
    if parts.joint is not None:
        # All that a port has passes through a `Dwelling`, here and below.
        joint = cast("Joint", Dwelling(parts.joint, "joint", pace))
    return replace(
        parts,
        # As above.
        store=cast("CheckpointStore", Dwelling(parts.store, "store", pace)),
        heads=cast("HeadRegister", DwellingHeads(parts.heads, "heads", pace)),  # as above
        joint=joint,
        adapters={
            name: cast("Adapter", Dwelling(adapter, name, pace))  # as above
            for name, adapter in parts.adapters.items()
        },
    )
