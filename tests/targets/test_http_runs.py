"""Runs over a service of HTTP: what is lost, late, moved or fenced off; orders are counted."""

from collections.abc import Iterator
from dataclasses import replace as changed
from pathlib import Path
from typing import Any

import pytest

from counterfoil.adapters.http import Meaning, Question, Service, When
from counterfoil.core.errors import (
    FrozenError,
    LeaseLostError,
    RefusedError,
    StaleObservationError,
    UnavailableError,
    UnknownOutcomeError,
)
from counterfoil.core.intent import Action
from counterfoil.core.reconcile import RETENTION_MARGIN_MS
from counterfoil.core.review import CaseReason
from counterfoil.core.run import Phase
from counterfoil.core.trace import Outcome
from counterfoil.core.words import Level
from counterfoil.engine import audit
from counterfoil.keeper import Keeper
from tests.support.http_bench import ASGI, DAY_MS, STDLIB, Shop, running
from tests.support.http_scene import (
    BRIEF_MS,
    held,
    killed,
    order,
    order_once,
    patiently,
    restock,
    shown,
    skus,
    staged,
)
from tests.support.killing import outcomes
from tests.support.stages import TTL_MS, Backend, PlayStage

IN_FLIGHT_MS = 60_000


@pytest.fixture(scope="module")
def stdlib(tmp_path_factory: Any) -> Iterator[Shop]:
    folder: Path = tmp_path_factory.mktemp("stdlib")
    with running(STDLIB, folder) as shop:
        yield shop


@pytest.fixture(scope="module")
def asgi(tmp_path_factory: Any) -> Iterator[Shop]:
    folder: Path = tmp_path_factory.mktemp("asgi")
    with running(ASGI, folder) as shop:
        yield shop


def keeping(row: str = "") -> Any:
    """Return the levels at which a service keeps keys, each with its shop."""
    return pytest.mark.parametrize(
        ("level", "name"),
        [
            pytest.param(Level.DEDUPLICATING, "stdlib", id=f"{row} deduplicating".strip()),
            pytest.param(Level.TRANSACTIONAL, "asgi", id=f"{row} transactional".strip()),
        ],
    )


def at_level(level: Level, row: str) -> Any:
    return pytest.mark.parametrize("level", [pytest.param(level, id=row)])


def shop_of(request: pytest.FixtureRequest, name: str) -> Shop:
    shop: Shop = request.getfixturevalue(name)
    return shop


def finished(stage: PlayStage) -> Phase:
    """Let a fresh process bring the run to its end."""
    stage.work(stage.parts())
    return shown(stage).phase


# ---------------------------------------------------------------- answers that are lost


@pytest.mark.parametrize("fate", ["lose", "twice"])
@keeping()
def test_a_request_that_is_lost_or_doubled_on_the_way_is_one_order(
    level: Level, name: str, fate: str, request: pytest.FixtureRequest
) -> None:
    with staged(shop_of(request, name), level) as (stage, at):
        at.proxy.arm(fate)
        assert finished(stage) is Phase.COMPLETED
        assert skus(at) == ("A-1", "B-2")


@keeping()
def test_a_lost_answer_is_settled_by_asking_and_not_by_sending_again(
    level: Level, name: str, request: pytest.FixtureRequest
) -> None:
    with staged(shop_of(request, name), level, program=order_once) as (stage, at):
        at.proxy.arm("lose")
        stage.work(stage.parts())
        assert (skus(at), at.proxy.writes()) == (("A-1",), 1)


@keeping()
def test_a_request_that_never_arrived_is_sent_again_under_its_key(
    level: Level, name: str, request: pytest.FixtureRequest
) -> None:
    with staged(shop_of(request, name), level, program=order_once) as (stage, at):
        at.proxy.arm("drop")
        stage.work(stage.parts())
        assert (skus(at), at.proxy.writes()) == (("A-1",), 2)


def test_a_lost_answer_without_any_look_up_goes_to_a_person(stdlib: Shop) -> None:
    with staged(stdlib, Level.BLIND, is_watched=False) as (stage, at):
        at.proxy.arm("lose")
        with pytest.raises(FrozenError):
            stage.work(stage.parts())
        case = shown(stage).case
        assert case is not None
        assert (case.reason, skus(at)) == (CaseReason.OUTCOME_UNKNOWN, ("A-1",))


