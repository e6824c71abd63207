"""What follows from each input, in each standing of a run."""

import dataclasses

import pytest
from msgspec.structs import replace

from counterfoil.core import inputs
from counterfoil.core.errors import (
    BudgetError,
    ContractError,
    CounterfoilError,
    FrozenError,
    IdempotencyConflictError,
    InvariantError,
    PermissionDeniedError,
    StaleObservationError,
    TerminalError,
    UnavailableError,
    VerificationError,
)
from counterfoil.core.inputs import (
    Aborted,
    CaseOpened,
    Facts,
    Failed,
    Garbled,
    GivenUp,
    Input,
    Observed,
    Proposed,
    ReceiptSeen,
    Recorded,
    Remembered,
    Resent,
    Settled,
    Step,
)
from counterfoil.core.intent import EnvironmentState, intent_digest
from counterfoil.core.judge import Admitted, admit
from counterfoil.core.machine import TABLE, Rule, Standing, apply, opened, standing
from counterfoil.core.receipt import Receipt
from counterfoil.core.review import CaseReason
from counterfoil.core.run import Evidence, Phase, Run, Spent
from counterfoil.core.task import Budgets, Policy, Task
from counterfoil.core.trace import Outcome, position_name
from counterfoil.core.words import IntentDigest, Json, Level
from tests.support.runs import (
    BEGAN_MS,
    BOX,
    KEY,
    KINDS,
    MOVED,
    RUN_ID,
    TASK,
    action,
    case_of,
    fresh,
    intent,
    kind,
    pending,
    receipt_of,
    rules,
)

OURS = pending()
RECEIPT = receipt_of(OURS)
IDLE = fresh()
BUSY = fresh(pending=OURS, spent=Spent(proposals=1, steps=1))
FROZEN = fresh(phase=Phase.NEEDS_REVIEW, pending=OURS, case=case_of(OURS))
ENDED = fresh(phase=Phase.FAILED, reason="over")
RUNS = {
    Standing.IDLE: IDLE,
    Standing.BUSY: BUSY,
    Standing.FROZEN: FROZEN,
    Standing.ENDED: ENDED,
}
STALE = StaleObservationError("the world moved")


def admitted(name: str, **fields: Json) -> Admitted:
    return admit(fresh(), TASK, action(name, **fields), KINDS)


GET = admitted("box.get")
CHECK = admitted("box.check")
PROPOSED = Proposed(action=action(), action_id="action-1")
SETTLED = Settled(admitted=GET, action_id="action-1", result=[1])
REMEMBERED = Remembered(name="n", digest=IntentDigest("i1:0"), value=[1])
BY_STATEMENT = {
    inputs.Approved,
    inputs.Decided,
    inputs.Denied,
    inputs.Lapsed,
    inputs.Migrated,
    inputs.Released,
    inputs.Revoked,
    inputs.StatementRefused,
    inputs.Withdrawn,
}
"""Inputs that need people who sign; the tests of authority go through them."""

INPUTS: dict[type[object], Input] = {
    Proposed: PROPOSED,
    Garbled: Garbled(error=ContractError("no JSON")),
    Settled: SETTLED,
    Failed: Failed(admitted=GET, error=UnavailableError("away")),
    Remembered: REMEMBERED,
    inputs.Stumbled: inputs.Stumbled(reason="it broke", tries_max=3),
    inputs.Unparked: inputs.Unparked(actor="ann", reason="mended"),
    ReceiptSeen: ReceiptSeen(receipt=RECEIPT, was_recovered=False),
    Resent: Resent(),
    inputs.Asked: inputs.Asked(answer="unknown", reason="it is full"),
    GivenUp: GivenUp(outcome=Outcome.STALE_OBSERVATION, error=STALE),
    CaseOpened: CaseOpened(case=case_of(OURS)),
    Observed: Observed(environments=(MOVED,)),
    Aborted: Aborted(actor="ann", reason="enough"),
}


def propose(run: Run = IDLE, task: Task = TASK, /, **fields: Json) -> Step:
    name = fields.pop("name", "box.put")
    given = Proposed(action=action(name, **fields), action_id="action-1")
    return apply(run, given, rules(task=task))


def finish(run: Run, facts: Facts | None = None, *seen: EnvironmentState) -> Step:
    given = Proposed(action=action("finish"), action_id="a", environments=seen, facts=facts)
    return apply(run, given, rules())


