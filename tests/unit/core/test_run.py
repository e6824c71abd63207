"""A run that no sequence of steps can lead to is refused with the broken rule."""

import pytest
from msgspec.structs import replace

from counterfoil.core.errors import FormatError, IntegrityError, InvariantError
from counterfoil.core.intent import EnvironmentState
from counterfoil.core.merkle import leaf_hash
from counterfoil.core.run import (
    Evidence,
    Phase,
    Run,
    Spent,
    check_invariants,
    environment_of,
    verified_version,
    with_environment,
)
from counterfoil.core.words import IntentDigest
from tests.support.runs import BEGAN_MS, BOX, MOVED, TASK, case_of, fresh, pending

LEAF = leaf_hash(b"event")
PROOF = Evidence(event=0, digest=IntentDigest("i1:0"), environments=(BOX,))
COMPLETED = fresh(
    phase=Phase.COMPLETED, reason="verified", evidence=PROOF, trace_size=1, frontier=(LEAF,)
)
PENDING = pending()


@pytest.mark.parametrize(
    "run",
    [
        pytest.param(fresh(), id="a run that has begun"),
        pytest.param(fresh(pending=PENDING), id="a pending intent"),
        pytest.param(
            fresh(phase=Phase.NEEDS_REVIEW, pending=PENDING, case=case_of(PENDING)), id="in review"
        ),
        pytest.param(
            fresh(phase=Phase.NEEDS_REVIEW, case=case_of(None)), id="in review, nothing pending"
        ),
        pytest.param(COMPLETED, id="completed on evidence"),
        pytest.param(fresh(phase=Phase.FAILED, reason="r"), id="failed"),
        pytest.param(fresh(phase=Phase.CANCELLED, reason="r"), id="cancelled"),
        pytest.param(fresh(spent=Spent(proposals=8)), id="every proposal spent"),
    ],
)
def test_a_run_holds_its_rules_with(run: Run) -> None:
    check_invariants(run, TASK)


@pytest.mark.parametrize(
    ("run", "rule"),
    [
        pytest.param(fresh(cursor=-1), "counts are not negative", id="a negative cursor"),
        pytest.param(fresh(attempt=-1), "counts are not negative", id="a negative attempt"),
        pytest.param(fresh(writes=-1), "counts are not negative", id="negative writes"),
        pytest.param(fresh(spent=Spent(steps=-1)), "spent counts", id="negative steps"),
        pytest.param(fresh(spent=Spent(cost_micros=-1)), "spent counts", id="negative cost"),
        pytest.param(fresh(spent=Spent(proposals=-1)), "proposal budget", id="negative proposals"),
        pytest.param(
            fresh(spent=Spent(proposals=9)), "proposal budget", id="acc-A13 more than the budget"
        ),
        pytest.param(fresh(reason="r"), "no stop reason", id="a reason while it runs"),
        pytest.param(fresh(phase=Phase.FAILED), "no stop reason", id="an end without a reason"),
        pytest.param(
            fresh(phase=Phase.NEEDS_REVIEW, reason="r", case=case_of(None)),
            "no stop reason",
            id="a stop reason in review",
        ),
        pytest.param(fresh(phase=Phase.NEEDS_REVIEW), "has a case", id="a review without a case"),
        pytest.param(fresh(case=case_of(None)), "has a case", id="a case while it runs"),
        pytest.param(
            fresh(phase=Phase.FAILED, reason="r", pending=PENDING),
            "nothing pending",
            id="an end with something pending",
        ),
        pytest.param(
            replace(COMPLETED, evidence=None), "has evidence", id="acc-075 completed without proof"
        ),
        pytest.param(
            replace(COMPLETED, environments=(MOVED,)),
            "has evidence",
            id="acc-075 completed on an older version",
        ),
        pytest.param(
            replace(COMPLETED, evidence=replace(PROOF, event=1)),
            "in the trace",
            id="acc-075 evidence beyond the trace",
        ),
        pytest.param(
            replace(COMPLETED, evidence=replace(PROOF, event=-1)),
            "in the trace",
            id="acc-075 evidence before the trace",
        ),
        pytest.param(
            fresh(phase=Phase.NEEDS_REVIEW, pending=PENDING, case=case_of(None)),
            "holds the pending intent",
            id="a case about nothing",
        ),
        pytest.param(
            fresh(phase=Phase.NEEDS_REVIEW, pending=PENDING, case=case_of(pending(item="b"))),
            "holds the pending intent",
            id="a case about something else",
        ),
        pytest.param(
            fresh(pending=replace(PENDING, digest=IntentDigest("i1:0"))),
            "digest fits",
            id="another digest",
        ),
        pytest.param(
            fresh(pending=replace(PENDING, intent=pending(item="b").intent)),
            "digest fits",
            id="other arguments",
        ),
        pytest.param(fresh(pending=pending(sends=0)), "sent in order", id="never sent"),
        pytest.param(
            fresh(pending=pending(last_sent_at_ms=BEGAN_MS - 1)),
            "sent in order",
            id="sent again before it was sent",
        ),
        pytest.param(fresh(environments=(BOX, MOVED)), "named once", id="one adapter twice"),
        pytest.param(fresh(floor_ms=BEGAN_MS - 1), "time does not", id="acc-A19 time gone back"),
    ],
)
def test_a_run_is_refused_for(run: Run, rule: str) -> None:
    with pytest.raises(InvariantError, match=rule):
        check_invariants(run, TASK)


