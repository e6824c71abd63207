"""The driver: kill the worker at each moment of the plan, start it again, keep notes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from counterfoil.demo.children import WorkerChild
from counterfoil.demo.counting import Target
from counterfoil.demo.messages import (
    Adopted,
    Asked,
    Audit,
    Audited,
    Completed,
    Ended,
    Fact,
    Failed,
    Job,
    Proposed,
    Sent,
    Stopped,
    Work,
)
from counterfoil.demo.plan import Kill, Plan, Window, WriteStep

RUN_ID = "restock"
KILLED = -9


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
    """How one worker fared.

    Attributes:
        facts: What passed at its ports, in order.
        stopped: Where it stood when it was killed; None when it was not.
        completed: Whether the program came to its end.
        audited: What an audit found.
        failed: The error that it ended with.
        status: How the process ended.
    """

    facts: tuple[Fact, ...]
    stopped: Stopped | None
    completed: bool
    audited: Audited | None
    failed: Failed | None
    status: int

    @property
    def was_killed(self) -> bool:
        """Whether it died at its moment, by SIGKILL."""
        return self.stopped is not None and self.status == KILLED


@dataclass(frozen=True, kw_only=True, slots=True)
class Death:
    """One kill, and what came of it.

    Attributes:
        step: The write it fell into.
        window: Its window.
        effects: Effects of that write on the target at that instant.
        found: What the next worker that got so far found.
        did: What it did about it.
    """

    step: WriteStep
    window: Window
    effects: int
    found: str
    did: str


class View(Protocol):
    """Who watches the demo."""

    def killed(self, step: WriteStep, kill: Kill, effects: int) -> None:
        """Show one kill."""
        ...

    def phase(self, text: str) -> None:
        """Show what is done next."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """The main run, as the driver saw it.

    Attributes:
        deaths: Every kill.
        failure: Why it did not complete; empty when it did.
    """

    deaths: tuple[Death, ...]
    failure: str


def try_once(worker: WorkerChild, job: Job) -> Attempt:
    """Run one worker to its death or its end."""
    facts: list[Fact] = []
    stopped, audited, failed, is_completed, status = None, None, None, False, 0
    for report in worker.attempt(job):
        match report:
            case Proposed() | Asked() | Sent() | Adopted():
                facts.append(report)
            case Stopped():
                stopped = report
            case Completed():
                is_completed = True
            case Audited():
                audited = report
            case Failed():
                failed = report
            case Ended():
                status = report.status
            case _:
                pass
    return Attempt(
        facts=tuple(facts),
        stopped=stopped,
        completed=is_completed,
        audited=audited,
        failed=failed,
        status=status,
    )


def kill_everywhere(
    plan: Plan, worker: WorkerChild, target: Target, view: View, *, at_half: Callable[[], None]
) -> Record:
    """Run the task through every kill of the plan, and then to its end.

    Args:
        plan: What to do and where to kill.
        worker: Parent of the workers.
        target: Where effects are counted at each kill.
        view: Who watches.
        at_half: Called once in the middle of the run, while no worker is alive.
    """
    fell: list[tuple[WriteStep, Kill, int]] = []
    attempts: list[Attempt] = []
    for index, step in enumerate(plan.steps):
        if index == len(plan.steps) // 2:
            at_half()
        for kill in step.kills:
            job = Work(run_id=RUN_ID, items=plan.items, port=target.port, stop_at=kill.moment)
            attempt = try_once(worker, job)
            if failure := _unplanned(attempt, step, kill):
                return Record(deaths=_deaths(fell, attempts), failure=failure)
            effects = target.effects()[step.name]
            fell.append((step, kill, effects))
            attempts.append(attempt)
            view.killed(step, kill, effects)
    last = try_once(worker, Work(run_id=RUN_ID, items=plan.items, port=target.port))
    attempts.append(last)
    failure = "" if last.completed and last.status == 0 else _reason(last)
    return Record(deaths=_deaths(fell, attempts), failure=failure)


def _unplanned(attempt: Attempt, step: WriteStep, kill: Kill) -> str:
    """Return in what an attempt differs from the plan; empty when it does not."""
    if not attempt.was_killed:
        return f"{step.name}: the worker did not come to {kill.moment}: {_reason(attempt)}"
    stopped = attempt.stopped
    if stopped is not None and stopped.position not in (-1, step.position):
        return f"{step.name}: killed at position {stopped.position}, not {step.position}"
    return ""


def _reason(attempt: Attempt) -> str:
    if attempt.failed is not None:
        return f"{attempt.failed.error}: {attempt.failed.message}"
    return "it completed" if attempt.completed else f"it ended with {attempt.status}"


def _deaths(fell: list[tuple[WriteStep, Kill, int]], attempts: list[Attempt]) -> tuple[Death, ...]:
    deaths: list[Death] = []
    for number, (step, kill, effects) in enumerate(fell, start=1):
        later = [fact for attempt in attempts[number:] for fact in attempt.facts]
        found, did = _what_came(step, later, is_over=attempts[-1].completed)
        deaths.append(Death(step=step, window=kill.window, effects=effects, found=found, did=did))
    return tuple(deaths)


def _what_came(step: WriteStep, later: list[Fact], *, is_over: bool) -> tuple[str, str]:
    """Return what recovery found after a kill, and what it did, by the facts after it."""
    match later[:1]:
        case [Proposed(position=position)] if position == step.position:
            return "none pending", "proposed it"
        case [Asked(answer=answer)]:
            acted = next((fact for fact in later if isinstance(fact, Sent | Adopted)), None)
            did = "sent, same key" if isinstance(acted, Sent) else "took the receipt"
            return f"key {answer}", did if acted else "not seen"
        case [Proposed()]:
            return "on record", "went on"
        case _:
            return ("on record", "went on") if is_over else ("not seen", "not seen")


def audit_run(worker: WorkerChild, port: int) -> Attempt:
    """Have everything of the main run verified."""
    return try_once(worker, Audit(run_id=RUN_ID, port=port))
