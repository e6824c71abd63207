"""Acceptance list, section D: what a person approves is what happens, once, in that world."""

from contextlib import suppress
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from counterfoil.core.approval import APPROVAL_TYPE, Approval
from counterfoil.core.canonical import encode
from counterfoil.core.errors import (
    ApprovalError,
    ContractError,
    FencedError,
    FrozenError,
    IntegrityError,
    LostRaceError,
    SignatureError,
    StaleObservationError,
    TerminalError,
    UnavailableError,
)
from counterfoil.core.receipt import Receipt
from counterfoil.core.review import MIGRATION_TYPE, CaseReason, Migration
from counterfoil.core.run import Phase, Run
from counterfoil.core.task import fingerprint
from counterfoil.core.trace import Outcome
from counterfoil.core.words import Digest, Level, RunId
from counterfoil.engine import control
from counterfoil.engine.session import Session
from counterfoil.ports import Operation
from counterfoil.testing.saboteur_adapters import Passing
from tests.support.desks import Desk, case_of, desk, request_of
from tests.support.forging import forge_head
from tests.support.people import (
    ADA,
    BOB,
    EVE,
    HOUR_MS,
    RITA,
    approval,
    approve,
    deny,
    revoke,
    roots,
    signed,
)
from tests.support.scenes import (
    EFFECTS,
    RUN_ID,
    SOUND,
    DiesAfterTheCall,
    DiesBeforeTheCall,
    Killed,
    counts,
    events,
    last,
    outcomes,
    read,
    write,
)

SOON_MS = 1_000
"""Ends well before the lease does."""


def row(*names: str) -> Any:
    """Run a test once under the rows that it covers."""
    return pytest.mark.parametrize("covered", [pytest.param("", id=" ".join(names))])


def waits(run: Session) -> bool:
    """Return whether execution is refused for want of an approval, and the intent is kept."""
    with pytest.raises(ApprovalError):
        run.settle()
    return run.state.pending is not None and run.state.pending.sends == 0


# ---------------------------------------------------------------- asked and answered


@row("acc-030")
def test_a_write_without_an_approval_waits(covered: str) -> None:
    at = desk()
    run, _ = at.asks()
    assert (waits(run), at.scene.world.write_count) == (True, 0)
    with pytest.raises(ContractError):
        run.propose(read(run))
    assert last(run) is Outcome.CONTRACT_REJECTED


@row("acc-031", "T14 approval in an action")
def test_a_planner_cannot_bring_its_own_approval(covered: str) -> None:
    at = desk()
    run = at.run()
    action = msgspec.to_builtins(write(run)) | {"approval": {"signer": "ada"}}
    with pytest.raises(ContractError):
        run.propose(encode(action))
    assert at.scene.world.write_count == 0


@row("acc-032")
def test_an_approved_write_happens_once(covered: str) -> None:
    at = desk()
    run, request = at.asks()
    at.hand(approve(request))
    settled = run.settle()
    assert settled is not None
    assert (settled.outcome, at.scene.world.version, at.scene.world.write_count) == (
        Outcome.EXECUTED,
        1,
        1,
    )


@row("acc-033", "acc-042")
def test_an_approval_does_not_follow_another_content(covered: str) -> None:
    at = desk()
    run, request = at.asks()
    run.withdraw()
    run.propose(write(run, EFFECTS))
    at.hand(approve(request))
    assert (waits(run), at.scene.world.write_count, last(run)) == (
        True,
        0,
        Outcome.STATEMENT_REFUSED,
    )


@row("acc-034", "C18")
def test_an_approval_does_not_follow_another_version(covered: str) -> None:
    at = desk()
    run, request = at.asks()
    old = approve(request)
    at.hand(old)
    at.scene.world.other_actor_writes("app.py", "theirs")
    with pytest.raises(StaleObservationError):
        run.settle()
    run.propose(write(run, version=1))
    at.hand(old)
    assert waits(run)
    assert (at.scene.world.files["app.py"], at.scene.world.write_count) == ("theirs", 0)


