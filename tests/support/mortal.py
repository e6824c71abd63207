"""Ports that kill their worker at one boundary, and stay silent for it ever after."""

from dataclasses import dataclass, replace
from typing import Any

from counterfoil.engine.parts import Parts
from tests.support.scenes import Killed

CALLS = frozenset(
    "put get find trace mark marked read create acquire renew advance release pending discard "
    "take observe look_up execute forbid".split()
)
"""Every call that leaves the worker for a store, a register, an inbox or a target."""


@dataclass(kw_only=True)
class Fuse:
    """Counts boundaries, and kills the worker at the one that is left.

    Attributes:
        left: Boundaries until the worker dies; each call has one before and one after it.
    """

    left: int

    def burn(self) -> None:
        """Pass one boundary.

        Raises:
            Killed: It was the last one, or the worker is dead already.
        """
        self.left -= 1
        if self.left <= 0:
            raise Killed


class Mortal:
    """Any port, behind a fuse."""

    def __init__(self, inner: Any, fuse: Fuse) -> None:
        self._inner = inner
        self._fuse = fuse

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name not in CALLS:
            return found

        def call(*given: Any, **named: Any) -> Any:
            self._fuse.burn()
            answer = found(*given, **named)
            self._fuse.burn()
            return answer

        return call


def mortal(parts: Parts, fuse: Fuse) -> Parts:
    """Return an engine all of whose ports share one fuse."""
    store: Any = Mortal(parts.store, fuse)
    heads: Any = Mortal(parts.heads, fuse)
    inbox: Any = Mortal(parts.inbox, fuse)
    adapters: Any = {name: Mortal(adapter, fuse) for name, adapter in parts.adapters.items()}
    return replace(parts, store=store, heads=heads, inbox=inbox, adapters=adapters)
