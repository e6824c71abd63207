"""Clauses for adapters that keep keys, forbid keys, or compare the prestate."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from counterfoil.core.errors import (
    CounterfoilError,
    FencedError,
    IdempotencyConflictError,
    RefusedError,
    StaleObservationError,
)
from counterfoil.core.receipt import Answer, Receipt
from counterfoil.core.words import Key
from counterfoil.ports import Adapter, Operation
from counterfoil.testing.adapter_bench import (
    FENCE,
    KEY,
    NEWER,
    OTHER_RUN,
    RUN,
    AdapterBench,
    expect_count,
    expect_refused,
    is_same,
    operation,
)
from counterfoil.testing.expect import expect

CALLERS = 8
"""Callers that race with one key: more than the threads of a usual worker."""


def a_repeated_call_gets_the_first_receipt(bench: AdapterBench) -> None:
    """The same call again is how an uncertain one is settled."""
    adapter = bench.open()
    sent = operation(bench, adapter, bench.write(1))
    first = adapter.execute(sent)
    again = adapter.execute(sent)
    expect(is_same(first, again), "a repeated call gets the receipt of the first one")
    expect(again.replayed, "the receipt of a repeated call says that it is a replay")
    expect_count(bench, 1)


def a_call_repeated_by_a_new_adapter_gets_the_first_receipt(bench: AdapterBench) -> None:
    """Keys outlive the process that used them."""
    adapter = bench.open()
    sent = operation(bench, adapter, bench.write(1))
    first = adapter.execute(sent)
    adapter.close()
    again = bench.open().execute(sent)
    expect(is_same(first, again), "a new adapter answers a repeated call with the first receipt")
    expect_count(bench, 1)


def a_lost_answer_is_settled_by_the_same_call(bench: AdapterBench) -> None:
    """The effect is there, and a repeated call must not add another."""
    adapter = bench.open()
    sent = operation(bench, adapter, bench.write(1))
    bench.lose_answer()
    _attempt(adapter, sent)
    adapter.execute(sent)
    expect_count(bench, 1)


def another_intent_under_a_key_is_a_conflict(bench: AdapterBench) -> None:
    """A changed intent under a known key is never taken for the recorded one."""
    adapter = bench.open()
    adapter.execute(operation(bench, adapter, bench.write(1)))
    other = operation(bench, adapter, bench.write(2))
    _expect_conflict(lambda: adapter.execute(other), "another intent under a key is a conflict")
    expect_count(bench, 1)


def another_runs_key_is_a_conflict(bench: AdapterBench) -> None:
    """Two runs in one environment may choose the same name for two effects."""
    adapter = bench.open()
    adapter.execute(operation(bench, adapter, bench.write(1)))
    theirs = operation(bench, adapter, bench.write(1), run_id=OTHER_RUN)
    _expect_conflict(lambda: adapter.execute(theirs), "the key of another run is a conflict")
    expect_count(bench, 1)


def a_shared_key_answers_another_run_with_the_first_effect(bench: AdapterBench) -> None:
    """A key that is declared shared means one effect for all runs."""
    adapter = bench.open()
    first = adapter.execute(operation(bench, adapter, bench.write(1)))
    theirs = adapter.execute(operation(bench, adapter, bench.write(1), run_id=OTHER_RUN))
    expect(theirs.id == first.id, "a shared key answers with the first effect")
    expect(theirs.run_id == OTHER_RUN, "the receipt names the run that asked")
    expect_count(bench, 1)


def callers_that_race_with_one_key_cause_one_effect(bench: AdapterBench) -> None:
    """A check and an act with a gap between them let two callers through."""
    sent = operation(bench, bench.open(), bench.write(1))
    adapters = [bench.open() for _ in range(CALLERS)]
    with ThreadPoolExecutor(CALLERS) as pool:
        calls = [pool.submit(adapter.execute, sent) for adapter in adapters]
        receipts = [call.result() for call in calls]
    expect(len({receipt.id for receipt in receipts}) == 1, "all callers get one receipt")
    expect_count(bench, 1)


def a_replay_is_answered_though_the_environment_moved(bench: AdapterBench) -> None:
    """An effect moves its own prestate, so the key is looked at first."""
    adapter = bench.open()
    sent = operation(bench, adapter, bench.write(1))
    first = adapter.execute(sent)
    bench.disturb()
    expect(is_same(adapter.execute(sent), first), "the key is looked at before the prestate")
    expect_count(bench, 1)


def a_write_built_on_another_state_is_refused(bench: AdapterBench) -> None:
    """Runs that share an environment are kept apart by the prestate alone."""
    adapter = bench.open()
    sent = operation(bench, adapter, bench.write(1))
    bench.disturb()
    before = adapter.observe(bench.scope)
    expect_refused(
        lambda: adapter.execute(sent),
        (StaleObservationError,),
        "a write that was built on another state is a StaleObservationError",
    )
    expect(adapter.observe(bench.scope) == before, "a refused write changes nothing")
    expect_count(bench, 0)


def a_write_built_before_another_runs_write_is_refused(bench: AdapterBench) -> None:
    """The first of two runs wins, and the other plans anew on what it finds."""
    adapter, rival = bench.open(), bench.open()
    sent = operation(bench, adapter, bench.write(1))
    other = operation(bench, rival, bench.write(2), run_id=OTHER_RUN, key=Key("key-2"))
    rival.execute(other)
    expect_refused(
        lambda: adapter.execute(sent),
        (StaleObservationError,),
        "a write that was built before another run's write is a StaleObservationError",
    )
    expect_count(bench, 1)


def a_disturbance_is_observed(bench: AdapterBench) -> None:
    """What is not seen cannot be reported as drift."""
    adapter = bench.open()
    before = adapter.observe(bench.scope).state
    bench.disturb()
    after = adapter.observe(bench.scope).state
    expect(before != after, "a change by somebody else is seen in the state")


def a_forbidden_key_never_executes(bench: AdapterBench) -> None:
    """An intent that is given up must not land late, whoever carries it."""
    adapter = bench.open()
    sent = operation(bench, adapter, bench.write(1))
    answer = adapter.forbid(RUN, KEY, sent.kind, FENCE)
    expect(answer.answer is Answer.ABSENT, "forbidding what was not done answers absent")
    _expect_forbidden(adapter, sent)
    _expect_forbidden(bench.open(), sent)
    expect_count(bench, 0)


def forbidding_twice_is_forbidding_once(bench: AdapterBench) -> None:
    """A lost answer makes the engine forbid again."""
    adapter = bench.open()
    sent = operation(bench, adapter, bench.write(1))
    adapter.forbid(RUN, KEY, sent.kind, FENCE)
    answer = adapter.forbid(RUN, KEY, sent.kind, FENCE)
    expect(answer.answer is Answer.ABSENT, "forbidding again answers absent again")
    _expect_forbidden(adapter, sent)


def a_forbidden_key_is_still_absent(bench: AdapterBench) -> None:
    """Forbidding is no effect, and leaves no receipt."""
    adapter = bench.open()
    kind = bench.write(1).kind
    adapter.forbid(RUN, KEY, kind, FENCE)
    answer = adapter.look_up(RUN, KEY, kind)
    expect(answer.answer is Answer.ABSENT, "a forbidden key has no receipt")


def what_is_done_cannot_be_forbidden(bench: AdapterBench) -> None:
    """Otherwise an effect that stands would be recorded as given up."""
    adapter = bench.open()
    sent = operation(bench, adapter, bench.write(1))
    first = adapter.execute(sent)
    answer = adapter.forbid(RUN, KEY, sent.kind, FENCE)
    expect(answer.answer is Answer.FOUND, "forbidding what was done answers found")
    expect(is_same(answer.receipt, first), "forbidding what was done shows its receipt")


def forbidding_one_key_leaves_the_others(bench: AdapterBench) -> None:
    """The next plan runs under another key, and other runs under theirs."""
    adapter = bench.open()
    kind = bench.write(1).kind
    adapter.forbid(RUN, KEY, kind, FENCE)
    adapter.execute(operation(bench, adapter, bench.write(1), key=Key("key-2")))
    adapter.execute(operation(bench, adapter, bench.write(2), key=Key("key-3"), run_id=OTHER_RUN))
    expect_count(bench, 2)


def a_forbidding_under_an_older_lease_is_refused(bench: AdapterBench) -> None:
    """A former holder must not end its successor's intent."""
    adapter = bench.open()
    sent = operation(bench, adapter, bench.write(1), fence=NEWER)
    adapter.take(RUN, NEWER)
    expect_refused(
        lambda: adapter.forbid(RUN, KEY, sent.kind, FENCE),
        (FencedError,),
        "forbidding under an older lease is a FencedError",
    )
    adapter.execute(sent)
    expect_count(bench, 1)


def forbidding_and_executing_race_to_one_answer(bench: AdapterBench) -> None:
    """Giving up and a late call meet in one atomic act."""
    adapter, rival = bench.open(), bench.open()
    sent = operation(bench, adapter, bench.write(1))
    with ThreadPoolExecutor(2) as pool:
        call = pool.submit(_attempt, adapter, sent)
        answer = pool.submit(rival.forbid, RUN, KEY, sent.kind, FENCE).result()
        receipt = call.result()
    is_done = answer.answer is Answer.FOUND
    expect(is_done == (receipt is not None), "either it is done or it is forbidden, never both")
    expect_count(bench, int(is_done))


def _attempt(adapter: Adapter, sent: Operation) -> Receipt | None:
    try:
        return adapter.execute(sent)
    except (CounterfoilError, OSError):
        return None


def _expect_conflict(act: Callable[[], object], sentence: str) -> None:
    expect_refused(act, (IdempotencyConflictError,), sentence)


def _expect_forbidden(adapter: Adapter, sent: Operation) -> None:
    expect_refused(
        lambda: adapter.execute(sent),
        (RefusedError,),
        "a call under a forbidden key is a RefusedError",
    )