@row("acc-035", "T11 one proposal past")
def test_an_approval_ends_with_its_last_proposal(covered: str) -> None:
    at = desk()
    run, request = at.asks()
    at.hand(approve(request, last_proposal=1, expires_at_ms=request.requested_at_ms + 1))
    at.scene.clock.move(1)
    assert waits(run)
    assert last(run) is Outcome.STATEMENT_REFUSED
    at.hand(approve(request, last_proposal=1))
    with pytest.raises(ContractError):
        run.propose(read(run))
    assert (waits(run), counts(run)[0], at.scene.world.write_count) == (True, 2, 0)


@row("acc-A6")
def test_a_passed_proposal_count_keeps_the_intent_until_it_is_approved_afresh(covered: str) -> None:
    at = desk()
    run, request = at.asks()
    at.hand(approve(request, last_proposal=1))
    with pytest.raises(ContractError):
        run.propose(read(run))
    assert waits(run)
    again = at.run()
    assert waits(again)
    at.hand(approve(request_of(again), last_proposal=2))
    again.settle()
    assert at.scene.world.write_count == 1


@row("acc-036", "acc-044")
@pytest.mark.parametrize("sort", ["unknown signer", "payload changed"])
def test_what_nobody_trusted_signed_leaves_no_trace(covered: str, sort: str) -> None:
    at = desk()
    run, request = at.asks()
    before = outcomes(run)
    statement = approve(request, EVE)
    if sort == "payload changed":
        envelope = msgspec.json.decode(approve(request))
        other = msgspec.json.decode(approve(request, note="?"))
        statement = encode(envelope | {"payload": other["payload"]})
    at.hand(statement)
    assert (waits(run), outcomes(run), at.inbox.pending(RunId(RUN_ID), 9)) == (True, before, ())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        pytest.param("run", "run-2", id="acc-037 T10"),
        pytest.param("task", "other", id="acc-038 T10"),
        pytest.param("policy_version", "9", id="acc-039 T10"),
        pytest.param("key", "key-9", id="acc-041 T10"),
        pytest.param("action_id", "a9", id="acc-042 T10"),
        pytest.param("digest", "i1:0", id="acc-033 T10"),
        pytest.param("challenge", "00", id="T12"),
    ],
)
def test_an_approval_of_something_else_is_refused_on_record(field: str, value: str) -> None:
    at = desk()
    run, request = at.asks()
    at.hand(approve(request, **{field: value}))
    assert (waits(run), at.scene.world.write_count) == (True, 0)
    refused = events(run)[-1]
    assert (refused.outcome, refused.signer) == (Outcome.STATEMENT_REFUSED, "ada")
    assert field in refused.reason
    assert value in refused.reason


@row("acc-040")
def test_each_read_that_needs_an_approval_needs_its_own(covered: str) -> None:
    at = desk(approval_kinds=("read_file",))
    run = at.run()
    run.propose(read(run))
    first = approve(request_of(run))
    at.hand(first)
    settled = run.settle()
    assert settled is not None
    assert (settled.outcome, settled.result["path"]) == (Outcome.READ, "app.py")
    run.propose(read(run))
    at.hand(first)
    assert (waits(run), outcomes(run).count(Outcome.READ)) == (True, 1)


@row("acc-040 in a world that moved")
def test_an_approved_read_is_not_made_in_another_world(covered: str) -> None:
    at = desk(approval_kinds=("read_file",))
    run = at.run()
    run.propose(read(run))
    at.hand(approve(request_of(run)))
    at.scene.world.other_actor_writes("app.py", "theirs")
    with pytest.raises(StaleObservationError):
        run.settle()
    assert Outcome.READ not in outcomes(run)


@row("acc-043", "acc-046", "acc-A12", "T12", "C38 used twice")
def test_a_used_approval_is_used_up(covered: str) -> None:
    at = desk()
    run, request = at.asks()
    used = approve(request)
    at.hand(used)
    run.settle()
    run.propose(write(run, EFFECTS, key="key-2"))
    at.hand(used)
    assert waits(run)
    again = at.run()
    at.hand(used)
    assert (waits(again), at.scene.world.write_count) == (True, 1)


