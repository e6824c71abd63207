"""Whose answer it is and what it says: a receipt, nothing, or nothing that can be believed."""

from typing import Any

import pytest

from counterfoil.adapters.mcp import receipts
from counterfoil.adapters.mcp.listing import Listing, pinned
from counterfoil.adapters.mcp.site import Result
from counterfoil.core.errors import (
    FrozenError,
    RefusedError,
    UnknownOutcomeError,
)
from counterfoil.core.intent import EnvironmentState
from counterfoil.core.receipt import Answer
from counterfoil.core.review import CaseReason
from counterfoil.core.run import Phase
from counterfoil.core.words import Key, Level, RunId
from counterfoil.testing.adapter_bench import AdapterBench, Call, operation
from tests.support.mcp_bench import (
    CANDIDATES,
    FIND,
    HTTP,
    SCOPE,
    STDIO,
    Ask,
    Desk,
    Fields,
    When,
    create,
    is_write,
    spec_of,
)
from tests.support.mcp_desk import shared
from tests.support.mcp_scene import shown, staged, titles, write_once

STATE = EnvironmentState(adapter="desk", instance="desk")
RUN, KEY = RunId("run-1"), Key("key-1")
TICKET: dict[str, Any] = {"id": 7, "reference": KEY, "intent": "d", "run": RUN, "created": 1}
SPEC = spec_of(CANDIDATES[0])
CREATE = create(Level.DEDUPLICATING)


@pytest.fixture(scope="module")
def desk(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Desk:
    return shared(request.session, tmp_path_factory)


def said(document: Any, **more: Any) -> Answer:
    """Return what follows when a look-up answers so."""
    asked = Ask(**({"tool": FIND.tool, "marks": FIND.marks, "receipt": "/ticket"} | more))
    question = receipts.Question(asked=asked, tool=CREATE, spec=SPEC, run_id=RUN, key=KEY)
    return receipts.looked_up(question, document, STATE).answer


def without(name: str) -> dict[str, Any]:
    return {each: value for each, value in TICKET.items() if each != name}


# ---------------------------------------------------------------- what a look-up says


@pytest.mark.parametrize(
    ("document", "more", "expected"),
    [
        pytest.param({"ticket": None}, {}, "absent", id="a null"),
        pytest.param({"tickets": []}, {"receipt": "/tickets/0"}, "absent", id="an empty array"),
        pytest.param({}, {"is_missing_absent": True}, "absent", id="missing, as it was declared"),
        pytest.param({}, {}, "unknown", id="missing"),
        pytest.param({"error": "busy"}, {}, "unknown", id="another shape"),
        pytest.param("busy", {"is_missing_absent": True}, "unknown", id="a text"),
        pytest.param(
            {"found": "busy"},
            {"receipt": "/found/ticket", "is_missing_absent": True},
            "unknown",
            id="a text around it",
        ),
        pytest.param(
            {"error": "busy"},
            {"receipt": "/found/ticket", "is_missing_absent": True},
            "unknown",
            id="nothing around it",
        ),
        pytest.param({"found": None}, {"receipt": "/found/ticket"}, "unknown", id="null around it"),
        pytest.param({"tickets": None}, {"receipt": "/tickets/0"}, "unknown", id="no array"),
        pytest.param({"tickets": [None]}, {"receipt": "/tickets/0"}, "unknown", id="null in it"),
        pytest.param({"tickets": [TICKET]}, {"receipt": "/tickets/1"}, "unknown", id="too short"),
        pytest.param({}, {"receipt": ""}, "unknown", id="nothing at all"),
        pytest.param({"ticket": {}}, {}, "unknown", id="an empty object"),
        pytest.param({"ticket": []}, {}, "unknown", id="an empty array for a receipt"),
        pytest.param({"ticket": [TICKET]}, {}, "unknown", id="an array for a receipt"),
        pytest.param({"ticket": "T-7"}, {}, "unknown", id="a text for a receipt"),
        pytest.param({"ticket": True}, {}, "unknown", id="true for a receipt"),
        pytest.param({"ticket": TICKET | {"reference": "other"}}, {}, "unknown", id="another key"),
        pytest.param({"ticket": TICKET | {"run": "other"}}, {}, "found_other", id="another run"),
        pytest.param({"ticket": TICKET}, {}, "found", id="the receipt"),
        *(
            pytest.param({"ticket": without(name)}, {}, "unknown", id=f"a receipt without {name}")
            for name in TICKET
        ),
    ],
)
def test_only_an_empty_place_is_absent_and_only_a_whole_receipt_is_found(
    document: Any, more: dict[str, Any], expected: str
) -> None:
    assert said(document, **more) == expected


@pytest.mark.parametrize("fault", ["find-error", "find-words", "find-shape"])
def test_a_look_up_that_says_nothing_is_asked_again_and_the_tool_is_not_called(
    fault: str, desk: Desk
) -> None:
    with staged(desk, Level.DEDUPLICATING, STDIO, program=write_once) as (stage, at):
        at.fault("die-after")
        at.fault(fault)
        with pytest.raises(UnknownOutcomeError):
            stage.work(stage.parts())
        assert at.calls() == 1
        stage.wait()
        stage.work(stage.parts())
        assert (titles(at), at.calls()) == (("A-1",), 1)


# ---------------------------------------------------------------- what a call answers


def sent(adapter: Any) -> Any:
    scoped: Any = type("Bench", (AdapterBench,), {"scope": SCOPE, "__init__": lambda self: None})()
    return operation(scoped, adapter, Call(kind="tickets.create", arguments={"title": "A-1"}))


@pytest.mark.parametrize("fault", ["bare", "empty", "mute", "other"])
@pytest.mark.parametrize("way", [HTTP, STDIO])
def test_an_answer_without_its_receipt_is_unknown(way: str, fault: str, desk: Desk) -> None:
    with staged(desk, Level.DEDUPLICATING, way) as (stage, at):
        (adapter,) = stage.adapters()
        at.fault(fault)
        with pytest.raises(UnknownOutcomeError):
            adapter.execute(sent(adapter))
        assert titles(at) == ("A-1",)


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"answer": "/ticket", "fields": Fields()}, id="at a place"),
        pytest.param({"answer": "", "fields": Fields(id="/id")}, id="with a field"),
        pytest.param({"answer": "/0", "fields": Fields()}, id="among texts"),
    ],
)
@pytest.mark.parametrize("fault", ["bare", "empty", "mute"])
def test_a_blind_tool_that_declares_a_receipt_must_show_one(
    fault: str, more: dict[str, Any], desk: Desk
) -> None:
    with staged(desk, Level.BLIND, STDIO, is_watched=False, **more) as (stage, at):
        (adapter,) = stage.adapters()
        at.fault(fault)
        with pytest.raises(UnknownOutcomeError):
            adapter.execute(sent(adapter))


