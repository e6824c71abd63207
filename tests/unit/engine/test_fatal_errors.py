"""What must not be swallowed cannot be: the session raises it again."""

from contextlib import suppress

import pytest

from counterfoil.core.errors import FencedError, LeaseLostError, LostRaceError, UsageError
from tests.support.shops import TASK, Shop, Street


@pytest.fixture
def street() -> Street:
    return Street()


def test_a_worker_that_was_taken_over_commits_nothing(street: Street) -> None:
    former = street.run()
    former.do("shop.order", sku="A")
    former.flush()
    with street.run() as present:
        present.do("shop.order", sku="A")
    with pytest.raises(LostRaceError):
        former.remember("n", lambda: 1)


def test_a_swallowed_lost_race_comes_back_at_every_verb(street: Street) -> None:
    former = street.run()
    with street.run():
        with suppress(LostRaceError):
            former.remember("n", lambda: 1)
        with pytest.raises(LostRaceError):
            former.do("shop.stock")


def test_a_swallowed_lost_race_comes_back_at_the_end_of_the_block(street: Street) -> None:
    def swallow() -> None:
        with street.run() as former, street.run(), suppress(LostRaceError):
            former.remember("n", lambda: 1)

    with pytest.raises(LostRaceError):
        swallow()


class Fenced(Shop):
    """A target that has seen a newer lease."""

    def order(self, key: str, digest: str, body: object) -> object:
        raise FencedError("a newer lease was seen")


def test_a_fenced_call_ends_the_session(street: Street) -> None:
    street.shop = Fenced()
    run = street.run()
    with pytest.raises(FencedError):
        run.do("shop.order", sku="A")
    with pytest.raises(FencedError):
        run.settle()


def test_a_held_run_is_not_opened_twice(street: Street) -> None:
    keeper = street.keeper()
    with street.run(), pytest.raises(LeaseLostError):
        keeper.run(TASK, "run-1")


def test_a_closed_session_says_so(street: Street) -> None:
    with street.run() as run:
        pass
    with pytest.raises(UsageError, match="closed"):
        run.do("shop.stock")


def test_a_released_run_is_opened_at_once(street: Street) -> None:
    keeper = street.keeper()
    for _ in range(2):
        with keeper.run(TASK, "run-1") as run:
            run.remember("n", lambda: 1)
    assert run.state.cursor == 1
