"""Whether a proposed action may become an intent: contract, permission, scope, facts.

Each check is pure and raises the error that the planner sees; the machine turns it
into a counted, traced refusal. The order is part of the contract: what the action is
comes before whether it is allowed, and that before whether the world still fits.
"""

from collections.abc import Mapping

import msgspec

from counterfoil.core.canonical import normalise
from counterfoil.core.errors import (
    ContractError,
    PermissionDeniedError,
    StaleObservationError,
)
from counterfoil.core.intent import Action, EnvironmentState, Fact, Intent, KindSpec, intent_digest
from counterfoil.core.run import Run, environment_of
from counterfoil.core.task import Policy, Task, is_in_scope
from counterfoil.core.words import IntentDigest, Json, Level, Risk, idempotency_key, identifier

FINISH = "finish"
CANCEL = "cancel"
CONTROL_KINDS = (FINISH, CANCEL)
"""Kinds that the runtime itself performs; no adapter may declare them."""


class Admitted(msgspec.Struct, frozen=True, kw_only=True):
    """An action that passed every check.

    Attributes:
        intent: What digests name.
        digest: Its digest.
        spec: Declaration of its kind.
        volatile: Arguments that are in no digest and in no record.
        prestate: The environment it is built on.
    """

    intent: Intent
    digest: IntentDigest
    spec: KindSpec
    volatile: dict[str, Json]
    prestate: EnvironmentState


def check_kinds(kinds: Mapping[str, KindSpec]) -> None:
    """Refuse declarations that promise what their level cannot hold.

    Raises:
        ContractError: A control kind is declared, a kind without a linearizable look-up
            claims more than `queryable`, or one that cannot be asked states no time for
            which keys are kept.
    """
    for spec in kinds.values():
        identifier(spec.name, "kind")
        if spec.name in CONTROL_KINDS:
            raise ContractError(f"kind {spec.name} belongs to the runtime")
        asks = spec.level not in (Level.QUERYABLE, Level.BLIND)
        if spec.risk.writes and asks and not spec.linearizable:
            raise ContractError(
                f"kind {spec.name} has no linearizable look-up, so its level is queryable at most"
            )
        if spec.risk.writes and not spec.can_be_asked:
            _check_unasked(spec)
        if spec.level is Level.TRANSACTIONAL and not (spec.fences or spec.forbids):
            raise ContractError(f"kind {spec.name} is transactional and must fence or forbid")
        if spec.risk.writes and spec.level is Level.CONDITIONAL and not spec.fences:
            raise ContractError(f"kind {spec.name} is conditional and must fence")


def _check_unasked(spec: KindSpec) -> None:
    if spec.level is Level.BLIND:
        return
    if spec.level is not Level.DEDUPLICATING:
        raise ContractError(f"kind {spec.name} cannot be asked, so it is deduplicating or blind")
    if spec.key_retention_ms is None:
        raise ContractError(
            f"kind {spec.name} cannot be asked and must state key_retention_ms,"
            " the time for which a repeated key is answered and not done again"
        )


def check_task_fits(task: Task, kinds: Mapping[str, KindSpec]) -> None:
    """Refuse a task that names what no adapter declares.

    Raises:
        ContractError: An unknown permission, adapter or kind, or a verifier that is no
            verification.
    """
    capabilities = {spec.permission for spec in kinds.values()}
    for permission in task.policy.permissions:
        if permission not in capabilities:
            raise ContractError(f"task.policy.permissions: no adapter declares {permission!r:.80}")
    adapters = {spec.adapter for spec in kinds.values()}
    for adapter in (*task.policy.scope, *task.accounts):
        if adapter not in adapters:
            raise ContractError(f"task names adapter {adapter!r:.80}, which is not configured")
    for kind in task.policy.approval_kinds:
        if kind not in kinds:
            raise ContractError(f"task.policy.approval_kinds: no adapter declares {kind!r:.80}")
    if task.verifier is not None:
        spec = kinds.get(task.verifier.kind)
        if spec is None or spec.risk is not Risk.VERIFICATION:
            raise ContractError(f"task.verifier.kind {task.verifier.kind} is no verification kind")
        form_intent(spec, task.verifier.arguments, "")


