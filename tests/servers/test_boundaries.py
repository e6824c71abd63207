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
EVERY, SOME = "1", "0.25"
SEED = "20261202"
SHARES = {JOINT: EVERY, APART: SOME, MIXED: SOME, ETCD: SOME}


def _stories(how: str) -> list[Any]:
    return [pytest.param(pair, id=f"C02 acc-A9 {how}, {pair}") for pair in SHARES]


@pytest.mark.timeout(400)
@pytest.mark.parametrize("pair", _stories("SIGKILL"))
def test_a_run_whose_worker_is_killed_anywhere_is_ended_by_one_of_three(
    pair: str, start: Start, urls: Urls
) -> None:
    report = start(CREW, "kill", json.dumps({**urls(pair), **TERMS[pair]}), SHARES[pair], SEED)
    assert report["faults"] == []
    assert report["kills"] >= report["calls"] * float(SHARES[pair]) / 2


@pytest.mark.timeout(400)
@pytest.mark.parametrize("pair", _stories("SIGSTOP acc-A11"))
def test_a_worker_that_sleeps_past_its_lease_anywhere_is_refused_or_finds_the_run_done(
    pair: str, start: Start, urls: Urls
) -> None:
    fields = {**urls(pair), **TERMS[pair], "ship_level": "transactional"}
    report = start(CREW, "sleep", json.dumps(fields), SHARES[pair], SEED)
    assert report["faults"] == []
    assert report["woken"] == report["refused"] + report["kept"]
    assert report["woken"] >= report["calls"] * float(SHARES[pair]) / 2
    assert report["refused"] > report["kept"]