def outcomes(step: Step) -> list[Outcome]:
    return [event.outcome for event in step.events]


# The table


def test_the_table_knows_every_input() -> None:
    assert set(TABLE) == set(INPUTS) | BY_STATEMENT


@pytest.mark.parametrize("given", INPUTS.values(), ids=lambda given: type(given).__name__)
@pytest.mark.parametrize("now", Standing)
def test_each_cell_of_the_table_does_as_it_says(now: Standing, given: Input) -> None:
    run, rule = RUNS[now], TABLE[type(given)][tuple(Standing).index(now)]
    try:
        step = apply(run, given, rules())
        found = Rule.COUNT if step.run.spent.proposals > run.spent.proposals else Rule.TAKE
        if isinstance(given, Proposed | Garbled) and rule is Rule.TAKE:
            found = Rule.TAKE
    except FrozenError:
        found = Rule.FREEZE
    except TerminalError:
        found = Rule.END
    except InvariantError:
        found = Rule.NEVER
    assert found is rule


@pytest.mark.parametrize(("expected", "run"), RUNS.items())
def test_the_standing_of_a_run_is(expected: Standing, run: Run) -> None:
    assert standing(run) is expected


@pytest.mark.parametrize("given", INPUTS.values(), ids=lambda given: type(given).__name__)
def test_an_end_takes_nothing(given: Input) -> None:
    with pytest.raises((TerminalError, InvariantError)):
        apply(ENDED, given, rules())


def test_a_run_begins_with_what_it_found() -> None:
    step = opened(IDLE)
    assert (outcomes(step), step.events[0].environments) == ([Outcome.OPENED], (BOX,))


# Time


@pytest.mark.parametrize("now_ms", [pytest.param(BEGAN_MS - 1, id="acc-A19 the clock went back")])
def test_the_floor_of_time_holds(now_ms: int) -> None:
    step = apply(IDLE, REMEMBERED, rules(now_ms))
    assert (step.run.floor_ms, step.events[0].at_ms) == (BEGAN_MS, BEGAN_MS)


def test_time_that_went_on_is_the_floor_from_here_on() -> None:
    later = apply(IDLE, REMEMBERED, rules(BEGAN_MS + 5)).run
    assert apply(later, REMEMBERED, rules(BEGAN_MS)).events[0].at_ms == BEGAN_MS + 5


# Proposals


def test_a_write_becomes_pending_before_it_is_sent() -> None:
    step = propose(replace(IDLE, cursor=4))
    assert step.run.pending == replace(OURS, position=4)


def test_a_pending_write_is_traced_whole() -> None:
    (event,) = propose().events
    assert (event.outcome, event.proposal, event.key, event.intent, event.digest) == (
        Outcome.PENDING,
        1,
        KEY,
        intent(),
        OURS.digest,
    )


def test_budgets_are_reserved_with_the_intent() -> None:
    step = propose(name="box.buy")
    assert step.run.spent == Spent(proposals=1, steps=1, cost_micros=60)


def test_a_read_is_admitted_and_settled_in_one_commit() -> None:
    step = propose(name="box.get")
    assert (step.events, step.admitted, step.run.spent.steps) == ((), GET, 1)


