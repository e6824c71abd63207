"""Clauses for every adapter: what it declares, what a call does, what it may be asked."""

import copy

import msgspec

from counterfoil.core.bounds import KEY_CHARS_MAX, RESULT_BYTES_MAX
from counterfoil.core.canonical import encode, normalise
from counterfoil.core.errors import (
    ContractError,
    RefusedError,
    UnavailableError,
    UnknownOutcomeError,
    UsageError,
)
from counterfoil.core.judge import check_kinds
from counterfoil.core.receipt import Answer, differences, missing_fields
from counterfoil.core.words import Key
from counterfoil.testing.adapter_bench import (
    KEY,
    OTHER_RUN,
    RUN,
    AdapterBench,
    expect_count,
    expect_refused,
    is_same,
    operation,
    pending,
    spec_of,
)
from counterfoil.testing.expect import ConformanceError, expect

ODD_KEYS = ("a", "A", "a/b", "../a", "a b", "ä", "a'--", "k" * KEY_CHARS_MAX)
"""Keys that are printable and within bounds, and that targets like to confuse."""


def kinds_promise_what_their_level_can_hold(bench: AdapterBench) -> None:
    """A declaration that the level cannot hold makes recovery believe an absence."""
    adapter = bench.open()
    kinds = {spec.name: spec for spec in adapter.kinds}
    expect(len(kinds) == len(adapter.kinds), "each kind is declared once")
    expect({spec.adapter for spec in adapter.kinds} == {adapter.name}, "kinds name their adapter")
    try:
        check_kinds(kinds)
    except ContractError as error:
        raise ConformanceError(error.message) from error


def normalising_twice_is_normalising_once(bench: AdapterBench) -> None:
    """Otherwise a recovered intent gets another digest than the first one."""
    adapter = bench.open()
    for call in (bench.write(1), *bench.reads):
        spec = spec_of(adapter, call.kind)
        given = dict(call.arguments)
        before = copy.deepcopy(given)
        once = spec.normalise(given)
        expect(given == before, f"{call.kind} leaves the given arguments as they are")
        expect(spec.normalise(copy.deepcopy(once)) == once, f"{call.kind} normalises to a fixpoint")


def arguments_out_of_contract_are_refused(bench: AdapterBench) -> None:
    """Refusals come before anything is durable, as errors of the taxonomy."""
    adapter = bench.open()
    for call in bench.garbled:
        spec = spec_of(adapter, call.kind)
        given = dict(call.arguments)
        sentence = f"{call.kind} refuses {sorted(given)} as a ContractError"
        try:
            spec.normalise(given)
        except ContractError:
            continue
        except (TypeError, ValueError, LookupError, AttributeError) as error:
            raise ConformanceError(f"{sentence}, not {type(error).__name__}") from error
        raise ConformanceError(sentence)
    expect_count(bench, 0)


def what_a_call_touches_is_text(bench: AdapterBench) -> None:
    """Scope is judged on these pairs, so an empty one would escape it."""
    adapter = bench.open()
    for call in (bench.write(1), *bench.reads):
        spec = spec_of(adapter, call.kind)
        for pair in spec.touches(spec.normalise(dict(call.arguments))):
            expect(all(pair), f"{call.kind} touches pairs of list and value")


def a_write_happens_once(bench: AdapterBench) -> None:
    """One call is one effect on the target itself."""
    adapter = bench.open()
    receipt = adapter.execute(operation(bench, adapter, bench.write(1)))
    expect(not receipt.replayed, "the first call is no replay")
    expect_count(bench, 1)


def different_keys_are_different_effects(bench: AdapterBench) -> None:
    """A target that merges keys loses effects."""
    adapter = bench.open()
    first = adapter.execute(operation(bench, adapter, bench.write(1)))
    second = adapter.execute(operation(bench, adapter, bench.write(2), key=Key("key-2")))
    expect(first.id != second.id, "two effects have two receipts")
    expect_count(bench, 2)


def a_receipt_proves_its_effect(bench: AdapterBench) -> None:
    """Recovery compares every field that the pending intent fixes."""
    adapter = bench.open()
    sent = operation(bench, adapter, bench.write(1))
    receipt = adapter.execute(sent)
    missing = missing_fields(receipt)
    expect(missing == (), f"the receipt has {', '.join(missing)}")
    differing = differences(pending(adapter, sent), RUN, receipt)
    expect(differing == (), f"the receipt has our {', '.join(differing)}")
    level = spec_of(adapter, sent.kind).level
    expect(receipt.level is level, "the receipt carries the level of its kind")


def the_poststate_is_what_is_observed(bench: AdapterBench) -> None:
    """Otherwise every write looks like a drift to the next session."""
    adapter = bench.open()
    receipt = adapter.execute(operation(bench, adapter, bench.write(1)))
    observed = adapter.observe(bench.scope).state
    expect(receipt.poststate == observed, "the poststate is the state that is observed next")


def a_write_changes_what_is_observed(bench: AdapterBench) -> None:
    """Otherwise evidence from before a write would still stand after it."""
    adapter = bench.open()
    before = adapter.observe(bench.scope).state
    adapter.execute(operation(bench, adapter, bench.write(1)))
    after = adapter.observe(bench.scope).state
    expect(after.instance == before.instance, "a write leaves the instance as it is")
    can_be_seen = bool(before.fingerprint)
    moved = (before.version, before.fingerprint) != (after.version, after.fingerprint)
    expect(moved or not can_be_seen, "a write moves the version or the fingerprint")


def observing_changes_nothing(bench: AdapterBench) -> None:
    """Recovery looks first, and as often as it likes."""
    adapter = bench.open()
    first = adapter.observe(bench.scope)
    expect(adapter.observe(bench.scope) == first, "two looks without a change see the same")
    expect(bench.open().observe(bench.scope) == first, "every adapter of one target sees the same")
    expect_count(bench, 0)


