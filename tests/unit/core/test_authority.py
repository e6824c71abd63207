"""What statements do to a run, and what a run refuses to believe."""

from typing import Any

import pytest
from msgspec.structs import replace

from counterfoil.core.authority import approval_lack, check_authority, pending_request
from counterfoil.core.errors import ApprovalError, BindingError, CounterfoilError, SignatureError
from counterfoil.core.inputs import (
    Approved,
    Denied,
    Lapsed,
    Released,
    Resent,
    Revoked,
    Rules,
    Withdrawn,
)
from counterfoil.core.machine import apply
from counterfoil.core.run import Run, check_invariants
from counterfoil.core.trace import Outcome
from tests.support.people import ADA, BOB, EVE, HOUR_MS, RITA, approve, deny, revoke, roots
from tests.support.runs import BEGAN_MS, KINDS, TASK, fresh, pending

ASKING = replace(TASK, policy=replace(TASK.policy, approval_kinds=("box.put",)))
TRUSTED = roots(ADA, BOB, RITA)


def rules(now_ms: int = BEGAN_MS) -> Rules:
    return Rules(task=ASKING, kinds=KINDS, now_ms=now_ms, roots=TRUSTED)


def waiting(required: int = 1) -> Run:
    return fresh(
        pending=pending(
            sends=0,
            approvals_required=required,
            policy_version="1",
            challenge="c-1",
            requested_at_ms=BEGAN_MS,
        )
    )


def after(run: Run, *given: Any, now_ms: int = BEGAN_MS) -> Run:
    """Apply inputs in order, each of which must leave a possible run."""
    for one in given:
        run = apply(run, one, rules(now_ms)).run
        check_invariants(run, ASKING)
    return run


def yes(run: Run, by: Any = ADA, **changes: Any) -> Approved:
    return Approved(envelope=approve(pending_request(run), by, **changes).decode())


@pytest.mark.parametrize(
    ("required", "signers", "lack"),
    [
        pytest.param(1, (), "0 of 1", id="C37 nobody"),
        pytest.param(1, (ADA,), "", id="C37 one of one"),
        pytest.param(2, (ADA,), "1 of 2", id="C37 one of two"),
        pytest.param(2, (ADA, BOB), "", id="C37 two of two"),
    ],
)
def test_enough_people_must_approve(required: int, signers: tuple[Any, ...], lack: str) -> None:
    run = waiting(required)
    run = after(run, *(yes(run, by) for by in signers))
    found = approval_lack(run, rules())
    assert (bool(found), lack in found) == (bool(lack), True)


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(lambda run: yes(run, note="again"), id="C37 the same signer"),
        pytest.param(lambda run: yes(run, BOB), id="C37 one more than asked"),
        pytest.param(lambda run: yes(run, BOB, key="key-9"), id="T10 another key"),
        pytest.param(lambda run: yes(run, BOB, verdict="deny"), id="T13 a denial as an approval"),
        pytest.param(
            lambda run: Denied(envelope=approve(pending_request(run), BOB).decode()),
            id="T13 an approval as a denial",
        ),
        pytest.param(lambda run: yes(run, EVE), id="T13 nobody"),
        pytest.param(lambda run: yes(run, RITA), id="T13 a reviewer"),
    ],
)
def test_what_does_not_fit_is_refused_and_changes_nothing(given: Any) -> None:
    run = waiting()
    run = after(run, yes(run))
    with pytest.raises((ApprovalError, SignatureError)):
        apply(run, given(run), rules())


def test_a_denial_gives_the_intent_up() -> None:
    run = waiting()
    step = apply(run, Denied(envelope=deny(pending_request(run)).decode()), rules())
    assert (step.run.pending, step.run.attempt) == (None, 1)
    assert isinstance(step.error, ApprovalError)


@pytest.mark.parametrize("end", [Denied, Withdrawn, Revoked])
def test_what_may_have_left_is_not_given_up(end: Any) -> None:
    run = waiting()
    asked, envelope = pending_request(run), yes(run).envelope
    run = after(run, yes(run), Released())
    if end is Revoked:
        taken = Revoked(envelope=revoke(asked, envelope.encode()).decode())
        left = after(run, taken)
        assert left.pending is not None
        assert (left.pending.approvals, left.pending.released) != ((), "")
        return
    given = Withdrawn(reason="?") if end is Withdrawn else Denied(envelope=deny(asked).decode())
    with pytest.raises(ApprovalError, match="sent already"):
        apply(run, given, rules())


@pytest.mark.parametrize(
    ("now_ms", "leaves"),
    [
        pytest.param(BEGAN_MS + HOUR_MS - 1, True, id="T11 a moment before"),
        pytest.param(BEGAN_MS + HOUR_MS, False, id="T11 at the moment"),
    ],
)
@pytest.mark.parametrize("given", [Released(), Resent()])
def test_no_call_is_recorded_after_its_approval(now_ms: int, leaves: bool, given: Any) -> None:
    run = waiting()
    run = after(run, yes(run))
    if isinstance(given, Resent):
        run = after(run, Released())
    try:
        left = apply(run, given, rules(now_ms)).run
    except ApprovalError:
        left = None
    assert (left is not None) == leaves


def test_a_released_intent_notes_what_it_left_under_and_until_when() -> None:
    run = waiting()
    run = after(run, yes(run), Released())
    assert run.pending is not None
    assert run.pending.released
    assert run.pending.released_until_ms == BEGAN_MS + HOUR_MS


def test_a_lapse_keeps_the_approval_and_the_time() -> None:
    run = waiting()
    run = after(run, yes(run))
    step = apply(run, Lapsed(reason="over"), rules(BEGAN_MS + HOUR_MS))
    assert step.events[0].outcome is Outcome.APPROVAL_REJECTED
    assert step.run.pending == run.pending
    assert approval_lack(step.run, rules(BEGAN_MS))


def test_a_revocation_is_taken_once() -> None:
    run = waiting()
    taken = Revoked(envelope=revoke(pending_request(run), b"").decode())
    run = after(run, taken)
    with pytest.raises(ApprovalError, match="already"):
        apply(run, taken, rules())
    with pytest.raises(ApprovalError, match="took back"):
        apply(run, yes(run), rules())
    again = after(run, yes(run, issued_at_ms=BEGAN_MS + 1))
    assert approval_lack(again, rules()) == ""


def test_another_policy_asks_again() -> None:
    run = waiting()
    run = after(run, yes(run))
    task = replace(ASKING, policy=replace(ASKING.policy, version="2"))
    given = Rules(task=task, kinds=KINDS, now_ms=BEGAN_MS, roots=TRUSTED)
    assert "policy 1" in approval_lack(run, given)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        pytest.param({"is_cleared": True}, BindingError, id="T13 cleared by nobody"),
        pytest.param({"key": "key-9"}, BindingError, id="T10 bound to another key"),
        pytest.param({"challenge": "c-9"}, BindingError, id="T12 bound to another challenge"),
        pytest.param({"approvals": ("{}",)}, CounterfoilError, id="T9 no envelope"),
    ],
)
def test_a_record_that_nobody_signed_for_is_not_believed(
    fields: dict[str, Any], error: type[Exception]
) -> None:
    run = waiting()
    run = after(run, yes(run))
    assert run.pending is not None
    forged = replace(run, pending=replace(run.pending, **fields))
    with pytest.raises(error):
        check_authority(forged, TRUSTED)


def test_a_record_is_believed_after_its_approval_has_ended() -> None:
    run = waiting()
    run = after(run, yes(run))
    check_authority(replace(run, floor_ms=BEGAN_MS + 2 * HOUR_MS), TRUSTED)