@pytest.mark.parametrize(
    "fate",
    [
        pytest.param("cut", id="the answer is cut off"),
        pytest.param("huge", id="the answer has no end"),
        pytest.param("packed", id="the answer is packed"),
        pytest.param("503-after", id="the service errs after its effect"),
    ],
)
def test_an_answer_that_cannot_be_read_is_settled_by_asking(fate: str, stdlib: Shop) -> None:
    with staged(stdlib, Level.DEDUPLICATING, program=order_once) as (stage, at):
        at.fault(fate)
        stage.work(stage.parts())
        assert (skus(at), at.proxy.writes()) == (("A-1",), 1)


@keeping("C01")
@pytest.mark.parametrize("moment", ["before the call", "after the call"])
def test_a_new_process_asks_before_it_acts(
    level: Level, name: str, moment: str, request: pytest.FixtureRequest
) -> None:
    with staged(shop_of(request, name), level) as (stage, at):
        killed(stage, "adapter.execute", is_after=moment == "after the call")
        assert finished(stage) is Phase.COMPLETED
        assert (skus(at), at.proxy.writes()) == (("A-1", "B-2"), 2)


# ---------------------------------------------------------------- targets that are down or slow


@keeping()
def test_a_service_that_is_down_leaves_the_intent_unsent(
    level: Level, name: str, request: pytest.FixtureRequest
) -> None:
    shop = shop_of(request, name)
    with staged(shop, level, program=order_once) as (stage, at):
        with Keeper(stage.parts()).run(stage.task, stage.run_id) as run:
            at.proxy.close()
            with pytest.raises(UnavailableError):
                order(run)
        assert (shown(stage).phase, skus(at)) == (Phase.RUNNING, ())


@keeping()
def test_a_service_that_comes_back_is_asked_and_then_called(
    level: Level, name: str, tmp_path: Path
) -> None:
    module = STDLIB if name == "stdlib" else ASGI
    with running(module, tmp_path) as shop, staged(shop, level) as (stage, at):
        with Keeper(stage.parts()).run(stage.task, stage.run_id) as run:
            shop.kill()
            at.proxy.is_down = True
            with pytest.raises((UnknownOutcomeError, UnavailableError)):
                order(run)
        shop.start()
        at.proxy.is_down = False
        stage.wait()
        patiently(stage)
        assert shown(stage).phase is Phase.COMPLETED
        assert skus(at) == ("A-1", "B-2")


@keeping()
def test_a_service_that_is_full_is_left_and_ordered_from_once_it_has_room(
    level: Level, name: str, request: pytest.FixtureRequest
) -> None:
    shop = shop_of(request, name)
    with staged(shop, level) as (stage, at):
        with Keeper(stage.parts()).run(stage.task, stage.run_id) as run:
            shop.fill()
            try:
                with pytest.raises((UnknownOutcomeError, UnavailableError)):
                    order(run)
            finally:
                shop.make_room()
            assert (shown(stage).phase, skus(at)) == (Phase.RUNNING, ())
        stage.wait()
        assert finished(stage) is Phase.COMPLETED
        assert skus(at) == ("A-1", "B-2")


@pytest.mark.parametrize(
    ("fate", "error"),
    [
        pytest.param("instead:429", UnavailableError, id="too many requests"),
        pytest.param("instead:503", None, id="overloaded"),
        pytest.param("instead:507", None, id="full"),
        pytest.param("instead:hang-up", None, id="it hangs up"),
    ],
)
def test_a_service_that_is_short_of_something_for_a_while_gets_one_order(
    fate: str, error: type[UnavailableError] | None, stdlib: Shop
) -> None:
    with staged(stdlib, Level.DEDUPLICATING, program=order_once) as (stage, at):
        at.fault(fate)
        if error is not None:
            with pytest.raises(error):
                stage.work(stage.parts())
            assert skus(at) == ()
        stage.work(stage.parts())
        assert (skus(at), at.proxy.writes()) == (("A-1",), 2)


