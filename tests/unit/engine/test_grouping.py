"""Calls that meet share one durable write, and each gets the answer that is its own."""

import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from counterfoil.core.errors import (
    CounterfoilError,
    FormatError,
    HeadMissingError,
    LeaseLostError,
    StaleHeadError,
    UnavailableError,
    UnknownOutcomeError,
    UsageError,
)
from counterfoil.core.words import RunId
from counterfoil.engine import grouping
from counterfoil.engine.grouping import SharedHeads, SharedJoint, SharedStore, shared
from counterfoil.ports import CheckpointStore, Head, HeadRegister, Joint, Mark
from counterfoil.stores.memory import MemoryHeads, MemoryStore
from counterfoil.stores.memory_joint import MemoryJoint
from counterfoil.stores.sqlite import open_store
from counterfoil.testing.mortal import Died
from counterfoil.testing.saboteur_heads import AnswersOutOfOrder
from counterfoil.testing.store_bench import checkpoint, created, move
from tests.support.crowds import PATIENCE_S, Caller, Gate, crowd, note_waiting, passing, refusing
from tests.support.store_benches import INCARNATION, Wall

RUNS = [RunId(f"run-{number}") for number in range(6)]
ROWS = [checkpoint(0, run_id=run_id) for run_id in RUNS]


@pytest.fixture(autouse=True)
def callers_settle(monkeypatch: pytest.MonkeyPatch) -> None:
    note_waiting(monkeypatch)


def registered() -> tuple[MemoryHeads, Gate, list[Head]]:
    """Return a register, a gate before it, and a held head of each run."""
    heads = MemoryHeads(now_ms=Wall().now_ms, incarnation=INCARNATION)
    return heads, Gate(heads), [created(heads, run_id) for run_id in RUNS]


# ---------------------------------------------------------------- alone, and together


def test_a_call_that_meets_nobody_goes_at_once_as_it_is_and_by_itself() -> None:
    gate, before = Gate(MemoryStore()), threading.active_count()
    store = SharedStore(gate)
    for row in ROWS:
        store.put([row])
    assert gate.batches == [[row] for row in ROWS]
    assert set(gate.threads) == {threading.get_ident()}
    assert threading.active_count() == before


def test_a_call_that_meets_nobody_hands_its_own_batch_on() -> None:
    seen: list[object] = []
    gate = Gate(MemoryStore())
    gate.trouble.append(seen.append)
    batch = (ROWS[0], ROWS[1])
    SharedStore(gate).put(batch)
    assert seen[0] is batch


def test_what_comes_while_a_write_is_under_way_shares_the_next_one() -> None:
    inner = MemoryStore()
    gate = Gate(inner)
    store = SharedStore(gate)
    callers = crowd(gate, [partial(store.put, [row]) for row in ROWS])
    assert gate.batches == [ROWS[:1], ROWS[1:]]
    assert [caller.error for caller in callers] == [None] * len(ROWS)
    assert [inner.get(row.run_id, row.digest) for row in ROWS] == ROWS


def test_each_call_gets_the_heads_that_it_moved() -> None:
    inner, gate, held = registered()
    heads = SharedHeads(gate)
    moves = [[move(held[0])], [move(held[1]), move(held[2])], [], [move(held[3])]]
    callers = crowd(gate, [partial(heads.advance, each) for each in moves])
    assert gate.sizes == [1, 3]
    for caller, each in zip(callers, moves, strict=True):
        assert caller.answer == tuple(inner.read(m.expected.run_id) for m in each)


def test_each_commit_gets_the_heads_that_it_moved() -> None:
    inner = MemoryJoint(now_ms=Wall().now_ms, incarnation=INCARNATION)
    gate = Gate(inner)
    joint = SharedJoint(gate)
    held = [created(inner.heads, run_id) for run_id in RUNS]
    pairs = [following(head) for head in held]
    callers = crowd(gate, [partial(joint.commit, [row], [m]) for row, m in pairs])
    assert gate.sizes == [1, len(RUNS) - 1]
    assert [caller.answer for caller in callers] == [(inner.heads.read(run),) for run in RUNS]
    assert [inner.store.get(row.run_id, row.digest) for row, _ in pairs] == [r for r, _ in pairs]


