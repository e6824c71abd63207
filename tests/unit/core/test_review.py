"""A decision binds the whole case, ends by the clock, and says no more than it may."""

from typing import Any

import pytest
from msgspec.structs import replace

from counterfoil.core.errors import ApprovalError, SignatureError
from counterfoil.core.review import (
    CaseReason,
    Decision,
    Verdict,
    check_decision,
    decision_for,
    open_decision,
    open_migration,
)
from tests.support.people import ADA, HOUR_MS, RITA, ROB, approve, decide, roots
from tests.support.runs import BEGAN_MS, BOX, MOVED, RUN_ID, TASK, case_of, pending, receipt_of
from tests.unit.core.test_approval import REQUEST

CASE = case_of(pending(), observed=BOX)
TRUSTED = roots(ADA, RITA, ROB)


def decision(verdict: Verdict = Verdict.REPLAN, **changes: Any) -> Decision:
    made = decision_for(
        CASE,
        run_id=RUN_ID,
        task=TASK.id,
        verdict=verdict,
        signer="rita",
        evidence="order 7",
        issued_at_ms=BEGAN_MS,
        expires_at_ms=BEGAN_MS + HOUR_MS,
    )
    return replace(made, **changes)


def judge(made: Decision, by: Any = RITA, now_ms: int = BEGAN_MS, case: Any = CASE) -> None:
    check_decision(made, by.trusted, case, run_id=RUN_ID, task=TASK.id, now_ms=now_ms)


@pytest.mark.parametrize("verdict", [pytest.param(v, id=f"T22 {v}") for v in Verdict])
def test_a_decision_on_this_case_fits(verdict: Verdict) -> None:
    judge(decision(verdict))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        pytest.param(field, value, id=f"T22 {field}")
        for field, value in {
            "run": "run-2",
            "task": "task-2",
            "reason": CaseReason.LATE_COMMIT,
            "challenge": "c-2",
            "key": "key-2",
            "digest": "i1:2",
            "receipt_digest": "2" * 64,
        }.items()
    ],
)
def test_each_binding_alone_is_refused(field: str, value: Any) -> None:
    with pytest.raises(ApprovalError, match=field):
        judge(decision(**{field: value}))


@pytest.mark.parametrize("observed", [pytest.param(MOVED, id="T22 moved"), None])
def test_another_world_is_refused(observed: Any) -> None:
    with pytest.raises(ApprovalError, match="environment"):
        judge(decision(observed=observed))


@pytest.mark.parametrize(
    ("now_ms", "fits"),
    [
        pytest.param(BEGAN_MS + HOUR_MS - 1, True, id="acc-A22 a moment before"),
        pytest.param(BEGAN_MS + HOUR_MS, False, id="acc-A22 T11 at the moment"),
    ],
)
def test_a_decision_ends_at_its_very_moment(now_ms: int, fits: bool) -> None:
    try:
        judge(decision(), now_ms=now_ms)
    except ApprovalError:
        assert not fits
    else:
        assert fits


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param({"revoked_at_ms": BEGAN_MS}, id="T13 revoked"),
        pytest.param({"scope": replace(RITA.entry.scope, tasks=("t",))}, id="T13 out of scope"),
    ],
)
def test_a_reviewer_decides_in_time_and_in_scope(entry: dict[str, Any]) -> None:
    with pytest.raises(ApprovalError, match="rita"):
        judge(decision(), by=RITA.but(**entry))


@pytest.mark.parametrize(
    ("verdict", "case", "changes"),
    [
        pytest.param(Verdict.CONFIRM_DONE, CASE, {"evidence": ""}, id="T22 no evidence"),
        pytest.param(
            Verdict.CONFIRM_ABSENT,
            replace(CASE, receipt=receipt_of(pending())),
            {},
            id="T22 absent beside a receipt",
        ),
        pytest.param(
            Verdict.CONFIRM_ABSENT,
            replace(CASE, reason=CaseReason.INTENT_CONFLICT),
            {"reason": CaseReason.INTENT_CONFLICT},
            id="T22 absent on a conflict",
        ),
    ],
)
def test_nothing_is_confirmed_against_the_evidence(
    verdict: Verdict, case: Any, changes: dict[str, Any]
) -> None:
    with pytest.raises(ApprovalError, match="confirm"):
        judge(decision(verdict, **changes), case=case)


@pytest.mark.parametrize(
    "envelope",
    [
        pytest.param(approve(REQUEST), id="T13 an approval"),
        pytest.param(decide(CASE, Verdict.ABORT, RUN_ID, TASK.id, ADA), id="T13 an approver"),
        pytest.param(
            decide(CASE, Verdict.ABORT, RUN_ID, TASK.id, RITA, signer="rob"),
            id="T13 another's name",
        ),
    ],
)
def test_what_a_reviewer_did_not_sign_does_not_open(envelope: bytes) -> None:
    with pytest.raises(SignatureError):
        open_decision(envelope, TRUSTED)
    with pytest.raises(SignatureError):
        open_migration(envelope, TRUSTED)