@pytest.mark.parametrize(
    "dies",
    [
        pytest.param(DiesBeforeTheCall, id="acc-A12 before the call"),
        pytest.param(DiesAfterTheCall, id="acc-A12 after the call"),
    ],
)
def test_a_challenge_stays_spent_after_a_crash(dies: Any) -> None:
    at = desk()
    _, request = at.asks()
    used = approve(request)
    at.hand(used)
    run = at.run(wrap=dies)
    with pytest.raises(Killed):
        run.settle()
    run = at.run()
    at.hand(used)
    run.settle()
    run.propose(write(run, EFFECTS, key="key-2"))
    at.hand(used)
    assert (waits(run), at.scene.world.write_count) == (True, 1)


@row("acc-045", "acc-082")
def test_a_bound_approval_serves_the_next_worker(covered: str) -> None:
    at = desk()
    run, request = at.asks()
    at.hand(approve(request))
    assert run.wait(timeout_ms=0) is not None
    assert at.scene.world.write_count == 1
    assert run.state.pending is None


@row("acc-082")
def test_an_approved_effect_that_was_not_recorded_is_adopted(covered: str) -> None:
    at = desk()
    _, request = at.asks()
    at.hand(approve(request))
    run = at.run(wrap=DiesAfterTheCall)
    with pytest.raises(Killed):
        run.settle()
    at.scene.clock.move(HOUR_MS)
    settled = at.run().settle()
    assert settled is not None
    assert (settled.outcome, at.scene.world.write_count) == (Outcome.RECONCILED, 1)


@row("acc-047", "acc-048")
def test_the_checkpoint_holds_what_was_signed(covered: str) -> None:
    at = desk(approvals_required=2)
    run, request = at.asks()
    statement = approve(request)
    at.hand(statement)
    assert waits(run)
    pending = control.show(at.parts(), RunId(RUN_ID)).run.pending
    assert pending is not None
    assert pending.approvals == (statement.decode(),)
    signed_one: Approval = approval(request)
    assert signed_one.environment == pending.prestate
    assert all((pending.prestate.instance, pending.prestate.fingerprint))
    assert signed_one.expires_at_ms > at.scene.clock.now_ms()


# ---------------------------------------------------------------- two clocks


@pytest.mark.parametrize(
    ("early_ms", "expected"),
    [
        pytest.param(1, 1, id="acc-049 a moment before"),
        pytest.param(0, 0, id="acc-049 T11 at the moment"),
    ],
)
def test_an_approval_ends_at_its_very_moment(early_ms: int, expected: int) -> None:
    at = desk(approvals_required=2)
    run, request = at.asks()
    at.hand(approve(request, expires_at_ms=request.requested_at_ms + 100))
    assert waits(run)
    at.scene.clock.move(100 - early_ms)
    at.hand(approve(request, BOB))
    with suppress(ApprovalError):
        run.settle()
    assert at.scene.world.write_count == expected


def _bound(at: Desk) -> tuple[Session, Any, bytes]:
    """Let an approval be bound and its call not be made, as the target cannot be reached."""
    run, request = at.asks()
    statement = approve(request, expires_at_ms=request.requested_at_ms + SOON_MS)
    at.hand(statement)
    at.scene.world.cut_off()
    with pytest.raises(UnavailableError):
        run.settle()
    at.scene.world.reconnect()
    assert run.state.pending is not None
    assert run.state.pending.approvals
    return run, request, statement


@row("acc-050")
def test_an_expired_approval_is_refreshed(covered: str) -> None:
    at = desk()
    run, _, old = _bound(at)
    at.scene.clock.move(SOON_MS)
    assert waits(run)
    again = at.run()
    assert waits(again)
    assert at.scene.world.write_count == 0
    request = request_of(again)
    at.hand(approve(request, expires_at_ms=at.scene.clock.now_ms() + HOUR_MS))
    again.settle()
    sealed = [event for event in events(again) if event.outcome is Outcome.REFRESHED]
    assert [event.statements for event in sealed] == [(old.decode(),)]
    assert (at.scene.world.write_count, again.state.pending) == (1, None)


@pytest.mark.parametrize(
    "is_new_worker",
    [
        pytest.param(False, id="acc-A19 T11 in one session"),
        pytest.param(True, id="acc-A19 T11 in the next"),
    ],
)
def test_a_clock_that_goes_back_revives_nothing(is_new_worker: bool) -> None:
    at = desk()
    run, request, _ = _bound(at)
    at.scene.clock.move(SOON_MS)
    assert waits(run)
    if is_new_worker:
        run = at.run()
    at.scene.clock.at_ms = request.requested_at_ms
    assert (waits(run), at.scene.world.write_count) == (True, 0)
    assert outcomes(run).count(Outcome.APPROVAL_REJECTED) == 1


