"""Submit a run: create it with its arguments, and leave it to whichever worker is free."""

from collections.abc import Mapping
from typing import cast

from msgspec import UnsetType

from counterfoil.core.bounds import SUBMITTED_BYTES_MAX
from counterfoil.core.canonical import canonical, normalise
from counterfoil.core.errors import ContractError, IdempotencyConflictError, UnavailableError
from counterfoil.core.task import Task
from counterfoil.core.words import Json, RunId
from counterfoil.engine.parts import Parts
from counterfoil.engine.recovery import (
    check_binding,
    create_run,
    load_checkpoint,
    registered_head,
)
from counterfoil.ports import Head


def submit_run(parts: Parts, task: Task, run_id: RunId, arguments: Mapping[str, object]) -> bool:
    """Create a run for a worker, and return whether it is new.

    Submitting the same again changes nothing, however far the run has come.

    Raises:
        ContractError: The arguments have no JSON form or are over their bound.
        IdempotencyConflictError: The run exists with other arguments.
        BindingError: The run exists under another task.
    """
    given = _checked(arguments, run_id)
    head = registered_head(parts, run_id)
    if head is None:
        opening = create_run(parts, task, run_id, given)
        if opening is not None:
            parts.heads.release(opening.ledger.head)
            return True
        head = registered_head(parts, run_id)
    if head is None:
        raise UnavailableError("another worker is creating the run", run_id)
    _check_same(parts, head, task, given)
    return False


def _checked(arguments: Mapping[str, object], run_id: RunId) -> dict[str, Json]:
    value = normalise(arguments, "arguments")
    if not isinstance(value, dict):
        raise ContractError("arguments must be names with values", run_id)
    given = cast("dict[str, Json]", value)  # a JSON object
    size = len(canonical(given))
    if size > SUBMITTED_BYTES_MAX:
        raise ContractError(
            f"arguments of the run have {size} bytes, the bound is {SUBMITTED_BYTES_MAX}", run_id
        )
    return given


def _check_same(parts: Parts, head: Head, task: Task, given: dict[str, Json]) -> None:
    found = load_checkpoint(parts, head)
    check_binding(found.header, task)
    present = found.run.arguments
    if isinstance(present, UnsetType) or canonical(present) != canonical(given):
        raise IdempotencyConflictError(
            "the run exists with other arguments", head.run_id, move="use another run id"
        )
