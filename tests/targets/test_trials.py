"""Our own adapters on trial, as a user's are: what no other drill kills is killed here."""

from pathlib import Path

import pytest

from counterfoil.core.words import Level
from counterfoil.testing import trial_drill
from counterfoil.testing.adapter_bench import AdapterBench
from counterfoil.testing.trial import Verdict, try_adapter
from tests.support.http_bench import CANDIDATES, STDLIB, bench_of, running
from tests.support.shell_bench import shell_bench

FEW = 6
"""Processes that are killed with SIGKILL inside the call."""


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial_drill, "DEATHS", FEW)


def expect_shown(verdict: Verdict, level: Level) -> None:
    assert [each for each in verdict.findings if each.problem] == []
    assert verdict.drill.problem == ""
    assert verdict.drill.kills.inside > 0
    assert (verdict.claimed, verdict.shown) == (level, level)


def test_a_service_that_cannot_be_asked_gets_no_second_order(tmp_path: Path) -> None:
    blind = next(each for each in CANDIDATES if each.level is Level.BLIND)
    with running(STDLIB, tmp_path) as shop:
        verdict = try_adapter(lambda: bench_of(blind, shop), second_deaths=0)
    expect_shown(verdict, Level.BLIND)
    assert verdict.drill.reviews > 0


def test_a_command_that_may_run_twice_leaves_one_line(tmp_path: Path) -> None:
    numbers = iter(range(1_000))

    def fresh() -> AdapterBench:
        return shell_bench(tmp_path / str(next(numbers)), kind="shell.place")

    expect_shown(try_adapter(fresh, second_deaths=0), Level.DEDUPLICATING)
