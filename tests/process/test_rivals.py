"""Two worker processes on one run: one of them acts."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.nursery import DONE, LOST, STOPPED
from tests.support.workshop import ARRIVED, CHANGED

RIVALS = "tests.support.rivals"
SEEDS = tuple(str(seed) for seed in range(12))


def _once(told: dict[str, Any]) -> bool:
    return (told["arrived"], told["changed"]) == (list(ARRIVED), list(CHANGED))


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "task",
    [
        pytest.param("one gives way", id="acc-A10 one gives way"),
        pytest.param("one name", id="T21 two workers of one name"),
    ],
)
def test_of_two_workers_one_acts_and_one_is_refused(task: str, start: Callable[..., Any]) -> None:
    told = start(RIVALS, task, *SEEDS)
    assert [each for each in told if not _once(each)] == []
    assert {code for each in told for code in each["codes"]} == {DONE, LOST}
    assert min(each["done"] for each in told) == 1


@pytest.mark.timeout(300)
@pytest.mark.parametrize("task", [pytest.param("one waits", id="acc-A10 one waits as asked")])
def test_a_worker_that_waits_finds_the_work_done(task: str, start: Callable[..., Any]) -> None:
    told = start(RIVALS, task, *SEEDS)
    assert [each for each in told if not _once(each) or each["done"] != 2] == []


@pytest.mark.timeout(300)
@pytest.mark.parametrize("task", [pytest.param("copied state", id="T21 a copied state folder")])
def test_a_worker_with_a_copied_state_folder_does_not_act_as_well(
    task: str, start: Callable[..., Any]
) -> None:
    told = start(RIVALS, task, *SEEDS)
    assert [each for each in told if not _once(each) or each["done"] != 1] == []
    assert {code for each in told for code in each["codes"]} <= {DONE, LOST, STOPPED}


@pytest.mark.parametrize(
    "call",
    [
        pytest.param("adapter.execute", id="acc-A10 acc-A11 before its call"),
        pytest.param("store.put", id="acc-A10 acc-A11 before its checkpoint"),
        pytest.param("heads.advance", id="acc-A10 acc-A11 before its commit"),
    ],
)
def test_a_worker_that_slept_past_its_lease_is_refused(
    call: str, start: Callable[..., Any]
) -> None:
    (told,) = start(RIVALS, "paused", call)
    assert (told["codes"], told["arrived"]) == ([LOST, DONE], ["order A-7"])