def admit(run: Run, task: Task, action: Action, kinds: Mapping[str, KindSpec]) -> Admitted:
    """Return the intent of an action, or refuse it.

    Raises:
        ContractError: The action is not well formed for its kind.
        PermissionDeniedError: The policy grants neither the kind nor the target.
        StaleObservationError: The environment is not what the planner saw.
    """
    spec = kinds.get(action.kind)
    if spec is None:
        raise ContractError(f"no adapter declares kind {action.kind!r:.80}")
    check_form(run, action, spec.risk)
    prestate = environment_of(run, spec.adapter)
    intent, volatile = form_intent(spec, action.arguments, prestate.instance if prestate else "")
    check_permission(task.policy, spec, intent.arguments)
    if prestate is None:
        raise StaleObservationError(f"{spec.adapter} has not been observed yet", run.run_id)
    check_facts(run, action, (prestate,))
    digest = intent_digest(intent)
    return Admitted(intent=intent, digest=digest, spec=spec, volatile=volatile, prestate=prestate)


def form_intent(
    spec: KindSpec, arguments: dict[str, Json], target: str
) -> tuple[Intent, dict[str, Json]]:
    """Return the intent of a call, and its volatile arguments beside it.

    Raises:
        ContractError: The arguments do not fit the kind.
    """
    full = spec.normalise(normalise(arguments, "arguments"))
    lasting = {name: value for name, value in full.items() if name not in spec.volatile}
    volatile = {name: full[name] for name in spec.volatile if name in full}
    intent = Intent(
        adapter=spec.adapter, kind=spec.name, arguments=lasting, risk=spec.risk, target=target
    )
    return intent, volatile


def is_verifier(task: Task, admitted: Admitted) -> bool:
    """Return whether this is the verification that the task names, not just any other."""
    verifier = task.verifier
    if verifier is None or verifier.kind != admitted.spec.name:
        return False
    wanted, _ = form_intent(admitted.spec, verifier.arguments, admitted.intent.target)
    return intent_digest(wanted) == admitted.digest


def approvals_required(task: Task, spec: KindSpec) -> int:
    """Return how many approvers must sign an action of this kind."""
    policy = task.policy
    is_asked = spec.name in policy.approval_kinds or spec.risk in policy.approval_risks
    return policy.approvals_required if is_asked else 0


def check_form(run: Run, action: Action, risk: Risk) -> None:
    """Check what holds for actions of every kind.

    Raises:
        ContractError: No preconditions, a key where none belongs or none where one
            must be, a deadline that has passed, or another risk class.
    """
    if not action.preconditions:
        raise ContractError("preconditions are empty: name the version that was seen")
    if action.risk is not None and action.risk != risk.value:
        raise ContractError(f"risk {action.risk!r:.40} does not fit {action.kind}: it is {risk}")
    if risk.writes and action.key is None:
        raise ContractError(f"{action.kind} writes and has no idempotency key")
    if not risk.writes and action.key is not None:
        raise ContractError(f"{action.kind} does not write and takes no idempotency key")
    if action.key is not None:
        idempotency_key(action.key)
    if action.deadline and run.spent.proposals > action.deadline:
        raise ContractError(
            f"the deadline was proposal {action.deadline}, this is {run.spent.proposals}"
        )


def check_permission(policy: Policy, spec: KindSpec, arguments: dict[str, Json]) -> None:
    """Check capability and scope.

    Raises:
        PermissionDeniedError: Names what is not granted.
    """
    if spec.permission not in policy.permissions:
        raise PermissionDeniedError(f"{spec.name} needs {spec.permission}, which is not granted")
    for list_name, value in spec.touches(arguments):
        if not is_in_scope(policy, spec.adapter, list_name, value):
            raise PermissionDeniedError(
                f"{value!r:.120} is outside {list_name} of {spec.adapter} in the policy"
            )


def check_facts(run: Run, action: Action, states: tuple[EnvironmentState, ...]) -> None:
    """Check that one of the environments is still as the planner saw it.

    Raises:
        StaleObservationError: None is.
    """
    seen = action.preconditions
    if not states or any(_holds(seen, state) for state in states):
        return
    now = "; ".join(f"{state.adapter} version {state.version}" for state in states)
    raise StaleObservationError(
        f"built on {', '.join(f'{name} {value}' for name, value in seen.items())}, found {now}",
        run.run_id,
    )


def _holds(seen: Mapping[Fact, int | str], state: EnvironmentState) -> bool:
    facts: dict[Fact, int | str] = {
        "instance": state.instance,
        "version": state.version,
        "fingerprint": state.fingerprint,
    }
    return all(facts.get(name) == value for name, value in seen.items())