@pytest.mark.parametrize(
    ("fields", "error", "outcome"),
    [
        pytest.param({"name": "box.fly", "key": None}, ContractError, Outcome.CONTRACT_REJECTED,
                     id="an unknown kind"),
        pytest.param({"preconditions": {}}, ContractError, Outcome.CONTRACT_REJECTED, id="form"),
        pytest.param({"arguments": {"item": "z"}}, PermissionDeniedError,
                     Outcome.PERMISSION_DENIED, id="scope"),
        pytest.param({"preconditions": {"version": 1}}, StaleObservationError,
                     Outcome.STALE_OBSERVATION, id="freshness"),
        pytest.param({"name": "finish", "preconditions": {"version": 1}}, StaleObservationError,
                     Outcome.STALE_OBSERVATION, id="an end built on an old version"),
        pytest.param({"name": "finish"}, VerificationError, Outcome.EXECUTION_ERROR, id="no proof"),
        pytest.param({"name": "finish", "arguments": {"approved": True}}, ContractError,
                     Outcome.CONTRACT_REJECTED, id="T14 an end with arguments"),
        pytest.param({"name": "cancel", "arguments": {"reason": "\x1b"}}, ContractError,
                     Outcome.CONTRACT_REJECTED, id="T16 a reason with an escape"),
        pytest.param({"name": "cancel", "arguments": {"reason": 7}}, ContractError,
                     Outcome.CONTRACT_REJECTED, id="a reason that is no text"),
        pytest.param({"name": "cancel", "arguments": {"phase": "completed"}}, ContractError,
                     Outcome.CONTRACT_REJECTED, id="T14 a cancellation with arguments"),
        pytest.param({"name": "finish", "key": "k"}, ContractError, Outcome.CONTRACT_REJECTED,
                     id="an end with a key"),
        pytest.param({"name": "finish", "risk": "read_only"}, ContractError,
                     Outcome.CONTRACT_REJECTED, id="an end of another risk"),
    ],
)  # fmt: skip
def test_a_refusal_is_counted_and_traced(
    fields: dict[str, Json], error: type[CounterfoilError], outcome: Outcome
) -> None:
    step = propose(**fields)
    assert (type(step.error), outcomes(step), step.run.spent.proposals, step.run.pending) == (
        error,
        [outcome],
        1,
        None,
    )


def test_a_refusal_names_run_and_key() -> None:
    error = propose(preconditions={}).error
    assert error is not None
    assert (error.run_id, error.key) == (RUN_ID, KEY)


def test_a_kind_that_wants_an_approval_is_pending_and_unsent() -> None:
    step = propose(IDLE, replace(TASK, policy=replace(TASK.policy, approval_kinds=("box.put",))))
    waits = step.run.pending
    assert waits is not None
    assert (waits.sends, waits.approvals_required, outcomes(step)) == (0, 1, [Outcome.PENDING])


def test_a_refusal_by_a_class_of_its_own_is_a_refusal_of_its_family() -> None:
    class OwnError(ContractError):
        """What an adapter may raise from its own check."""

    def refuse(arguments: dict[str, Json]) -> dict[str, Json]:
        raise OwnError("not this")

    spec = dataclasses.replace(kind(), normalise=refuse)
    step = apply(IDLE, PROPOSED, rules(put=spec))
    assert (type(step.error), outcomes(step)) == (ContractError, [Outcome.CONTRACT_REJECTED])


def test_while_one_is_pending_another_is_counted_and_refused() -> None:
    step = apply(BUSY, PROPOSED, rules())
    assert (type(step.error), step.run.spent.proposals, step.run.pending) == (
        ContractError,
        2,
        OURS,
    )


def test_text_that_is_no_action_is_counted() -> None:
    step = apply(IDLE, Garbled(error=ContractError("no JSON")), rules())
    assert (step.run.spent.proposals, outcomes(step)) == (1, [Outcome.CONTRACT_REJECTED])


# Budgets

ONE = replace(TASK, budgets=Budgets(proposals=1, steps=1))
NONE = replace(TASK, budgets=Budgets(proposals=0, steps=0))
SPENT = Spent(proposals=1, steps=1)


@pytest.mark.parametrize(
    ("run", "given"),
    [
        pytest.param(IDLE, Proposed(action=action(key=None), action_id="a"), id="a refusal"),
        pytest.param(IDLE, Garbled(error=ContractError("no JSON")), id="text that is no action"),
        pytest.param(fresh(spent=SPENT), SETTLED, id="a settled read"),
        pytest.param(fresh(spent=SPENT), INPUTS[Failed], id="a failed read"),
        pytest.param(fresh(spent=SPENT, pending=OURS), INPUTS[ReceiptSeen], id="a receipt"),
        pytest.param(fresh(spent=SPENT, pending=OURS), INPUTS[GivenUp], id="a write given up"),
    ],
)
def test_the_last_proposal_ends_the_run_once_it_is_settled(run: Run, given: Input) -> None:
    step = apply(run, given, rules(task=ONE))
    assert (step.run.phase, step.run.reason, outcomes(step)[-1]) == (
        Phase.FAILED,
        "proposal_budget_exhausted",
        Outcome.PROPOSAL_BUDGET_EXHAUSTED,
    )