def following(head: Head) -> tuple[Any, Any]:
    row = checkpoint(head.generation + 1, run_id=head.run_id)
    return row, replace(move(head), checkpoint=row.digest)


def test_a_write_to_the_heads_does_not_hold_up_one_to_the_store() -> None:
    _, gate, held = registered()
    store, heads, _ = shared(MemoryStore(), gate)
    gate.shut()
    waiting = Caller(lambda: heads.advance([move(held[0])])).settled()
    store.put([ROWS[1]])
    assert store.get(RUNS[1], ROWS[1].digest) == ROWS[1]
    gate.open()
    assert waiting.end().error is None


# ---------------------------------------------------------------- bounds and order


def test_a_batch_has_at_most_as_many_rows_as_its_port_takes() -> None:
    gate = Gate(MemoryStore())
    gate.batch_max = 2
    store = SharedStore(gate)
    crowd(gate, [partial(store.put, [row]) for row in ROWS])
    assert gate.batches == [ROWS[:1], ROWS[1:3], ROWS[3:5], ROWS[5:]]


def test_a_port_that_states_no_bound_has_the_usual_one() -> None:
    gate = Gate(MemoryStore())
    rows = [checkpoint(0, run_id=RunId(f"many-{n}")) for n in range(grouping.BATCH_MAX + 2)]
    store = SharedStore(gate)
    crowd(gate, [partial(store.put, [row]) for row in rows])
    assert gate.sizes == [1, grouping.BATCH_MAX, 1]


def test_a_batch_has_at_most_so_many_bytes() -> None:
    gate = Gate(MemoryStore())
    half = bytes(grouping.BATCH_BYTES_MAX // 2 - 1_000)
    rows = [replace(row, events=half) for row in ROWS]
    store = SharedStore(gate)
    crowd(gate, [partial(store.put, [row]) for row in rows])
    assert gate.sizes == [1, 2, 2, 1]


def test_a_call_over_the_bound_goes_alone_and_whole() -> None:
    gate = Gate(MemoryStore())
    gate.batch_max = 2
    store = SharedStore(gate)
    calls = [partial(store.put, rows) for rows in (ROWS[:1], ROWS[1:5], ROWS[5:])]
    crowd(gate, calls)
    assert gate.batches == [ROWS[:1], ROWS[1:5], ROWS[5:]]


def test_moves_of_one_run_never_share_a_batch_and_keep_their_order() -> None:
    inner, gate, held = registered()
    heads = SharedHeads(gate)
    first = move(held[1])
    middle = replace(held[1], generation=1, checkpoint=first.checkpoint)
    second = move(middle)
    third = move(replace(held[1], generation=2, checkpoint=second.checkpoint))
    moves = [move(held[0]), first, second, move(held[2]), third, move(held[3])]
    callers = crowd(gate, [partial(heads.advance, [each]) for each in moves])
    assert [caller.error for caller in callers] == [None] * len(moves)
    assert gate.batches == [moves[:1], [first, moves[3], moves[5]], [second], [third]]
    present = inner.read(RUNS[1])
    assert present is not None
    assert present.generation == 3


def test_a_call_is_not_overtaken_by_a_later_one_for_one_of_its_runs() -> None:
    _, gate, held = registered()
    heads = SharedHeads(gate)
    first, other = move(held[1]), move(held[2])
    second = move(replace(held[1], generation=1, checkpoint=first.checkpoint))
    last = move(replace(held[2], generation=1, checkpoint=other.checkpoint))
    calls = [[move(held[0])], [first], [second, other], [last]]
    callers = crowd(gate, [partial(heads.advance, call) for call in calls])
    assert [caller.error for caller in callers] == [None] * len(calls)
    assert gate.batches == calls


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("spoil", "error"),
    [
        (lambda head: move(replace(head, nonce="other")), LeaseLostError),
        (lambda head: move(replace(head, generation=7)), StaleHeadError),
        (lambda head: move(replace(head, run_id=RunId("nobody"))), HeadMissingError),
        (lambda head: move(head, status="done"), UsageError),
    ],
    ids=["a lost lease", "a stale head", "a missing head", "a wrong call"],
)
@pytest.mark.parametrize("place", [1, 3, 5])
def test_a_refused_call_fails_alone(
    spoil: Callable[[Head], Any], error: type[CounterfoilError], place: int
) -> None:
    inner, gate, held = registered()
    heads = SharedHeads(gate)
    moves = [spoil(head) if n == place else move(head) for n, head in enumerate(held)]
    callers = crowd(gate, [partial(heads.advance, [each]) for each in moves])
    assert isinstance(callers.pop(place).error, error)
    assert gate.sizes[:2] == [1, len(RUNS) - 1]
    del moves[place]
    assert [caller.answer for caller in callers] == [
        (inner.read(each.expected.run_id),) for each in moves
    ]
    assert [caller.answer[0].generation for caller in callers] == [1] * len(callers)


