"""A worker reaches its own limit while its call is still on the way: started is not free."""

from dataclasses import dataclass, field

import pytest

from counterfoil.adapters.function.effects import Bounds
from counterfoil.core.errors import LeaseLostError, UnknownOutcomeError
from counterfoil.core.words import Json
from tests.support.shops import TASK, Shop, Street, WorkerKilled

IN_FLIGHT_MS = 600_000
"""How long the provider may take: longer than the workers' leases together."""


@dataclass(kw_only=True)
class LateShop(Shop):
    """Commits a call that its worker did not live to see, when it is told to."""

    on_the_way: list[tuple[str, str, Json]] = field(default_factory=list)

    def order(self, key: str, digest: str, body: Json) -> Json:
        if self.fault == "late":
            self.calls += 1
            self.on_the_way.append((key, digest, body))
            raise WorkerKilled
        return super().order(key, digest, body)

    def land(self) -> None:
        """Let every call arrive that is on the way."""
        for key, digest, body in self.on_the_way:
            self.orders.setdefault(key, (digest, {"id": len(self.orders) + 1, "body": body}))
        self.on_the_way.clear()


def street_of(level: str) -> Street:
    shop = LateShop(fault="late")
    street = Street(shop=shop, level=level, bounds=Bounds(in_flight_ms=IN_FLIGHT_MS))
    with pytest.raises(WorkerKilled), street.run() as run:
        run.do("shop.order", sku="A")
    shop.fault = ""
    return street


@pytest.mark.parametrize("row", [pytest.param(None, id="C07 a not yet, and no second of its kind")])
def test_a_call_that_may_still_land_is_waited_for(row: None) -> None:
    street = street_of("queryable")
    with street.run() as run, pytest.raises(UnknownOutcomeError):
        run.do("shop.order", sku="A")
    street.shop.land()
    with street.run() as run:
        run.do("shop.order", sku="A")
    assert (len(street.shop.orders), street.shop.calls) == (1, 1)


@pytest.mark.parametrize("row", [pytest.param(None, id="C07 a not yet, and keys deduplicate")])
def test_a_call_that_may_still_land_is_repeated_only_under_its_key(row: None) -> None:
    street = street_of("deduplicating")
    with street.run() as run:
        run.do("shop.order", sku="A")
    street.shop.land()
    assert (len(street.shop.orders), street.shop.calls) == (1, 2)


@pytest.mark.parametrize(
    "level", [pytest.param(level, id=f"C07 b {level}") for level in ("queryable", "deduplicating")]
)
def test_a_call_that_has_landed_is_found_and_not_repeated(level: str) -> None:
    street = street_of(level)
    street.shop.land()
    with street.run() as run:
        run.do("shop.order", sku="A")
    assert (len(street.shop.orders), street.shop.calls) == (1, 1)


@pytest.mark.parametrize("row", [pytest.param(None, id="C07 d a second caller meanwhile")])
def test_a_second_caller_of_a_key_in_progress_calls_nothing(row: None) -> None:
    street = Street()
    keeper = street.keeper()
    refusals: list[LeaseLostError] = []

    def meanwhile(key: str, digest: str, body: Json) -> Json:
        with pytest.raises(LeaseLostError) as refusal:
            keeper.run(TASK, "run-1")
        refusals.append(refusal.value)
        return order(key, digest, body)

    order, street.shop.order = street.shop.order, meanwhile
    with keeper.run(TASK, "run-1") as run:
        run.do("shop.order", key="order-1", sku="A")
    assert (len(refusals), street.shop.calls) == (1, 1)