def test_a_pending_write_of_the_last_proposal_keeps_the_run_open() -> None:
    step = apply(IDLE, PROPOSED, rules(task=ONE))
    assert (step.run.phase, step.run.pending) == (Phase.RUNNING, OURS)


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(PROPOSED, id="an action"),
        pytest.param(Garbled(error=ContractError("no JSON")), id="text that is no action"),
        pytest.param(REMEMBERED, id="a computed value"),
    ],
)
def test_beyond_the_budget_nothing_is_judged_while_a_write_is_pending(given: Input) -> None:
    with pytest.raises(BudgetError, match="every proposal is used up"):
        apply(fresh(spent=SPENT, pending=OURS), given, rules(task=ONE))


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(PROPOSED, id="an action"),
        pytest.param(Garbled(error=ContractError("no JSON")), id="text that is no action"),
    ],
)
def test_a_run_without_any_proposal_ends_at_the_first_one(given: Input) -> None:
    step = apply(IDLE, given, rules(task=NONE))
    assert (step.run.phase, step.run.spent.proposals, type(step.error)) == (
        Phase.FAILED,
        0,
        TerminalError,
    )


def test_a_step_beyond_the_budget_ends_the_run() -> None:
    step = propose(fresh(spent=Spent(steps=6)), name="box.get")
    assert (step.run.reason, outcomes(step), type(step.error)) == (
        "step_budget_exhausted",
        [Outcome.STEP_BUDGET_EXHAUSTED],
        TerminalError,
    )


@pytest.mark.parametrize("name", ["box.check", "finish"])
def test_the_step_budget_leaves_room_to_prove_and_end(name: str) -> None:
    step = propose(fresh(spent=Spent(steps=6)), name=name)
    assert step.run.phase is Phase.RUNNING


def test_cost_beyond_the_budget_is_refused_before_it_is_spent() -> None:
    step = propose(fresh(spent=Spent(cost_micros=41)), name="box.buy")
    assert (type(step.error), step.run.spent.cost_micros, step.run.pending) == (
        BudgetError,
        41,
        None,
    )


def test_cost_up_to_the_budget_is_taken() -> None:
    assert propose(fresh(spent=Spent(cost_micros=40)), name="box.buy").run.pending is not None


@pytest.mark.parametrize(
    ("after_ms", "phase"), [(2_000, Phase.RUNNING), (2_001, Phase.FAILED)], ids=["at", "after"]
)
def test_the_time_budget_ends_the_run(after_ms: int, phase: Phase) -> None:
    task = replace(TASK, budgets=Budgets(seconds=2))
    assert apply(IDLE, PROPOSED, rules(BEGAN_MS + after_ms, task)).run.phase is phase


# Replays


def replayed(recorded: Recorded, **fields: Json) -> Step:
    given = Proposed(action=action(**fields), action_id="action-2", recorded=recorded)
    return apply(fresh(spent=Spent(steps=1)), given, rules())


def standing_as(receipt: Receipt | None, ours: Receipt | None = RECEIPT) -> Recorded:
    return Recorded(digest=OURS.digest, receipt=ours, standing=receipt, was_asked=True)


@pytest.mark.parametrize(
    "recorded",
    [
        pytest.param(standing_as(RECEIPT), id="the adapter shows the same receipt"),
        pytest.param(
            standing_as(replace(RECEIPT, replayed=True)), id="the adapter says that it replayed"
        ),
        pytest.param(
            Recorded(digest=OURS.digest, receipt=RECEIPT), id="the adapter cannot be asked"
        ),
        pytest.param(
            standing_as(
                replace(RECEIPT, level=Level.QUERYABLE, result="later", poststate=BOX),
                replace(RECEIPT, level=Level.QUERYABLE),
            ),
            id="T19 a target that tells its effect in other words",
        ),
    ],
)
def test_a_settled_key_with_the_same_intent_is_replayed(recorded: Recorded) -> None:
    step = replayed(recorded)
    assert (outcomes(step), step.run.spent, step.run.pending) == (
        [Outcome.REPLAYED],
        Spent(proposals=1, steps=1),
        None,
    )


