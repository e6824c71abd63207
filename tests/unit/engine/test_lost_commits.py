"""A commit whose answer was lost, at a register that then cannot be read."""

from collections.abc import Callable
from typing import TypeVar

import pytest

from counterfoil.core.errors import UnavailableError, UnknownOutcomeError
from counterfoil.testing.mortal import Fate, mortal
from tests.support.stages import Backend, Form, sandbox_stage

T = TypeVar("T")


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
