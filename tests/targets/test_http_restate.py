"""Restate's ingress, which nobody here wrote, as a service that keeps keys."""

import secrets
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from counterfoil.adapters.http import open_http
from counterfoil.core.errors import FrozenError, IdempotencyConflictError, UnknownOutcomeError
from counterfoil.core.receipt import Answer
from counterfoil.core.review import CaseReason
from counterfoil.core.words import Key, RunId
from counterfoil.engine.session import Session
from counterfoil.keeper import Keeper
from counterfoil.testing.adapter_bench import OTHER_RUN, RUN, AdapterBench, Call, operation
from tests.support.http_bench import LOOPBACK, now_ms
from tests.support.http_proxy import HttpProxy
from tests.support.http_restate import Restate, declared, restate, task_of
from tests.support.http_scene import EAGER, killed, shown
from tests.support.stages import Backend, PlayStage, closing


def is_order(head: bytes) -> bool:
    return head.startswith(b"POST /shop/order")


@pytest.fixture(scope="module")
def ingress(tmp_path_factory: Any) -> Iterator[Restate]:
    folder: Path = tmp_path_factory.mktemp("restate")
    with restate(folder) as running:
        yield running


@pytest.fixture
def at(ingress: Restate) -> Iterator[HttpProxy]:
    (ingress.folder / "orders").unlink(missing_ok=True)
    (ingress.folder / "hold").unlink(missing_ok=True)
    proxy = HttpProxy(ingress.port)
    yield proxy
    (ingress.folder / "hold").unlink(missing_ok=True)
    proxy.close()


def new_key(name: str) -> Key:
    """Return a key that Restate has never seen."""
    return Key(f"{name}-{secrets.token_hex(8)}")


def order(run: Session) -> Any:
    return run.do("shop.order", body={"sku": "A-7"})


@contextmanager
def staged(at: HttpProxy, ingress: Restate, **more: Any) -> Generator[PlayStage]:
    backend = Backend()
    stage = PlayStage(
        backend=backend,
        run_id=RunId(f"run-{secrets.token_hex(8)}"),
        task=task_of(at),
        program=order,
        adapters=lambda: (
            open_http(declared(at, **more), now_ms=backend.clock.now_ms, networks=LOOPBACK),
        ),
        count=ingress.orders,
        look=ingress.orders,
        form=EAGER,
    )
    with closing(stage):
        yield stage


def bench_of(at: HttpProxy, ingress: Restate) -> AdapterBench:
    scope = task_of(at).policy.scope["shop"]
    return AdapterBench(
        open=lambda: open_http(declared(at), now_ms=now_ms, networks=LOOPBACK),
        write=lambda number: Call(kind="shop.order", arguments={"body": {"sku": f"A-{number}"}}),
        count=lambda: len(ingress.orders()),
        close=at.close,
        scope=scope,
    )


@pytest.mark.parametrize("fate", ["lose", "drop", "twice"])
def test_a_request_that_is_lost_or_doubled_is_one_order(
    fate: str, at: HttpProxy, ingress: Restate
) -> None:
    at.arm(fate, is_order)
    with staged(at, ingress) as stage:
        stage.work(stage.parts())
    assert ingress.orders() == ("A-7",)


@pytest.mark.parametrize(
    "is_after", [pytest.param(False, id="C01 before"), pytest.param(True, id="C01 after")]
)
def test_a_worker_that_dies_is_followed_by_one_that_asks(
    is_after: bool, at: HttpProxy, ingress: Restate
) -> None:
    with staged(at, ingress) as stage:
        killed(stage, "adapter.execute", is_after=is_after)
        stage.work(stage.parts())
    assert (ingress.orders(), sum(map(is_order, at.seen))) == (("A-7",), 1)


@pytest.mark.parametrize("row", [pytest.param("", id="C07 C28 a call that outlives its worker")])
def test_a_call_under_way_is_waited_for_and_not_made_anew(
    row: str, at: HttpProxy, ingress: Restate
) -> None:
    (ingress.folder / "hold").touch()
    with staged(at, ingress, call_ms=500) as stage:
        with pytest.raises(UnknownOutcomeError):
            stage.work(stage.parts())
        stage.wait()
        with pytest.raises(UnknownOutcomeError):
            stage.work(stage.parts())
        assert ingress.orders() == ()
        (ingress.folder / "hold").unlink()
        for _ in range(100):
            try:
                stage.work(stage.parts())
                break
            except UnknownOutcomeError:
                stage.wait()
    assert (ingress.orders(), sum(map(is_order, at.seen))) == (("A-7",), 1)


def test_a_repeated_key_gets_the_first_receipt(at: HttpProxy, ingress: Restate) -> None:
    bench = bench_of(at, ingress)
    adapter = bench.open()
    sent = operation(bench, adapter, bench.write(1), key=new_key("again"))
    first, again = adapter.execute(sent), adapter.execute(sent)
    adapter.close()
    assert (first.id, first.digest, first.replayed) == (again.id, sent.digest, False)
    assert again.replayed
    assert ingress.orders() == ("A-1",)


def test_a_key_that_was_never_used_is_absent(at: HttpProxy, ingress: Restate) -> None:
    adapter = bench_of(at, ingress).open()
    said = adapter.look_up(RUN, new_key("never"), "shop.order")
    adapter.close()
    assert said.answer is Answer.ABSENT


def test_another_intent_and_another_run_under_a_key_are_conflicts(
    at: HttpProxy, ingress: Restate
) -> None:
    """Restate itself answers both with the first result."""
    bench = bench_of(at, ingress)
    adapter, key = bench.open(), new_key("taken")
    adapter.execute(operation(bench, adapter, bench.write(1), key=key))
    for number, run_id in ((2, RUN), (1, OTHER_RUN)):
        sent = operation(bench, adapter, bench.write(number), key=key, run_id=run_id)
        with pytest.raises(IdempotencyConflictError):
            adapter.execute(sent)
    said = adapter.look_up(OTHER_RUN, key, "shop.order")
    adapter.close()
    assert said.answer is Answer.FOUND_OTHER
    assert ingress.orders() == ("A-1",)


def test_a_conflict_with_another_runs_order_goes_to_a_person(
    at: HttpProxy, ingress: Restate
) -> None:
    bench = bench_of(at, ingress)
    adapter, key = bench.open(), new_key("shared")
    adapter.execute(operation(bench, adapter, bench.write(1), key=key))
    adapter.close()
    with staged(at, ingress) as stage:
        with (
            pytest.raises(FrozenError),
            Keeper(stage.parts()).run(stage.task, stage.run_id) as run,
        ):
            run.do("shop.order", body={"sku": "B-9"}, key=key)
        case = shown(stage).case
    assert case is not None
    assert (case.reason, ingress.orders()) == (CaseReason.INTENT_CONFLICT, ("A-1",))


def test_callers_that_race_with_one_key_are_one_order(at: HttpProxy, ingress: Restate) -> None:
    bench = bench_of(at, ingress)
    adapter = bench.open()
    sent = operation(bench, adapter, bench.write(1), key=new_key("race"))
    ids: list[str] = []
    callers = [
        threading.Thread(target=lambda: ids.append(adapter.execute(sent).id)) for _ in range(8)
    ]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    adapter.close()
    assert (len(ids), len({*ids}), ingress.orders()) == (8, 1, ("A-1",))
