"""Four workers on real servers, one stopped before any port call; effects counted on targets.

What sleeps past its lease right before a call still makes that call when it wakes. So
shipments are fenced where workers sleep: a target that neither fences nor deduplicates
states a bound for calls in flight, and nobody keeps it who is stopped for longer.
"""

import json
from typing import Any

import pytest

from tests.servers.conftest import APART, ETCD, JOINT, MIXED, TERMS, Start, Urls

pytest_plugins = ["tests.support.etcd", "tests.support.postgres"]

CREW = "tests.support.crew"
SEED = "20261202"
STRIDES = {JOINT: (1, 0), APART: (3, 0), MIXED: (3, 1), ETCD: (3, 2)}
"""Each instant on one database, and each once more on one of the three other pairs, where a
commit is two calls."""


def _stories(how: str, number: str) -> list[Any]:
    """Name each row; the one that is also run without assertions bears the list's number."""
    return [
        pytest.param(pair, id=f"C02 {number if pair == JOINT else ''}{how}, {pair}")
        for pair in STRIDES
    ]


@pytest.mark.timeout(400)
@pytest.mark.parametrize("pair", _stories("SIGKILL", "acc-A9 "))
def test_a_run_whose_worker_is_killed_anywhere_is_ended_by_one_of_three(
    pair: str, start: Start, urls: Urls
) -> None:
    fields = {**urls(pair), **TERMS[pair]}
    stride, first = STRIDES[pair]
    report = start(CREW, "kill", json.dumps(fields), str(stride), str(first), SEED)
    assert report["faults"] == []
    assert report["kills"] > report["calls"] / (stride + 1) - 1
    assert report["kills"] > 2


@pytest.mark.timeout(400)
@pytest.mark.parametrize("pair", _stories("SIGSTOP", "acc-A9 acc-A11 "))
def test_a_worker_that_sleeps_past_its_lease_anywhere_is_refused_or_finds_the_run_done(
    pair: str, start: Start, urls: Urls
) -> None:
    fields = {**urls(pair), **TERMS[pair], "ship_level": "transactional"}
    stride, first = STRIDES[pair]
    report = start(CREW, "sleep", json.dumps(fields), str(stride), str(first), SEED)
    assert report["faults"] == []
    assert report["woken"] == report["refused"] + report["kept"]
    assert report["woken"] > report["calls"] / (stride + 1) - 1  # the last may come after the end
    assert report["refused"] > report["kept"]
