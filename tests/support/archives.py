"""Finished runs, their archives, and what is seen of them before and after."""

from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from counterfoil.core.words import RunId
from counterfoil.engine import archiving, audit, control
from counterfoil.engine.collecting import Collected, collect
from counterfoil.engine.matters import cases_of
from counterfoil.engine.parts import Parts
from counterfoil.engine.proof import make_proof
from counterfoil.testing.mortal import Fate

_T = TypeVar("_T")


class Meanwhile(Fate):
    """Lets something else happen right before one call of a process."""

    def __init__(self, at: int, act: Callable[[], object]) -> None:
        super().__init__()
        self._at = at
        self._act = act

    def call(self, name: str, act: Callable[[], _T]) -> _T:
        if len(self.calls) == self._at:
            self._act()
        return super().call(name, act)


def in_small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have each checkpoint be a piece of its own, and two of them dropped at once."""
    monkeypatch.setattr(archiving, "PACE_S", 0)
    monkeypatch.setattr(archiving, "PIECE_BYTES", 1)
    monkeypatch.setattr(archiving, "COLLECT_ROWS", 2)


def collected(parts: Parts, **options: Any) -> list[Collected]:
    return list(collect(parts, age_ms=options.pop("age_ms", 0), **options).runs)


def seen(parts: Parts, run_id: RunId) -> dict[str, object]:
    """Return everything that people and programs learn of a run."""
    found = audit.audit(parts, run_id)
    view = control.show(parts, run_id)
    return {
        "counts": (found.checkpoints, found.events, found.root),
        "events": list(audit.events(parts, run_id)),
        "proofs": [make_proof(parts, run_id, index) for index in range(found.events)],
        "cases": cases_of(parts, run_id),
        "view": (view.head, view.header, view.run),
    }


def rows_of(parts: Parts, run_id: RunId) -> list[int]:
    """Return the generations that the store holds checkpoints of."""
    return [row.generation for row in parts.store.trace(run_id, -1, 1_000)]
