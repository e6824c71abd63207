"""Reads and verifications: executed at once, recorded in one commit; and replays by key."""

from typing import cast

import msgspec

from counterfoil.core.canonical import bounded
from counterfoil.core.errors import CounterfoilError, IntegrityError, InvariantError, LostRaceError
from counterfoil.core.inputs import Failed, Recorded, Rules, Settled, Step
from counterfoil.core.intent import Action, EnvironmentState
from counterfoil.core.machine import apply
from counterfoil.core.receipt import Answer
from counterfoil.core.task import Task
from counterfoil.core.trace import Outcome
from counterfoil.core.words import Json, Key, Risk
from counterfoil.engine import acting
from counterfoil.engine.ledger import Ledger
from counterfoil.engine.observing import observe_all
from counterfoil.engine.replay import recorded_event


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a proposed action.

    Attributes:
        outcome: Outcome of its last event: "pending", "read", "replayed", "finished", …
        action_id: Given by the runtime.
        result: Result of a read, a verification or a replay.
        replayed: Whether an earlier effect answered.
    """

    outcome: Outcome
    action_id: str
    result: Json = None
    replayed: bool = False


def perform_admitted(
    ledger: Ledger, task: Task, step: Step, action_id: str, rules: Rules
) -> tuple[Step, Json]:
    """Execute an admitted read or verification and return the step to commit.

    Args:
        ledger: Holds the run.
        task: Its task.
        step: What admitted it; its budget is reserved in `step.run`.
        action_id: Given by the runtime.
        rules: Of this verb.

    Raises:
        IntegrityError, LostRaceError: From the adapter; nothing is committed.
    """
    admitted = step.admitted
    if admitted is None:
        raise InvariantError("nothing was admitted", ledger.run.run_id)
    is_verification = admitted.spec.risk is Risk.VERIFICATION
    environments: tuple[EnvironmentState, ...] = ()
    try:
        receipt = acting.perform(ledger, task, admitted)
        if is_verification:
            seen = observe_all(ledger, task)
            environments = tuple(observation.state for observation in seen.values())
    except (IntegrityError, LostRaceError):
        raise
    except CounterfoilError as error:
        return apply(step.run, Failed(admitted=admitted, error=error), rules), None
    result = bounded(receipt.result)
    settled = Settled(
        admitted=admitted,
        action_id=action_id,
        result=result,
        environments=environments,
        passed=is_verification and has_passed(result),
    )
    return apply(step.run, settled, rules), result


def has_passed(result: Json) -> bool:
    """Return whether a verification's result says that it passed."""
    if not isinstance(result, dict):
        return False
    members = cast("dict[str, Json]", result)  # a JSON object
    return members.get("passed") is True


def recorded_for(ledger: Ledger, action: Action) -> Recorded | None:
    """Return what trace and adapter say of the key of a proposed write.

    None when the key is new, or when the proposal will be refused for another reason.
    """
    spec = ledger.parts.kinds.get(action.kind)
    if action.key is None or spec is None or ledger.run.pending is not None:
        return None
    event = recorded_event(ledger, action.key)
    if event is None:
        return None
    if not spec.has_look_up:
        return Recorded(digest=event.digest, receipt=event.receipt)
    adapter = acting.adapter_of(ledger.parts, spec.adapter)
    answer = adapter.look_up(ledger.run.run_id, Key(action.key), spec.name)
    return Recorded(
        digest=event.digest,
        receipt=event.receipt,
        standing=answer.receipt,
        was_asked=answer.answer is not Answer.UNKNOWN,
    )