@pytest.mark.parametrize(
    ("recorded", "fields"),
    [
        pytest.param(standing_as(RECEIPT), {"arguments": {"item": "b"}}, id="another intent"),
        pytest.param(standing_as(None), {}, id="T19 the adapter shows no receipt"),
        pytest.param(standing_as(replace(RECEIPT, id="x")), {}, id="T19 another receipt"),
        pytest.param(standing_as(replace(RECEIPT, result="x")), {}, id="T19 another result"),
        pytest.param(standing_as(RECEIPT, None), {}, id="T19 a receipt that we do not have"),
        pytest.param(standing_as(RECEIPT, replace(RECEIPT, id="x")), {}, id="T19 ours altered"),
    ],
)
def test_a_settled_key_is_a_conflict_with(recorded: Recorded, fields: dict[str, Json]) -> None:
    step = replayed(recorded, **fields)
    assert (type(step.error), outcomes(step), step.run.spent.proposals) == (
        IdempotencyConflictError,
        [Outcome.IDEMPOTENCY_CONFLICT],
        1,
    )


# Settling reads and verifications


def test_a_read_settles_its_position() -> None:
    step = apply(replace(IDLE, cursor=2, attempt=3), SETTLED, rules())
    assert (step.run.cursor, step.run.attempt, step.settles) == (3, 0, (position_name(2),))


def test_a_failed_read_settles_nothing() -> None:
    step = apply(IDLE, INPUTS[Failed], rules())
    assert (step.run.cursor, step.settles, outcomes(step)) == (0, (), [Outcome.EXECUTION_ERROR])


def test_a_remembered_value_settles_its_position() -> None:
    step = apply(IDLE, REMEMBERED, rules())
    assert (step.run.cursor, step.settles, step.events[0].result) == (1, ("@0",), [1])


def verified(run: Run = IDLE, *, passed: bool = True, what: Admitted = CHECK) -> Run:
    given = Settled(admitted=what, action_id="a", result={}, environments=(BOX,), passed=passed)
    step = apply(run, given, rules())
    return replace(step.run, trace_size=step.run.trace_size + 1)


def test_a_pass_is_bound_to_its_event_and_to_what_it_saw() -> None:
    found = verified(fresh(trace_size=5)).evidence
    assert found == Evidence(event=5, digest=CHECK.digest, environments=(BOX,))


def test_a_pass_of_another_verification_proves_nothing() -> None:
    other = admitted("box.check", arguments={"item": "b"})
    assert verified(what=other).evidence is None


def test_a_pass_of_another_verification_withdraws_nothing() -> None:
    proved = verified()
    other = admitted("box.check", arguments={"item": "b"})
    assert verified(proved, what=other).evidence == proved.evidence


def test_a_failed_verification_withdraws_the_proof() -> None:
    assert verified(verified(), passed=False).evidence is None


def test_a_failed_verification_may_be_tried_again_at_its_position() -> None:
    assert (verified(passed=False).cursor, verified().cursor) == (0, 1)


# Ends

FULL: Facts = {"box": {"a": "full"}}


def test_proof_of_the_world_as_it_is_completes() -> None:
    step = finish(verified(), FULL, BOX)
    assert (step.run.phase, step.run.reason, outcomes(step)) == (
        Phase.COMPLETED,
        "verified_outcome",
        [Outcome.FINISHED],
    )


@pytest.mark.parametrize(
    ("run", "facts", "seen"),
    [
        pytest.param(IDLE, FULL, (BOX,), id="no verification"),
        pytest.param(verified(passed=False), FULL, (BOX,), id="a verification that failed"),
        pytest.param(verified(), FULL, (replace(BOX, fingerprint="f9"),), id="other content now"),
        pytest.param(verified(), {"box": {"a": "empty"}}, (BOX,), id="another final state"),
        pytest.param(verified(), {"box": {}}, (BOX,), id="a final state that says nothing"),
        pytest.param(verified(), {}, (BOX,), id="an adapter that says nothing"),
        pytest.param(verified(), None, (BOX,), id="nobody looked"),
        pytest.param(
            verified(), {"box": {"a": float("nan")}}, (BOX,), id="a fact that no task can expect"
        ),
    ],
)
def test_a_self_report_completes_nothing(
    run: Run, facts: Facts | None, seen: tuple[EnvironmentState, ...]
) -> None:
    step = finish(run, facts, *seen)
    assert (type(step.error), step.run.phase, outcomes(step)) == (
        VerificationError,
        Phase.RUNNING,
        [Outcome.EXECUTION_ERROR],
    )


