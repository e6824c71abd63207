"""A holder stops before the register does."""

import pytest

from counterfoil.core.errors import LeaseLostError, UsageError
from counterfoil.engine.lease import Lease, time_to_act_ms


@pytest.mark.parametrize(
    ("ttl_ms", "round_trip_ms", "drift_ppm", "expected_ms"),
    [
        pytest.param(10_000, 40, 0, 9_960, id="the round trip is spent"),
        pytest.param(10_000, 40, 250, 9_957, id="drift is rounded up"),
        pytest.param(30, 40, 0, 0, id="a slow reply leaves nothing"),
    ],
)
def test_a_holder_stops_before_the_register_does(
    ttl_ms: int, round_trip_ms: int, drift_ppm: int, expected_ms: int
) -> None:
    left_ms = time_to_act_ms(ttl_ms=ttl_ms, round_trip_ms=round_trip_ms, drift_ppm=drift_ppm)
    assert left_ms == expected_ms


@pytest.mark.parametrize("wrong", ["ttl_ms", "round_trip_ms", "drift_ppm"])
def test_a_term_out_of_range_is_refused(wrong: str) -> None:
    given = {"ttl_ms": 1, "round_trip_ms": 0, "drift_ppm": 0} | {wrong: -1}
    with pytest.raises(UsageError):
        time_to_act_ms(**given)


def test_a_lease_counts_from_the_moment_it_was_asked_for() -> None:
    lease = Lease(ttl_ms=1_000)
    lease.extend(sent_at_ms=100, now_ms=300)
    assert lease.left_ms(300) == 799


def test_a_late_grant_never_shortens_a_lease() -> None:
    lease = Lease(ttl_ms=1_000)
    lease.extend(sent_at_ms=500, now_ms=500)
    lease.extend(sent_at_ms=0, now_ms=510)
    assert lease.left_ms(510) == 989


def test_a_lost_lease_says_so_whenever_it_is_asked() -> None:
    lease = Lease(ttl_ms=1_000)
    lease.extend(sent_at_ms=0, now_ms=0)
    lease.lose(LeaseLostError("another worker holds it"))
    with pytest.raises(LeaseLostError):
        lease.left_ms(1)


@pytest.mark.parametrize(
    ("now_ms", "is_due"),
    [
        pytest.param(100, False, id="not while it is fresh"),
        pytest.param(400, True, id="after a third"),
        pytest.param(2_000, True, id="when it is over"),
    ],
)
def test_a_lease_is_renewed_after_a_third_of_its_term(now_ms: int, is_due: bool) -> None:
    lease = Lease(ttl_ms=1_000)
    lease.extend(sent_at_ms=0, now_ms=0)
    assert lease.is_due(now_ms) is is_due