def test_a_blind_tool_that_declares_none_is_done_by_a_whole_answer(desk: Desk) -> None:
    more: dict[str, Any] = {"answer": "", "fields": Fields(), "is_watched": False}
    with staged(desk, Level.BLIND, STDIO, **more) as (stage, at):
        (adapter,) = stage.adapters()
        at.fault("mute")
        receipt = adapter.execute(sent(adapter))
        assert receipt.result == [{"type": "text", "text": "it is done"}]


def test_words_pass_no_verification() -> None:
    tool = create(Level.BLIND, passes=When(at=""))
    result = Result(document=None, texts=[{"type": "text", "text": "ok"}], is_error=False)
    operated: Any = type("Sent", (), {"run_id": RUN, "digest": "d"})
    assert receipts.read(tool, SPEC, result, STATE, operated).result == {
        "passed": False,
        "answer": [{"type": "text", "text": "ok"}],
    }


# ---------------------------------------------------------------- whose answer it is


@pytest.mark.parametrize(
    "answer",
    [
        "another's error",
        "nobody's error",
        "another's result",
        "nobody's event",
        "another's event",
        "another's event, no text",
        "a call that answers",
    ],
)
def test_an_answer_that_does_not_name_the_request_is_credited_to_none(
    answer: str, desk: Desk
) -> None:
    more: dict[str, Any] = {"is_watched": False, "refused_codes": (-32602,)}
    with staged(desk, Level.BLIND, **more) as (stage, at):
        assert at.proxy is not None
        (adapter,) = stage.adapters()
        at.proxy.arm(answer, is_write)
        with pytest.raises(UnknownOutcomeError):
            adapter.execute(sent(adapter))
        assert titles(at) == ("A-1",)


def test_an_error_that_names_the_request_is_its_answer_whatever_the_status(desk: Desk) -> None:
    more: dict[str, Any] = {"is_watched": False, "refused_codes": (-32602,)}
    with staged(desk, Level.BLIND, **more) as (stage, at):
        assert at.proxy is not None
        (adapter,) = stage.adapters()
        at.proxy.arm("own error", is_write)
        with pytest.raises(RefusedError, match="-32602"):
            adapter.execute(sent(adapter))


# ---------------------------------------------------------------- a server that is full


@pytest.mark.parametrize("way", [HTTP, STDIO])
def test_a_server_that_is_full_wrote_nothing_and_is_called_again(way: str, desk: Desk) -> None:
    with staged(desk, Level.DEDUPLICATING, way, program=write_once) as (stage, at):
        at.fault("full")
        stage.work(stage.parts())
        assert (titles(at), at.calls()) == (("A-1",), 2)


def test_a_server_that_stays_full_is_called_again_by_a_later_session(desk: Desk) -> None:
    with staged(desk, Level.DEDUPLICATING, program=write_once) as (stage, at):
        at.fault("full")
        at.fault("full")
        with pytest.raises(UnknownOutcomeError):
            stage.work(stage.parts())
        assert (titles(at), at.calls()) == ((), 2)
        stage.wait()
        stage.work(stage.parts())
        assert (titles(at), at.calls()) == (("A-1",), 3)


def test_a_full_server_is_refusing_where_its_errors_are_final(desk: Desk) -> None:
    with staged(desk, Level.BLIND, is_watched=False, is_error_final=True) as (stage, at):
        (adapter,) = stage.adapters()
        at.fault("full")
        with pytest.raises(RefusedError, match="database or disk is full"):
            adapter.execute(sent(adapter))
        assert titles(at) == ()


def test_a_full_server_that_is_blind_goes_to_a_person(desk: Desk) -> None:
    with staged(desk, Level.BLIND, program=write_once, is_watched=False) as (stage, at):
        at.fault("full")
        with pytest.raises(FrozenError):
            stage.work(stage.parts())
        run = shown(stage)
        assert run.case is not None
        assert (run.phase, run.case.reason) == (Phase.NEEDS_REVIEW, CaseReason.OUTCOME_UNKNOWN)
        assert (titles(at), at.calls("plain_ticket")) == ((), 1)


def test_long_addresses_with_one_beginning_are_two_environments() -> None:
    shown = Listing(tools={}, pin="0" * 32)
    long = "https://" + "a" * 200
    names = {pinned(base, shown) for base in (long + "1", long + "2", "https://a")}
    assert len(names) == 3
    assert max(map(len, names)) <= len("https://") + 175
