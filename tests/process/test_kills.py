"""Real workers on real files, killed by SIGKILL; effects counted on the targets."""

from collections.abc import Callable
from typing import Any

import pytest

NURSERY = "tests.support.nursery"
SHARE = "0.08"
"""Of the instants of each recovery, how many are tried with a real second kill."""


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "form",
    [
        pytest.param("merged", id="acc-A9 acc-A13 C02 files and functions, merged"),
        pytest.param("eager", id="C02 files and functions, eager"),
    ],
)
def test_a_worker_killed_before_any_call_costs_and_repeats_nothing(
    form: str, start: Callable[..., Any]
) -> None:
    report = start(NURSERY, "everywhere", form, SHARE, "20261202")
    assert report["faults"] == []
    assert report["kills"] > 2 * report["calls"]


@pytest.mark.timeout(400)
@pytest.mark.parametrize("seed", [pytest.param("1", id="C01 C02 at any instant")])
def test_a_worker_killed_at_any_instant_costs_and_repeats_nothing(
    seed: str, start: Callable[..., Any]
) -> None:
    report = start(NURSERY, "random", "25", seed)
    assert report["faults"] == []
    assert report["kills"] > 50
