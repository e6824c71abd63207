"""What a drill's counts mean, and what it ends with."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from counterfoil.core.errors import ConfigError
from counterfoil.drill import make_plan
from counterfoil.drill.chronicle import Chronicle
from counterfoil.drill.faults import Action
from counterfoil.drill.own_places import own_url
from counterfoil.drill.plan import STEPS, Plan
from counterfoil.drill.program import business_ids
from counterfoil.drill.report import Report, make_report
from counterfoil.drill.target import Counts, Target

ONCE = dict.fromkeys(business_ids("a", STEPS), 1)


def plan(**changed: Any) -> Plan:
    given: dict[str, Any] = {"store": "sqlite", "heads": "sqlite", "workers": 2, "seconds": 3}
    return make_plan(**{**given, "seed": 7, "lease_ms": 2_000, **changed})


def report(folder: Path, effects: dict[str, int], *, completed: tuple[str, ...] = ("a",)) -> Report:
    file = folder / "target.db"
    Target(file, seed=1, late_ms=0)
    with sqlite3.connect(file) as database:
        for what, count in effects.items():
            row = "INSERT INTO effect (what, run_id, key, digest, at_ms) VALUES (?, 'a', '', '', 0)"
            database.executemany(row, [(what,)] * count)
    database.close()
    chronicle = Chronicle(waits_ms={Action.KILL: [10.0, 30.0], Action.LONG_PAUSE: [50.0, 20.0]})
    return make_report(
        plan(),
        chronicle=chronicle,
        counts=Counts(file),
        runs=("a",),
        completed=frozenset(completed),
    )


@pytest.mark.parametrize(
    ("effects", "duplicates", "lost"),
    [
        pytest.param(ONCE, 0, 0, id="each once"),
        pytest.param(ONCE | {"a/2": 3}, 2, 0, id="one three times"),
        pytest.param(ONCE | {"stranger/0": 1}, 1, 0, id="one of no run"),
        pytest.param({w: 1 for w in ONCE if w != "a/4"}, 0, 1, id="one is missing"),
    ],
)
def test_effects_are_compared_with_business_ids(
    effects: dict[str, int], duplicates: int, lost: int, tmp_path: Path
) -> None:
    found = report(tmp_path, effects)
    assert (found.duplicates, found.lost) == (duplicates, lost)
    failure = found.failure()
    assert (failure.exit_code if failure else 0) == (4 if duplicates or lost else 0)


def test_a_run_that_did_not_complete_fails_the_drill(tmp_path: Path) -> None:
    failure = report(tmp_path, ONCE, completed=()).failure()
    assert failure is not None
    assert failure.exit_code == 7
    assert "0 of 1 run completed" in failure.message


def test_the_slowest_takeover_is_told_with_and_without_pauses(tmp_path: Path) -> None:
    found = report(tmp_path, ONCE)
    slowest = (found.slowest_takeover_ms, found.slowest_after_kill_ms, found.median_takeover_ms)
    assert slowest == (50, 30, 25)


def test_the_command_repeats_the_plan_and_shows_no_password() -> None:
    made = plan(heads="postgresql://app:secret@db/work", sabotage="keys")
    assert made.command == (
        "counterfoil drill --store sqlite --heads postgresql://app:***@db/work --workers 2 "
        "--seconds 3 --seed 7 --lease-ms 2000 --sabotage keys"
    )


def test_a_file_means_the_same_in_every_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert plan(store="sqlite:here.db").store == f"sqlite:{tmp_path}/here.db"


@pytest.mark.parametrize("heads", ["memory:", "etcd:", "redis://one", "postgres"])
def test_a_place_that_workers_cannot_share_is_refused(heads: str) -> None:
    with pytest.raises(ConfigError, match="--heads"):
        plan(heads=heads)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://a@b/c", "postgresql://a@b/c?schema=counterfoil_drill_00ff"),
        ("postgresql://a@b/c?pool=2", "postgresql://a@b/c?pool=2&schema=counterfoil_drill_00ff"),
        ("postgresql://a@b/c?schema=mine", "postgresql://a@b/c?schema=mine"),
        ("etcd://b:1", "etcd://b:1/counterfoil-drill-00ff"),
        ("etcd://b:1/p?tls=true", "etcd://b:1/p-drill-00ff?tls=true"),
        ("sqlite:/a/b.db", "sqlite:/a/b.db"),
    ],
)
def test_a_drill_has_a_place_of_its_own(url: str, expected: str) -> None:
    assert own_url(url, "00ff") == expected
