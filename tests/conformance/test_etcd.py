"""The head register in a real etcd keeps every clause, and broken ones are caught there too.

Its clock cannot be moved, so clauses wait. They wait at once, each below a prefix of its
own; a test then says what became of one of them.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from counterfoil.core.errors import CounterfoilError
from counterfoil.local.etcd import LocalEtcd
from counterfoil.testing import head_commits as commits
from counterfoil.testing.conformance_heads import CLOCK_CLAUSES, HEAD_CLAUSES
from counterfoil.testing.expect import ConformanceError
from counterfoil.testing.saboteur_heads import AdvancesTwice, Passing
from tests.support.etcd import etcd_heads
from tests.support.head_saboteurs import CAUGHT

pytest_plugins = ["tests.support.etcd"]

THREADS = 12
BY_CHANCE = (AdvancesTwice, commits.one_of_many_commits)
"""This one reads before it writes. On a register that many threads do reach at once, all
of them may read before the first one writes, and then it breaks nothing."""

Clause = Callable[..., None]
Pair = tuple[Any, Clause]

PAIRS: list[Pair] = [
    *((None, clause) for clause in HEAD_CLAUSES),
    *((Passing, clause) for clause in HEAD_CLAUSES),
    *(pair for pair in CAUGHT if pair[1] not in CLOCK_CLAUSES and pair != BY_CHANCE),
]


@pytest.fixture(scope="module")
def outcomes(etcd: LocalEtcd) -> dict[Pair, Future[None]]:
    """Every pair of a saboteur, or none, and a clause, run to its end."""

    def run(pair: Pair) -> None:
        with etcd_heads(etcd, pair[0]) as bench:
            pair[1](bench)

    with ThreadPoolExecutor(THREADS) as pool:
        return {pair: pool.submit(run, pair) for pair in PAIRS}


def _sentence(clause: Clause) -> str:
    return clause.__name__.replace("_", " ")


@pytest.mark.parametrize("clause", HEAD_CLAUSES, ids=_sentence)
def test_etcd_keeps(outcomes: dict[Pair, Future[None]], clause: Clause) -> None:
    outcomes[None, clause].result()


@pytest.mark.parametrize("clause", HEAD_CLAUSES, ids=_sentence)
def test_etcd_that_breaks_nothing_passes(
    outcomes: dict[Pair, Future[None]], clause: Clause
) -> None:
    outcomes[Passing, clause].result()


@pytest.mark.parametrize(
    "pair",
    [
        pytest.param(pair, id=f"{pair[0].__name__} {pair[1].__name__}")
        for pair in PAIRS
        if pair[0] not in {None, Passing}
    ],
)
def test_etcd_that_breaks_a_promise_is_caught(
    outcomes: dict[Pair, Future[None]], pair: Pair
) -> None:
    with pytest.raises((ConformanceError, CounterfoilError)):
        outcomes[pair].result()
