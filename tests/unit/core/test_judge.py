"""An action is judged in one order: what it is, whether it is allowed, whether it fits."""

import dataclasses

import pytest
from msgspec.structs import replace

from counterfoil.core.bounds import ARGUMENTS_BYTES_MAX
from counterfoil.core.errors import (
    ContractError,
    CounterfoilError,
    PermissionDeniedError,
    StaleObservationError,
)
from counterfoil.core.intent import Action, KindSpec, derived_key, intent_digest
from counterfoil.core.judge import admit, approvals_required, check_kinds, check_task_fits
from counterfoil.core.run import Run, Spent
from counterfoil.core.task import Policy, Task, Verification
from counterfoil.core.words import Json, Level, Risk
from tests.support.runs import (
    BOX,
    CHECK,
    GET,
    KINDS,
    PUT,
    RUN_ID,
    TASK,
    action,
    fresh,
    intent,
    kind,
)

DENIED = replace(TASK, policy=Policy(scope=TASK.policy.scope))


def test_an_action_that_fits_becomes_an_intent() -> None:
    found = admit(fresh(), TASK, action(), KINDS)
    assert (found.intent, found.digest, found.prestate) == (intent(), intent_digest(intent()), BOX)


def test_a_volatile_argument_travels_beside_the_intent() -> None:
    found = admit(fresh(), TASK, action(arguments={"item": "a", "token": "t"}), KINDS)
    assert (found.intent, found.volatile) == (intent(), {"token": "t"})


@pytest.mark.parametrize(
    ("fields", "task", "run", "error"),
    [
        pytest.param({"kind": "box.fly"}, TASK, fresh(), ContractError, id="an unknown kind"),
        pytest.param({"key": None}, TASK, fresh(), ContractError, id="a write without a key"),
        pytest.param({"preconditions": {}}, TASK, fresh(), ContractError, id="no preconditions"),
        pytest.param(
            {"risk": "irreversible_write"}, TASK, fresh(), ContractError, id="T14 a higher risk"
        ),
        pytest.param({"risk": "read_only"}, TASK, fresh(), ContractError, id="T14 a lower risk"),
        pytest.param({"risk": ""}, TASK, fresh(), ContractError, id="T14 an empty risk"),
        pytest.param(
            {"deadline": 1},
            TASK,
            fresh(spent=Spent(proposals=2)),
            ContractError,
            id="a deadline that has passed",
        ),
        pytest.param({"arguments": {}}, TASK, fresh(), ContractError, id="no arguments"),
        pytest.param(
            {"arguments": {"item": "a", "extra": 1}},
            TASK,
            fresh(),
            ContractError,
            id="one too many",
        ),
        pytest.param(
            {"arguments": {"item": float("nan")}}, TASK, fresh(), ContractError, id="T9 NaN"
        ),
        pytest.param(
            {"arguments": {"item": "z"}},
            TASK,
            fresh(),
            PermissionDeniedError,
            id="T14 out of scope",
        ),
        pytest.param({}, DENIED, fresh(), PermissionDeniedError, id="no permission"),
        pytest.param(
            {}, TASK, fresh(environments=()), StaleObservationError, id="nothing observed yet"
        ),
        pytest.param(
            {"preconditions": {"version": 2}},
            TASK,
            fresh(),
            StaleObservationError,
            id="old version",
        ),
        pytest.param(
            {"preconditions": {"version": 3, "instance": "box-2"}},
            TASK,
            fresh(),
            StaleObservationError,
            id="another instance",
        ),
        pytest.param(
            {"preconditions": {"fingerprint": "f2"}},
            TASK,
            fresh(),
            StaleObservationError,
            id="other content",
        ),
        # Two faults at once: the earlier question answers.
        pytest.param(
            {"risk": "control", "arguments": {"item": "z"}},
            DENIED,
            fresh(),
            ContractError,
            id="contract before permission",
        ),
        pytest.param(
            {"arguments": {"other": 1}},
            DENIED,
            fresh(),
            ContractError,
            id="arguments before permission",
        ),
        pytest.param(
            {"arguments": {"item": "z"}, "preconditions": {"version": 1}},
            TASK,
            fresh(),
            PermissionDeniedError,
            id="scope before freshness",
        ),
        pytest.param(
            {"arguments": {"item": "z"}},
            TASK,
            fresh(environments=()),
            PermissionDeniedError,
            id="scope before observation",
        ),
    ],
)
def test_an_action_is_refused_for(
    fields: dict[str, Json], task: Task, run: Run, error: type[CounterfoilError]
) -> None:
    with pytest.raises(error):
        admit(run, task, action(**fields), KINDS)


def test_a_read_takes_no_key() -> None:
    with pytest.raises(ContractError, match="takes no idempotency key"):
        admit(fresh(), TASK, action("box.get", key="k"), KINDS)


def test_a_deadline_counts_the_proposal_itself() -> None:
    admit(fresh(spent=Spent(proposals=2)), TASK, action(deadline=2), KINDS)


def test_arguments_over_their_bound_are_refused() -> None:
    task = replace(TASK, policy=replace(TASK.policy, scope={"box": {"items": ()}}))
    spec = dataclasses.replace(PUT, touches=lambda _: ())
    with pytest.raises(ContractError, match=f"the bound is {ARGUMENTS_BYTES_MAX}"):
        admit(
            fresh(), task, action(arguments={"item": "x" * ARGUMENTS_BYTES_MAX}), {spec.name: spec}
        )


@pytest.mark.parametrize("position", ["@0", "@17", "@-1"])
def test_a_key_that_reads_as_a_position_is_refused(position: str) -> None:
    with pytest.raises(ContractError, match="name of a position"):
        admit(fresh(), TASK, action(key=position), KINDS)


