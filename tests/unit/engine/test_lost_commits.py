"""A commit whose answer was lost, at a register that then cannot be read."""

from collections.abc import Callable
from typing import TypeVar

import pytest

from counterfoil.core.errors import UnavailableError, UnknownOutcomeError
from counterfoil.keeper import Keeper
from counterfoil.testing.mortal import Fate, mortal
from tests.support.stages import TTL_MS, Backend, Form, sandbox_stage

T = TypeVar("T")
LATE_MS = 20_000


class Silenced(Fate):
    """Loses the answer of the first advance, and everything that is asked after it."""

    def __init__(self, *, happens: bool) -> None:
        super().__init__()
        self._happens = happens

    def call(self, name: str, act: Callable[[], T]) -> T:
        self.calls.append(name)
        if name == "heads.advance":
            if self._happens:
                act()
            raise UnknownOutcomeError("the answer was lost")
        if "heads.advance" in self.calls:
            raise UnavailableError("nobody answers")
        return act()


@pytest.mark.parametrize("happens", [True, False])
def test_nobody_says_that_such_a_commit_did_not_happen(happens: bool) -> None:
    with sandbox_stage(Backend(), form=Form(merges=False)) as stage:
        fate = Silenced(happens=happens)
        with pytest.raises(UnknownOutcomeError):
            stage.work(mortal(stage.parts(), fate))
        assert stage.effects() == ()
        stage.wait()
        stage.work(stage.parts())
        assert stage.effects() == ("app.py=sound", "notes.md=new")


class Late(Fate):
    """Loses the answer of the first advance, which takes effect after the head was read."""

    def __init__(self, pass_time: Callable[[int], None]) -> None:
        super().__init__()
        self._pass_time = pass_time
        self._late: Callable[[], object] | None = None

    def call(self, name: str, act: Callable[[], T]) -> T:
        self.calls.append(name)
        if name == "heads.advance" and "heads.advance" not in self.calls[:-1]:
            self._late = act
            raise UnknownOutcomeError("the answer was lost")
        answer = act()
        if name == "heads.read" and self._late is not None:
            late, self._late = self._late, None
            late()
            self._pass_time(LATE_MS)
        return answer


def test_the_lease_is_counted_from_the_first_try_that_may_have_counted() -> None:
    with sandbox_stage(Backend(), form=Form(merges=False)) as stage:
        parts = mortal(stage.parts(), Late(stage.backend.clock.advance))
        with Keeper(parts).run(stage.task, stage.run_id) as run:
            run.cancel("that was all")
            left_ms = run._ledger.lease.left_ms(parts.clock.monotonic_ms())
            head = parts.heads.read(stage.run_id)
            assert head is not None
            assert left_ms <= head.expires_at_ms - parts.clock.now_ms() == TTL_MS - LATE_MS
