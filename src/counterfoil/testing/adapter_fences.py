"""Clauses for adapters that fence: a former holder's late call does nothing."""

from functools import partial

from counterfoil.core.errors import FencedError
from counterfoil.core.receipt import Fence
from counterfoil.testing.adapter_bench import (
    FENCE,
    NEWER,
    OTHER_RUN,
    RIVAL,
    RUN,
    SERVED,
    AdapterBench,
    expect_count,
    expect_refused,
    operation,
)
from counterfoil.testing.expect import expect


def a_call_under_an_older_lease_is_refused(bench: AdapterBench) -> None:
    """A worker that wakes late acts on a run that is no longer its own."""
    adapter = bench.open()
    late = operation(bench, adapter, bench.write(1), fence=FENCE)
    adapter.take(RUN, FENCE)
    bench.open().take(RUN, NEWER)
    expect_refused(
        lambda: adapter.execute(late),
        (FencedError,),
        "a call under an older lease is a FencedError",
    )
    expect_count(bench, 0)


def a_call_under_another_holders_lease_of_one_version_is_refused(bench: AdapterBench) -> None:
    """A restored register issues a lease version twice."""
    adapter = bench.open()
    late = operation(bench, adapter, bench.write(1), fence=RIVAL)
    adapter.take(RUN, NEWER)
    expect_refused(
        lambda: adapter.execute(late),
        (FencedError,),
        "a call under an equal lease version with another nonce is a FencedError",
    )
    expect_count(bench, 0)


def a_call_under_the_standing_lease_goes_through(bench: AdapterBench) -> None:
    """A fence that refuses its own holder stops every run."""
    adapter = bench.open()
    adapter.take(RUN, NEWER)
    adapter.execute(operation(bench, adapter, bench.write(1), fence=NEWER))
    expect_count(bench, 1)


def an_older_lease_cannot_be_taken(bench: AdapterBench) -> None:
    """A fence only rises."""
    adapter = bench.open()
    adapter.take(RUN, NEWER)
    for fence, which in ((FENCE, "an older lease"), (RIVAL, "another holder's lease")):
        expect_refused(
            partial(bench.open().take, RUN, fence),
            (FencedError,),
            f"taking {which} is a FencedError",
        )


def nothing_is_served_before_the_first_call(bench: AdapterBench) -> None:
    """Evidence of a call that never came would be a false alarm."""
    expect(bench.open().take(RUN, FENCE) is None, "nothing is served before the first call")


def taking_returns_what_was_served_last(bench: AdapterBench) -> None:
    """It shows a store and a register that were both set back."""
    adapter = bench.open()
    adapter.take(RUN, FENCE)
    adapter.execute(operation(bench, adapter, bench.write(1)))
    served = bench.open().take(RUN, NEWER)
    expect(served == SERVED, "taking returns the checkpoint that was served last")


def taking_twice_is_taking_once(bench: AdapterBench) -> None:
    """A lost answer makes the engine take again."""
    adapter = bench.open()
    adapter.execute(operation(bench, adapter, bench.write(1)))
    first = adapter.take(RUN, NEWER)
    expect(adapter.take(RUN, NEWER) == first, "taking one lease twice gets one answer")
    expect(bench.open().take(RUN, NEWER) == first, "a new adapter gets it too")


def fences_of_different_runs_are_apart(bench: AdapterBench) -> None:
    """Lease versions of different runs have nothing to do with each other."""
    adapter = bench.open()
    adapter.take(RUN, Fence(lease_version=9, nonce="ninth"))
    expect(adapter.take(OTHER_RUN, FENCE) is None, "another run starts with its own first lease")
    adapter.execute(operation(bench, adapter, bench.write(1), run_id=OTHER_RUN))
    expect_count(bench, 1)
