"""Every call of every port, its answer lost: before it happened, and after it did.

The process lives on and must make sense of the silence; where it cannot, it says so,
and the next session ends the run as if nothing had been lost.
"""

from collections.abc import Callable
from typing import TypeVar

import pytest

from counterfoil.core.errors import (
    CounterfoilError,
    LeaseLostError,
    UnavailableError,
    UnknownOutcomeError,
)
from counterfoil.core.run import Phase
from counterfoil.core.words import Level
from counterfoil.engine import audit, control
from counterfoil.testing.crash import SESSIONS_MAX
from counterfoil.testing.mortal import Fate, mortal
from tests.support.stages import FORMS, IN_FLIGHT_MS, Backend, Form, PlayStage, sandbox_stage

_T = TypeVar("_T")
STEPS = (5, 6)
"""Steps that are counted: a read that failed is made, and paid for, again."""

WRITES = ("app.py=sound", "notes.md=new")
FAILED_READS = ("store.get", "store.find", "store.trace", "store.marked", "heads.read")
"""Calls that change nothing fail with `UnavailableError`, as their contract says."""


class Lost(Fate):
    """Loses the answer of one call; the process lives on."""

    def __init__(self, at: int, *, is_after: bool) -> None:
        super().__init__()
        self._at = at
        self._is_after = is_after

    def call(self, name: str, act: Callable[[], _T]) -> _T:
        number = len(self.calls)
        self.calls.append(name)
        if number != self._at:
            return act()
        if self._is_after:
            act()
        if name.startswith("adapter.execute"):
            raise ConnectionError("the answer was lost")
        if name in FAILED_READS or name.startswith("adapter"):
            raise UnavailableError("no answer")
        raise UnknownOutcomeError("the answer was lost")


def _calls(make: Callable[[], PlayStage]) -> int:
    with make() as stage:
        fate = Fate()
        stage.work(mortal(stage.parts(), fate))
        return len(fate.calls)


def _ends(stage: PlayStage, fate: Fate) -> bool:
    for session in range(SESSIONS_MAX):
        try:
            stage.work(mortal(stage.parts(), fate if session == 0 else Fate()))
        except (UnknownOutcomeError, UnavailableError, LeaseLostError):
            stage.wait()
        else:
            return True
    return False


@pytest.mark.parametrize("form", [pytest.param(form, id=f"T20 {form.name}") for form in FORMS])
@pytest.mark.parametrize(
    ("level", "in_flight_ms"),
    [
        (Level.TRANSACTIONAL, None),
        (Level.DEDUPLICATING, None),
        (Level.CONDITIONAL, None),
        (Level.QUERYABLE, IN_FLIGHT_MS),
    ],
)
def test_no_lost_answer_of_any_port_changes_the_outcome(
    level: Level, in_flight_ms: int | None, form: Form
) -> None:
    backend = Backend()

    def make() -> PlayStage:
        return sandbox_stage(backend, level=level, in_flight_ms=in_flight_ms, form=form)

    faults: list[str] = []
    for number in range(_calls(make)):
        for is_after in (False, True):
            fate = Lost(number, is_after=is_after)
            with make() as stage:
                try:
                    is_ended = _ends(stage, fate)
                except CounterfoilError as error:
                    faults.append(f"{number} {fate.calls[number]} {is_after=}: {error!r}")
                    continue
                run = control.show(stage.parts(), stage.run_id).run
                audit.audit(stage.parts(), stage.run_id)
                ending = (is_ended, run.phase, stage.effects())
                if ending != (True, Phase.COMPLETED, WRITES) or run.spent.steps not in STEPS:
                    faults.append(f"{number} {fate.calls[number]} {is_after=}: {ending}")
    assert faults == []
