"""A bell is opened by who waits; what cannot be opened only waits."""

import pytest

from counterfoil.core.errors import ConfigError, CounterfoilError, UnavailableError
from counterfoil.ports import Bell
from counterfoil.stores.late_bell import LateBell


class Ringing:
    """A bell that always rings."""

    def __init__(self) -> None:
        self.closed = 0

    def wait(self, timeout_ms: int) -> bool:
        return True

    def close(self) -> None:
        self.closed += 1


class Opening:
    """Opens a bell, or fails so many times before."""

    def __init__(self, *errors: CounterfoilError) -> None:
        self.bell = Ringing()
        self.errors = list(errors)
        self.tries = 0

    def __call__(self) -> Bell:
        self.tries += 1
        if self.errors:
            raise self.errors.pop(0)
        return self.bell


def test_nobody_who_does_not_wait_opens_a_bell() -> None:
    opening = Opening()
    LateBell(opening).close()
    assert opening.tries == 0


def test_a_bell_is_opened_once_and_closed_once() -> None:
    opening = Opening()
    bell = LateBell(opening)
    rings = (bell.wait(1), bell.wait(1))
    bell.close()
    bell.close()
    assert (rings, opening.tries, opening.bell.closed) == ((True, True), 1, 1)


@pytest.mark.parametrize(
    ("error", "rings", "tries"),
    [
        pytest.param(UnavailableError("down"), (False, True, True), 2, id="it comes back"),
        pytest.param(ConfigError("behind a pooler"), (False, False, False), 1, id="it never will"),
    ],
)
def test_a_bell_that_cannot_be_opened_is_waited_out(
    error: CounterfoilError, rings: tuple[bool, ...], tries: int
) -> None:
    opening = Opening(error)
    bell = LateBell(opening)
    assert (tuple(bell.wait(1) for _ in range(3)), opening.tries) == (rings, tries)


@pytest.mark.parametrize("errors", [(), (UnavailableError("down"),)])
def test_whoever_closes_while_it_is_opened_ends_the_wait(
    errors: tuple[CounterfoilError, ...],
) -> None:
    opening = Opening(*errors)

    def opens() -> Bell:
        bell.close()
        return opening()

    bell = LateBell(opens)
    assert (bell.wait(3_600_000), opening.bell.closed) == (False, 1 - len(errors))


def test_a_closed_bell_is_not_opened_again() -> None:
    opening = Opening()
    bell = LateBell(opening)
    bell.close()
    assert (bell.wait(3_600_000), opening.tries) == (False, 0)
