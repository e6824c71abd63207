"""What becomes of a run whose program failed in a worker's hands."""

from msgspec import UNSET
from msgspec.structs import replace

from counterfoil.core.errors import one_line
from counterfoil.core.inputs import Rules, Step, Stumbled, Unparked
from counterfoil.core.run import Failure, Run, standing_failure
from counterfoil.core.trace import Event, Outcome

REASON_CHARS_MAX = 300
"""A reason is one sentence; the program's own log says more."""


def stumbled(run: Run, given: Stumbled, rules: Rules) -> Step:
    """Count a failure at the present position, and park the run when it is one too many."""
    last = standing_failure(run)
    count = last.count + 1 if last is not None else 1
    failure = Failure(
        cursor=run.cursor,
        count=count,
        reason=one_line(given.reason)[:REASON_CHARS_MAX],
        is_parked=count >= given.tries_max,
    )
    event = Event(
        at_ms=run.floor_ms,
        outcome=Outcome.PARKED if failure.is_parked else Outcome.STUMBLED,
        reason=f"failure {count} of {given.tries_max} at position {run.cursor}: {failure.reason}",
    )
    return Step(run=replace(run, failure=failure), events=(event,))


def unparked(run: Run, given: Unparked, rules: Rules) -> Step:
    """Forget how the program failed, so that workers take the run again."""
    event = Event(
        at_ms=run.floor_ms,
        outcome=Outcome.UNPARKED,
        reason=one_line(f"{given.actor}: {given.reason}"),
    )
    return Step(run=replace(run, failure=UNSET), events=(event,))
