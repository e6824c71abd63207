"""A program is started again after any death, and goes on where the record ends."""

from contextlib import suppress

import pytest

from counterfoil.core.bounds import ARGUMENTS_BYTES_MAX, SENDS_MAX
from counterfoil.core.errors import (
    ContractError,
    FrozenError,
    IdempotencyConflictError,
    PermissionDeniedError,
    TerminalError,
    UnavailableError,
    UnknownOutcomeError,
    VerificationError,
)
from counterfoil.core.run import Phase
from counterfoil.core.task import Policy, Task
from counterfoil.engine import audit
from counterfoil.engine.session import Session
from tests.support.shops import Street, WorkerKilled


@pytest.fixture
def street() -> Street:
    return Street()


def program(run: Session) -> object:
    missing = run.remember("stock", lambda: 3)
    run.do("shop.order", sku="A", quantity=missing)
    run.do("shop.stock")
    run.do("shop.order", sku="B")
    run.verify()
    return run.finish().phase


def test_a_program_that_runs_twice_orders_once(street: Street) -> None:
    for _ in range(2):
        with street.run() as run:
            assert program(run) is Phase.COMPLETED
    assert (len(street.shop.orders), street.shop.calls, street.shop.asked) == (2, 2, 0)


def test_a_settled_position_answers_without_the_target(street: Street) -> None:
    with street.run() as run:
        first = run.do("shop.order", sku="A")
    street.shop.fault, street.shop.look_up_fault = "refused", True
    with street.run() as run:
        assert run.do("shop.order", sku="A") == first


def test_a_computed_value_is_computed_once(street: Street) -> None:
    computed: list[int] = []

    def compute() -> int:
        computed.append(1)
        return len(computed)

    for _ in range(2):
        with street.run() as run:
            assert run.remember("n", compute) == 1
    assert computed == [1]


def test_a_changed_intent_is_refused_with_both_shown(street: Street) -> None:
    with street.run() as run:
        run.do("shop.order", sku="A", quantity=82)
    with street.run() as run, pytest.raises(IdempotencyConflictError) as refusal:
        run.do("shop.order", sku="A", quantity=820)
    assert '"quantity":82}' in refusal.value.message
    assert "the program says shop.order" in refusal.value.message


def test_a_changed_name_of_a_computed_value_is_refused(street: Street) -> None:
    with street.run() as run:
        run.remember("stock", lambda: 1)
    with street.run() as run, pytest.raises(IdempotencyConflictError):
        run.remember("price", lambda: 1)


def test_a_changed_program_is_refused_at_a_pending_action(street: Street) -> None:
    street.shop.fault = "killed"
    with pytest.raises(WorkerKilled), street.run() as run:
        run.do("shop.order", sku="A")
    street.shop.fault = ""
    with street.run() as run, pytest.raises(IdempotencyConflictError, match="pending"):
        run.do("shop.order", sku="B")
    with street.run() as run:
        assert run.do("shop.order", sku="A") == {"id": 1, "body": {"sku": "A", "quantity": 1}}
    assert street.shop.calls == 1


def test_an_argument_left_out_is_another_intent_than_its_default(street: Street) -> None:
    with street.run() as run:
        run.do("shop.order", sku="A")
    with street.run() as run, pytest.raises(IdempotencyConflictError):
        run.do("shop.order", sku="A", quantity=1)


def test_a_volatile_argument_is_no_part_of_the_intent(street: Street) -> None:
    with street.run() as run:
        first = run.do("shop.order", sku="A", token="t-1")
    with street.run() as run:
        assert run.do("shop.order", sku="A", token="t-2") == first


def test_a_named_key_answers_wherever_it_is_used_again(street: Street) -> None:
    for _ in range(2):
        with street.run() as run:
            first = run.do("shop.order", key="order-1", sku="A")
            assert run.do("shop.order", key="order-1", sku="A") == first
            assert run.do("shop.order", sku="B") != first
    assert street.shop.calls == 2


def test_a_named_key_with_another_intent_is_refused(street: Street) -> None:
    with street.run() as run:
        run.do("shop.order", key="order-1", sku="A")
        with pytest.raises(IdempotencyConflictError):
            run.do("shop.order", key="order-1", sku="B")
    assert street.shop.calls == 1


def test_a_lost_answer_is_found_by_key_in_the_same_session(street: Street) -> None:
    street.shop.fault = "reset"
    with street.run() as run:
        assert run.do("shop.order", sku="A") == {"id": 1, "body": {"sku": "A", "quantity": 1}}
    assert (street.shop.calls, street.shop.asked) == (1, 1)


@pytest.mark.parametrize("row", [pytest.param(None, id="T20 C01 the look-up fails")])
def test_nothing_is_sent_again_while_the_look_up_fails(street: Street, row: None) -> None:
    street.shop.fault, street.shop.look_up_fault = "reset", True
    with street.run() as run:
        with pytest.raises(UnknownOutcomeError):
            run.do("shop.order", sku="A")
        with pytest.raises(UnknownOutcomeError):
            run.do("shop.order", sku="A")
    street.shop.fault, street.shop.look_up_fault = "", False
    with street.run() as run:
        run.do("shop.order", sku="A")
    assert (len(street.shop.orders), street.shop.calls) == (1, 1)


