"""A drill on each pair of places: workers die and sleep, and each effect happens once."""

import os
import subprocess
from collections.abc import Callable

import pytest

from counterfoil.local.etcd import LocalEtcd
from counterfoil.local.postgres import LocalPostgres
from tests.drills.conftest import Drill
from tests.support.postgres import execute

SECONDS = "5"


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("store", "heads"),
    [
        pytest.param("sqlite", "sqlite", id="two files"),
        pytest.param("postgresql", "postgresql", id="one database"),
        pytest.param("postgresql", "etcd", id="PostgreSQL and etcd"),
        pytest.param("sqlite", "postgresql", id="a file and PostgreSQL"),
    ],
)
def test_each_effect_happens_once(store: str, heads: str, drill: Callable[..., Drill]) -> None:
    held = drill("--store", store, "--heads", heads, "--seconds", SECONDS)
    report = held.report
    assert (held.code, held.error) == (0, {})
    assert (report["duplicates"], report["lost"]) == (0, 0)
    assert report["completed"] == report["runs"] > 0
    assert report["effects"] == report["steps"] == 6 * report["runs"]
    assert report["kills"] > 0
    assert report["takeovers"] > 0
    assert report["alarms"] == []


@pytest.mark.timeout(300)
def test_a_drill_on_servers_of_ours_leaves_them_as_they_were(drill: Callable[..., Drill]) -> None:
    schemas = "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'counterfoil%'"
    with LocalPostgres() as postgres, LocalEtcd() as etcd:
        url = postgres.url()
        held = drill("--store", url, "--heads", etcd.url("work"), "--seconds", "2")
        left = (execute(url, schemas), keys_in(etcd))
    assert (held.code, held.report["duplicates"], held.report["lost"]) == (0, 0, 0)
    assert postgres.password not in str(held.report)
    assert left == ([], [])


def keys_in(etcd: LocalEtcd) -> list[str]:
    """Return every key below `work`, as etcd's own tool lists them."""
    answer = subprocess.run(
        ["etcdctl", f"--endpoints={etcd.endpoints[0]}", "get", "--prefix", "--keys-only", "work"],
        env=os.environ | {"ETCDCTL_API": "3"},
        check=True,
        capture_output=True,
        text=True,
    )
    return answer.stdout.split()
