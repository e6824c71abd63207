"""Two worker processes on one run, on real servers: one of them acts.

On a server nobody sees that a holder is dead, so where a lease is followed by another it
has ended by the server's clock.
"""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.servers.conftest import PAIRS, TERMS, Start, Urls
from tests.support.nursery import DONE, LOST, STOPPED
from tests.support.workshop import ARRIVED, CHANGED

pytest_plugins = ["tests.support.postgres"]

Tell = Callable[..., list[dict[str, Any]]]
RIVALS = "tests.support.rivals"
SEEDS = tuple(str(seed) for seed in range(8))
LEASE_LOST = "LeaseLostError, exit 5: "
HELD = LEASE_LOST + r"'(ann|ben)' holds the run under lease \d+, which ends at \d+ ms"
FASTER = "another worker was faster: the head is at generation"
"""Where the other one has come to its end between a read and the claim, nobody holds the run."""


@pytest.fixture
def tell(start: Start, urls: Urls) -> Tell:
    """Have workers play a task on a pair once per seed, and return what is told."""

    def played(task: str, pair: str, *rest: str, **fields: object) -> list[dict[str, Any]]:
        return start(RIVALS, task, json.dumps({**urls(pair), **fields}), *rest)

    return played


def pairs(row: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        "pair", [pytest.param(pair, id=f"{row} {pair}") for pair in PAIRS]
    )


def once(told: dict[str, Any]) -> bool:
    return (told["arrived"], told["changed"]) == (list(ARRIVED), list(CHANGED))


def last_words(told: dict[str, Any], code: int) -> list[str]:
    """Return what the workers said last that ended with this code."""
    ended = zip(told["codes"], told["words"], strict=True)
    return [words[-1] for each, words in ended if each == code]


# ---------------------------------------------------------------- one generation


@pairs("acc-A10 one gives way")
def test_of_two_workers_one_acts_and_the_other_is_told_who_holds_the_run(
    pair: str, tell: Tell
) -> None:
    told = tell("two names", pair, *SEEDS)
    assert [each for each in told if not once(each)] == []
    assert {code for each in told for code in each["codes"]} == {DONE, LOST}, told
    for each in told:
        for words in last_words(each, LOST):
            assert re.match(HELD, words) or words.startswith(f"{LEASE_LOST}{FASTER}")


@pairs("acc-A10 one generation")
def test_of_two_commits_of_one_generation_one_is_the_next_checkpoint(pair: str, tell: Tell) -> None:
    told = tell("one generation", pair, *SEEDS, **TERMS[pair])
    assert [each for each in told if not once(each)] == []
    assert [each["codes"] for each in told] == [[LOST, DONE]] * len(SEEDS)
    for each in told:
        (words,) = last_words(each, LOST)
        assert words.startswith(f"{LEASE_LOST}the run is held by second under lease 2")


# ---------------------------------------------------------------- late results


@pairs("acc-A11 late result")
def test_a_result_that_comes_after_the_lease_was_taken_over_is_refused(
    pair: str, tell: Tell
) -> None:
    told = tell("late", pair, "order", "ship", "write", **TERMS[pair], ship_level="transactional")
    assert [each["codes"] for each in told] == [[LOST, DONE]] * 3
    assert [each["arrived"] + each["changed"] for each in told] == [
        ["order A-7"],
        ["ship A-7"],
        ["new.txt"],
    ]
    assert [each["leases"] for each in told] == [[1], [1], []]
    for each in told:
        (words,) = last_words(each, LOST)
        assert words.startswith(f"{LEASE_LOST}the run is held by ")
        assert [outcome for outcome, _ in each["receipts"]] == ["reconciled"]


@pairs("acc-A10 acc-A11 one receipt")
def test_of_two_workers_that_find_one_receipt_one_puts_it_on_record(pair: str, tell: Tell) -> None:
    told = tell("one receipt", pair, *SEEDS[:3], **TERMS[pair])
    assert [each for each in told if not once(each)] == []
    assert [each["codes"] for each in told] == [[LOST, DONE]] * 3
    for each in told:
        assert [outcome for outcome, _ in each["receipts"]].count("reconciled") == 1
        assert len({receipt for _, receipt in each["receipts"]}) == len(each["receipts"]) == 4


# ---------------------------------------------------------------- who else may think it is the one


@pairs("T21 acc-A10 two workers of one name")
def test_two_workers_of_one_name_are_two(pair: str, tell: Tell) -> None:
    told = tell("one name", pair, *SEEDS)
    assert [each for each in told if not once(each)] == []
    assert {code for each in told for code in each["codes"]} == {DONE, LOST}, told


@pairs("T21 a copied configuration")
def test_of_two_workers_with_one_configuration_one_acts(pair: str, tell: Tell) -> None:
    told = tell("copied project", pair, *SEEDS, **TERMS[pair])
    assert [each for each in told if not once(each)] == []
    assert {code for each in told for code in each["codes"]} <= {DONE, LOST, STOPPED}
    assert min(each["done"] for each in told) >= 1