@row("acc-A5")
def test_an_operator_ends_a_run_whose_approval_has_ended(covered: str) -> None:
    at = desk(approvals_required=2)
    run, request = at.asks()
    at.hand(approve(request))
    assert waits(run)
    at.scene.clock.move(2 * HOUR_MS)
    ended = control.abort(at.parts(), RunId(RUN_ID), actor="op", reason="nobody at hand")
    assert (ended.phase, ended.pending, at.scene.world.write_count) == (Phase.FAILED, None, 0)
    with pytest.raises(TerminalError):
        at.run().settle()


# ---------------------------------------------------------------- evidence that was touched


@row("acc-051")
def test_evidence_is_not_believed_without_its_root(covered: str) -> None:
    at = desk(approvals_required=2)
    run, request = at.asks()
    at.hand(approve(request))
    assert waits(run)
    at.roots = roots(RITA)
    with pytest.raises(SignatureError):
        at.run()


def _another_approval(run: Run) -> Run:
    pending = run.pending
    assert pending is not None
    envelope = msgspec.json.decode(pending.approvals[0])
    other = signed({"signer": "ada"}, APPROVAL_TYPE, ADA)
    envelope["payload"] = msgspec.json.decode(other)["payload"]
    return replace(run, pending=replace(pending, approvals=(encode(envelope).decode(),)))


@row("acc-052", "C38 altered")
def test_an_approval_that_was_changed_in_the_record_is_refused(covered: str) -> None:
    at = desk(approvals_required=2)
    run, request = at.asks()
    at.hand(approve(request))
    assert waits(run)
    run.close()
    forge_head(at.scene, change_run=_another_approval)
    with pytest.raises(IntegrityError):
        at.run()
    assert at.scene.world.write_count == 0


@row("acc-053")
def test_other_content_under_the_approved_version_opens_a_case(covered: str) -> None:
    at = desk(approvals_required=2)
    run, request = at.asks()
    at.hand(approve(request))
    assert waits(run)
    at.scene.world.tamper("app.py", EFFECTS)
    again = at.run()
    assert case_of(again).reason is CaseReason.ENVIRONMENT_DRIFT
    with pytest.raises(FrozenError):
        again.settle()


@row("acc-054", "C38 another machine")
def test_another_instance_opens_a_case(covered: str) -> None:
    at = desk()
    _, request = at.asks()
    at.hand(approve(request))
    at.scene.world.replace_instance("world-2")
    again = at.run()
    assert case_of(again).reason is CaseReason.ENVIRONMENT_DRIFT
    with pytest.raises(FrozenError):
        again.settle()
    assert at.scene.world.write_count == 0


@pytest.mark.parametrize(
    "level",
    [pytest.param(level, id=f"acc-055 T11 {level}") for level in Level],
)
def test_a_file_that_changed_after_the_approval_is_left_alone(level: Level) -> None:
    at = desk(level=level)
    run, request = at.asks()
    at.hand(approve(request))
    at.scene.world.tamper("app.py", EFFECTS)
    with pytest.raises(StaleObservationError):
        run.settle()
    assert (run.state.pending, at.scene.world.write_count) == (None, 0)


# ---------------------------------------------------------------- several people


@pytest.mark.parametrize(
    ("signers", "expected"),
    [
        pytest.param((ADA, ADA), 0, id="C37 one signer twice"),
        pytest.param((ADA, BOB), 1, id="C37 two signers"),
        pytest.param((ADA, EVE), 0, id="C37 one of them unknown"),
    ],
)
def test_two_approvals_are_of_two_people(signers: tuple[Any, ...], expected: int) -> None:
    at = desk(approvals_required=2)
    run, request = at.asks()
    at.hand(*(approve(request, by, note=str(n)) for n, by in enumerate(signers)))
    with suppress(ApprovalError):
        run.settle()
    assert at.scene.world.write_count == expected


