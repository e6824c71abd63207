"""Look at the environments of a run, and compare them with what it knows."""

from counterfoil.core.inputs import Observed, Rules
from counterfoil.core.machine import apply
from counterfoil.core.reconcile import movement
from counterfoil.core.review import CaseReason
from counterfoil.core.run import environment_of
from counterfoil.core.task import Task
from counterfoil.engine import acting
from counterfoil.engine.freezing import freeze
from counterfoil.engine.ledger import Ledger
from counterfoil.ports import Observation


def observe_all(ledger: Ledger, task: Task) -> dict[str, Observation]:
    """Return an observation of each environment of the run, by adapter.

    An unobservable state keeps the version that the run counts for it.

    Raises:
        UnavailableError: One cannot be looked at.
    """
    seen: dict[str, Observation] = {}
    for recorded in ledger.run.environments:
        found = acting.observe(ledger.parts, task, recorded.adapter)
        state = acting.merged(recorded, found.state)
        seen[recorded.adapter] = Observation(state=state, facts=found.facts)
    return seen


def check_environments(ledger: Ledger, task: Task, rules: Rules) -> None:
    """Open a case unless every environment is exactly as the checkpoint has it.

    The environment of an intent that may have been sent is left to the settling loop,
    which alone can tell our own effect from drift; so is a newer version of one that an
    unsent intent was built on, which is given up there without asking anybody.

    Raises:
        FrozenError: One moved; the case is open and durable.
        UnavailableError: One cannot be looked at.
    """
    pending = ledger.run.pending
    for name, seen in observe_all(ledger, task).items():
        recorded = environment_of(ledger.run, name)
        moved = movement(recorded, seen.state) if recorded else ""
        if pending is not None and pending.intent.adapter == name:
            is_ours_or_newer = pending.sends > 0 or moved == "version"
            moved = "" if is_ours_or_newer else moved
        if moved:
            freeze(
                ledger,
                rules,
                reason=CaseReason.ENVIRONMENT_DRIFT,
                finding=f"the {moved} of {name} moved while no worker held the run",
                adapter=name,
                observed=seen.state,
            )


def observe_live(ledger: Ledger, task: Task, rules: Rules) -> dict[str, Observation]:
    """Observe everything and take note of newer versions.

    Raises:
        FrozenError: An environment is another one, acts as another account, or
            changed without a new version.
    """
    observations = observe_all(ledger, task)
    for name, seen in observations.items():
        recorded = environment_of(ledger.run, name)
        moved = movement(recorded, seen.state) if recorded else ""
        if moved in ("instance", "account", "content"):
            freeze(
                ledger,
                rules,
                reason=CaseReason.ENVIRONMENT_DRIFT,
                finding=f"the {moved} of {name} changed",
                adapter=name,
                observed=seen.state,
            )
    given = Observed(environments=tuple(seen.state for seen in observations.values()))
    step = apply(ledger.run, given, rules)
    if step.events:
        ledger.commit(step)
    return observations
