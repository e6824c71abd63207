"""Workers: who gets a run, what becomes of programs that fail, what waits for people."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from counterfoil.adapters.function.effects import Bounds
from counterfoil.core.codec import split_events
from counterfoil.core.errors import (
    BindingError,
    ConfigError,
    ContractError,
    IdempotencyConflictError,
    LeaseLostError,
    UnavailableError,
    UsageError,
)
from counterfoil.core.receipt import Fence
from counterfoil.core.review import Verdict
from counterfoil.core.run import Phase, parked
from counterfoil.core.task import Policy, Task
from counterfoil.core.trace import Event, Outcome
from counterfoil.core.words import RunId
from counterfoil.engine import control
from counterfoil.engine.matters import request_in
from counterfoil.engine.session import Session
from counterfoil.keeper import Keeper
from tests.support.desks import Desk, desk
from tests.support.people import approve, decide, deny
from tests.support.scenes import EFFECTS, TTL_MS
from tests.support.shops import TASK, Street, WorkerKilled

RUN = RunId("run-1")
Program = Callable[..., Any]


def fulfil(run: Session, sku: str = "A-7") -> None:
    run.do("shop.order", sku=sku)
    run.verify()
    run.finish()


def keeper_with(street: Street, program: Program = fulfil, task: Task = TASK) -> Keeper:
    keeper = street.keeper()
    keeper.program(task)(program)
    return keeper


def burst(keeper: Keeper, **options: Any) -> None:
    keeper.worker(is_burst=True, poll_ms=1, **options).run()


def state(street: Street, run_id: str = RUN) -> control.RunView:
    return control.show(street.keeper().parts, RunId(run_id))


def trace(street: Street) -> tuple[Event, ...]:
    rows = street.store.trace(RUN, -1, 1_000)
    return tuple(
        msgspec.json.decode(raw, type=Event) for row in rows for raw in split_events(row.events)
    )


def outcomes(street: Street) -> list[Outcome]:
    return [event.outcome for event in trace(street)]


# ---------------------------------------------------------------- submitting


def test_a_submitted_run_is_done_by_whichever_worker_is_free() -> None:
    street = Street()
    assert street.keeper().submit(TASK, RUN, {"sku": "B-1"})
    burst(keeper_with(street))
    assert state(street).run.phase is Phase.COMPLETED
    assert [order["body"]["sku"] for _, order in street.shop.orders.values()] == ["B-1"]


def test_submitting_again_changes_nothing_however_far_the_run_has_come() -> None:
    street = Street()
    assert street.keeper().submit(TASK, RUN, {"sku": "B-1"})
    assert not street.keeper().submit(TASK, RUN, {"sku": "B-1"})
    burst(keeper_with(street))
    assert not street.keeper().submit(TASK, RUN, {"sku": "B-1"})
    burst(keeper_with(street))
    assert street.shop.calls == 1


@pytest.mark.parametrize("arguments", [{}, {"sku": "B-2"}, {"sku": "B-1", "more": 1}])
def test_a_run_is_not_submitted_with_other_arguments(arguments: dict[str, object]) -> None:
    street = Street()
    street.keeper().submit(TASK, RUN, {"sku": "B-1"})
    with pytest.raises(IdempotencyConflictError):
        street.keeper().submit(TASK, RUN, arguments)
    assert state(street).run.arguments == {"sku": "B-1"}


def test_a_run_is_not_submitted_under_another_task() -> None:
    street = Street()
    street.keeper().submit(TASK, RUN)
    other = Task(id="restock", policy=Policy(permissions=("shop.order",)))
    with pytest.raises(BindingError):
        street.keeper().submit(other, RUN)


@pytest.mark.parametrize("arguments", [{"sku": object()}, {"sku": "x" * 16_384}, {"sku": 2**60}])
def test_arguments_that_cannot_be_kept_are_refused_before_anything_is(
    arguments: dict[str, object],
) -> None:
    street = Street()
    with pytest.raises(ContractError):
        street.keeper().submit(TASK, RUN, arguments)
    assert street.heads.read(RUN) is None


def test_a_run_that_was_opened_by_hand_can_be_finished_by_a_worker() -> None:
    street = Street()
    with street.keeper().run(TASK, RUN) as run:
        run.do("shop.order", sku="A-7")
    burst(keeper_with(street))
    assert (state(street).run.phase, street.shop.calls) == (Phase.COMPLETED, 1)


# ---------------------------------------------------------------- claiming


@pytest.mark.parametrize("count", [pytest.param(12, id="T21 many runs and workers")])
def test_of_many_workers_each_run_gets_one(count: int) -> None:
    street = Street()
    for number in range(count):
        street.keeper().submit(TASK, f"run-{number}", {"sku": f"S-{number}"})
    keepers = [keeper_with(street) for _ in range(4)]
    threads = [threading.Thread(target=burst, args=(keeper,)) for keeper in keepers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert street.shop.calls == count
    views = [state(street, f"run-{number}") for number in range(count)]
    assert {view.run.phase for view in views} == {Phase.COMPLETED}


def test_a_run_whose_worker_died_is_taken_over_and_its_effect_adopted() -> None:
    street = Street()
    street.keeper().submit(TASK, RUN)
    street.shop.fault = "killed"
    dying = keeper_with(street)
    session = dying.run(TASK, RUN)
    with pytest.raises(WorkerKilled):
        fulfil(session)
    street.shop.fault = ""
    burst(keeper_with(street))
    assert (street.shop.calls, state(street).run.phase) == (1, Phase.COMPLETED)


@pytest.mark.parametrize("late", [pytest.param("done", id="C04 a claim from an old list")])
def test_a_worker_that_listed_a_run_before_it_was_done_makes_no_call(late: str) -> None:
    street = Street()
    street.keeper().submit(TASK, RUN)
    second = keeper_with(street).worker(is_burst=True, poll_ms=1)
    assert second._due(9) == [RUN]
    burst(keeper_with(street))
    before = (street.shop.calls, street.shop.asked, outcomes(street))
    second._labour.work(RUN)
    assert (street.shop.calls, street.shop.asked, outcomes(street)) == before


@pytest.mark.parametrize(
    "owner", [pytest.param(name, id=f"C04 {name}") for name in ("worker", "other")]
)
def test_a_run_that_is_being_worked_on_cannot_be_claimed(owner: str) -> None:
    street, seen = Street(), list[int]()

    def slow(run: Session, **arguments: object) -> None:
        other = Keeper(replace(keeper.parts, owner=owner))
        other.program(TASK)(fulfil)
        other.worker(is_burst=True)._labour.work(RUN)
        seen.append(street.shop.calls)
        fulfil(run)

    street.keeper().submit(TASK, RUN)
    keeper = keeper_with(street, slow)
    burst(keeper)
    assert (seen, street.shop.calls) == ([0], 1)
    assert outcomes(street).count(Outcome.EXECUTED) == 1


def test_a_target_whose_answers_outlast_the_lease_is_not_asked() -> None:
    street = Street()
    street.keeper().submit(TASK, RUN)
    street.shop.fault = "killed"
    with pytest.raises(WorkerKilled):
        fulfil(keeper_with(street).run(TASK, RUN))
    street.shop.fault, asked = "", street.shop.asked
    slow = replace(street, bounds=Bounds(call_ms=TTL_MS))
    slow.heads = street.heads
    with pytest.raises(LeaseLostError, match="set a longer lease or a shorter time limit"):
        fulfil(slow.run(RUN))
    assert (street.shop.asked, street.shop.calls) == (asked, 1)
    burst(keeper_with(street))
    assert (street.shop.calls, state(street).run.phase) == (1, Phase.COMPLETED)


@pytest.mark.parametrize("level", [pytest.param("deduplicating", id="C06 (a) it can be asked")])
def test_a_worker_whose_lease_ran_out_between_two_effects_is_refused(level: str) -> None:
    street = Street(level=level)

    def slow(run: Session, **arguments: object) -> None:
        run.do("shop.order", sku="first")
        if not followed:
            followed.append(True)
            burst(keeper_with(street, slow))
        run.do("shop.order", sku="second")
        run.verify()
        run.finish()

    followed: list[bool] = []
    street.keeper().submit(TASK, RUN)
    burst(keeper_with(street, slow))
    assert state(street).run.phase is Phase.COMPLETED
    skus = [order["body"]["sku"] for _, order in street.shop.orders.values()]
    assert (skus, street.shop.calls) == (["first", "second"], 2)


@pytest.mark.parametrize("level", [pytest.param("blind", id="C06 (a) it cannot")])
def test_a_call_under_way_at_a_blind_target_is_for_a_person(level: str) -> None:
    street = Street(level=level)
    street.keeper().submit(TASK, RUN)
    street.shop.fault = "killed"
    with pytest.raises(WorkerKilled):
        fulfil(keeper_with(street).run(TASK, RUN))
    street.shop.fault = ""
    burst(keeper_with(street))
    assert (street.shop.calls, state(street).run.phase) == (1, Phase.NEEDS_REVIEW)
    burst(keeper_with(street))
    assert street.shop.calls == 1


@pytest.mark.parametrize("cuts", [pytest.param(3, id="C06 (c) a step that is cut")])
def test_a_program_that_is_cut_goes_on_behind_its_first_effect(cuts: int) -> None:
    street, left = Street(), list(range(cuts))

    def cut(run: Session, **arguments: object) -> None:
        run.do("shop.order", sku="first")
        if left:
            left.pop()
            raise TimeoutError
        fulfil(run, "second")

    street.keeper().submit(TASK, RUN)
    for _ in range(cuts + 1):
        burst(keeper_with(street, cut))
    assert (street.shop.calls, state(street).run.phase) == (2, Phase.COMPLETED)
    assert outcomes(street).count(Outcome.STUMBLED) == cuts


# ---------------------------------------------------------------- failing


def broken(run: Session, **arguments: object) -> None:
    run.do("shop.order", sku="A-7")
    raise ValueError("card 4111 1111 1111 1111")


def _fail(street: Street, times: int, program: Program = broken, **options: Any) -> None:
    for _ in range(times):
        street.clock.move(60_000)
        burst(keeper_with(street, program), **options)


def test_a_program_that_fails_at_one_position_is_parked_and_left() -> None:
    street = Street()
    street.keeper().submit(TASK, RUN)
    _fail(street, 5, tries_max=3)
    view = state(street)
    failure = parked(view.run)
    assert failure is not None
    assert (failure.count, view.head.status, view.head.nonce) == (3, "frozen", "")
    assert outcomes(street)[-3:] == [Outcome.STUMBLED, Outcome.STUMBLED, Outcome.PARKED]
    assert street.shop.calls == 1


def test_of_a_strangers_error_the_trace_keeps_no_payload() -> None:
    street = Street()
    street.keeper().submit(TASK, RUN)
    _fail(street, 1)
    reasons = [event.reason for event in trace(street)]
    assert any("ValueError at broken" in reason for reason in reasons)
    assert not any("4111" in reason for reason in reasons)


def test_a_failure_is_not_tried_again_before_its_pause_is_over() -> None:
    street = Street()
    street.keeper().submit(TASK, RUN)
    keeper = keeper_with(street, broken)
    for _ in range(3):
        burst(keeper)
    assert outcomes(street).count(Outcome.STUMBLED) == 1
    street.clock.move(1_000)
    burst(keeper)
    assert outcomes(street).count(Outcome.STUMBLED) == 2


def test_a_program_that_gets_further_starts_counting_anew() -> None:
    street, steps = Street(), [1, 1, 2, 2, 3, 3, 4]

    def creeping(run: Session, **arguments: object) -> None:
        for number in range(steps.pop(0)):
            run.do("shop.order", sku=f"S-{number}")
        if steps:
            raise ValueError
        run.verify()
        run.finish()

    street.keeper().submit(TASK, RUN)
    _fail(street, 7, creeping, tries_max=3)
    assert state(street).run.phase is Phase.COMPLETED
    assert Outcome.PARKED not in outcomes(street)


def test_a_target_that_is_away_parks_a_run_much_later() -> None:
    street = Street()
    street.keeper().submit(TASK, RUN)

    def away(run: Session, **arguments: object) -> None:
        raise UnavailableError("the shop is closed")

    _fail(street, 12, away, tries_max=1)
    assert outcomes(street).count(Outcome.STUMBLED) == 11
    assert outcomes(street)[-1] is Outcome.PARKED


async def cancelled_within(run: Any, **arguments: object) -> None:
    inner = asyncio.create_task(asyncio.sleep(60))
    await asyncio.sleep(0)
    inner.cancel()
    await inner


def interrupted(run: Session, **arguments: object) -> None:
    raise KeyboardInterrupt


def left(run: Session, **arguments: object) -> None:
    raise SystemExit(3)


@pytest.mark.parametrize("program", [cancelled_within, interrupted, left])
def test_a_program_cannot_end_its_worker(program: Program) -> None:
    street, other = Street(), Task(id="other", policy=TASK.policy, verifier=TASK.verifier)
    street.keeper().submit(TASK, RUN)
    street.keeper().submit(other, "run-2")
    keeper = keeper_with(street, program)
    keeper.program(other)(fulfil)
    burst(keeper, tries_max=1, concurrency=1)
    failure = parked(state(street).run)
    assert failure is not None
    assert failure.reason.startswith(("CancelledError", "KeyboardInterrupt", "SystemExit"))
    assert state(street, "run-2").run.phase is Phase.COMPLETED


def test_a_run_whose_workers_die_again_and_again_is_parked() -> None:
    street, tries = Street(), 2
    street.keeper().submit(TASK, RUN)
    for _ in range(tries * 4 - 1):
        keeper_with(street).run(TASK, RUN)  # opened, and never heard of again
    burst(keeper_with(street, lambda run, **_: run.state), tries_max=100)
    assert parked(state(street).run) is None
    for _ in range(tries * 4):
        keeper_with(street).run(TASK, RUN)
    burst(keeper_with(street), tries_max=tries)
    failure = parked(state(street).run)
    assert failure is not None
    assert (failure.reason, street.shop.calls) == ("opened 8 times, it got no further", 0)
    control.unpark(street.keeper().parts, RUN, actor="ann", reason="more memory")
    burst(keeper_with(street), tries_max=tries)
    assert state(street).run.phase is Phase.COMPLETED


def test_a_target_that_is_away_whenever_a_run_is_opened_parks_it_much_later() -> None:
    street, waits = Street(), list[int]()
    street.keeper().submit(TASK, RUN)
    worker = keeper_with(street).worker(is_burst=True, tries_max=1)
    adapter = worker._parts.adapters["shop"]

    def away(run_id: RunId, fence: Fence) -> None:
        raise UnavailableError("the shop is closed")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(adapter, "take", away)
        for _ in range(12):
            street.clock.move(60_000)
            waits.append(worker._labour.work(RUN).leave_alone_ms)
        assert waits[:7] == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000]
        assert parked(state(street).run) is None
        worker._labour.work(RUN)
    failure = parked(state(street).run)
    assert failure is not None
    assert (failure.reason, street.shop.calls) == ("opened 12 times, it got no further", 0)


def test_a_program_that_returns_without_an_end_has_failed() -> None:
    street = Street()
    street.keeper().submit(TASK, RUN)
    _fail(street, 1, lambda run, **_: run.do("shop.order", sku="A-7"), tries_max=1)
    failure = parked(state(street).run)
    assert failure is not None
    assert "has not ended" in failure.reason


def test_a_parked_run_is_given_back_on_record_and_goes_on_where_it_stopped() -> None:
    street = Street()
    street.keeper().submit(TASK, RUN)
    _fail(street, 1, tries_max=1)
    parts = street.keeper().parts
    assert control.unpark(parts, RUN, actor="ann", reason="mended").count == 1
    with pytest.raises(UsageError):
        control.unpark(street.keeper().parts, RUN, actor="ann", reason="mended")
    burst(keeper_with(street, lambda run, **_: fulfil(run)))
    assert (state(street).run.phase, street.shop.calls) == (Phase.COMPLETED, 1)


def test_a_parked_run_can_be_finished_by_hand() -> None:
    street = Street()
    street.keeper().submit(TASK, RUN)
    _fail(street, 1, tries_max=1)
    with street.keeper().run(TASK, RUN) as run:
        fulfil(run)
    assert state(street).head.status == "terminal"


# ---------------------------------------------------------------- who is served


def test_a_run_of_another_task_is_left_alone() -> None:
    street = Street()
    street.keeper().submit(TASK, RUN)
    other = Task(id="other", policy=Policy(permissions=("shop.order",)))
    burst(keeper_with(street, fulfil, other))
    view = state(street)
    assert (view.head.lease_version, view.run.trace_size) == (1, 1)


def test_runs_that_are_not_ours_do_not_hide_those_that_are() -> None:
    street = Street()
    other = Task(id="other", policy=Policy(permissions=("shop.order",)))
    for number in range(20):
        street.keeper().submit(other, f"other-{number}")
    street.keeper().submit(TASK, RUN)
    burst(keeper_with(street), concurrency=1)
    assert state(street).run.phase is Phase.COMPLETED


def test_a_worker_without_programs_does_not_start() -> None:
    with pytest.raises(ConfigError):
        Street().keeper().worker()


@pytest.mark.parametrize("name", ["concurrency", "tries_max", "poll_ms", "grace_ms"])
def test_a_worker_with_a_number_below_one_does_not_start(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        keeper_with(Street()).worker(**{name: 0})


def test_a_task_has_one_program() -> None:
    keeper = keeper_with(Street())
    with pytest.raises(ContractError):
        keeper.program(TASK)(fulfil)


def test_a_program_may_be_a_coroutine_function() -> None:
    street = Street()

    async def awaited(run: Any, sku: str) -> None:
        await run.do("shop.order", sku=sku)
        await run.verify()
        await run.finish()

    street.keeper().submit(TASK, RUN, {"sku": "A-7"})
    burst(keeper_with(street, awaited))
    assert state(street).run.phase is Phase.COMPLETED


# ---------------------------------------------------------------- stopping


def test_a_worker_that_is_stopped_lets_programs_end_and_then_asks_them_to() -> None:
    street, under_way, steps = Street(), threading.Event(), list[int]()

    def endless(run: Session, **arguments: object) -> None:
        for number in range(1_000_000):
            run.do("shop.order", sku=f"S-{number}")
            steps.append(number)
            under_way.set()

    street.keeper().submit(TASK, RUN)
    keeper = keeper_with(street, endless)
    worker = keeper.worker(poll_ms=1, grace_ms=50)
    thread = threading.Thread(target=worker.run)
    thread.start()
    assert under_way.wait(30)
    worker.stop()
    thread.join(30)
    assert not thread.is_alive()
    head = street.heads.read(RUN)
    assert head is not None
    assert (head.nonce, head.status) == ("", "active")
    assert street.shop.calls == len(street.shop.orders) >= len(steps)


# ---------------------------------------------------------------- waiting for people


def _waiting() -> tuple[Desk, Keeper]:
    """Return a desk whose run waits for an approval, and a worker's keeper."""
    at = desk()
    run, _ = at.asks()
    run.close()
    at.scene.clock.move(TTL_MS + 1)
    keeper = Keeper(at.parts())

    def settle(run: Session, **arguments: object) -> None:
        run.settle()
        run.cancel("done")

    keeper.program(at.scene.task)(settle)
    return at, keeper


