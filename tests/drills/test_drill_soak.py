"""A minute on PostgreSQL and etcd with more than a hundred kills."""

from collections.abc import Callable

import pytest

from tests.drills.conftest import Drill


@pytest.mark.timeout(500)
def test_a_minute_of_kills_doubles_nothing_and_loses_nothing(drill: Callable[..., Drill]) -> None:
    held = drill("--store", "postgresql", "--heads", "etcd", "--workers", "7", "--seconds", "60")
    report = held.report
    assert (held.code, held.error) == (0, {})
    assert report["kills"] >= 100
    assert (report["duplicates"], report["lost"]) == (0, 0)
    assert min(report["pauses"], report["takeovers"], report["stale_commits_refused"]) > 0
    assert report["completed"] == report["runs"] > 0