def reading_changes_nothing(bench: AdapterBench) -> None:
    """Reads are repeated freely, so they may leave no trace."""
    adapter = bench.open()
    before = adapter.observe(bench.scope)
    for call in bench.reads:
        receipt = adapter.execute(operation(bench, adapter, call))
        expect(not receipt.id and not receipt.key, f"{call.kind} has no receipt id and no key")
        expect(receipt.poststate == before.state, f"{call.kind} says what state it read")
    expect(adapter.observe(bench.scope) == before, "reads leave the environment as it is")
    expect_count(bench, 0)


def a_result_is_bounded_json(bench: AdapterBench) -> None:
    """A result that cannot be stored would lose its receipt."""
    adapter = bench.open()
    for call in (*bench.reads, bench.write(1)):
        result = adapter.execute(operation(bench, adapter, call)).result
        try:
            normalise(result, "result")
        except ContractError as error:
            raise ConformanceError(f"{call.kind}: {error.message}") from error
        size = len(encode(result))
        expect(size <= RESULT_BYTES_MAX, f"{call.kind} answers within {RESULT_BYTES_MAX} bytes")


def a_receipt_can_be_stored(bench: AdapterBench) -> None:
    """A receipt is kept as bytes for years."""
    adapter = bench.open()
    receipt = adapter.execute(operation(bench, adapter, bench.write(1)))
    again = msgspec.json.decode(encode(receipt), type=type(receipt))
    expect(again == receipt, "a receipt survives its own encoding")


def a_target_that_cannot_be_asked_says_unknown(bench: AdapterBench) -> None:
    """Absent from a target without memory would invite a second effect."""
    adapter = bench.open()
    sent = operation(bench, adapter, bench.write(1))
    for _ in ("before the call", "after it"):
        answer = adapter.look_up(RUN, KEY, sent.kind)
        expect(answer.answer is Answer.UNKNOWN, "a blind target answers every question: unknown")
        adapter.execute(sent)


def a_key_that_was_never_used_is_absent(bench: AdapterBench) -> None:
    """Otherwise nothing that was lost on its way out can be sent again."""
    adapter = bench.open()
    answer = adapter.look_up(RUN, KEY, bench.write(1).kind)
    expect(answer.answer is Answer.ABSENT, "a key that was never used is absent")
    expect(answer.receipt is None, "absent comes without a receipt")


def what_was_done_is_found(bench: AdapterBench) -> None:
    """The receipt is what recovery asks for before it acts."""
    adapter = bench.open()
    receipt = adapter.execute(operation(bench, adapter, bench.write(1)))
    answer = adapter.look_up(RUN, KEY, receipt.kind)
    expect(answer.answer is Answer.FOUND, "what was done is found under its key")
    expect(is_same(answer.receipt, receipt), "the receipt that is found is the one that was given")


def what_was_done_is_found_by_a_new_adapter(bench: AdapterBench) -> None:
    """The session that asks is another one than the session that did it."""
    adapter = bench.open()
    receipt = adapter.execute(operation(bench, adapter, bench.write(1)))
    adapter.close()
    answer = bench.open().look_up(RUN, KEY, receipt.kind)
    expect(is_same(answer.receipt, receipt), "a new adapter finds what an earlier one did")


def another_runs_receipt_is_not_ours(bench: AdapterBench) -> None:
    """A foreign effect taken for ours would end a step that never happened."""
    adapter = bench.open()
    receipt = adapter.execute(operation(bench, adapter, bench.write(1)))
    answer = adapter.look_up(OTHER_RUN, KEY, receipt.kind)
    shown = answer.receipt.run_id if answer.receipt else None
    is_other = answer.answer is Answer.FOUND_OTHER or shown == RUN
    expect(is_other, "a look-up for another run says that the key is taken, not that it is ours")


def odd_keys_are_kept_apart(bench: AdapterBench) -> None:
    """A key is text, and never a path, a pattern or a statement."""
    adapter = bench.open()
    kind = bench.write(1).kind
    for number, key in enumerate(ODD_KEYS):
        answer = adapter.look_up(RUN, Key(key), kind)
        expect(answer.answer is Answer.ABSENT, f"key {key!r:.20} is no other key")
        adapter.execute(operation(bench, adapter, bench.write(number), key=Key(key)))
    expect_count(bench, len(ODD_KEYS))


def a_lost_answer_is_no_refusal(bench: AdapterBench) -> None:
    """Whoever hears that nothing happened plans anew, and it happens twice."""
    adapter = bench.open()
    sent = operation(bench, adapter, bench.write(1))
    bench.lose_answer()
    try:
        adapter.execute(sent)
    except (RefusedError, UsageError, UnavailableError) as error:
        raise ConformanceError("a lost answer never claims that nothing happened") from error
    except (UnknownOutcomeError, OSError):
        expect_count(bench, 1)


def an_unreachable_target_is_unknown_and_not_absent(bench: AdapterBench) -> None:
    """An error while asking proves nothing."""
    adapter = bench.open()
    kind = bench.write(1).kind
    bench.cut_off()
    answer = adapter.look_up(RUN, KEY, kind)
    expect(answer.answer is Answer.UNKNOWN, "an error while asking is unknown, not absent")
    expect(bool(answer.reason), "an unknown answer says why")


def an_unreachable_target_is_not_observed(bench: AdapterBench) -> None:
    """There is no recovery against what was last known."""
    adapter = bench.open()
    bench.cut_off()
    expect_refused(
        lambda: adapter.observe(bench.scope),
        (UnavailableError,),
        "what cannot be looked at is unavailable",
    )