def test_a_run_that_waits_for_a_person_is_no_workers_business() -> None:
    at, keeper = _waiting()
    before = keeper.parts.heads.read(RUN)
    assert before is not None
    assert (before.status, keeper.parts.heads.claimable(9)) == ("frozen", ())
    burst(keeper)
    assert keeper.parts.heads.read(RUN) == before
    assert at.scene.world.write_count == 0


def test_a_worker_goes_on_when_the_approval_arrives() -> None:
    at, keeper = _waiting()
    at.hand(approve(request_in(control.show(keeper.parts, RUN))))
    burst(keeper)
    assert at.scene.world.write_count == 1
    assert control.show(keeper.parts, RUN).run.phase is Phase.CANCELLED


def test_a_worker_hears_a_denial_and_the_program_fails_on_record() -> None:
    at, keeper = _waiting()
    at.hand(deny(request_in(control.show(keeper.parts, RUN))))
    burst(keeper, tries_max=1)
    view = control.show(keeper.parts, RUN)
    failure = parked(view.run)
    assert failure is not None
    assert "ApprovalError" in failure.reason
    assert at.scene.world.write_count == 0


def test_a_statement_that_nobody_signed_wakes_a_run_and_changes_nothing() -> None:
    at, keeper = _waiting()
    at.hand(b"rubbish")
    burst(keeper)
    view = control.show(keeper.parts, RUN)
    assert (view.head.status, view.run.pending is not None) == ("frozen", True)
    assert at.scene.world.write_count == 0


def test_a_case_is_left_alone_until_it_is_decided() -> None:
    at, keeper = _waiting()
    at.scene.world.tamper("app.py", EFFECTS)
    at.hand(approve(request_in(control.show(keeper.parts, RUN))))
    burst(keeper)
    view = control.show(keeper.parts, RUN)
    assert (view.run.phase, view.head.status) == (Phase.NEEDS_REVIEW, "frozen")
    burst(keeper)
    assert control.show(keeper.parts, RUN).head.generation == view.head.generation
    assert view.run.case is not None
    at.hand(decide(view.run.case, Verdict.ABORT, RUN, view.run.task_id))
    at.scene.clock.move(TTL_MS)
    burst(keeper)
    assert control.show(keeper.parts, RUN).run.phase is Phase.FAILED
