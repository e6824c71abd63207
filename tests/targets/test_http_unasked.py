"""A service that does one effect per key, for a stated time, and has no look-up at all."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from counterfoil.core.errors import FrozenError, IdempotencyConflictError
from counterfoil.core.receipt import Answer
from counterfoil.core.reconcile import RETENTION_MARGIN_MS
from counterfoil.core.review import CaseReason
from counterfoil.core.run import Phase
from counterfoil.core.words import Level
from counterfoil.testing.adapter_bench import KEY, RUN, operation
from tests.support.http_bench import (
    DAY_MS,
    STDLIB,
    UNASKED,
    Door,
    Shop,
    bench_at,
    door,
    from_environment,
    running,
    service,
)
from tests.support.http_scene import (
    BRIEF_MS,
    held,
    killed,
    order_once,
    patiently,
    restock,
    shown,
    skus,
    staged,
)
from tests.support.stages import TTL_MS, PlayStage


@pytest.fixture(scope="module")
def shop(tmp_path_factory: Any) -> Iterator[Shop]:
    folder: Path = tmp_path_factory.mktemp("shop")
    with running(STDLIB, folder) as opened:
        yield opened


@contextmanager
def unasked(
    shop: Shop, program: Any = order_once, **more: Any
) -> Generator[tuple[PlayStage, Door]]:
    given = UNASKED | more
    with staged(shop, Level.DEDUPLICATING, program=program, is_watched=False, **given) as (
        stage,
        at,
    ):
        yield stage, at
        assert not any(b"/receipts/" in seen for seen in at.proxy.seen)


@pytest.mark.parametrize("fate", ["lose", "drop", "late"])
def test_an_answer_that_is_lost_is_had_by_the_same_call_again(fate: str, shop: Shop) -> None:
    with unasked(shop) as (stage, at):
        at.proxy.arm(fate)
        stage.work(stage.parts())
        at.proxy.arrive()
        one, again = at.proxy.seen
        assert one == again
        assert skus(at) == ("A-1",)


@pytest.mark.parametrize("is_after", [False, True], ids=["before the call", "after the call"])
def test_a_new_process_sends_the_same_again_and_takes_the_replay(
    is_after: bool, shop: Shop
) -> None:
    with unasked(shop, restock) as (stage, at):
        killed(stage, "adapter.execute", is_after=is_after)
        stage.work(stage.parts())
        assert shown(stage).phase is Phase.COMPLETED
        assert (skus(at), at.proxy.writes()) == (("A-1", "B-2"), 2 + is_after)


@pytest.mark.parametrize(
    ("age_ms", "ends"),
    [
        pytest.param(DAY_MS - RETENTION_MARGIN_MS, Phase.RUNNING, id="while the key is kept"),
        pytest.param(DAY_MS - RETENTION_MARGIN_MS + 1, Phase.NEEDS_REVIEW, id="after that"),
    ],
)
@pytest.mark.parametrize("is_after", [False, True], ids=["before the call", "after the call"])
def test_once_the_key_may_be_forgotten_a_person_decides(
    age_ms: int, ends: Phase, is_after: bool, shop: Shop
) -> None:
    with unasked(shop) as (stage, at):
        killed(stage, "adapter.execute", is_after=is_after)
        stage.backend.clock.advance(age_ms - TTL_MS - 1)
        if ends is Phase.NEEDS_REVIEW:
            with pytest.raises(FrozenError):
                stage.work(stage.parts())
            case = shown(stage).case
            assert case is not None
            assert case.reason is CaseReason.OUTCOME_UNKNOWN
        else:
            stage.work(stage.parts())
        assert shown(stage).phase is ends
        assert at.proxy.writes() == is_after + (ends is Phase.RUNNING)
        assert len(skus(at)) == (is_after or ends is Phase.RUNNING)


def test_a_first_call_that_is_under_way_is_had_by_a_later_one(shop: Shop) -> None:
    with unasked(shop, call_ms=BRIEF_MS) as (stage, at):
        held(stage, at)
        assert skus(at) == ()
        at.fault("go", f"{at.tenant}/go")
        at.wait_for_order()
        patiently(stage)
        assert skus(at) == ("A-1",)


def test_a_look_up_says_unknown_and_asks_nobody(shop: Shop) -> None:
    at = door(shop)
    declared = service(at.url, Level.DEDUPLICATING, from_environment(at.tenant), **UNASKED)
    adapter = at.open(declared)
    assert adapter.look_up(RUN, KEY, "orders.create").answer is Answer.UNKNOWN
    assert at.proxy.seen == []
    at.close()


def test_another_request_under_the_key_is_a_conflict(shop: Shop) -> None:
    at = door(shop)
    declared = service(at.url, Level.DEDUPLICATING, from_environment(at.tenant), **UNASKED)
    adapter, bench = at.open(declared), bench_at(at, declared)
    adapter.execute(operation(bench, adapter, bench.write(1)))
    with pytest.raises(IdempotencyConflictError):
        adapter.execute(operation(bench, adapter, bench.write(2)))
    assert skus(at) == ("A-1",)
    at.close()
