"""A call that is interrupted in its own process: the session may go on, and asks first."""

import asyncio

import pytest

from counterfoil.core.receipt import Receipt
from counterfoil.core.words import Level
from counterfoil.ports import Adapter, Operation
from counterfoil.testing.saboteur_adapters import Passing
from tests.support.killing import EAGER, opened
from tests.support.stages import IN_FLIGHT_MS, Backend, shop_stage


class Interrupted(Passing):
    """Raises what no `except Exception` sees, once, after the first effect."""

    def __init__(self, inner: Adapter, left: list[BaseException]) -> None:
        super().__init__(inner)
        self._left = left

    def execute(self, operation: Operation) -> Receipt:
        receipt = super().execute(operation)
        if self._left:
            raise self._left.pop()
        return receipt


@pytest.mark.parametrize(
    "interrupt",
    [
        pytest.param(KeyboardInterrupt(), id="T20 a person interrupts"),
        pytest.param(asyncio.CancelledError(), id="T20 a task is cancelled"),
        pytest.param(SystemExit(), id="T20 the process is asked to end"),
    ],
)
def test_an_interrupted_call_is_asked_for_and_not_made_again(interrupt: BaseException) -> None:
    left = [interrupt]
    with shop_stage(
        Backend(), level=Level.QUERYABLE, in_flight_ms=IN_FLIGHT_MS, form=EAGER
    ) as stage:
        adapters = stage.adapters
        stage.adapters = lambda: tuple(Interrupted(inner, left) for inner in adapters())
        with opened(stage) as run:
            with pytest.raises(type(interrupt)):
                run.do("shop.order", sku="A-7")
            run.do("shop.order", sku="A-7")
        assert stage.effects() == ("A-7",)
