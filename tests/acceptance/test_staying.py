"""A session may stay until a person has decided; what arrives meanwhile is applied."""

import pytest

from counterfoil.core.errors import ApprovalError, FrozenError
from counterfoil.core.review import Verdict
from counterfoil.core.run import Phase
from counterfoil.core.trace import Outcome
from counterfoil.core.words import Level, RunId
from counterfoil.stores.memory import MemoryInbox
from tests.support.desks import Desk, case_of, desk
from tests.support.people import approve, decide, deny
from tests.support.scenes import RUN_ID, SOUND, write

STAY_MS = 60_000
"""Longer than any of these stays: the clock of a scene stands still."""


class Letterbox(MemoryInbox):
    """An inbox whose statement arrives between the first look and the second."""

    def __init__(self, statement: bytes) -> None:
        super().__init__()
        self._arrives = statement
        self.looks = 0

    def pending(self, run_id: RunId, limit: int) -> tuple[bytes, ...]:
        self.looks += 1
        if self.looks == 2:
            self.put(run_id, self._arrives)
        return super().pending(run_id, limit)


def asked() -> Desk:
    at = desk()
    run, _ = at.asks()
    run.close()
    return at


def test_who_stays_executes_when_the_approval_arrives() -> None:
    at = asked()
    run = at.run()
    assert run.request is not None
    at.inbox = Letterbox(approve(run.request))
    run.close()
    with at.run() as staying:
        settled = staying.wait(timeout_ms=STAY_MS)
    assert settled is not None
    assert (settled.outcome, at.scene.world.write_count) == (Outcome.EXECUTED, 1)
    assert at.inbox.looks > 1


def test_who_stays_hears_the_denial_that_arrives() -> None:
    at = asked()
    run = at.run()
    assert run.request is not None
    at.inbox = Letterbox(deny(run.request))
    run.close()
    with at.run() as staying, pytest.raises(ApprovalError, match="ada denied it"):
        staying.wait(timeout_ms=STAY_MS)
    assert (at.scene.world.write_count, staying.state.pending) == (0, None)


def test_who_stays_with_a_frozen_run_goes_on_when_it_is_decided() -> None:
    at = desk(level=Level.BLIND, approval_kinds=())
    run = at.run()
    run.propose(write(run, SOUND))
    at.scene.world.lose_next_answer()
    with pytest.raises(FrozenError):
        run.settle()
    case = case_of(run)
    run.close()
    at.inbox = Letterbox(decide(case, Verdict.CONFIRM_DONE, RUN_ID, at.scene.task.id))
    with at.run() as staying:
        assert staying.wait(timeout_ms=STAY_MS) is None
    assert (staying.state.phase, at.scene.world.write_count) == (Phase.RUNNING, 1)
