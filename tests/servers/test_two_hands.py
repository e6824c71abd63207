"""Two worker processes on one run, on real servers: one of them acts.

On a server nobody sees that a holder is dead, so where a lease is followed by another it
has ended by the server's clock.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from counterfoil.adapters.sandbox import SandboxAdapter, World
from counterfoil.core.errors import FencedError
from counterfoil.core.receipt import Receipt
from counterfoil.core.task import Policy, Task
from counterfoil.engine import audit
from counterfoil.keeper import Keeper
from counterfoil.ports import Adapter, Operation
from counterfoil.testing.saboteur_adapters import Passing
from tests.servers.conftest import PAIRS, STORY_TERMS, Tell, Urls
from tests.support.nursery import DONE, LOST, STOPPED
from tests.support.rivals import WAIT_MS
from tests.support.tellings import TELLINGS_MAX
from tests.support.workshop import ARRIVED, CHANGED, RUN_ID, Workshop, fresh_workshop

pytest_plugins = ["tests.support.etcd", "tests.support.postgres"]

CLAIMS = "tests.support.claims"
SEEDS = tuple(str(seed) for seed in range(3))

LONGER_MS = 4_000
"""A heart that beats thrice in it beats in time on a busy machine."""

LEASE_LOST = "LeaseLostError, exit 5: "
HELD = LEASE_LOST + r"'(ann|ben)' holds the run under lease \d+, which ends at \d+ ms"
FASTER = "another worker was faster: the head is at generation"
"""Where the other one has come to its end between a read and the claim, nobody holds the run."""


def test_a_story_is_told_again_in_another_place(
    tell: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[object] = []

    def was_kept_waiting(story: object) -> bool:
        heard.append(story)
        return len(heard) < TELLINGS_MAX

    monkeypatch.setattr("tests.support.tellings.was_kept_waiting", was_kept_waiting)
    told = tell("two names", PAIRS[0], SEEDS[0])
    assert (len(heard), heard[-1]) == (TELLINGS_MAX, told)
    assert all(isinstance(each, list) for each in heard), heard
    assert once(told[0])


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
    told = tell("one generation", pair, *SEEDS, **STORY_TERMS[pair])
    assert [each for each in told if not once(each)] == []
    assert [each["codes"] for each in told] == [[LOST, DONE]] * len(SEEDS)
    for each in told:
        (words,) = last_words(each, LOST)
        # The loser may look when the winner has ended the run, and has let go of it.
        said = words.removeprefix(f"{LEASE_LOST}the run is held by ")
        assert said.startswith(("second under lease 2", "nobody under lease 2"))


# ---------------------------------------------------------------- late results


@pairs("acc-A11 late result")
def test_a_result_that_comes_after_the_lease_was_taken_over_is_refused(
    pair: str, tell: Tell
) -> None:
    told = tell(
        "late", pair, "order", "ship", "write", **STORY_TERMS[pair], ship_level="transactional"
    )
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


@pairs("acc-A11 the token at the target")
def test_a_call_that_comes_after_the_lease_was_taken_over_is_refused_by_its_target(
    pair: str, tell: Tell
) -> None:
    fields = {**STORY_TERMS[pair], "ship_level": "transactional"}
    shipped, written = tell("late call", pair, "ship", "write", **fields)
    assert (shipped["arrived"], shipped["leases"]) == (["ship A-7"], [2])
    assert shipped["refused"] == ["ship A-7"]
    assert written["changed"] == ["new.txt"]
    for each in (shipped, written):
        assert each["codes"] == [LOST, DONE]
        assert each["words"][0][0].startswith("FencedError, exit 5: ")


class Overtaken(Passing):
    """A sandbox whose first call is under way while the lease is taken over."""

    def __init__(self, inner: Adapter, overtake: Callable[[], object]) -> None:
        super().__init__(inner)
        self._overtake = overtake

    def execute(self, operation: Operation) -> Receipt:
        self._overtake()
        return super().execute(operation)


def hand(workshop: Workshop, adapter: Adapter, owner: str) -> Keeper:
    """Return a worker that reaches the sandbox, and nothing else."""
    kinds = {spec.name: replace(spec, call_ms=workshop.call_ms) for spec in adapter.kinds}
    parts = workshop.parts(owner=owner, joins=False)
    return Keeper(replace(parts, adapters={adapter.name: adapter}, kinds=kinds))


@pairs("acc-A11 the token at the sandbox")
def test_the_sandbox_refuses_the_token_of_a_lease_that_was_taken_over(
    pair: str, urls: Urls, tmp_path: Path
) -> None:
    scope = {"sandbox": {"paths": (".",)}}
    policy = Policy(permissions=("workspace.write",), scope=scope)
    world, task = World(), Task(id="write", policy=policy)
    workshop = fresh_workshop(tmp_path, "sandbox", **urls(pair), **STORY_TERMS[pair])

    def write(keeper: Keeper) -> None:
        with keeper.run(task, RUN_ID, wait_ms=WAIT_MS) as run:
            run.do("write_file", path="app.py", content="sound")

    second = hand(workshop, SandboxAdapter(world), "second")
    adapter = Overtaken(SandboxAdapter(world), lambda: write(second))
    with second, hand(workshop, adapter, "first") as first:
        with pytest.raises(FencedError):
            write(first)
        events = [event for _, event in audit.events(first.parts, RUN_ID)]
    assert [(effect.path, effect.version) for effect in world.effects] == [("app.py", 1)]
    assert len([event for event in events if event.receipt is not None]) == 1


@pairs("acc-A10 acc-A11 one receipt")
def test_of_two_workers_that_find_one_receipt_one_puts_it_on_record(pair: str, tell: Tell) -> None:
    told = tell("one receipt", pair, *SEEDS, **STORY_TERMS[pair])
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
    told = tell("copied project", pair, *SEEDS, **STORY_TERMS[pair])
    assert [each for each in told if not once(each)] == []
    assert {code for each in told for code in each["codes"]} <= {DONE, LOST, STOPPED}
    assert min(each["done"] for each in told) >= 1


# ---------------------------------------------------------------- real workers and one orphan


def adapter_calls(told: dict[str, Any]) -> list[str]:
    return [name for name in told["late calls"] if name.startswith("adapter.")]


@pairs("C04 (a) it is done")
def test_a_worker_with_an_old_list_leaves_a_run_alone_that_is_done(pair: str, tell: Tell) -> None:
    rest = ("heads.read", "heads.acquire")
    told = tell("after the end", pair, *rest, module=CLAIMS, **STORY_TERMS[pair])
    for each in told:
        assert once(each)
        assert (each["phase"], each["lease"], adapter_calls(each)) == ("completed", 2, [])
        assert len(each["sent"]) == len(set(each["sent"])) == 4
    assert [words for words in told[1]["words"][1] if words.startswith("lost: ")] != []


@pairs("C04 (a) it was given up")
def test_a_worker_that_claims_from_an_old_list_reads_the_run_anew(pair: str, tell: Tell) -> None:
    (told,) = tell("after a release", pair, "heads.read", module=CLAIMS, **STORY_TERMS[pair])
    assert once(told)
    assert (told["phase"], told["lease"], told["leases"]) == ("completed", 3, [2, 3])
    assert len(told["sent"]) == len(set(told["sent"])) == 4


@pairs("C04 (b) it is being done")
def test_a_worker_with_an_old_list_cannot_claim_a_run_that_is_held(pair: str, tell: Tell) -> None:
    rest = ("heads.read", "heads.acquire")
    for each in tell("meanwhile", pair, *rest, module=CLAIMS, **STORY_TERMS[pair]):
        assert once(each)
        assert (each["phase"], each["lease"], adapter_calls(each)) == ("completed", 2, [])
        lost = [words for words in each["words"][1] if words.startswith("lost: ")]
        assert re.match("lost: ('first' holds the run under lease 2|another worker)", lost[0])


@pairs("C04 (c) by its own process")
def test_a_process_does_not_recover_the_run_that_it_is_running(pair: str, tell: Tell) -> None:
    for each in tell("by itself", pair, "first", "another", module=CLAIMS, **STORY_TERMS[pair]):
        assert once(each)
        assert (each["phase"], each["lease"], len(each["sent"])) == ("completed", 2, 4)
        (words,) = [words for words in each["words"][0] if words.startswith("lost: ")]
        assert words.startswith("lost: 'first' holds the run under lease 2")


# ---------------------------------------------------------------- terms shorter than the work


@pairs("C06 (a) its heart stops")
def test_a_worker_that_is_overtaken_between_two_effects_is_refused(pair: str, tell: Tell) -> None:
    fields = {**STORY_TERMS[pair], "ship_level": "transactional"}
    for each in tell("outlasted", pair, "call", "checkpoint", module=CLAIMS, **fields):
        assert once(each)
        assert (each["phase"], len(each["sent"])) == ("completed", 4)
        assert [words for words in each["words"][0] if words.startswith("lost: ")] != []


@pairs("C06 (a) nobody can say")
def test_a_call_in_doubt_at_a_blind_target_is_for_a_person(pair: str, tell: Tell) -> None:
    fields = {**STORY_TERMS[pair], "order_level": "blind"}
    (told,) = tell("in doubt", pair, "call", module=CLAIMS, **fields)
    assert (told["arrived"], told["phase"]) == (["order A-7"], "needs_review")


@pairs("C06 (b) its heart beats")
def test_a_worker_whose_heart_beats_is_not_overtaken(pair: str, tell: Tell) -> None:
    fields = {**STORY_TERMS[pair], "ttl_ms": LONGER_MS}
    (told,) = tell("beating", pair, "0", module=CLAIMS, **fields)
    assert once(told)
    assert told["codes"] == [DONE, DONE, LOST]
    assert set(told["late calls"]) == {"heads.claimable"}
    assert told["words"][2][0].startswith(f"{LEASE_LOST}'first' holds the run under lease 2")
    assert (told["phase"], told["lease"]) == ("completed", 2)


@pairs("C06 (c) it is cut")
def test_a_step_that_is_cut_goes_on_behind_its_first_effect(pair: str, tell: Tell) -> None:
    (told,) = tell("cut", pair, "0", module=CLAIMS, **STORY_TERMS[pair])
    assert once(told)
    assert (told["phase"], told["leases"]) == ("completed", [2, 5])