@pytest.mark.parametrize(
    ("expected", "found"),
    [
        pytest.param(1, True, id="C10 one and true"),
        pytest.param(None, "", id="C10 null and empty text"),
        pytest.param([1], [True], id="C10 one and true, further in"),
    ],
)
def test_an_expected_fact_is_told_apart_from(expected: Json, found: Json) -> None:
    assert not _meets(expected, {"a": found})


def test_a_missing_fact_is_not_null() -> None:
    assert not _meets(None, {})


@pytest.mark.parametrize(("expected", "found"), [(1, 1.0), (None, None), ({"b": [1]}, {"b": (1,)})])
def test_an_expected_fact_is_met_in_another_spelling(expected: Json, found: Json) -> None:
    assert _meets(expected, {"a": found})


def _meets(expected: Json, facts: dict[str, Json]) -> bool:
    verifier = TASK.verifier
    assert verifier is not None
    task = replace(TASK, verifier=replace(verifier, expected={"box": {"a": expected}}))
    given = Proposed(action=action("finish"), action_id="a", facts={"box": facts})
    return apply(verified(), given, rules(task=task)).run.phase is Phase.COMPLETED


def test_a_task_without_a_verifier_is_never_completed() -> None:
    given = Settled(admitted=CHECK, action_id="a", result={}, environments=(BOX,), passed=True)
    assert apply(IDLE, given, rules(task=replace(TASK, verifier=None))).run.evidence is None


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [({}, "cancelled by the planner"), ({"reason": "no stock"}, "no stock")],
    ids=["without a reason", "with a reason"],
)
def test_a_planner_may_cancel(arguments: dict[str, Json], reason: str) -> None:
    step = propose(name="cancel", arguments=arguments)
    assert (step.run.phase, step.run.reason, outcomes(step)) == (
        Phase.CANCELLED,
        reason,
        [Outcome.CANCELLED],
    )


# Receipts


def seen(receipt: Receipt = RECEIPT, **fields: Json) -> Step:
    given = ReceiptSeen(receipt=receipt, **{"was_recovered": False} | fields)
    return apply(fresh(pending=OURS, evidence=verified().evidence, attempt=2), given, rules())


def test_a_receipt_and_the_transition_are_one_step() -> None:
    step = seen()
    assert (step.run.pending, step.run.cursor, step.run.writes, step.run.attempt) == (None, 1, 1, 0)


def test_a_receipt_settles_position_and_key() -> None:
    assert seen().settles == ("@0", KEY)


def test_a_write_withdraws_the_proof() -> None:
    assert seen().run.evidence is None


def test_a_receipt_moves_the_environment_to_its_poststate() -> None:
    assert seen().run.environments == (MOVED,)


@pytest.mark.parametrize(
    ("receipt", "was_recovered", "outcome", "writes"),
    [
        pytest.param(RECEIPT, False, Outcome.EXECUTED, 1, id="a call just made"),
        pytest.param(RECEIPT, True, Outcome.RECONCILED, 1, id="a call of before"),
        pytest.param(replace(RECEIPT, replayed=True), False, Outcome.REPLAYED, 0, id="a replay"),
        pytest.param(
            replace(RECEIPT, replayed=True), True, Outcome.RECONCILED, 1, id="a replay of our own"
        ),
    ],
)
def test_a_receipt_is_traced_as(
    receipt: Receipt, was_recovered: bool, outcome: Outcome, writes: int
) -> None:
    step = seen(receipt, was_recovered=was_recovered)
    assert (outcomes(step), step.run.writes) == ([outcome], writes)


@pytest.mark.parametrize(
    "moved",
    [pytest.param(replace(BOX, version=9, fingerprint="f9"), id="acc-A8 another writer after us")],
)
def test_drift_after_our_effect_is_on_record(moved: EnvironmentState) -> None:
    step = seen(observed=moved)
    assert (outcomes(step), step.run.environments, step.events[1].environments) == (
        [Outcome.EXECUTED, Outcome.OBSERVED],
        (moved,),
        (moved,),
    )


def test_a_call_that_leaves_again_is_on_record_first() -> None:
    step = apply(BUSY, Resent(), rules(BEGAN_MS + 9))
    assert step.run.pending == replace(OURS, sends=2, last_sent_at_ms=BEGAN_MS + 9)


