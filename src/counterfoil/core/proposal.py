"""Reducers for proposals: judge, count, reserve, replay, refuse, finish.

Every judged proposal is counted and traced, refused ones included, so that nothing a
planner tries is hidden and nothing it tries is free.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from counterfoil.core import judge
from counterfoil.core.canonical import canonical, normalise
from counterfoil.core.errors import (
    ApprovalError,
    BudgetError,
    ContractError,
    CounterfoilError,
    IdempotencyConflictError,
    PermissionDeniedError,
    StaleObservationError,
    TerminalError,
    VerificationError,
)
from counterfoil.core.inputs import Facts, Garbled, Proposed, Recorded, Rules, Step
from counterfoil.core.intent import Action, EnvironmentState, Pending
from counterfoil.core.judge import CANCEL, CONTROL_KINDS, Admitted
from counterfoil.core.receipt import Receipt, identity
from counterfoil.core.run import Phase, Run, with_environment
from counterfoil.core.task import Task
from counterfoil.core.trace import Event, Outcome
from counterfoil.core.words import Json, Key, Level, Risk, free_text


def counted(run: Run) -> Run:
    """Return the run with one more judged proposal."""
    return replace(run, spent=replace(run.spent, proposals=run.spent.proposals + 1))


def refused(
    run: Run, outcome: Outcome, error: CounterfoilError, rules: Rules, action: Action | None = None
) -> Step:
    """Return the step of a judged and refused proposal, and end a run that has no more."""
    event = Event(
        at_ms=run.floor_ms,
        outcome=outcome,
        proposal=run.spent.proposals,
        kind=_shown(action.kind) if action else "",
        reason=error.message,
    )
    return close_if_spent(Step(run=run, events=(event,), error=error), rules)


def _shown(kind: str) -> str:
    """Return what a refused action called itself, cut and escaped: it was never checked."""
    return kind[:80].encode("unicode_escape").decode("ascii")[:200]


_OUTCOME_OF: Mapping[type[CounterfoilError], Outcome] = {
    ContractError: Outcome.CONTRACT_REJECTED,
    PermissionDeniedError: Outcome.PERMISSION_DENIED,
    ApprovalError: Outcome.APPROVAL_REJECTED,
    StaleObservationError: Outcome.STALE_OBSERVATION,
    IdempotencyConflictError: Outcome.IDEMPOTENCY_CONFLICT,
    VerificationError: Outcome.EXECUTION_ERROR,
    BudgetError: Outcome.COST_BUDGET_EXHAUSTED,
}


def is_spent(run: Run, rules: Rules) -> bool:
    """Return whether no further proposal may be judged."""
    return run.spent.proposals >= rules.task.budgets.proposals


def unjudged(run: Run) -> Step:
    """Return the end of a run that has no proposal left.

    Raises:
        BudgetError: An intent is pending, and the run ends once it is settled.
    """
    if run.pending is not None:
        raise BudgetError("every proposal is used up, and an action is pending", run.run_id)
    return ended_by_budget(run, Outcome.PROPOSAL_BUDGET_EXHAUSTED)


def propose(run: Run, given: Proposed, rules: Rules) -> Step:
    """Return what follows from a proposed action."""
    if is_spent(run, rules):
        return unjudged(run)
    run = counted(run)
    exhausted = _exhausted(run, rules)
    if exhausted is not None:
        return ended_by_budget(run, exhausted)
    action = given.action
    try:
        if action.kind in CONTROL_KINDS:
            return _control(run, given, rules)
        admitted = judge.admit(run, rules.task, action, rules.kinds)
        if given.recorded is not None:
            return _replay(run, given.recorded, admitted, action, rules)
        return _admitted(run, admitted, given, rules)
    except tuple(_OUTCOME_OF) as error:
        kind = next(kind for kind in _OUTCOME_OF if isinstance(error, kind))
        named = kind(error.message, run.run_id, action.key or "")
        return refused(run, _OUTCOME_OF[kind], named, rules, action)


def _admitted(run: Run, admitted: Admitted, given: Proposed, rules: Rules) -> Step:
    spec = admitted.spec
    is_capped = spec.risk not in (Risk.VERIFICATION, Risk.CONTROL)
    if is_capped and run.spent.steps >= rules.task.budgets.steps:
        return ended_by_budget(run, Outcome.STEP_BUDGET_EXHAUSTED)
    cost_max = rules.task.budgets.cost_micros
    cost = run.spent.cost_micros + spec.cost_micros
    if cost_max and cost > cost_max:
        raise BudgetError(f"cost would be {cost} micro-units, the budget is {cost_max}")
    required = judge.approvals_required(rules.task, spec)
    run = replace(run, spent=replace(run.spent, steps=run.spent.steps + 1, cost_micros=cost))
    if not spec.risk.writes and not required:
        return Step(run=run, admitted=admitted)
    pending = Pending(
        action_id=given.action_id,
        position=run.cursor,
        key=Key(given.action.key or ""),
        intent=admitted.intent,
        digest=admitted.digest,
        level=spec.level,
        prestate=admitted.prestate,
        first_sent_at_ms=run.floor_ms,
        last_sent_at_ms=run.floor_ms,
        sends=0 if required else 1,
        approvals_required=required,
        policy_version=rules.task.policy.version if required else "",
        challenge=given.challenge if required else "",
        requested_at_ms=run.floor_ms if required else 0,
        preview=given.preview if required else "",
    )
    event = Event(
        at_ms=run.floor_ms,
        outcome=Outcome.PENDING,
        proposal=run.spent.proposals,
        position=run.cursor,
        action_id=given.action_id,
        kind=spec.name,
        key=pending.key,
        digest=admitted.digest,
        intent=admitted.intent,
    )
    return Step(run=replace(run, pending=pending), events=(event,), admitted=admitted)


def _replay(run: Run, recorded: Recorded, admitted: Admitted, action: Action, rules: Rules) -> Step:
    """Answer a key that is settled: the same intent and the same receipt, or a conflict."""
    if recorded.digest != admitted.digest:
        raise IdempotencyConflictError(
            f"the key is bound to intent {recorded.digest}, this one is {admitted.digest}"
        )
    if recorded.was_asked and not _is_same(recorded.receipt, recorded.standing):
        raise IdempotencyConflictError("the target's receipt is not the recorded one")
    event = Event(
        at_ms=run.floor_ms,
        outcome=Outcome.REPLAYED,
        proposal=run.spent.proposals,
        kind=admitted.spec.name,
        key=action.key or "",
        digest=admitted.digest,
    )
    return close_if_spent(Step(run=run, events=(event,)), rules)


def _is_same(ours: Receipt | None, theirs: Receipt | None) -> bool:
    if ours is None or theirs is None:
        return ours is theirs
    if ours.level is Level.TRANSACTIONAL:
        if not theirs.poststate.fingerprint:  # the version on record is one that we counted
            state = replace(theirs.poststate, version=ours.poststate.version)
            theirs = replace(theirs, poststate=state)
        return replace(ours, replayed=False) == replace(theirs, replayed=False)
    return identity(ours) == identity(theirs)


def _control(run: Run, given: Proposed, rules: Rules) -> Step:
    action = given.action
    judge.check_form(run, action, Risk.CONTROL)
    if not set(action.arguments) <= ({"reason"} if action.kind == CANCEL else set()):
        raise ContractError(f"{action.kind} takes no such arguments")
    judge.check_facts(run, action, given.environments or run.environments)
    run = replace(run, spent=replace(run.spent, steps=run.spent.steps + 1))
    if action.kind == CANCEL:
        text = action.arguments.get("reason", "")
        reason = free_text(text, "arguments.reason") or "cancelled by the planner"
        return ended(run, Phase.CANCELLED, Outcome.CANCELLED, reason)
    changed = tuple(state for state in given.environments if state not in run.environments)
    lack = "the environment changed since it was verified" if changed else ""
    lack = lack or _lack_of_proof(run, rules.task, given.facts or {})
    if lack:
        return _unproved(run, changed, VerificationError(lack, run.run_id), action, rules)
    return ended(run, Phase.COMPLETED, Outcome.FINISHED, "verified_outcome")


def _unproved(
    run: Run,
    changed: tuple[EnvironmentState, ...],
    error: VerificationError,
    action: Action,
    rules: Rules,
) -> Step:
    """Return the step of a refused finish, which takes note of what moved."""
    for state in changed:
        run = with_environment(run, state)
    if changed:
        run = replace(run, evidence=None)
    step = refused(run, Outcome.EXECUTION_ERROR, error, rules, action)
    first = replace(step.events[0], environments=changed)
    return Step(run=step.run, events=(first, *step.events[1:]), error=error)


def _lack_of_proof(run: Run, task: Task, facts: Facts) -> str:
    """Return what completion still lacks, or an empty string."""
    if run.evidence is None:
        return "there is no passing verification"
    if run.evidence.environments != run.environments:
        return "the environment changed since it was verified"
    unmet = _unmet(task, facts)
    return f"the final state differs in {unmet:.200}" if unmet else ""


def _unmet(task: Task, facts: Facts) -> str:
    expected = task.verifier.expected if task.verifier else {}
    return ", ".join(
        f"{adapter}.{name}"
        for adapter, wanted in expected.items()
        for name, value in wanted.items()
        if not _is_met(value, facts.get(adapter, {}), name)
    )


def _is_met(wanted: Json, facts: Mapping[str, Json], name: str) -> bool:
    """Return whether a fact is there and is `wanted` as digests tell values apart."""
    try:
        return name in facts and _form(facts[name]) == _form(wanted)
    except ContractError:  # an adapter reports what no task can expect
        return False


def _form(value: Json) -> bytes:
    return canonical(normalise(value, "fact"))


def garbled(run: Run, given: Garbled, rules: Rules) -> Step:
    """Return what follows from text that is no action."""
    if is_spent(run, rules):
        return unjudged(run)
    error = ContractError(given.error.message, run.run_id)
    return refused(counted(run), Outcome.CONTRACT_REJECTED, error, rules)


def close_if_spent(step: Step, rules: Rules) -> Step:
    """End a run that may propose nothing more and has nothing pending."""
    run = step.run
    is_idle = run.phase is Phase.RUNNING and run.pending is None
    if not is_idle or not is_spent(run, rules):
        return step
    last = ended(run, Phase.FAILED, Outcome.PROPOSAL_BUDGET_EXHAUSTED, "")
    return replace_step(step, last.run, last.events)


def replace_step(step: Step, run: Run, events: tuple[Event, ...]) -> Step:
    """Return `step` leading to another run, with further events."""
    return Step(
        run=run,
        events=(*step.events, *events),
        settles=step.settles,
        error=step.error,
        admitted=step.admitted,
    )


def ended(run: Run, phase: Phase, outcome: Outcome, reason: str) -> Step:
    """Return the step that ends a run; budgets name themselves as the reason."""
    event = Event(at_ms=run.floor_ms, outcome=outcome, proposal=run.spent.proposals, reason=reason)
    final = replace(run, phase=phase, reason=reason or outcome.value)
    return Step(run=final, events=(event,))


def ended_by_budget(run: Run, outcome: Outcome) -> Step:
    """Return the step that ends a run whose budget is used up."""
    step = ended(run, Phase.FAILED, outcome, "")
    error = TerminalError(f"the run has failed: {outcome}", run.run_id)
    return Step(run=step.run, events=step.events, error=error)


def _exhausted(run: Run, rules: Rules) -> Outcome | None:
    seconds = rules.task.budgets.seconds
    if seconds and run.floor_ms - run.started_at_ms > seconds * 1000:
        return Outcome.TIME_BUDGET_EXHAUSTED
    return None
