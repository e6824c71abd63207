"""Workers that die after one call, and what their successors find."""

from collections.abc import Callable
from typing import Any

import pytest

from counterfoil.core.intent import Action
from counterfoil.core.receipt import Receipt
from counterfoil.core.trace import Outcome
from counterfoil.core.words import Json
from counterfoil.engine import audit
from counterfoil.engine.performing import Proposal
from counterfoil.engine.session import Session
from counterfoil.keeper import Keeper
from counterfoil.ports import Adapter, Operation
from counterfoil.testing.mortal import Death, Died, Fate, mortal
from counterfoil.testing.saboteur_adapters import Passing
from tests.support.stages import (
    Backend,
    Form,
    PlayStage,
    sandbox_stage,
)

EAGER = Form(merges=False)


class Counting(Passing):
    """Counts what goes over the wire."""

    def __init__(self, inner: Adapter, wire: list[str]) -> None:
        super().__init__(inner)
        self._wire = wire

    def execute(self, operation: Operation) -> Receipt:
        if operation.key:
            self._wire.append(operation.key)
        return super().execute(operation)


def counted(wire: list[str]) -> Callable[[Any, Adapter], Adapter]:
    return lambda _, inner: Counting(inner, wire)


def write_once(run: Session) -> Json:
    return run.do("write_file", path="app.py", content="sound")


def killed(stage: PlayStage, call: str = "adapter.execute") -> None:
    """Let a worker die right after its first call of this name."""
    rehearsal = Fate()
    with sandbox_stage(Backend(), form=stage.form, program=write_once) as other:
        other.work(mortal(other.parts(), rehearsal))
    at = rehearsal.calls.index(call)
    with pytest.raises(Died):
        stage.work(mortal(stage.parts(), Fate(Death(at=at, is_after=True))))
    stage.wait()


def outcomes(stage: PlayStage) -> list[Outcome]:
    return [event.outcome for _, event in audit.events(stage.parts(), stage.run_id)]


def opened(stage: PlayStage) -> Session:
    return Keeper(stage.parts()).run(stage.task, stage.run_id)


def proposed(run: Session, content: str, *, key: str, **more: Json) -> Proposal:
    (state,) = run.state.environments
    arguments: dict[str, Json] = {"path": "app.py", "content": content, **more}
    action = Action(
        kind="write_file",
        arguments=arguments,
        preconditions={"version": state.version},
        key=key,
    )
    return run.propose(action)