@pytest.mark.parametrize("fate", ["instead:503", "instead:507"])
def test_a_service_that_stays_short_of_something_leaves_it_open(fate: str, stdlib: Shop) -> None:
    with staged(stdlib, Level.DEDUPLICATING, program=order_once) as (stage, at):
        for _ in range(2):
            at.fault(fate)
        with pytest.raises(UnknownOutcomeError):
            stage.work(stage.parts())
        assert (shown(stage).phase, skus(at)) == (Phase.RUNNING, ())
        stage.work(stage.parts())
        assert skus(at) == ("A-1",)


@pytest.mark.parametrize(
    "case", ["C07 recovery before the commit", "C07 recovery after the commit"]
)
def test_a_call_that_outlives_its_worker_is_one_order(case: str, stdlib: Shop) -> None:
    with staged(stdlib, Level.DEDUPLICATING, program=order_once, call_ms=BRIEF_MS) as (stage, at):
        held(stage, at)
        if case == "C07 recovery before the commit":
            with pytest.raises((UnavailableError, UnknownOutcomeError)):
                stage.work(stage.parts())
            assert skus(at) == ()
        at.fault("go", f"{at.tenant}/go")
        at.wait_for_order()
        patiently(stage)
        assert skus(at) == ("A-1",)


@at_level(Level.BLIND, "C07 no look-up")
def test_a_provider_without_a_look_up_leaves_it_to_a_person(level: Level, stdlib: Shop) -> None:
    with staged(stdlib, level, program=order_once, is_watched=False) as (stage, at):
        killed(stage, "adapter.execute")
        with pytest.raises(FrozenError):
            stage.work(stage.parts())
        assert (skus(at), at.proxy.writes()) == (("A-1",), 1)


@at_level(Level.DEDUPLICATING, "C07 a second caller")
def test_a_second_caller_meanwhile_makes_no_call(level: Level, stdlib: Shop) -> None:
    with (
        staged(stdlib, level, program=order_once) as (stage, at),
        Keeper(stage.parts("first")).run(stage.task, stage.run_id),
    ):
        seen = len(at.proxy.seen)
        with pytest.raises(LeaseLostError):
            stage.work(stage.parts("second"))
        assert len(at.proxy.seen) == seen


# ---------------------------------------------------------------- calls that land late

LOOKS = (Outcome.ASKED, Outcome.RESENT, Outcome.RECONCILED)
"""What the trace says of a look-up: nothing certain, sent again, or found."""


