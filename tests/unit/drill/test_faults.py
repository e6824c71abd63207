"""Faults follow from a seed, and hit whom they are meant for."""

import itertools
from collections import Counter

import pytest

from counterfoil.drill.faults import Action, Fault, faults
from counterfoil.drill.lines import Stands

LEASE_MS = 2_000


def first(count: int, *, seed: int) -> list[Fault]:
    return list(itertools.islice(faults(seed=seed, workers=4, lease_ms=LEASE_MS), count))


def test_a_seed_gives_one_list_of_faults() -> None:
    assert first(50, seed=4) == first(50, seed=4) != first(50, seed=5)


def test_every_action_is_drawn() -> None:
    assert set(Counter(fault.action for fault in first(200, seed=1))) == set(Action)


def test_a_long_pause_outlasts_a_lease_and_a_short_one_does_not() -> None:
    lengths = [(fault.action, fault.pause_s * 1_000 / LEASE_MS) for fault in first(200, seed=1)]
    assert min(leases for action, leases in lengths if action is Action.LONG_PAUSE) > 1
    assert max(leases for action, leases in lengths if action is Action.SHORT_PAUSE) < 1


@pytest.mark.parametrize(
    ("action", "is_before_a_write", "expected"),
    [
        pytest.param(Action.KILL, False, True, id="a kill, anywhere"),
        pytest.param(Action.SHORT_PAUSE, False, True, id="a short pause, anywhere"),
        pytest.param(Action.LONG_PAUSE, False, False, id="a long pause, not after the call"),
        pytest.param(Action.LONG_PAUSE, True, True, id="a long pause, before the call"),
    ],
)
def test_a_long_pause_waits_for_a_write_to_come(
    action: Action, is_before_a_write: bool, expected: bool
) -> None:
    fault = Fault(after_s=0, action=action, waits_for_a_call=True, luck=0, pause_s=0)
    stands = Stands(pid=1, call="heads.advance", is_before_a_write=is_before_a_write)
    assert fault.suits(stands) is expected