def test_a_row_of_a_lost_lease_fails_alone() -> None:
    inner = MemoryStore()
    inner.mark(Mark(run_id=RUNS[2], lease_version=9, envelope=b""))
    gate = Gate(inner)
    store = SharedStore(gate)
    callers = crowd(gate, [partial(store.put, [row]) for row in ROWS])
    assert isinstance(callers[2].error, LeaseLostError)
    assert [n for n, caller in enumerate(callers) if caller.error] == [2]
    stored = [inner.get(row.run_id, row.digest) for row in ROWS]
    assert stored == [None if n == 2 else row for n, row in enumerate(ROWS)]


@pytest.mark.parametrize("error", [UnavailableError("away"), FormatError("damaged")])
def test_a_batch_that_is_refused_as_a_whole_is_made_one_by_one(
    error: CounterfoilError,
) -> None:
    gate = Gate(MemoryStore())
    gate.trouble += [passing, refusing(error)]
    store = SharedStore(gate)
    callers = crowd(gate, [partial(store.put, [row]) for row in ROWS])
    assert [caller.error for caller in callers] == [None] * len(ROWS)
    assert gate.sizes == [1, len(ROWS) - 1, *([1] * (len(ROWS) - 1))]


def test_each_call_of_a_batch_without_answer_is_told_so_in_its_own_name() -> None:
    _, gate, held = registered()
    gate.trouble += [passing, refusing(UnknownOutcomeError("silence", "another"))]
    heads = SharedHeads(gate)
    callers = crowd(gate, [partial(heads.advance, [move(head)]) for head in held])
    errors = [caller.error for caller in callers[1:]]
    assert [type(error) for error in errors] == [UnknownOutcomeError] * len(errors)
    assert [error.run_id for error in errors if isinstance(error, CounterfoilError)] == RUNS[1:]
    assert gate.sizes == [1, len(RUNS) - 1], "an unknown write is not repeated here"


def test_a_call_without_answer_that_was_alone_hears_the_port_itself() -> None:
    _, gate, held = registered()
    silence = UnknownOutcomeError("silence")
    gate.trouble.append(refusing(silence))
    with pytest.raises(UnknownOutcomeError) as caught:
        SharedHeads(gate).advance([move(held[0])])
    assert caught.value is silence


def test_answers_for_other_runs_are_believed_by_nobody() -> None:
    inner, _, held = registered()
    gate = Gate(AnswersOutOfOrder(inner, Wall().now_ms))
    heads = SharedHeads(gate)
    moves = [move(held[0]), *(move(head) for head in reversed(held[1:]))]
    callers = crowd(gate, [partial(heads.advance, [each]) for each in moves])
    assert callers[0].error is None
    assert {type(caller.error) for caller in callers[1:]} == {UnknownOutcomeError}


# ---------------------------------------------------------------- ends that nobody planned


@pytest.mark.parametrize("death", [KeyboardInterrupt, SystemExit, Died, MemoryError])
def test_who_dies_while_leading_leaves_nobody_waiting(
    death: type[BaseException],
) -> None:
    gate = Gate(MemoryStore())
    gate.trouble += [passing, refusing(death())]
    gate.batch_max = 3
    store = SharedStore(gate)
    callers = crowd(gate, [partial(store.put, [row]) for row in ROWS])
    kinds = [type(caller.error) for caller in callers]
    unknown = UnknownOutcomeError
    assert kinds == [type(None), death, unknown, unknown, type(None), type(None)]
    store.put([checkpoint(1)])