@at_level(Level.QUERYABLE, "C28 it lands late")
def test_not_found_while_it_may_still_land_is_not_sent_again(level: Level, stdlib: Shop) -> None:
    more: dict[str, Any] = {"in_flight_ms": IN_FLIGHT_MS}
    with staged(stdlib, level, program=order_once, is_watched=False, **more) as (
        stage,
        at,
    ):
        at.proxy.arm("late")
        for _ in range(2):  # at once, and again in a process that is started after it
            with pytest.raises(UnknownOutcomeError, match=r"may still land, ask again after \d+"):
                stage.work(stage.parts())
            assert (skus(at), at.proxy.writes()) == ((), 1)
            stage.backend.clock.advance(TTL_MS // 2)
        at.proxy.arrive()
        stage.backend.clock.advance(IN_FLIGHT_MS)
        stage.work(stage.parts())
        assert (skus(at), at.proxy.writes()) == (("A-1",), 1)
        assert [outcome for outcome in outcomes(stage) if outcome in LOOKS] == [
            Outcome.ASKED,
            Outcome.ASKED,
            Outcome.RECONCILED,
        ]


@at_level(Level.QUERYABLE, "C28 (l) the listing lags")
def test_what_a_listing_does_not_show_yet_is_not_sent_again(level: Level, stdlib: Shop) -> None:
    with staged(
        stdlib,
        level,
        program=order_once,
        is_watched=False,
        of=lagging,
        in_flight_ms=IN_FLIGHT_MS,
    ) as (stage, at):
        at.proxy.arm("lose")
        for _ in range(2):
            with pytest.raises(UnknownOutcomeError, match="may still land"):
                stage.work(stage.parts())
            assert (skus(at), at.proxy.writes()) == (("A-1",), 1)
            stage.backend.clock.advance(TTL_MS // 2)
        at.fault("shown", f"{at.tenant}/listed")
        stage.backend.clock.advance(IN_FLIGHT_MS)
        stage.work(stage.parts())
        assert (skus(at), at.proxy.writes()) == (("A-1",), 1)


def lagging(declared: Service) -> Service:
    """Ask for orders in a listing that shows them some time after they were made."""
    write = declared.endpoints[0]
    url = write.url.replace("/plain/orders", "/lagging?reference={key}")
    question = Question(url=url, receipt="/data/0", linearizable=False)
    return changed(declared, endpoints=(changed(write, look_up=question), *declared.endpoints[1:]))


@at_level(Level.QUERYABLE, "C28 (n) it never arrived")
def test_what_never_arrived_is_sent_once_more_after_the_bound(level: Level, stdlib: Shop) -> None:
    more: dict[str, Any] = {"in_flight_ms": IN_FLIGHT_MS}
    with staged(stdlib, level, program=order_once, is_watched=False, **more) as (
        stage,
        at,
    ):
        at.proxy.arm("drop")
        with pytest.raises(UnknownOutcomeError):
            stage.work(stage.parts())
        stage.backend.clock.advance(IN_FLIGHT_MS + TTL_MS)
        stage.work(stage.parts())
        assert (skus(at), at.proxy.writes()) == (("A-1",), 2)
        looks = [event for _, event in audit.events(stage.parts(), stage.run_id)]
        assert [event.reason for event in looks if event.outcome in LOOKS] == [
            "the look-up said absent: an earlier call may still land",
            "the look-up said absent",
        ]


@at_level(Level.QUERYABLE, "C28 no bound")
def test_without_a_bound_a_person_decides(level: Level, stdlib: Shop) -> None:
    with staged(stdlib, level, program=order_once, is_watched=False) as (stage, at):
        at.proxy.arm("drop")
        with pytest.raises(FrozenError):
            stage.work(stage.parts())
        assert (skus(at), at.proxy.writes()) == ((), 1)


@keeping("C28 (k) with key support,")
def test_with_keys_the_late_first_call_and_the_second_are_one_order(
    level: Level, name: str, request: pytest.FixtureRequest
) -> None:
    with staged(shop_of(request, name), level, program=order_once) as (stage, at):
        at.proxy.arm("late")
        stage.work(stage.parts())
        at.proxy.arrive()
        assert (skus(at), at.proxy.writes()) == (("A-1",), 2)


# ---------------------------------------------------------------- keys


@pytest.mark.parametrize(
    ("age_ms", "ends"),
    [
        pytest.param(DAY_MS - RETENTION_MARGIN_MS, Phase.RUNNING, id="while the key is kept"),
        pytest.param(DAY_MS - RETENTION_MARGIN_MS + 1, Phase.NEEDS_REVIEW, id="after that"),
    ],
)
def test_nothing_is_sent_again_once_the_service_may_have_forgotten_the_key(
    age_ms: int, ends: Phase, stdlib: Shop
) -> None:
    more: dict[str, Any] = {"key_retention_ms": DAY_MS}
    with staged(stdlib, Level.DEDUPLICATING, program=order_once, **more) as (stage, at):
        killed(stage, "adapter.execute", is_after=False)
        stage.backend.clock.advance(age_ms - TTL_MS - 1)
        if ends is Phase.NEEDS_REVIEW:
            with pytest.raises(FrozenError):
                stage.work(stage.parts())
        else:
            stage.work(stage.parts())
        assert shown(stage).phase is ends
        assert at.proxy.writes() == (ends is Phase.RUNNING)


@keeping("C08")
def test_the_same_key_with_another_intent_is_a_conflict_that_a_person_sees(
    level: Level, name: str, request: pytest.FixtureRequest
) -> None:
    backend = Backend()
    with staged(shop_of(request, name), level, backend=backend) as (stage, at):
        with Keeper(stage.parts()).run(stage.task, stage.run_id) as run:
            order(run, "A-1", key="shared")
        stage.run_id = backend.new_run()
        with (
            pytest.raises(FrozenError),
            Keeper(stage.parts()).run(stage.task, stage.run_id) as run,
        ):
            order(run, "B-2", key="shared")
        case = shown(stage).case
        assert case is not None
        assert (case.reason, skus(at)) == (CaseReason.INTENT_CONFLICT, ("A-1",))


@at_level(Level.DEDUPLICATING, "C08 a conflict with status 400")
def test_a_conflict_is_told_from_a_refusal_by_what_the_service_says(
    level: Level, stdlib: Shop
) -> None:
    conflict = When(status=400, at="/error/type", equals="idempotency_error")
    means = ((conflict, Meaning.CONFLICT),)
    with staged(stdlib, level, means=means) as (stage, at):
        at.fault("instead:400-conflict")
        with pytest.raises(FrozenError):
            stage.work(stage.parts())
        assert skus(at) == ()


@keeping("C08")
def test_an_invalid_request_is_a_refusal_and_the_run_goes_on(
    level: Level, name: str, request: pytest.FixtureRequest
) -> None:
    with staged(shop_of(request, name), level) as (stage, at):
        with Keeper(stage.parts()).run(stage.task, stage.run_id) as run:
            with pytest.raises(RefusedError, match="status 400"):
                order(run, "unknown")
            order(run, "A-1")
        assert (shown(stage).phase, skus(at)) == (Phase.RUNNING, ("A-1",))


@keeping()
def test_a_refusal_whose_answer_was_lost_is_a_refusal(
    level: Level, name: str, request: pytest.FixtureRequest
) -> None:
    with staged(shop_of(request, name), level) as (stage, at):
        at.proxy.arm("lose")
        with Keeper(stage.parts()).run(stage.task, stage.run_id) as run:
            ended = FrozenError if level is Level.DEDUPLICATING else RefusedError
            with pytest.raises(ended):
                order(run, "unknown")
        assert skus(at) == ()


@pytest.mark.parametrize(
    ("shop", "level"), [("stdlib", Level.DEDUPLICATING), ("asgi", Level.TRANSACTIONAL)]
)
def test_a_settled_key_that_is_proposed_again_is_answered_from_the_record(
    shop: str, level: Level, request: pytest.FixtureRequest
) -> None:
    with staged(request.getfixturevalue(shop), level, is_watched=False) as (stage, at):
        with Keeper(stage.parts()).run(stage.task, stage.run_id) as run:
            for _ in range(2):
                run.propose(proposal(run, "A-1"))
                run.settle()
        assert (skus(at), at.proxy.writes()) == (("A-1",), 1)


def proposal(run: Any, sku: str) -> Action:
    (state,) = run.state.environments
    return Action(
        kind="orders.create",
        arguments={"body": {"sku": sku}},
        preconditions={"version": state.version},
        key="the-key",
    )


def test_a_service_that_errs_after_its_effect_and_keeps_that_answer_goes_to_a_person(
    asgi: Shop,
) -> None:
    with staged(asgi, Level.TRANSACTIONAL) as (stage, _):
        with (
            pytest.raises(FrozenError),
            Keeper(stage.parts()).run(stage.task, stage.run_id) as run,
        ):
            order(run, "broken")
        case = shown(stage).case
        assert case is not None
        assert case.reason is CaseReason.INCOMPLETE_RECEIPT


# ---------------------------------------------------------------- workers and other actors


def test_another_actor_between_observation_and_execution_stops_the_call(stdlib: Shop) -> None:
    with staged(stdlib, Level.DEDUPLICATING, if_match=True) as (stage, at):
        with Keeper(stage.parts()).run(stage.task, stage.run_id) as run:
            at.disturb()
            with pytest.raises(StaleObservationError):
                order(run)
            run.observe()
            order(run, "B-2")
        assert skus(at) == ("B-2",)


def test_another_actor_while_no_worker_holds_the_run_opens_a_case(stdlib: Shop) -> None:
    with staged(stdlib, Level.DEDUPLICATING) as (stage, at):
        with Keeper(stage.parts()).run(stage.task, stage.run_id) as run:
            order(run)
        at.disturb()
        with pytest.raises(FrozenError):
            stage.work(stage.parts())
        assert skus(at) == ("A-1",)


def test_an_unwatched_service_may_be_used_by_others_all_the_while(asgi: Shop) -> None:
    with staged(asgi, Level.TRANSACTIONAL, program=restock) as (stage, at):
        with Keeper(stage.parts()).run(stage.task, stage.run_id) as run:
            order(run)
        at.disturb()
        assert finished(stage) is Phase.COMPLETED