@row("acc-A18")
def test_an_approver_who_was_revoked_counts_no_more(covered: str) -> None:
    at = desk(approvals_required=2)
    run, request = at.asks()
    at.hand(approve(request))
    assert waits(run)
    gone = ADA.but(revoked_at_ms=at.scene.clock.now_ms())
    at.roots = roots(gone, BOB, RITA)
    again = at.run()
    at.hand(approve(request, BOB))
    assert (waits(again), at.scene.world.write_count) == (True, 0)
    assert again.state.pending is not None
    assert again.state.pending.approvals == (approve(request, BOB).decode(),)


@row("acc-A18 evidence stays readable")
def test_what_a_revoked_approver_signed_still_loads(covered: str) -> None:
    at = desk()
    _, _, statement = _bound(at)
    at.roots = roots(ADA.but(revoked_at_ms=1), RITA)
    again = at.run()
    assert again.state.pending is not None
    assert again.state.pending.approvals == (statement.decode(),)
    assert (waits(again), at.scene.world.write_count) == (True, 0)


@row("C37 twice at once")
def test_a_second_approver_is_told_that_it_is_approved(covered: str) -> None:
    at = desk()
    run, request = at.asks()
    at.hand(approve(request), approve(request, BOB))
    settled = run.settle()
    assert settled is not None
    assert (settled.outcome, at.scene.world.write_count) == (Outcome.EXECUTED, 1)
    refused = next(e for e in events(run) if e.outcome is Outcome.STATEMENT_REFUSED)
    assert (refused.signer, "ada approved" in refused.reason) == ("bob", True)


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(approve, id="C37 the approval is first"),
        pytest.param(deny, id="C37 the denial is first"),
    ],
)
def test_a_denial_wins_until_the_call_has_left(first: Any) -> None:
    at = desk()
    run, request = at.asks()
    second = deny if first is approve else approve
    at.hand(first(request), second(request, BOB))
    with pytest.raises(ApprovalError):
        run.settle()
    assert (run.state.pending, at.scene.world.write_count) == (None, 0)


@row("C37 after the end")
def test_an_ended_run_takes_no_approval(covered: str) -> None:
    at = desk()
    run, request = at.asks()
    at.hand(deny(request))
    with pytest.raises(ApprovalError):
        run.settle()
    run.cancel()
    run.close()
    at.hand(approve(request))
    again = at.run()
    with pytest.raises(TerminalError):
        again.settle()
    assert (again.state.phase, at.scene.world.write_count) == (Phase.CANCELLED, 0)


@row("C37 a bad one first")
def test_a_bad_approval_never_shadows_a_good_one(covered: str) -> None:
    at = desk()
    run, request = at.asks()
    at.hand(
        b"{}",
        approve(request, EVE),
        approve(request, key="key-9"),
        approve(request, expires_at_ms=request.requested_at_ms),
        approve(request, note="good"),
    )
    run.settle()
    assert at.scene.world.write_count == 1


@row("T12 C37 denied")
def test_a_denied_action_is_given_up_and_its_approval_void(covered: str) -> None:
    at = desk()
    run, request = at.asks()
    at.hand(deny(request, note="not today"))
    with pytest.raises(ApprovalError, match="not today"):
        run.settle()
    run.propose(write(run, key="key-2"))
    at.hand(approve(request))
    assert (waits(run), at.scene.world.write_count) == (True, 0)


@row("T13 a denial of somebody out of scope")
def test_a_denial_counts_only_from_who_may_decide(covered: str) -> None:
    narrow = ADA.but(scope=replace(ADA.entry.scope, tasks=("other",)))
    at = desk(narrow, BOB)
    run, request = at.asks()
    at.hand(deny(request, narrow), approve(request, narrow))
    assert waits(run)
    at.hand(approve(request, BOB))
    run.settle()
    assert at.scene.world.write_count == 1


# ---------------------------------------------------------------- taken back


@pytest.mark.parametrize(
    "order",
    [
        pytest.param((0, 1), id="T11 revoked after"),
        pytest.param((1, 0), id="T11 the revocation arrives first"),
        pytest.param((0, 1, 0), id="T11 T12 the approval is repeated"),
    ],
)
def test_what_was_taken_back_stays_taken_back(order: tuple[int, ...]) -> None:
    at = desk(approvals_required=2)
    run, request = at.asks()
    pair = (approve(request), revoke(request, approve(request)))
    for number in order:
        at.hand(pair[number])
        assert waits(run)
    at.hand(approve(request, BOB))
    assert (waits(run), at.scene.world.write_count) == (True, 0)