@pytest.mark.parametrize("who", ["first", "leader", "follower"])
def test_an_interrupt_at_any_instant_leaves_nobody_waiting(who: str) -> None:
    instants = 0
    while interrupted(who, instants):
        instants += 1
    assert instants > 12


def interrupted(who: str, instant: int) -> bool:
    """Interrupt one of four calls at an instant of its own; return whether it came so far."""
    inner = MemoryStore()
    gate = Gate(inner)
    store = SharedStore(gate)
    gate.shut()
    reached: list[bool] = []
    callers: dict[str, Caller] = {}
    for name, row in zip(("first", "leader", "follower", "last"), ROWS, strict=False):
        call = partial(store.put, [row])
        if name == who:
            call = partial(interrupting, call, instant, reached)
        callers[name] = Caller(call).settled()
    gate.open()
    for name, caller in callers.items():
        error = caller.end().error
        stored = inner.get(ROWS[0].run_id, ROWS[0].digest)
        if name == who:
            assert isinstance(error, KeyboardInterrupt) or not reached
        elif who == "leader" and name != "first":
            assert error is None or isinstance(error, UnknownOutcomeError)
        else:
            assert (error, stored) in ((None, ROWS[0]), (None, None))
    for row in (checkpoint(1), checkpoint(2)):
        store.put([row])
    assert (store._lane._leader, store._lane._queue) == (None, [])
    return bool(reached)


def interrupting(call: Callable[[], object], instant: int, reached: list[bool]) -> None:
    """Make a call that is interrupted at the n-th instant at which Python looks for signals.

    That is where a function of ours begins, and where a function that it called has ended.
    """
    left = [instant]

    def count(frame: Any, event: str, _: object) -> None:
        if frame.f_code.co_filename != grouping.__file__ or event == "c_call":
            return
        left[0] -= 1
        if left[0] < 0:
            sys.setprofile(None)
            reached.append(True)
            raise KeyboardInterrupt

    sys.setprofile(count)
    try:
        call()
    finally:
        sys.setprofile(None)


def test_a_child_does_not_wait_in_its_parent_s_queue(tmp_path: Path) -> None:
    inner = open_store(tmp_path / "store" / "store.db", create=True)
    gate = Gate(inner)
    store = SharedStore(gate)
    gate.shut()
    held = Caller(partial(store.put, [ROWS[0]])).settled()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads and forks: the point
        child = os.fork()
    if not child:
        code = 1
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(PATIENCE_S)  # a child that waits for ever ends by itself
            gate.open()
            store.put([ROWS[1]])
        except UsageError:
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    gate.open()
    assert held.end().error is None
    assert os.waitstatus_to_exitcode(status) == 0
    assert inner.runs("", 9) == (RUNS[0],)
    inner.close()


# ---------------------------------------------------------------- everything else


@pytest.mark.parametrize(
    ("protocol", "wrap", "inner", "own"),
    [
        (CheckpointStore, SharedStore, MemoryStore(), {"put"}),
        (
            HeadRegister,
            SharedHeads,
            MemoryHeads(now_ms=Wall().now_ms, incarnation=INCARNATION),
            {"advance"},
        ),
        (
            Joint,
            SharedJoint,
            MemoryJoint(now_ms=Wall().now_ms, incarnation=INCARNATION),
            {"commit"},
        ),
    ],
    ids=["store", "heads", "joint"],
)
def test_every_other_call_is_the_port_s_own(
    protocol: type, wrap: Callable[[Any], object], inner: Any, own: set[str]
) -> None:
    names = {name for name in vars(protocol) if not name.startswith("_")}
    port = wrap(inner)
    assert {name for name in names if getattr(port, name) != getattr(inner, name)} == own


def test_two_databases_have_no_joint() -> None:
    heads = MemoryHeads(now_ms=Wall().now_ms, incarnation=INCARNATION)
    assert shared(MemoryStore(), heads)[2] is None
