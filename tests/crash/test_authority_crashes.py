"""A worker dies at every boundary between it and the world while people are being asked.

Whoever signs is a person who looks at the run between two lives of its worker, tells the
truth, and signs once for each challenge. Somebody with access to the inbox puts every
statement into it again before each life. The effects are counted at the target.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec.structs import replace

from counterfoil.core.errors import ApprovalError, FrozenError
from counterfoil.core.receipt import Receipt
from counterfoil.core.review import Verdict
from counterfoil.core.run import Phase
from counterfoil.core.words import IntentDigest, Level, RunId
from counterfoil.engine import audit
from counterfoil.engine.session import Session
from counterfoil.keeper import Keeper
from tests.support.desks import Desk, desk
from tests.support.mortal import Fuse, mortal
from tests.support.people import ADA, BOB, HOUR_MS, approve, decide
from tests.support.scenes import (
    KEY,
    RUN_ID,
    TTL_MS,
    DiesAfterTheCall,
    DiesBeforeTheCall,
    Killed,
    check,
    write,
)

BOUNDARIES_MAX = 400
FOR_EVER = 1_000_000
ROUNDS_MAX = 8
"""Turns of one life: ask, wait, ask again, settle, and some to spare."""


@dataclass(kw_only=True)
class Story:
    """A desk, what a worker wants there, and what people have signed so far."""

    at: Desk
    answer: Callable[["Story", Session], None]
    signed: dict[str, list[bytes]] = field(default_factory=dict)

    def sign(self, challenge: str, *statements: bytes) -> None:
        """Sign once for each challenge, and hand it in again whenever asked."""
        kept = self.signed.setdefault(challenge, list(statements))
        self.at.hand(*kept)

    def replay(self) -> None:
        """Put everything that was ever signed into the inbox again."""
        for kept in self.signed.values():
            self.at.hand(*kept)


def live(story: Story, fuse: Fuse) -> Phase:
    """Be a worker: open the run, write once, verify, finish."""
    at = story.at
    at.scene.clock.move(TTL_MS + 1)
    story.replay()
    run = Keeper(mortal(at.parts(), fuse)).run(at.scene.task, RUN_ID)
    for _ in range(ROUNDS_MAX):
        if run.state.phase.has_ended or run.state.writes:
            break
        if run.state.phase is Phase.RUNNING and run.state.pending is None:
            key = KEY if run.state.resolution is None else "key-2"
            run.propose(write(run, key=key))
        story.answer(story, run)
        with suppress(ApprovalError, FrozenError):
            run.settle()
    if not run.state.phase.has_ended:
        run.propose(check(run))
        run.finish()
    run.close()
    return run.state.phase


def once(story: Story, run: Session) -> None:
    """Sign one approval that is refused, and one that is good."""
    if run.request is not None:
        bad = approve(run.request, last_proposal=0)
        story.sign(run.request.challenge, bad, approve(run.request))


def afresh(story: Story, run: Session) -> None:
    """Sign one approval that soon ends, and two more once it has."""
    request, clock = run.request, story.at.scene.clock
    if request is None:
        return
    soon = approve(request, expires_at_ms=request.requested_at_ms + 1)
    story.sign(request.challenge, soon)
    if clock.now_ms() == request.requested_at_ms:
        with suppress(ApprovalError):
            run.settle()
        clock.move(1)
    late = request.requested_at_ms + HOUR_MS
    fresh = approve(request, expires_at_ms=late, note="afresh")
    story.sign(request.challenge + " afresh", fresh, approve(request, BOB, expires_at_ms=late))


def anew(story: Story, run: Session) -> None:
    """Decide that a conflict is planned anew."""
    case = run.state.case
    if case is not None:
        task = story.at.scene.task.id
        story.sign(case.challenge, decide(case, Verdict.REPLAN, RUN_ID, task))


def truly(story: Story, run: Session) -> None:
    """Look at the target, and say whether it happened."""
    case, task = run.state.case, story.at.scene.task.id
    if case is None:
        return
    happened = story.at.scene.world.write_count > 0
    verdict = Verdict.CONFIRM_DONE if happened else Verdict.CONFIRM_ABSENT
    story.sign(case.challenge, decide(case, verdict, RUN_ID, task))


def approved() -> Story:
    return Story(at=desk(), answer=once)


def refreshed() -> Story:
    return Story(at=desk(ADA, BOB, approvals_required=2), answer=afresh)


def planned_anew() -> Story:
    at = desk(approval_kinds=())
    state, _ = at.scene.world.state("sandbox")
    foreign = Receipt(
        id="foreign-1",
        adapter="sandbox",
        kind="write_file",
        run_id=RunId(RUN_ID),
        key=KEY,
        digest=IntentDigest("i1:" + "0" * 64),
        level=Level.TRANSACTIONAL,
        poststate=replace(state, version=1),
        committed_at_ms=at.scene.clock.now_ms(),
    )
    at.scene.world.plant(foreign)
    return Story(at=at, answer=anew)


def _blindly(wrap: Any) -> Story:
    at = desk(level=Level.BLIND, approval_kinds=())
    run = at.run(wrap=wrap)
    run.propose(write(run))
    with pytest.raises(Killed):
        run.settle()
    return Story(at=at, answer=truly)


STORIES = {
    "T12 approved": approved,
    "acc-050 refreshed": refreshed,
    "acc-089 planned anew": planned_anew,
    "C07 confirmed done": lambda: _blindly(DiesAfterTheCall),
    "C07 confirmed absent": lambda: _blindly(DiesBeforeTheCall),
}


def dies(story: Story, number: int) -> bool:
    """Live until the boundary with this number; false when life ends before it."""
    try:
        live(story, Fuse(left=number))
    except Killed:
        return True
    return False


def check_end(story: Story, where: str) -> None:
    """Live once more, and count."""
    assert live(story, Fuse(left=FOR_EVER)) is Phase.COMPLETED, where
    assert story.at.scene.world.write_count == 1, where
    audit.audit(story.at.parts(), RunId(RUN_ID))


@pytest.mark.parametrize("begin", [pytest.param(STORIES[name], id=name) for name in STORIES])
def test_a_death_at_any_boundary_costs_no_effect_and_repeats_none(
    begin: Callable[[], Story],
) -> None:
    number = 0
    for number in range(1, BOUNDARIES_MAX):
        story = begin()
        if not dies(story, number):
            break
        check_end(story, f"died at boundary {number}")
    assert 40 < number < BOUNDARIES_MAX - 1


@pytest.mark.parametrize("begin", [pytest.param(STORIES[name], id=name) for name in STORIES])
def test_a_death_while_recovering_from_a_death_costs_nothing_either(
    begin: Callable[[], Story],
) -> None:
    for number in range(1, BOUNDARIES_MAX, 5):
        story = begin()
        if not dies(story, number):
            break
        for again in range(1, BOUNDARIES_MAX, 7):
            story = begin()
            dies(story, number)
            if not dies(story, again):
                break
            check_end(story, f"died at boundaries {number} and {again}")