@row("T11 a moment before the effect")
def test_a_revocation_in_time_stops_the_effect(covered: str) -> None:
    at = desk()
    run, request, statement = _bound(at)
    at.hand(revoke(request, statement))
    assert (waits(run), at.scene.world.write_count) == (True, 0)
    later = request.requested_at_ms + 1
    at.hand(approve(request, issued_at_ms=later))
    run.settle()
    assert at.scene.world.write_count == 1


@row("T13 another's approval")
def test_nobody_takes_back_what_another_signed(covered: str) -> None:
    at = desk()
    run, request, statement = _bound(at)
    at.hand(revoke(request, statement, BOB))
    run.settle()
    assert at.scene.world.write_count == 1


@row("T11 the clock moves while the call is being recorded")
def test_an_approval_is_judged_again_right_before_the_effect(covered: str) -> None:
    at = desk()
    run, request = at.asks()
    at.hand(approve(request))
    store = at.scene.store()
    put = store.put

    def slow(batch: Any) -> None:
        put(batch)
        pending = run.state.pending
        if pending is not None and pending.approvals:
            at.scene.clock.at_ms = max(at.scene.clock.at_ms, request.requested_at_ms + HOUR_MS)

    store.put = slow  # type: ignore[method-assign]  # the store of this test alone
    with pytest.raises((ApprovalError, LostRaceError)):
        run.settle()
    assert at.scene.world.write_count == 0


# ---------------------------------------------------------------- planners and waiting


@row("acc-033 withdrawn")
def test_a_planner_takes_back_what_was_not_sent(covered: str) -> None:
    at = desk()
    run, request = at.asks()
    run.withdraw("another way")
    assert (run.state.pending, last(run)) == (None, Outcome.WITHDRAWN)
    with pytest.raises(ApprovalError):
        run.withdraw()
    run.propose(write(run))
    assert request_of(run).challenge != request.challenge


@row("T12 sent")
def test_what_may_have_been_sent_is_not_taken_back(covered: str) -> None:
    at = desk()
    _, request = at.asks()
    at.hand(approve(request))
    run = at.run(wrap=DiesAfterTheCall)
    with pytest.raises(Killed):
        run.settle()
    again = at.run()
    with pytest.raises(ApprovalError):
        again.withdraw()
    again.settle()
    assert at.scene.world.write_count == 1


@row("acc-030 waiting")
def test_waiting_ends_with_its_time(covered: str) -> None:
    run, _ = desk().asks()
    assert run.wait(timeout_ms=0) is None
    assert run.state.pending is not None


@row("acc-030 days later")
def test_the_frozen_action_is_executed_days_later(covered: str) -> None:
    at = desk()
    run, request = at.asks()
    run.close()
    at.scene.clock.move(72 * HOUR_MS)
    now_ms = at.scene.clock.now_ms()
    at.hand(approve(request, issued_at_ms=now_ms, expires_at_ms=now_ms + HOUR_MS))
    settled = at.run().settle()
    assert settled is not None
    assert (settled.outcome, at.scene.world.files["app.py"]) == (Outcome.EXECUTED, SOUND)


# ---------------------------------------------------------------- who else


@row("acc-A11")
def test_a_late_result_under_an_old_lease_is_refused(covered: str) -> None:
    at = desk()
    _, request = at.asks()
    at.hand(approve(request))
    late: list[Any] = []

    class Sleeps(Passing):
        def execute(self, operation: Operation) -> Receipt:
            late.append(lambda: self.inner.execute(operation))
            raise Killed

    run = at.run(wrap=Sleeps)
    with pytest.raises(Killed):
        run.settle()
    present = at.run()
    with pytest.raises(FencedError):
        late[0]()
    with pytest.raises(LostRaceError):
        run.settle()
    present.settle()
    assert at.scene.world.write_count == 1


@row("acc-A15")
def test_the_approver_is_found_from_the_receipt(covered: str) -> None:
    at = desk()
    run, request = at.asks()
    statement = approve(request)
    at.hand(statement)
    settled = run.settle()
    assert settled is not None
    key = settled.receipt.key if settled.receipt else ""
    about = [event for event in events(run) if event.key == key and event.statements]
    assert {statement.decode()} == {each for event in about for each in event.statements}
    assert "ada" in [event.signer for event in about]