def test_what_is_given_up_takes_its_key_along() -> None:
    given = GivenUp(outcome=Outcome.STALE_OBSERVATION, error=STALE, observed=MOVED)
    step = apply(BUSY, given, rules())
    assert (step.run.pending, step.run.attempt, step.run.cursor, step.settles) == (None, 1, 0, ())


def test_what_is_given_up_is_not_paid_back() -> None:
    given = GivenUp(outcome=Outcome.STALE_OBSERVATION, error=STALE)
    assert apply(BUSY, given, rules()).run.spent == BUSY.spent


# Cases, observations, aborts


@pytest.mark.parametrize(
    ("reason", "outcome"),
    [
        (CaseReason.INTENT_CONFLICT, Outcome.IDEMPOTENCY_CONFLICT),
        (CaseReason.OUTCOME_UNKNOWN, Outcome.NEEDS_REVIEW),
        (CaseReason.ENVIRONMENT_DRIFT, Outcome.NEEDS_REVIEW),
        (CaseReason.INCOMPLETE_RECEIPT, Outcome.NEEDS_REVIEW),
        (CaseReason.LATE_COMMIT, Outcome.NEEDS_REVIEW),
    ],
)
def test_a_case_freezes_the_run_with_its_evidence(reason: CaseReason, outcome: Outcome) -> None:
    case = case_of(OURS, reason=reason, receipt=RECEIPT)
    step = apply(BUSY, CaseOpened(case=case), rules())
    assert (step.run.phase, step.run.case, step.run.pending, outcomes(step)) == (
        Phase.NEEDS_REVIEW,
        case,
        OURS,
        [outcome],
    )


@pytest.mark.parametrize(
    "finding", [pytest.param("\x1b[2J" + "x" * 2**20, id="T16 a long finding")]
)
def test_a_finding_is_kept_printable_and_short(finding: str) -> None:
    step = apply(BUSY, CaseOpened(case=case_of(OURS, finding=finding)), rules())
    case = step.run.case
    assert case is not None
    assert (case.finding.isprintable(), len(case.finding), step.events[0].reason) == (
        True,
        1_000,
        case.finding,
    )


def test_a_frozen_run_says_why() -> None:
    with pytest.raises(FrozenError, match="nobody knows"):
        apply(FROZEN, PROPOSED, rules())


def test_what_moved_is_observed_and_withdraws_the_proof() -> None:
    step = apply(verified(), Observed(environments=(BOX, MOVED)), rules())
    assert (step.run.environments, step.run.evidence, outcomes(step)) == (
        (MOVED,),
        None,
        [Outcome.OBSERVED],
    )


def test_what_did_not_move_is_not_traced() -> None:
    step = apply(verified(), Observed(environments=(BOX,)), rules())
    assert (step.events, step.run) == ((), verified())


@pytest.mark.parametrize("run", [IDLE, BUSY, FROZEN], ids=["idle", "busy", "in review"])
def test_an_operator_can_always_abort(run: Run) -> None:
    step = apply(run, Aborted(actor="ann", reason="enough"), rules(task=NONE))
    assert (step.run.phase, step.run.reason, step.run.pending, step.run.case) == (
        Phase.FAILED,
        "aborted",
        None,
        None,
    )


def test_an_abort_keeps_what_was_open_in_the_trace() -> None:
    given = Aborted(actor="ann", reason="enough", finding="found", receipt=RECEIPT)
    (event,) = apply(FROZEN, given, rules()).events
    assert (event.intent, event.key, event.case, event.receipt, event.reason) == (
        intent(),
        KEY,
        FROZEN.case,
        RECEIPT,
        "ann: enough (found)",
    )


@pytest.mark.parametrize("text", [pytest.param("\x1b[2J" + "x" * 2**20, id="T16 a long reason")])
def test_an_abort_keeps_its_reason_printable_and_short(text: str) -> None:
    (event,) = apply(IDLE, Aborted(actor=text, reason=text), rules()).events
    assert (event.reason.isprintable(), len(event.reason)) == (True, 1_000)


def test_the_policy_is_asked_at_each_proposal() -> None:
    assert outcomes(propose(IDLE, replace(TASK, policy=Policy()))) == [Outcome.PERMISSION_DENIED]


def test_a_digest_in_the_trace_is_that_of_the_intent() -> None:
    assert propose().events[0].digest == intent_digest(intent())