@pytest.mark.parametrize("key", ["@", "@a", "@scope/package", "a@1", "@1a"])
def test_a_key_may_hold_an_at_sign(key: str) -> None:
    admit(fresh(), TASK, action(key=key), KINDS)


@pytest.mark.parametrize(
    "policy",
    [
        pytest.param(Policy(approval_kinds=("box.put",)), id="its kind"),
        pytest.param(Policy(approval_risks=(Risk.REVERSIBLE_WRITE,)), id="its risk"),
    ],
)
def test_an_approval_is_wanted_for(policy: Policy) -> None:
    assert approvals_required(Task(id="t", policy=policy), PUT) == 1


def test_no_approval_is_wanted_for_another_kind() -> None:
    assert approvals_required(Task(id="t", policy=Policy(approval_kinds=("box.put",))), GET) == 0


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        pytest.param(kind("finish"), "belongs to the runtime", id="a control kind"),
        pytest.param(kind("cancel"), "belongs to the runtime", id="the other control kind"),
        pytest.param(kind("a\x07"), "control character", id="T16 a name with a bell"),
        pytest.param(kind(""), "is empty", id="no name"),
        pytest.param(kind(fences=False), "must fence or forbid", id="transactional without either"),
        pytest.param(kind(linearizable=False), "queryable at most", id="a look-up that lags"),
        pytest.param(
            kind(level=Level.DEDUPLICATING, linearizable=False),
            "queryable at most",
            id="dedupes, lags",
        ),
        pytest.param(
            kind(level=Level.CONDITIONAL, fences=False),
            "must fence",
            id="conditional without a fence",
        ),
        pytest.param(
            kind(level=Level.DEDUPLICATING, can_be_asked=False),
            "must state key_retention_ms",
            id="not asked, keys kept for no stated time",
        ),
        pytest.param(
            kind(level=Level.QUERYABLE, can_be_asked=False, fences=False),
            "deduplicating or blind",
            id="queryable, not asked",
        ),
        pytest.param(
            kind(can_be_asked=False, key_retention_ms=1),
            "deduplicating or blind",
            id="transactional, not asked",
        ),
    ],
)
def test_a_declaration_is_refused(spec: KindSpec, reason: str) -> None:
    with pytest.raises(ContractError, match=reason):
        check_kinds({spec.name: spec})


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(kind(), id="transactional that fences"),
        pytest.param(kind(fences=False, forbids=True), id="transactional that forbids"),
        pytest.param(kind(level=Level.DEDUPLICATING, fences=False), id="deduplicating"),
        pytest.param(
            kind(level=Level.DEDUPLICATING, can_be_asked=False, key_retention_ms=1),
            id="deduplicating for a stated time, not asked",
        ),
        pytest.param(kind(level=Level.BLIND, can_be_asked=False), id="blind, not asked"),
        pytest.param(kind(level=Level.CONDITIONAL), id="conditional that fences"),
        pytest.param(
            kind(level=Level.QUERYABLE, fences=False, linearizable=False), id="queryable that lags"
        ),
        pytest.param(kind(level=Level.BLIND, fences=False), id="blind"),
    ],
)
def test_a_declaration_is_taken(spec: KindSpec) -> None:
    check_kinds({spec.name: spec})


@pytest.mark.parametrize(
    ("task", "reason"),
    [
        pytest.param(
            replace(TASK, policy=Policy(permissions=("box.fly",))), "box.fly", id="a capability"
        ),
        pytest.param(replace(TASK, policy=Policy(scope={"axe": {}})), "axe", id="an adapter"),
        pytest.param(replace(TASK, accounts={"axe": "a"}), "axe", id="an account's adapter"),
        pytest.param(
            replace(TASK, policy=Policy(approval_kinds=("box.fly",))), "box.fly", id="a kind"
        ),
        pytest.param(
            replace(TASK, verifier=Verification(kind="box.fly")), "box.fly", id="a verifier"
        ),
        pytest.param(
            replace(TASK, verifier=Verification(kind="box.put")),
            "no verification kind",
            id="a verifier that writes",
        ),
        pytest.param(
            replace(TASK, verifier=Verification(kind="box.check", arguments={"at": 1})),
            "arguments must be",
            id="a verifier's arguments",
        ),
    ],
)
def test_a_task_does_not_fit_for(task: Task, reason: str) -> None:
    with pytest.raises(ContractError, match=reason):
        check_task_fits(task, KINDS)


def test_a_task_fits_what_its_adapters_declare() -> None:
    check_task_fits(TASK, KINDS)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param((b"pepper", RUN_ID, 3, 0), id="salt"),
        pytest.param((b"salt", "run-2", 3, 0), id="run"),
        pytest.param((b"salt", RUN_ID, 4, 0), id="position"),
        pytest.param((b"salt", RUN_ID, 3, 1), id="attempt"),
    ],
)
def test_a_derived_key_differs_with_its(other: tuple[bytes, str, int, int]) -> None:
    assert derived_key(*other) != derived_key(b"salt", RUN_ID, 3, 0)


def test_a_derived_key_is_the_same_for_every_worker() -> None:
    assert derived_key(b"salt", RUN_ID, 3, 0) == (
        "i4zdlvy54e7fslg34xwhfw66agtkvxuadfwz4zp66dzdpa3s26xa"
    )


def test_a_verification_is_admitted_without_a_key() -> None:
    assert admit(fresh(), TASK, action("box.check"), KINDS).spec is CHECK


def test_an_action_value_needs_no_text() -> None:
    wanted = Action(kind="box.get", arguments={"item": "a"}, preconditions={"instance": "box-1"})
    assert admit(fresh(), TASK, wanted, KINDS).spec is GET
