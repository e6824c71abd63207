"""Acceptance list, section H: a frozen run waits for a signed decision on what is known."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace as structural_replace
from typing import Any

import pytest
from msgspec.structs import replace

from counterfoil.core.errors import (
    ApprovalError,
    CounterfoilError,
    FencedError,
    FormatError,
    FrozenError,
    IntegrityError,
    LeaseLostError,
    SignatureError,
    TerminalError,
    UnavailableError,
)
from counterfoil.core.intent import KindSpec
from counterfoil.core.receipt import Fence, LookUp, Receipt, unknown
from counterfoil.core.review import DECISION_TYPE, CaseReason, Decision, Verdict, decision_for
from counterfoil.core.run import Phase
from counterfoil.core.trace import Outcome
from counterfoil.core.words import Digest, IntentDigest, Key, Level, RunId
from counterfoil.engine.session import Session
from counterfoil.keeper import Keeper
from counterfoil.ports import Adapter
from counterfoil.testing.saboteur_adapters import Passing
from tests.support.desks import Desk, case_of, desk
from tests.support.people import ADA, HOUR_MS, RITA, ROB, approve, decide, person, roots, signed
from tests.support.people import Role as Part
from tests.support.scenes import (
    EFFECTS,
    KEY,
    RUN_ID,
    SOUND,
    DiesAfterTheCall,
    DiesBeforeTheCall,
    Killed,
    check,
    events,
    last,
    outcomes,
    read,
    write,
    written,
)

MALLORY = person("mallory", Part.REVIEWER, 9)


def _foreign(at: Desk, **fields: Any) -> Receipt:
    """Plant the receipt of another intent under the key that is pending."""
    state, _ = at.scene.world.state("sandbox")
    made = Receipt(
        id="foreign-1",
        adapter="sandbox",
        kind="write_file",
        run_id=RunId(RUN_ID),
        key=KEY,
        digest=IntentDigest("i1:" + "0" * 64),
        level=Level.TRANSACTIONAL,
        poststate=replace(state, version=state.version + 1),
        committed_at_ms=at.scene.clock.now_ms(),
    )
    at.scene.world.plant(replace(made, **fields))
    return at.scene.world.receipts[KEY]


def conflict(*people: Any, **options: Any) -> tuple[Desk, Session]:
    """Return a run that froze on a foreign receipt under its key."""
    at = desk(*people, **({"approval_kinds": ()} | options))
    run = at.run(wrap=DiesBeforeTheCall)
    run.propose(write(run))
    with pytest.raises(Killed):
        run.settle()
    _foreign(at)
    run = at.run()
    with pytest.raises(FrozenError):
        run.settle()
    return at, run


def lost(wrap: Any = DiesAfterTheCall, **policy: Any) -> tuple[Desk, Session]:
    """Return a run that froze because nobody can say whether its call happened."""
    at = desk(level=Level.BLIND, **({"approval_kinds": ()} | policy))
    run = at.run(wrap=wrap)
    run.propose(write(run))
    if policy:
        assert run.request is not None
        at.hand(approve(run.request))
    with pytest.raises(Killed):
        run.settle()
    run = at.run()
    with pytest.raises(FrozenError):
        run.settle()
    return at, run


def decided(at: Desk, run: Session, verdict: Verdict, by: Any = RITA, /, **changes: Any) -> bytes:
    """Return a decision on the case as it stands."""
    return decide(case_of(run), verdict, RUN_ID, at.scene.task.id, by, **changes)


def stays_frozen(run: Session) -> bool:
    """Return whether the run acts on nothing and keeps its case and its intent."""
    with pytest.raises(FrozenError):
        run.settle()
    return run.state.phase is Phase.NEEDS_REVIEW and run.state.case is not None


@pytest.mark.parametrize("outcome", [pytest.param(Outcome.IDEMPOTENCY_CONFLICT, id="acc-084 T17")])
def test_another_intent_under_the_pending_key_opens_a_case(outcome: Outcome) -> None:
    at, run = conflict()
    case = case_of(run)
    assert (case.reason, case.pending, case.receipt) == (
        CaseReason.INTENT_CONFLICT,
        run.state.pending,
        at.scene.world.receipts[KEY],
    )
    assert (last(run), at.scene.world.write_count) == (outcome, 0)


@pytest.mark.parametrize(
    "act",
    [
        pytest.param(lambda run: run.settle(), id="acc-085 settle"),
        pytest.param(lambda run: run.propose(read(run)), id="acc-085 propose"),
        pytest.param(lambda run: run.withdraw(), id="acc-085 withdraw"),
        pytest.param(lambda run: run.observe(), id="acc-085 observe"),
    ],
)
def test_a_frozen_run_does_nothing(act: Callable[[Session], object]) -> None:
    _, run = conflict()
    pending = run.state.pending
    with pytest.raises(FrozenError):
        act(run)
    assert run.state.pending == pending


@pytest.mark.parametrize(
    ("by", "kind"),
    [
        pytest.param(MALLORY, DECISION_TYPE, id="acc-086 unknown reviewer"),
        pytest.param(ADA, DECISION_TYPE, id="T13 an approver"),
    ],
)
def test_nobody_else_decides(by: Any, kind: str) -> None:
    at, run = conflict()
    at.hand(decided(at, run, Verdict.REPLAN, by))
    assert stays_frozen(run)
    assert Outcome.STATEMENT_REFUSED not in outcomes(run)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda world: world.other_actor_writes("x", "y"), id="acc-087 T22 the world"),
        pytest.param(lambda world: world.alter_receipt(KEY, id="x"), id="acc-088 T22 the receipt"),
        pytest.param(lambda world: world.drop_receipt(KEY), id="acc-A4 T22 the receipt is gone"),
    ],
)
def test_a_decision_on_what_changed_since_is_refused(change: Callable[[Any], None]) -> None:
    at, run = conflict()
    before = case_of(run)
    at.hand(decided(at, run, Verdict.REPLAN))
    change(at.scene.world)
    assert stays_frozen(run)
    after = case_of(run)
    assert (after.challenge != before.challenge, after.pending) == (True, before.pending)
    assert outcomes(run)[-2] is Outcome.STATEMENT_REFUSED


@pytest.mark.parametrize("verdict", [pytest.param(Verdict.ABORT, id="acc-A4 T22")])
def test_a_case_that_was_captured_anew_can_be_decided(verdict: Verdict) -> None:
    at, run = conflict()
    stale = decided(at, run, verdict)
    at.scene.world.alter_receipt(KEY, id="x")
    at.hand(stale)
    assert stays_frozen(run)
    at.hand(decided(at, run, verdict))
    with pytest.raises(TerminalError):
        run.settle()
    assert (run.state.phase, at.scene.world.write_count) == (Phase.FAILED, 0)


@pytest.mark.parametrize("phase", [pytest.param(Phase.COMPLETED, id="acc-089 acc-A3")])
def test_a_run_is_planned_anew_under_another_key(phase: Phase) -> None:
    at, run = conflict()
    at.hand(decided(at, run, Verdict.REPLAN))
    assert run.settle() is None
    assert (run.state.phase, run.state.pending, run.state.case) == (Phase.RUNNING, None, None)
    written(run, key="key-2")
    run.propose(check(run))
    run.finish()
    assert (run.state.phase, [e.key for e in at.scene.world.effects]) == (phase, ["key-2"])


@pytest.mark.parametrize("reason", [pytest.param("receipt_conflict_reviewed", id="acc-090 acc-A3")])
def test_an_abort_keeps_all_evidence(reason: str) -> None:
    at, run = conflict()
    case, statement = case_of(run), decided(at, run, Verdict.ABORT)
    at.hand(statement)
    with pytest.raises(TerminalError):
        run.settle()
    assert (run.state.phase, run.state.reason, run.state.pending) == (Phase.FAILED, reason, None)
    resolved = events(run)[-1]
    assert (resolved.case, resolved.statements) == (case, (statement.decode(),))
    with pytest.raises(TerminalError):
        run.propose(read(run))


@pytest.mark.parametrize("phase", [pytest.param(Phase.NEEDS_REVIEW, id="acc-091")])
def test_an_open_case_waits_for_the_next_worker(phase: Phase) -> None:
    at, first = conflict()
    run = at.run()
    assert (run.state.phase, run.state.case) == (phase, first.state.case)
    at.hand(decided(at, run, Verdict.REPLAN))
    assert at.run().state.phase is Phase.RUNNING


@pytest.mark.parametrize("phase", [pytest.param(Phase.FAILED, id="acc-092")])
def test_a_resolved_case_is_believed_only_with_its_reviewer(phase: Phase) -> None:
    at, run = conflict()
    at.hand(decided(at, run, Verdict.ABORT))
    with pytest.raises(TerminalError):
        run.settle()
    trusted, at.roots = at.roots, roots(ADA)
    with pytest.raises(SignatureError, match="no reviewer"):
        at.run()
    at.roots = trusted
    assert at.run().state.phase is phase


@pytest.mark.parametrize(
    ("early_ms", "phase"),
    [
        pytest.param(1, Phase.RUNNING, id="acc-A22 a moment before"),
        pytest.param(0, Phase.NEEDS_REVIEW, id="acc-A22 T11 at the moment"),
    ],
)
def test_a_decision_ends_at_its_very_moment(early_ms: int, phase: Phase) -> None:
    at, run = conflict()
    at.hand(decided(at, run, Verdict.REPLAN, expires_at_ms=case_of(run).opened_at_ms + 100))
    at.scene.clock.move(100 - early_ms)
    with suppress(FrozenError):
        run.settle()
    assert run.state.phase is phase


@pytest.mark.parametrize(
    ("field", "value"),
    [
        pytest.param("run", "run-2", id="T22 T12 another run"),
        pytest.param("task", "other", id="T22 task"),
        pytest.param("reason", CaseReason.LATE_COMMIT, id="T22 reason"),
        pytest.param("challenge", "00", id="T22 T12 challenge"),
        pytest.param("key", "key-9", id="T22 key"),
        pytest.param("digest", "i1:9", id="T22 digest"),
        pytest.param("receipt_digest", "9" * 64, id="T22 receipt"),
    ],
)
def test_a_decision_on_another_matter_is_refused_on_record(field: str, value: Any) -> None:
    at, run = conflict()
    at.hand(decided(at, run, Verdict.REPLAN, **{field: value}))
    assert stays_frozen(run)
    refused = events(run)[-1]
    assert (refused.outcome, field in refused.reason) == (Outcome.STATEMENT_REFUSED, True)
    assert str(value) in refused.reason


@pytest.mark.parametrize("winner", [pytest.param("rita", id="C37 T22")])
def test_of_two_decisions_at_once_one_wins(winner: str) -> None:
    at, run = conflict()
    at.hand(decided(at, run, Verdict.REPLAN), decided(at, run, Verdict.ABORT, ROB))
    assert run.settle() is None
    about = [(e.outcome, e.signer) for e in events(run) if e.signer]
    assert about == [(Outcome.RESOLVED, winner), (Outcome.STATEMENT_REFUSED, "rob")]


@pytest.mark.parametrize("phase", [pytest.param(Phase.NEEDS_REVIEW, id="C37 T22 closed case")])
def test_a_decision_on_a_closed_case_does_not_decide_the_next(phase: Phase) -> None:
    at, run = conflict()
    used = decided(at, run, Verdict.REPLAN)
    at.hand(used)
    run.settle()
    at.scene.world.tamper("app.py", EFFECTS)
    with pytest.raises(FrozenError):
        run.observe()
    at.hand(used)
    assert (stays_frozen(run), run.state.phase) == (True, phase)


@pytest.mark.parametrize("count", [pytest.param(1, id="C37 another worker")])
def test_a_decision_waits_while_another_worker_holds_the_run(count: int) -> None:
    at, run = conflict()
    at.hand(decided(at, run, Verdict.REPLAN))
    with pytest.raises(LeaseLostError):
        Keeper(at.parts()).run(at.scene.task, RUN_ID)
    assert len(at.inbox.pending(RunId(RUN_ID), 9)) == count
    run.settle()
    assert run.state.phase is Phase.RUNNING


@pytest.mark.parametrize("left", [pytest.param(1, id="T20 T22")])
def test_a_decision_waits_while_the_target_does_not_answer(left: int) -> None:
    at, run = conflict()
    at.hand(decided(at, run, Verdict.REPLAN))
    at.scene.world.cut_off()
    with pytest.raises(UnavailableError):
        run.settle()
    assert len(at.inbox.pending(RunId(RUN_ID), 9)) == left
    at.scene.world.reconnect()
    run.settle()
    assert run.state.phase is Phase.RUNNING


def _in_another_world(at: Desk) -> Session:
    """Return a frozen run whose call may be under way, in a world that is another one."""
    run = at.run(wrap=DiesBeforeTheCall)
    run.propose(write(run))
    with pytest.raises(Killed):
        run.settle()
    at.scene.world.replace_instance("world-2")
    run = at.run()
    with pytest.raises(FrozenError):
        run.settle()
    return run


@pytest.mark.parametrize("standing", [pytest.param(1, id="T22 no side effect")])
def test_a_refused_decision_does_not_forbid_the_key(standing: int) -> None:
    at = desk(approval_kinds=())
    run, heard = _in_another_world(at), list[str]()
    forbid = at.scene.world.forbid
    at.scene.world.forbid = lambda *given: heard.append("forbid") or forbid(*given)  # type: ignore[method-assign]  # the world of this test alone
    at.hand(decided(at, run, Verdict.REPLAN, expires_at_ms=1))
    assert (stays_frozen(run), heard) == (True, [])
    at.hand(decided(at, run, Verdict.REPLAN))
    run.settle()
    assert (run.state.phase, len(heard)) == (Phase.RUNNING, standing)


@pytest.mark.parametrize("count", [pytest.param(1, id="T22 an abort")])
def test_an_abort_that_was_decided_makes_the_key_impossible(count: int) -> None:
    at = desk(approval_kinds=())
    run, heard = _in_another_world(at), list[str]()
    forbid = at.scene.world.forbid
    at.scene.world.forbid = lambda *given: heard.append("forbid") or forbid(*given)  # type: ignore[method-assign]  # the world of this test alone
    at.hand(decided(at, run, Verdict.ABORT))
    with pytest.raises(TerminalError):
        run.settle()
    assert (run.state.phase, len(heard)) == (Phase.FAILED, count)


@pytest.mark.parametrize(
    "error", [FencedError("a newer lease stands"), FormatError("the journal is damaged")]
)
def test_what_no_session_survives_goes_through_while_a_decision_is_applied(
    error: CounterfoilError,
) -> None:
    at = desk(approval_kinds=())
    run = _in_another_world(at)

    def forbid(*given: object) -> LookUp:
        raise error

    at.scene.world.forbid = forbid  # type: ignore[method-assign]  # the world of this test alone
    at.hand(decided(at, run, Verdict.REPLAN))
    with pytest.raises(type(error)):
        run.settle()
    assert run.state.phase is Phase.NEEDS_REVIEW
    with pytest.raises(type(error)):
        run.propose(write(run))


@pytest.mark.parametrize("level", [pytest.param(Level.CONDITIONAL, id="T22 a late call")])
def test_a_late_call_is_fenced_off_before_a_run_is_planned_anew(level: Level) -> None:
    at = desk(level=level, approval_kinds=())
    run = at.run()
    run.propose(write(run))
    at.scene.world.delay_next()
    at.scene.world.replace_instance("world-2")
    with pytest.raises(FrozenError):
        run.settle()
    at.hand(decided(at, run, Verdict.REPLAN))
    with pytest.raises(UnavailableError):
        run.settle()
    assert at.run().state.phase is Phase.RUNNING
    assert [type(answer) for answer in at.scene.world.land_delayed()] == [FencedError]
    assert at.scene.world.write_count == 0


# ---------------------------------------------------------------- nobody can say


@pytest.mark.parametrize(
    ("wrap", "verdict", "count"),
    [
        pytest.param(DiesAfterTheCall, Verdict.CONFIRM_DONE, 1, id="C07 it happened"),
        pytest.param(DiesBeforeTheCall, Verdict.CONFIRM_ABSENT, 1, id="C07 it did not"),
    ],
)
def test_a_reviewer_says_what_no_target_can(wrap: Any, verdict: Verdict, count: int) -> None:
    at, run = lost(wrap)
    assert case_of(run).reason is CaseReason.OUTCOME_UNKNOWN
    at.hand(decided(at, run, verdict))
    run.settle()
    assert (run.state.pending, run.state.writes, at.scene.world.write_count) == (None, 1, count)
    again = at.run()
    assert (again.state.phase, again.settle()) == (Phase.RUNNING, None)


class NeverKnows(Passing):
    """Its target has lost what it knew for good."""

    def look_up(self, run_id: RunId, key: Key, kind: str) -> LookUp:
        return unknown("its journal is gone", is_final=True)


class IsNotAsked(Passing):
    """Its target keeps keys for an hour, and has no look-up; it is seen to change."""

    @property
    def kinds(self) -> tuple[KindSpec, ...]:
        unasked = {"can_be_asked": False, "key_retention_ms": HOUR_MS}
        return tuple(
            structural_replace(spec, **(unasked if spec.risk.writes else {}))
            for spec in super().kinds
        )

    def look_up(self, run_id: RunId, key: Key, kind: str) -> LookUp:
        return unknown("there is no look-up")


@pytest.mark.parametrize(
    ("wrap", "level"),
    [
        pytest.param(NeverKnows, Level.TRANSACTIONAL, id="C07 it will never know"),
        pytest.param(IsNotAsked, Level.DEDUPLICATING, id="C07 it cannot be asked"),
    ],
)
def test_a_person_decides_what_a_look_up_cannot_tell(
    wrap: Callable[[Adapter], Adapter], level: Level
) -> None:
    at = desk(level=level, approval_kinds=())
    run = at.run(wrap=lambda adapter: DiesAfterTheCall(wrap(adapter)))
    run.propose(write(run))
    with pytest.raises(Killed):
        run.settle()
    run = at.run(wrap=wrap)
    with pytest.raises(FrozenError):
        run.settle()
    assert case_of(run).reason is CaseReason.OUTCOME_UNKNOWN
    at.hand(decided(at, run, Verdict.CONFIRM_DONE))
    run.settle()
    assert (run.state.pending, run.state.writes, at.scene.world.write_count) == (None, 1, 1)


@pytest.mark.parametrize(
    "verdict",
    [pytest.param(verdict, id=f"C07 {verdict}") for verdict in (Verdict.REPLAN, Verdict.ABORT)],
)
def test_a_person_can_give_up_what_nobody_will_ever_know(verdict: Verdict) -> None:
    class NeverSays(NeverKnows):
        def forbid(self, run_id: RunId, key: Key, kind: str, fence: Fence) -> LookUp:
            super().forbid(run_id, key, kind, fence)
            return self.look_up(run_id, key, kind)

    at = desk(approval_kinds=())
    run = at.run(wrap=lambda adapter: DiesAfterTheCall(NeverSays(adapter)))
    run.propose(write(run))
    with pytest.raises(Killed):
        run.settle()
    run = at.run(wrap=NeverSays)
    with pytest.raises(FrozenError):
        run.settle()
    at.hand(decided(at, run, verdict))
    with suppress(CounterfoilError):
        run.settle()
    assert (run.state.case, run.state.pending, at.scene.world.write_count) == (None, None, 1)


@pytest.mark.parametrize("count", [pytest.param(0, id="C07 T11")])
def test_a_confirmed_absence_is_no_approval(count: int) -> None:
    at, run = lost(DiesBeforeTheCall, approval_kinds=("write_file",))
    at.scene.clock.move(1)
    at.hand(decided(at, run, Verdict.CONFIRM_ABSENT))
    at.scene.clock.move(0)
    later = at.run()
    assert later.state.pending is not None
    at.scene.clock.at_ms = later.state.pending.requested_at_ms + HOUR_MS
    last_one = at.run()
    with pytest.raises(ApprovalError):
        last_one.settle()
    assert last_one.state.pending is not None
    assert last_one.state.pending.is_cleared
    assert at.scene.world.write_count == count
    request = last_one.request
    assert request is not None
    at.hand(approve(request, expires_at_ms=at.scene.clock.now_ms() + HOUR_MS))
    last_one.settle()
    assert at.scene.world.write_count == 1


@pytest.mark.parametrize(
    ("verdict", "changes"),
    [
        pytest.param(Verdict.CONFIRM_DONE, {"evidence": ""}, id="T22 no evidence"),
    ],
)
def test_done_is_not_confirmed_without_evidence(verdict: Verdict, changes: Any) -> None:
    at, run = lost()
    at.hand(decided(at, run, verdict, **changes))
    assert stays_frozen(run)


@pytest.mark.parametrize("verdict", [Verdict.CONFIRM_DONE, Verdict.CONFIRM_ABSENT])
@pytest.mark.parametrize("kind", [pytest.param(DECISION_TYPE, id="T22 a conflict")])
def test_a_conflict_is_not_confirmed_away(verdict: Verdict, kind: str) -> None:
    at, run = conflict()
    at.hand(decided(at, run, verdict))
    assert stays_frozen(run)


# ---------------------------------------------------------------- receipts of approved calls


def approved_and_lost(level: Level = Level.TRANSACTIONAL) -> Desk:
    """Return a desk whose worker died right after an approved call."""
    at = desk(level=level)
    _, request = at.asks()
    at.hand(approve(request))
    run = at.run(wrap=DiesAfterTheCall)
    with pytest.raises(Killed):
        run.settle()
    return at


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        pytest.param({"id": ""}, CaseReason.INCOMPLETE_RECEIPT, id="T17 no id"),
        pytest.param({"committed_at_ms": 0}, CaseReason.INCOMPLETE_RECEIPT, id="T17 no time"),
        pytest.param({"statement": ""}, CaseReason.INCOMPLETE_RECEIPT, id="T17 no statement"),
        pytest.param(
            {"statement": "9" * 64}, CaseReason.INCOMPLETE_RECEIPT, id="T17 another statement"
        ),
        pytest.param(
            {"committed_at_ms": 2**50}, CaseReason.LATE_COMMIT, id="T17 commit after expiry"
        ),
        pytest.param(
            {"digest": IntentDigest("i1:9")}, CaseReason.INTENT_CONFLICT, id="T17 another digest"
        ),
        pytest.param({"run_id": RunId("run-2")}, CaseReason.INTENT_CONFLICT, id="T18 another run"),
        pytest.param({"adapter": "other"}, CaseReason.INTENT_CONFLICT, id="T17 another adapter"),
        pytest.param({"kind": "other"}, CaseReason.INTENT_CONFLICT, id="T17 another kind"),
        pytest.param({"level": Level.BLIND}, CaseReason.INTENT_CONFLICT, id="T17 another level"),
        pytest.param({"committed_at_ms": 1}, CaseReason.INCOMPLETE_RECEIPT, id="T17 too early"),
    ],
)
def test_a_receipt_that_proves_too_little_opens_a_case(
    fields: dict[str, Any], reason: CaseReason
) -> None:
    at = approved_and_lost()
    at.scene.world.alter_receipt(KEY, **fields)
    run = at.run()
    with pytest.raises(FrozenError):
        run.settle()
    assert (case_of(run).reason, at.scene.world.write_count) == (reason, 1)


@pytest.mark.parametrize(
    "level",
    [pytest.param(level, id=f"T17 {level}") for level in Level if level is not Level.BLIND],
)
def test_a_receipt_found_after_a_crash_must_name_its_approvals(level: Level) -> None:
    at = approved_and_lost(level)
    run = at.run()
    if level is Level.TRANSACTIONAL:
        settled = run.settle()
        assert settled is not None
        assert settled.outcome is Outcome.RECONCILED
    else:
        with pytest.raises(FrozenError):
            run.settle()
    assert at.scene.world.write_count == 1


@pytest.mark.parametrize("level", [pytest.param(level, id=f"acc-032 {level}") for level in Level])
def test_an_answer_to_the_approved_call_itself_is_believed(level: Level) -> None:
    at = desk(level=level)
    run, request = at.asks()
    at.hand(approve(request))
    settled = run.settle()
    assert settled is not None
    assert (settled.outcome, at.scene.world.files["app.py"]) == (Outcome.EXECUTED, SOUND)


def _bad(decision: Decision, **changes: Any) -> bytes:
    return signed(replace(decision, **changes), DECISION_TYPE, RITA)


@pytest.mark.parametrize("error", [pytest.param(IntegrityError, id="T13 another's name")])
def test_a_decision_in_another_reviewers_name_is_dropped(error: type[Exception]) -> None:
    at, run = conflict()
    case = case_of(run)
    made = decision_for(
        case,
        run_id=RunId(RUN_ID),
        task=at.scene.task.id,
        verdict=Verdict.ABORT,
        signer="rob",
        issued_at_ms=case.opened_at_ms,
        expires_at_ms=case.opened_at_ms + HOUR_MS,
    )
    at.hand(_bad(made), _bad(made, signer="rita", receipt_digest=Digest("0")))
    assert stays_frozen(run)
    assert [e.signer for e in events(run) if e.signer] == ["rita"]