@row("C38 altered arguments")
def test_altered_arguments_do_not_pass_under_an_old_approval(covered: str) -> None:
    at = desk(approvals_required=2)
    run, request = at.asks()
    at.hand(approve(request))
    assert waits(run)
    run.close()

    def alter(state: Run) -> Run:
        pending = state.pending
        assert pending is not None
        intent = replace(pending.intent, arguments={"path": "app.py", "content": EFFECTS})
        return replace(state, pending=replace(pending, intent=intent))

    forge_head(at.scene, change_run=alter)
    with pytest.raises(IntegrityError):
        at.run()
    assert at.scene.world.write_count == 0


# ---------------------------------------------------------------- another version of the task


def _migration(at: Desk, to: Any, **changes: Any) -> bytes:
    view = control.show(at.parts(), RunId(RUN_ID))
    made = Migration(
        format=1,
        signer="rita",
        run=RunId(RUN_ID),
        checkpoint=view.head.checkpoint,
        from_task=view.header.task_digest,
        to_task=fingerprint(to),
        issued_at_ms=at.scene.clock.now_ms(),
        expires_at_ms=at.scene.clock.now_ms() + HOUR_MS,
    )
    return signed(replace(made, **changes), MIGRATION_TYPE, RITA)


def _next_version(at: Desk) -> Any:
    return replace(at.scene.task, version="2")


@row("acc-039 migrated")
def test_a_run_goes_on_under_another_task_with_a_migration(covered: str) -> None:
    at = desk()
    run, _ = at.asks()
    run.close()
    task = _next_version(at)
    with pytest.raises(IntegrityError):
        at.run(task=task)
    at.hand(_migration(at, task))
    again = at.run(task=task)
    assert last(again) is Outcome.MIGRATED
    at.hand(approve(request_of(again)))
    again.settle()
    assert at.scene.world.write_count == 1


@row("acc-039 migrated behind rubbish")
def test_rubbish_in_the_inbox_hides_no_migration(covered: str) -> None:
    at = desk()
    run, _ = at.asks()
    run.close()
    task = _next_version(at)
    for number in range(200):
        at.hand(b"rubbish %d" % number)
    at.hand(_migration(at, task))
    assert last(at.run(task=task)) is Outcome.MIGRATED


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"checkpoint": Digest("0" * 64)}, id="T12 another head"),
        pytest.param({"from_task": Digest("0" * 64)}, id="T12 from another task"),
        pytest.param({"to_task": Digest("0" * 64)}, id="T12 to another task"),
        pytest.param({"run": RunId("run-2")}, id="T12 another run"),
        pytest.param({"expires_at_ms": 1}, id="T11 a migration that has ended"),
    ],
)
def test_a_migration_of_anything_else_does_not_open_a_run(changes: dict[str, Any]) -> None:
    at = desk()
    run, _ = at.asks()
    run.close()
    task = _next_version(at)
    at.hand(_migration(at, task, **changes))
    with pytest.raises(IntegrityError):
        at.run(task=task)


@row("acc-A19 a migration", "T11")
def test_a_clock_that_goes_back_revives_no_migration(covered: str) -> None:
    at = desk()
    run, _ = at.asks()
    run.close()
    task = _next_version(at)
    began = at.scene.clock.now_ms()
    later = at.run()
    at.scene.clock.move(HOUR_MS)
    with pytest.raises((ContractError, LostRaceError)):
        later.propose(read(later))
    held = at.run()
    with pytest.raises(ContractError):
        held.propose(read(held))
    held.close()
    at.hand(_migration(at, task, expires_at_ms=began + HOUR_MS))
    at.scene.clock.at_ms = began
    with pytest.raises(IntegrityError):
        at.run(task=task)


@row("acc-053 migrated while frozen")
def test_a_frozen_run_can_be_migrated(covered: str) -> None:
    at = desk()
    at.asks()
    at.scene.world.tamper("app.py", EFFECTS)
    at.run().close()
    task = _next_version(at)
    at.hand(_migration(at, task))
    again = at.run(task=task)
    assert (again.state.phase, last(again)) == (Phase.NEEDS_REVIEW, Outcome.MIGRATED)
