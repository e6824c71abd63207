"""Runs over MCP servers: what is lost, late, refused or changed; tickets are counted."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from msgspec.structs import replace

from counterfoil.core.errors import (
    BindingError,
    FrozenError,
    LeaseLostError,
    PermissionDeniedError,
    RefusedError,
    StaleObservationError,
    UnavailableError,
    UnknownOutcomeError,
)
from counterfoil.core.review import CaseReason
from counterfoil.core.run import Phase
from counterfoil.core.words import Key, Level
from counterfoil.keeper import Keeper
from counterfoil.testing.adapter_bench import AdapterBench, Call, operation
from tests.support.mcp_bench import HTTP, SCOPE, STDIO, Desk, create, is_question, is_write
from tests.support.mcp_desk import shared
from tests.support.mcp_scene import (
    killed,
    shown,
    staged,
    task_of,
    titles,
    triage,
    write,
    write_once,
)
from tests.support.stages import TTL_MS, Backend, PlayStage

IN_FLIGHT_MS = 60_000
SHORT_MS = 700
TRIES = 20
BOTH = pytest.mark.parametrize("way", [HTTP, STDIO])


@pytest.fixture(scope="module")
def desk(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Desk:
    return shared(request.session, tmp_path_factory)


def both(row: str) -> Any:
    ways = [pytest.param(way, id=f"{row} {way}") for way in (HTTP, STDIO)]
    return pytest.mark.parametrize("way", ways)


def row(name: str) -> Any:
    return pytest.mark.parametrize("case", [name])


def finished(stage: PlayStage) -> Phase:
    """Let a fresh process bring the run to its end."""
    stage.work(stage.parts())
    return shown(stage).phase


def scoped() -> Any:
    return type("Bench", (AdapterBench,), {"scope": SCOPE, "__init__": lambda self: None})()


# ---------------------------------------------------------------- answers that are lost


@both("C35 the server commits and drops the stream")
def test_a_lost_answer_is_settled_by_asking_and_not_by_calling_again(way: str, desk: Desk) -> None:
    with staged(desk, Level.DEDUPLICATING, way, program=write_once) as (stage, at):
        at.lose()
        stage.work(stage.parts())
        assert (titles(at), at.calls()) == (("A-1",), 1)


@both("C35 without a look-up")
def test_a_lost_answer_without_a_look_up_goes_to_a_person(way: str, desk: Desk) -> None:
    with staged(desk, Level.BLIND, way, program=write_once, is_watched=False) as (stage, at):
        at.lose()
        with pytest.raises(FrozenError):
            stage.work(stage.parts())
        case = shown(stage).case
        assert case is not None
        assert (case.reason, titles(at), at.calls("plain_ticket")) == (
            CaseReason.OUTCOME_UNKNOWN,
            ("A-1",),
            1,
        )


@BOTH
def test_a_run_in_which_answers_are_lost_ends_with_each_ticket_once(way: str, desk: Desk) -> None:
    with staged(desk, Level.QUERYABLE, way) as (stage, at):
        at.lose()
        assert finished(stage) is Phase.COMPLETED
        assert titles(at) == ("A-1", "B-2")


@pytest.mark.parametrize(
    ("fault", "calls"),
    [
        pytest.param("die-before", 2, id="the server dies before its effect"),
        pytest.param("die-after", 1, id="the server dies after its effect"),
        pytest.param("error-before", 2, id="the tool reports an error and did nothing"),
        pytest.param("error-after", 1, id="the tool reports an error after its effect"),
        pytest.param("rpc-before", 2, id="invalid params, and nothing done"),
        pytest.param("rpc-after", 1, id="invalid params, after its effect"),
        pytest.param("huge", 1, id="T30 the answer has no end"),
        pytest.param("other", 1, id="the answer is of another key"),
    ],
)
def test_whatever_is_answered_instead_of_a_receipt_is_settled_by_asking(
    fault: str, calls: int, desk: Desk
) -> None:
    with staged(desk, Level.DEDUPLICATING, STDIO, program=write_once) as (stage, at):
        at.fault(fault)
        stage.work(stage.parts())
        assert (titles(at), at.calls()) == (("A-1",), calls)


@pytest.mark.parametrize("fault", ["huge", "rpc-after", "other"])
def test_over_http_it_is_the_same(fault: str, desk: Desk) -> None:
    with staged(desk, Level.DEDUPLICATING, program=write_once) as (stage, at):
        at.fault(fault)
        stage.work(stage.parts())
        assert (titles(at), at.calls()) == (("A-1",), 1)


@BOTH
@pytest.mark.parametrize("moment", ["before the call", "after the call"])
def test_a_new_process_asks_before_it_acts(way: str, moment: str, desk: Desk) -> None:
    with staged(desk, Level.DEDUPLICATING, way) as (stage, at):
        killed(stage, "adapter.execute", is_after=moment == "after the call")
        assert finished(stage) is Phase.COMPLETED
        assert (titles(at), at.calls()) == (("A-1", "B-2"), 2)


# ---------------------------------------------------------------- refusals before dispatch


@row("C35 the session is unknown")
def test_a_call_that_a_restarted_server_turns_away_is_made_once_more(case: str, desk: Desk) -> None:
    with staged(desk, Level.BLIND, program=write_once, is_watched=False) as (stage, at):
        assert at.proxy is not None
        at.proxy.arm("gone", is_write)
        with Keeper(stage.parts()).run(stage.task, stage.run_id) as run:
            with pytest.raises(UnavailableError, match="404"):
                write(run)
            assert at.calls("plain_ticket") == 0
            write(run)
        assert (titles(at), at.calls("plain_ticket")) == (("A-1",), 1)


@row("C35 the server was restarted")
def test_a_session_that_ended_is_replaced_before_a_call(case: str, desk: Desk) -> None:
    with staged(desk, Level.BLIND, is_watched=False) as (stage, at):
        with Keeper(stage.parts()).run(stage.task, stage.run_id) as run:
            write(run)
            desk.kill()
            desk.start()
            write(run, "B-2")
        assert (titles(at), at.calls("plain_ticket")) == (("A-1", "B-2"), 2)


@pytest.mark.parametrize("status", ["401", "403", "405"])
def test_a_call_that_is_not_let_in_is_a_refusal(status: str, desk: Desk) -> None:
    with staged(desk, Level.BLIND, program=write_once, is_watched=False) as (stage, at):
        assert at.proxy is not None
        at.proxy.arm(status, is_write)
        with (
            Keeper(stage.parts()).run(stage.task, stage.run_id) as run,
            pytest.raises(RefusedError, match=status),
        ):
            write(run)
        assert (shown(stage).phase, titles(at)) == (Phase.RUNNING, ())


@row("T27 a redirect")
def test_a_redirect_is_not_followed(case: str, desk: Desk) -> None:
    with staged(desk, Level.DEDUPLICATING, program=write_once) as (stage, at):
        assert at.proxy is not None
        at.proxy.arm("307", is_write)
        stage.work(stage.parts())
        assert not any(b"/elsewhere" in head.split(b"\r\n", 1)[0] for head in at.proxy.seen)
        assert titles(at) == ("A-1",)


def test_an_error_that_is_declared_final_is_a_refusal_and_the_run_goes_on(desk: Desk) -> None:
    with staged(desk, Level.BLIND, is_watched=False, is_error_final=True) as (stage, at):
        with Keeper(stage.parts()).run(stage.task, stage.run_id) as run:
            with pytest.raises(RefusedError, match="the title is no title"):
                write(run, "error")
            write(run)
        assert titles(at) == ("A-1",)


def test_a_code_that_is_declared_to_refuse_is_a_refusal(desk: Desk) -> None:
    with staged(desk, Level.BLIND, is_watched=False, refused_codes=(-32602,)) as (stage, at):
        at.fault("rpc-before")
        with Keeper(stage.parts()).run(stage.task, stage.run_id) as run:
            with pytest.raises(RefusedError, match="-32602"):
                write(run)
            write(run)
        assert titles(at) == ("A-1",)


def test_a_server_that_is_down_leaves_the_intent_unsent(desk: Desk) -> None:
    with staged(desk, Level.BLIND, is_watched=False) as (stage, at):
        assert at.proxy is not None
        with Keeper(stage.parts()).run(stage.task, stage.run_id) as run:
            at.proxy.close()
            with pytest.raises(UnavailableError):
                write(run)
        assert titles(at) == ()


@row("C35 an operator takes the tool away")
def test_a_tool_out_of_scope_is_refused_and_nobody_connects(case: str, desk: Desk) -> None:
    with staged(desk, Level.DEDUPLICATING) as (stage, at):
        assert at.proxy is not None
        (adapter,) = stage.adapters()
        call = Call(kind="tickets.create", arguments={"title": "A-1"})
        sent = operation(scoped(), adapter, call)
        desk_calls, seen = at.calls(), len(at.proxy.seen)
        with pytest.raises(PermissionDeniedError, match="create_ticket"):
            adapter.execute(replace(sent, scope={"tools": ("state",)}))
        assert (at.calls(), len(at.proxy.seen)) == (desk_calls, seen)


@row("C35 an operator takes the tool out of the policy during an outage")
@pytest.mark.parametrize(
    ("level", "ending"),
    [(Level.DEDUPLICATING, UnknownOutcomeError), (Level.BLIND, FrozenError)],
)
def test_the_policy_is_checked_before_anybody_connects_again(
    case: str, level: Level, ending: type[Exception], desk: Desk
) -> None:
    with staged(desk, level, program=write_once, is_watched=False) as (stage, at):
        assert at.proxy is not None
        parts = stage.parts()
        at.lose()
        with Keeper(parts).run(stage.task, stage.run_id) as run:
            at.proxy.arm("307", is_question)
            with pytest.raises(ending):
                write(run)
        stage.wait()
        stage.task = task_of(("state", "check"))
        calls, seen = at.calls(create(level).tool), len(at.proxy.seen)
        with pytest.raises(BindingError, match="another policy"):
            stage.work(parts)
        assert (at.calls(create(level).tool), len(at.proxy.seen)) == (calls, seen)


@row("T14 a tool outside of the scope")
def test_a_proposal_out_of_scope_is_refused_before_anything_is_durable(
    case: str, desk: Desk
) -> None:
    with staged(desk, Level.DEDUPLICATING, tools=("state", "check")) as (stage, at):
        with Keeper(stage.parts()).run(stage.task, stage.run_id) as run:
            with pytest.raises(PermissionDeniedError):
                write(run)
            assert run.state.pending is None
        assert at.calls() == 0


# ---------------------------------------------------------------- tools that change


@both("C35 the schema differs")
def test_a_tool_that_changed_since_it_was_seen_is_not_called(way: str, desk: Desk) -> None:
    with staged(desk, Level.DEDUPLICATING, way) as (stage, at):
        with Keeper(stage.parts()).run(stage.task, stage.run_id) as run:
            at.fault("rug")
            with pytest.raises(StaleObservationError, match="the tools of desk"):
                write(run)
        assert at.calls() == 0


def test_a_tool_that_changed_is_not_called_until_it_is_opened_again(desk: Desk) -> None:
    with staged(desk, Level.DEDUPLICATING) as (stage, at):
        (adapter,) = stage.adapters()
        at.fault("rug")
        call = Call(kind="tickets.create", arguments={"title": "A-1"})
        sent = operation(scoped(), adapter, call)
        with pytest.raises(PermissionDeniedError, match="changed since it was opened"):
            adapter.execute(sent)
        (again,) = stage.adapters()
        again.execute(sent)
        assert titles(at) == ("A-1",)


def test_a_look_up_by_a_tool_that_changed_says_nothing(desk: Desk) -> None:
    with staged(desk, Level.DEDUPLICATING) as (stage, at):
        (adapter,) = stage.adapters()
        at.fault("rug")
        said = adapter.look_up(stage.run_id, Key("never"), "tickets.create")
        assert said.reason == "the tools of desk changed since it was opened"


def test_tools_that_changed_while_no_worker_held_the_run_open_a_case(desk: Desk) -> None:
    with staged(desk, Level.DEDUPLICATING, program=triage) as (stage, at):
        killed(stage, "adapter.execute", is_after=False)
        at.fault("rug")
        with pytest.raises(FrozenError):
            stage.work(stage.parts())
        case = shown(stage).case
        assert case is not None
        assert (case.reason, at.calls()) == (CaseReason.ENVIRONMENT_DRIFT, 0)


def test_another_actor_while_no_worker_holds_the_run_opens_a_case(desk: Desk) -> None:
    with staged(desk, Level.DEDUPLICATING) as (stage, at):
        with Keeper(stage.parts()).run(stage.task, stage.run_id) as run:
            write(run)
        at.disturb()
        with pytest.raises(FrozenError):
            stage.work(stage.parts())
        assert titles(at) == ("A-1",)


# ---------------------------------------------------------------- calls that land late


@BOTH
def test_a_late_answer_is_not_credited_to_the_next_call(way: str, desk: Desk) -> None:
    with staged(desk, Level.QUERYABLE, way, is_watched=False) as (stage, at):
        (adapter,) = stage.adapters()
        at.fault("answer-late")
        first = replace(_sent(adapter, "A-1", "key-1"), timeout_ms=SHORT_MS)
        with pytest.raises(UnknownOutcomeError):
            once_sent(lambda: adapter.execute(first))
        at.fault("go")
        receipt = adapter.execute(_sent(adapter, "B-2", "key-2"))
        assert (receipt.result["title"], receipt.result["reference"]) == ("B-2", "key-2")
        found = adapter.look_up(first.run_id, first.key, "tickets.create").receipt
        assert found is not None
        assert (found.result["title"], titles(at)) == ("A-1", ("A-1", "B-2"))


def once_sent(call: Callable[[], object]) -> object:
    """Make a call until it was sent, however long this machine takes to send it."""
    for _ in range(TRIES):
        with suppress(UnavailableError):
            return call()
    raise AssertionError("it was never sent")


def _sent(adapter: Any, title: str, key: str) -> Any:
    call = Call(kind="tickets.create", arguments={"title": title})
    return operation(scoped(), adapter, call, key=Key(key))


@row("C35 an answer with the id of an earlier request")
def test_an_answer_to_another_request_is_not_taken(case: str, desk: Desk) -> None:
    with staged(desk, Level.QUERYABLE, is_watched=False) as (stage, at):
        assert at.proxy is not None
        (adapter,) = stage.adapters()
        at.proxy.arm("swap", is_write)
        with pytest.raises(UnknownOutcomeError):
            adapter.execute(_sent(adapter, "A-1", "key-1"))
        receipt = adapter.execute(_sent(adapter, "B-2", "key-2"))
        assert (receipt.result["title"], titles(at)) == ("B-2", ("A-1", "B-2"))


def test_with_keys_the_late_first_call_and_the_second_are_one_ticket(desk: Desk) -> None:
    with staged(desk, Level.DEDUPLICATING, program=write_once, call_ms=SHORT_MS) as (stage, at):
        at.fault("land-late")
        with suppress(UnavailableError, UnknownOutcomeError):
            stage.work(stage.parts())
        at.fault("go")
        for _ in range(TRIES):
            stage.wait()
            with suppress(UnavailableError, UnknownOutcomeError):
                stage.work(stage.parts())
                break
        assert (shown(stage).pending, titles(at)) == (None, ("A-1",))


@row("C28 it may still land")
def test_not_found_while_it_may_still_land_is_not_called_again(case: str, desk: Desk) -> None:
    more: dict[str, Any] = {"is_watched": False, "in_flight_ms": IN_FLIGHT_MS}
    with staged(desk, Level.QUERYABLE, STDIO, program=write_once, **more) as (stage, at):
        at.fault("die-before")
        with pytest.raises(UnknownOutcomeError, match="may still land"):
            stage.work(stage.parts())
        assert at.calls("plain_ticket") == 1
        stage.backend.clock.advance(IN_FLIGHT_MS + TTL_MS)
        stage.work(stage.parts())
        assert (titles(at), at.calls("plain_ticket")) == (("A-1",), 2)


@row("C28 no bound")
def test_without_a_bound_a_person_decides(case: str, desk: Desk) -> None:
    with staged(desk, Level.QUERYABLE, STDIO, program=write_once, is_watched=False) as (stage, at):
        at.fault("die-before")
        with pytest.raises(FrozenError):
            stage.work(stage.parts())
        assert (titles(at), at.calls("plain_ticket")) == ((), 1)


# ---------------------------------------------------------------- keys and workers


def test_the_same_key_with_another_intent_is_a_conflict_that_a_person_sees(desk: Desk) -> None:
    backend = Backend()
    with staged(desk, Level.DEDUPLICATING, backend=backend) as (stage, at):
        with Keeper(stage.parts()).run(stage.task, stage.run_id) as run:
            write(run, "A-1", key="shared")
        stage.run_id = backend.new_run()
        with (
            pytest.raises(FrozenError),
            Keeper(stage.parts()).run(stage.task, stage.run_id) as run,
        ):
            write(run, "B-2", key="shared")
        case = shown(stage).case
        assert case is not None
        assert (case.reason, titles(at)) == (CaseReason.INTENT_CONFLICT, ("A-1",))


def test_a_former_workers_late_call_is_the_same_ticket_and_its_commit_is_refused(
    desk: Desk,
) -> None:
    with staged(desk, Level.DEDUPLICATING, program=write_once) as (stage, at):
        former = Keeper(stage.parts("former")).run(stage.task, stage.run_id)
        stage.wait()
        stage.work(stage.parts("next"))
        with pytest.raises(LeaseLostError):
            write(former)
        assert (titles(at), at.calls()) == (("A-1",), 1)


def test_a_second_caller_meanwhile_makes_no_call(desk: Desk) -> None:
    with (
        staged(desk, Level.DEDUPLICATING, program=write_once) as (stage, at),
        Keeper(stage.parts("first")).run(stage.task, stage.run_id),
    ):
        with pytest.raises(LeaseLostError):
            stage.work(stage.parts("second"))
        assert at.calls() == 0


@BOTH
def test_the_key_the_intent_and_the_fence_travel_beside_the_arguments(way: str, desk: Desk) -> None:
    with staged(desk, Level.BLIND, way, is_watched=False) as (stage, at):
        (adapter,) = stage.adapters()
        sent = _sent(adapter, "A-1", "key-1")
        adapter.execute(sent)
        (ticket,) = at.tickets()
        names = ("counterfoil/fence", "counterfoil/intent", "counterfoil/key", "counterfoil/run")
        fence = {"lease_version": sent.fence.lease_version, "nonce": sent.fence.nonce}
        values = (fence, sent.digest, "key-1", sent.run_id)
        assert ticket["meta"] == repr(list(zip(names, values, strict=True)))