@pytest.mark.parametrize(
    "run",
    [
        pytest.param(fresh(trace_size=1), id="T3 a hash is missing"),
        pytest.param(fresh(frontier=(LEAF,)), id="T3 a hash too many"),
        pytest.param(fresh(trace_size=-1), id="T3 a negative trace"),
        pytest.param(fresh(trace_size=1, frontier=(b"short",)), id="T3 a short hash"),
    ],
)
def test_a_trace_that_cannot_be_is_refused(run: Run) -> None:
    with pytest.raises(FormatError):
        check_invariants(run, TASK)


def test_a_refusal_names_the_run() -> None:
    with pytest.raises(IntegrityError, match=r"\(run run-1\)"):
        check_invariants(fresh(cursor=-1), TASK)


def test_an_operator_needs_no_task() -> None:
    check_invariants(fresh(spent=Spent(proposals=10**6)), None)


@pytest.mark.parametrize(
    ("phase", "expected"),
    [
        (Phase.RUNNING, False),
        (Phase.NEEDS_REVIEW, False),
        (Phase.COMPLETED, True),
        (Phase.FAILED, True),
        (Phase.CANCELLED, True),
    ],
)
def test_a_phase_has_ended(phase: Phase, expected: bool) -> None:
    assert phase.has_ended is expected


def test_an_environment_is_put_in_place_in_one_order() -> None:
    axe = EnvironmentState(adapter="axe", instance="axe-1")
    one = with_environment(with_environment(fresh(environments=()), BOX), axe)
    other = with_environment(with_environment(fresh(environments=()), axe), BOX)
    assert one.environments == other.environments == (axe, BOX)


def test_an_environment_replaces_the_former_one() -> None:
    assert with_environment(fresh(), MOVED).environments == (MOVED,)


@pytest.mark.parametrize(("adapter", "expected"), [("box", BOX), ("axe", None)])
def test_an_environment_is_found_by_its_adapter(
    adapter: str, expected: EnvironmentState | None
) -> None:
    assert environment_of(fresh(), adapter) == expected


@pytest.mark.parametrize(
    ("run", "adapter", "expected"),
    [
        pytest.param(COMPLETED, "box", BOX.version, id="what was looked at"),
        pytest.param(COMPLETED, "axe", None, id="what was not looked at"),
        pytest.param(fresh(), "box", None, id="no evidence"),
    ],
)
def test_the_verified_version_is_of(run: Run, adapter: str, expected: int | None) -> None:
    assert verified_version(run, adapter) == expected