def test_a_call_that_never_arrives_leaves_again_under_its_key_and_not_for_ever(
    street: Street,
) -> None:
    street.shop.fault = "refused"
    with street.run() as run, pytest.raises(UnknownOutcomeError):
        run.do("shop.order", sku="A")
    assert street.shop.calls == 2
    street.shop.fault = ""
    with street.run() as run:
        run.do("shop.order", sku="A")
    keys = {event.key for _, event in audit.events(street.keeper().parts, run.state.run_id)}
    assert len(keys - {""}) == 1


def test_a_call_that_leaves_no_trace_again_and_again_becomes_a_case(street: Street) -> None:
    street.shop.fault = "refused"
    for _ in range(SENDS_MAX):
        with street.run() as run, suppress(UnknownOutcomeError, FrozenError):
            run.do("shop.order", sku="A")
    assert run.state.phase is Phase.NEEDS_REVIEW
    assert street.shop.calls == SENDS_MAX


@pytest.mark.parametrize(
    ("level", "phase"),
    [
        pytest.param("deduplicating", Phase.RUNNING, id="one that deduplicates is sent again"),
        pytest.param("queryable", Phase.NEEDS_REVIEW, id="one without a bound is a person's"),
        pytest.param("blind", Phase.NEEDS_REVIEW, id="C01 one that cannot be asked is a person's"),
    ],
)
def test_an_effect_is_done_at_most_once_at_every_level(level: str, phase: Phase) -> None:
    street = Street(level=level)
    street.shop.fault = "killed"
    with pytest.raises(WorkerKilled), street.run() as run:
        run.do("shop.order", sku="A")
    street.shop.orders.clear()  # the answer of a target that has not landed it yet
    street.shop.fault = ""
    with street.run() as run:
        try:
            run.do("shop.order", sku="A")
        except FrozenError:
            assert run.state.case is not None
        assert run.state.phase is phase


def test_a_refusal_by_policy_reaches_no_target(street: Street) -> None:
    task = Task(id="idle", policy=Policy(permissions=("shop.stock",)))
    with street.run("run-2", task) as run, pytest.raises(PermissionDeniedError):
        run.do("shop.order", sku="A")
    assert street.shop.calls == 0


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param({"sku": 7}, id="another type"),
        pytest.param({}, id="missing"),
        pytest.param({"sku": "A", "colour": "red"}, id="unknown"),
        pytest.param({"sku": "A", "quantity": True}, id="a bool is no integer"),
        pytest.param({"sku": "\ud800"}, id="half a character"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_before_the_intent(
    street: Street, arguments: dict[str, object]
) -> None:
    with street.run() as run:
        with pytest.raises(ContractError):
            run.do("shop.order", **arguments)
        assert run.state.pending is None
        assert run.state.spent.proposals == 1
    assert street.shop.calls == 0


def test_a_value_too_large_to_remember_is_refused_with_its_bound(street: Street) -> None:
    with street.run() as run, pytest.raises(ContractError, match="65536"):
        run.remember("huge", lambda: "x" * 70_000)


def test_a_failed_verification_may_be_tried_again_after_a_restart(street: Street) -> None:
    with street.run() as run, pytest.raises(VerificationError):
        run.verify()
    with street.run() as run:
        run.do("shop.order", sku="A")
        run.verify()
        assert run.finish().phase is Phase.COMPLETED


def test_an_ended_run_takes_no_further_action(street: Street) -> None:
    with street.run() as run:
        program(run)
        with pytest.raises(TerminalError):
            run.do("shop.order", sku="C")


def test_an_unavailable_store_poisons_the_session(street: Street) -> None:
    with street.run() as run:
        run.do("shop.order", sku="A")
        run.flush()
        put, street.store.put = street.store.put, _unavailable
        with pytest.raises(UnavailableError):
            run.do("shop.order", sku="B")
        street.store.put = put
        with pytest.raises(UnavailableError):
            run.do("shop.order", sku="B")
    with street.run() as run:
        run.do("shop.order", sku="A")
        run.do("shop.order", sku="B")
    assert street.shop.calls == 2


def _unavailable(batch: object) -> None:
    raise UnavailableError("the disk is full")


def test_every_step_of_a_program_is_in_its_audited_trace(street: Street) -> None:
    with street.run() as run:
        program(run)
    found = audit.audit(street.keeper().parts, run.state.run_id)
    assert (found.events, found.leftovers) == (run.state.trace_size, 0)


def test_an_action_at_its_bound_can_still_freeze() -> None:
    street = Street(level="blind")
    street.shop.fault = "reset"
    with street.run() as run, pytest.raises(FrozenError):
        run.do("shop.order", sku="A" * (ARGUMENTS_BYTES_MAX - 1_000))
    assert run.state.phase is Phase.NEEDS_REVIEW


@pytest.mark.parametrize("row", [pytest.param(None, id="C14 what a read returns")])
def test_what_a_read_returns_is_the_same_now_and_on_replay(street: Street, row: None) -> None:
    for _ in range(2):
        with street.run() as run:
            assert run.do("shop.photo") == {"raw": b"\xff\x00", "text": "half \ud83d"}
