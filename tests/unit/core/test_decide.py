"""One question at a time: what a session must do now, given what it knows."""

import pytest

from counterfoil.core.decide import (
    NOTHING,
    Ask,
    Conclude,
    Effect,
    Execute,
    Forbid,
    Idle,
    Known,
    Look,
    SendAgain,
    next_effect,
)
from counterfoil.core.errors import PermissionDeniedError
from counterfoil.core.intent import KindSpec
from counterfoil.core.receipt import ABSENT, Answer, LookUp, found, unknown
from counterfoil.core.reconcile import Adopt, GiveUp, Review, Wait
from counterfoil.core.review import CaseReason
from counterfoil.core.run import Phase, Run
from counterfoil.core.words import Level
from tests.support.runs import (
    BEGAN_MS,
    BOX,
    MOVED,
    PUT,
    case_of,
    fresh,
    kind,
    pending,
    receipt_of,
)

OURS = pending()
RECEIPT = receipt_of(OURS)
BUSY = fresh(pending=OURS)
REFUSAL = PermissionDeniedError("the target says no")
BLIND = kind(level=Level.BLIND, fences=False)
BLINDLY = pending(BLIND)
FORBIDS = kind(fences=False, forbids=True)


@pytest.mark.parametrize(
    ("run", "known", "spec", "expected"),
    [
        pytest.param(fresh(), NOTHING, None, Idle(), id="nothing is pending"),
        pytest.param(
            fresh(phase=Phase.NEEDS_REVIEW, pending=OURS, case=case_of(OURS)),
            Known(is_unsent=True),
            PUT,
            Idle(),
            id="a run in review does not act",
        ),
        pytest.param(
            fresh(phase=Phase.FAILED, reason="r"), Known(is_unsent=True), PUT, Idle(), id="an end"
        ),
        pytest.param(
            BUSY,
            NOTHING,
            None,
            Conclude(pending=OURS, verdict=Wait(reason="no adapter at hand declares box.put")),
            id="its adapter is not at hand",
        ),
        pytest.param(
            BUSY,
            Known(is_unsent=True),
            None,
            Conclude(pending=OURS, verdict=Wait(reason="no adapter at hand declares box.put")),
            id="its adapter is not at hand, and it is unsent",
        ),
        pytest.param(
            BUSY, Known(is_unsent=True), PUT, Execute(pending=OURS), id="made durable here"
        ),
        pytest.param(
            BUSY, NOTHING, PUT, Ask(pending=OURS), id="acc-A7 after a crash it asks first"
        ),
        pytest.param(
            BUSY, Known(is_fenced=True), PUT, Ask(pending=OURS), id="a new lease is no answer"
        ),
        pytest.param(
            BUSY, Known(observed=BOX), PUT, Ask(pending=OURS), id="a look at the world is no answer"
        ),
        pytest.param(
            fresh(pending=BLINDLY),
            NOTHING,
            BLIND,
            Look(pending=BLINDLY),
            id="after a crash it looks where a blind target stands",
        ),
        pytest.param(
            fresh(pending=BLINDLY),
            Known(observed=BOX),
            BLIND,
            Conclude(
                pending=BLINDLY,
                verdict=Review(
                    reason=CaseReason.OUTCOME_UNKNOWN,
                    finding="box.put may have happened, and its target cannot be asked",
                    observed=BOX,
                ),
            ),
            id="after a crash a blind target cannot be asked",
        ),
        pytest.param(BUSY, Known(answer=ABSENT), PUT, Look(pending=OURS), id="absent, so it looks"),
        pytest.param(
            BUSY,
            Known(answer=ABSENT, observed=BOX),
            PUT,
            SendAgain(pending=OURS),
            id="absent in a still world: on record before it leaves again",
        ),
        pytest.param(
            BUSY,
            Known(answer=found(RECEIPT), observed=MOVED),
            PUT,
            Conclude(pending=OURS, verdict=Adopt(receipt=RECEIPT)),
            id="found",
        ),
        pytest.param(
            BUSY,
            Known(answer=unknown("silence"), observed=BOX),
            PUT,
            Conclude(pending=OURS, verdict=Wait(reason="silence")),
            id="T20 unknown is not absent",
        ),
        pytest.param(
            BUSY,
            Known(answer=LookUp(answer=Answer.FOUND_OTHER), observed=BOX),
            PUT,
            Conclude(
                pending=OURS,
                verdict=Review(
                    reason=CaseReason.INTENT_CONFLICT,
                    finding="the target says that the key holds another effect",
                    observed=BOX,
                ),
            ),
            id="another effect under the key",
        ),
        pytest.param(
            fresh(pending=pending(FORBIDS)),
            Known(answer=ABSENT, observed=MOVED),
            FORBIDS,
            Forbid(pending=pending(FORBIDS)),
            id="the key is made impossible before it is given up",
        ),
        pytest.param(
            BUSY,
            Known(refusal=REFUSAL),
            PUT,
            Conclude(pending=OURS, verdict=GiveUp(error=REFUSAL)),
            id="the only call was refused",
        ),
        pytest.param(
            fresh(pending=pending(sends=2)),
            Known(refusal=REFUSAL),
            PUT,
            Ask(pending=pending(sends=2)),
            id="one of several calls was refused, so it asks",
        ),
    ],
)
def test_what_must_happen_now(
    run: Run, known: Known, spec: KindSpec | None, expected: Effect
) -> None:
    assert next_effect(run, known, spec, BEGAN_MS) == expected


@pytest.mark.parametrize("level", [level for level in Level if level is not Level.BLIND])
def test_nothing_known_never_executes(level: Level) -> None:
    spec = kind(level=level)
    assert isinstance(next_effect(fresh(pending=pending(spec)), NOTHING, spec, BEGAN_MS), Ask)


@pytest.mark.parametrize("level", Level)
def test_a_call_that_was_answered_is_not_executed_again_without_a_record(level: Level) -> None:
    spec = kind(level=level)
    known = Known(answer=ABSENT, observed=BOX, is_fenced=True, is_forbidden=True)
    effect = next_effect(fresh(pending=pending(spec)), known, spec, BEGAN_MS)
    assert not isinstance(effect, Execute)
