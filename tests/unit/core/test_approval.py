"""An approval binds each thing alone, and ends by each clock alone."""

from typing import Any

import pytest
from msgspec.structs import replace

from counterfoil.core.approval import (
    CLOCKS_APART_MS,
    Request,
    check_binding,
    earliest_end_ms,
    liveness_problem,
    open_approval,
    request_of,
    statement_digest,
)
from counterfoil.core.errors import ApprovalError, FormatError, SignatureError
from counterfoil.core.words import Risk
from tests.support.people import ADA, BOB, EVE, RITA, approval, approve, deny, roots
from tests.support.runs import BEGAN_MS, BOX, RUN_ID, TASK, pending

WAITING = pending(
    sends=0, approvals_required=1, policy_version="1", challenge="c-1", requested_at_ms=BEGAN_MS
)
REQUEST: Request = request_of(WAITING, run_id=RUN_ID, task=TASK.id, proposal=3)
TRUSTED = roots(ADA, BOB, RITA)


def test_an_approval_of_the_request_fits() -> None:
    check_binding(approval(REQUEST), REQUEST)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        pytest.param(field, value, id=f"T10 {field}")
        for field, value in {
            "run": "run-2",
            "task": "task-2",
            "policy_version": "2",
            "action_id": "a-2",
            "key": "key-2",
            "digest": "i1:2",
            "challenge": "c-2",
        }.items()
    ],
)
def test_each_binding_alone_is_refused_with_both_values(field: str, value: str) -> None:
    with pytest.raises(ApprovalError) as refused:
        check_binding(approval(REQUEST, **{field: value}), REQUEST)
    message = refused.value.message
    assert (field in message, repr(value) in message) == (True, True)
    assert repr(getattr(REQUEST, field)) in message


@pytest.mark.parametrize(
    ("field", "name", "value"),
    [
        pytest.param("adapter", "adapter", "other", id="T10 adapter"),
        pytest.param("instance", "instance", "box-2", id="T10 instance"),
        pytest.param("generation", "environment generation", 2, id="T10 generation"),
        pytest.param("version", "version", 4, id="T10 version"),
        pytest.param("fingerprint", "fingerprint", "f4", id="T10 fingerprint"),
        pytest.param("account", "account", "a-2", id="T10 account"),
    ],
)
def test_each_fact_of_the_environment_is_bound_alone(field: str, name: str, value: Any) -> None:
    other = replace(BOX, **{field: value})
    with pytest.raises(ApprovalError) as refused:
        check_binding(approval(REQUEST, environment=other), REQUEST)
    message = refused.value.message
    assert (name in message, repr(value) in message) == (True, True)
    assert repr(getattr(BOX, field)) in message


@pytest.mark.parametrize(
    ("changes", "now_ms", "word"),
    [
        pytest.param({"expires_at_ms": 100}, 99, "", id="T11 a moment before the end"),
        pytest.param({"expires_at_ms": 100}, 100, "ended at 100", id="T11 at the end"),
        pytest.param({"last_proposal": 3}, 0, "", id="T11 the last proposal"),
        pytest.param({"last_proposal": 2}, 0, "proposal 2", id="T11 one proposal past"),
        pytest.param({"issued_at_ms": BEGAN_MS - CLOCKS_APART_MS}, 0, "", id="T11 clocks apart"),
        pytest.param(
            {"issued_at_ms": BEGAN_MS - CLOCKS_APART_MS - 1}, 0, "older", id="T12 long before"
        ),
    ],
)
def test_an_approval_ends_by_each_clock(changes: dict[str, int], now_ms: int, word: str) -> None:
    made = approval(REQUEST, **changes)
    signer = ADA.but(valid_from_ms=-(2**40)).trusted
    problem = liveness_problem(made, signer, REQUEST, now_ms=now_ms)
    assert (bool(problem), word in problem) == (bool(word), True)


SCOPE = ADA.entry.scope


@pytest.mark.parametrize(
    ("entry", "word"),
    [
        pytest.param({"revoked_at_ms": BEGAN_MS}, "revoked", id="T11 revoked at this moment"),
        pytest.param({"revoked_at_ms": BEGAN_MS + 1}, "", id="T11 revoked a moment later"),
        pytest.param({"valid_until_ms": BEGAN_MS}, "valid until", id="T11 until this moment"),
        pytest.param({"valid_until_ms": BEGAN_MS + 1}, "", id="T11 until a moment later"),
        pytest.param({"valid_from_ms": BEGAN_MS}, "", id="T11 from this moment"),
        pytest.param({"valid_from_ms": BEGAN_MS + 1}, "valid from", id="T11 from a moment later"),
        pytest.param({"scope": replace(SCOPE, tasks=("t",))}, "task", id="T13 another task"),
        pytest.param({"scope": replace(SCOPE, kinds=("k",))}, "kind", id="T13 another kind"),
        pytest.param(
            {"scope": replace(SCOPE, risks=(Risk.READ_ONLY,))}, "risk", id="T13 another risk"
        ),
        pytest.param({"scope": replace(SCOPE, adapters=("a",))}, "adapter", id="T13 adapter"),
        pytest.param({"scope": replace(SCOPE, tasks=(TASK.id,))}, "", id="T13 this task"),
    ],
)
def test_a_signer_decides_in_time_and_in_scope(entry: dict[str, Any], word: str) -> None:
    signer = ADA.but(**entry).trusted
    problem = liveness_problem(approval(REQUEST), signer, REQUEST, now_ms=BEGAN_MS)
    assert (bool(problem), word in problem) == (bool(word), True)


@pytest.mark.parametrize(
    ("envelope", "error"),
    [
        pytest.param(approve(REQUEST, EVE), SignatureError, id="T13 nobody's key"),
        pytest.param(approve(REQUEST, RITA), SignatureError, id="T13 a reviewer's key"),
        pytest.param(approve(REQUEST, signer="bob"), SignatureError, id="T13 another's name"),
        pytest.param(approve(REQUEST, format=2), FormatError, id="T8 another format"),
        pytest.param(b"x" * 9_000, FormatError, id="T9 over the bound"),
    ],
)
def test_what_an_approver_did_not_sign_does_not_open(
    envelope: bytes, error: type[Exception]
) -> None:
    with pytest.raises(error):
        open_approval(envelope, TRUSTED)


def test_a_denial_opens_as_one() -> None:
    assert open_approval(deny(REQUEST), TRUSTED)[0].verdict == "deny"


def test_the_digest_of_statements_does_not_depend_on_their_order() -> None:
    one, two = approve(REQUEST).decode(), approve(REQUEST, BOB).decode()
    assert statement_digest((one, two)) == statement_digest((two, one)) != statement_digest((one,))


def test_what_rests_on_nothing_has_no_digest() -> None:
    assert (statement_digest(()), earliest_end_ms(())) == ("", 0)


def test_the_first_approval_to_end_ends_them_all() -> None:
    both = (approve(REQUEST, expires_at_ms=9).decode(), approve(REQUEST, BOB).decode())
    assert earliest_end_ms(both) == 9
