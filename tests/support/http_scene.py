"""Runs that order from a shop over HTTP: the task, the program, and stages to play it on."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from counterfoil.adapters.http import Service
from counterfoil.adapters.http.adapter import HttpAdapter
from counterfoil.core.errors import UnavailableError, UnknownOutcomeError
from counterfoil.core.run import Run
from counterfoil.core.task import Policy, Task, Verification
from counterfoil.core.words import Level
from counterfoil.engine import control
from counterfoil.engine.session import Session
from counterfoil.testing.mortal import Death, Died, Fate, mortal
from tests.support.http_bench import Door, Shop, door, from_environment, scope_of, service
from tests.support.stages import Backend, Form, PlayStage, closing

PROCESSES_MAX = 100
BRIEF_MS = 300
"""Longest that a call may take which is made to take too long."""

EAGER = Form(merges=False)
SKUS = ("A-1", "B-2")


def task_of(at: Door, **more: Any) -> Task:
    return Task(
        id="restock",
        policy=Policy(
            permissions=("orders.create", "orders.state", "orders.check"),
            scope={"orders": scope_of(at)} | more,
        ),
        verifier=Verification(kind="orders.check", arguments={"place": "state"}),
    )


def order(run: Session, sku: str = SKUS[0], key: str | None = None) -> Any:
    return run.do("orders.create", body={"sku": sku}, key=key)


def restock(run: Session) -> None:
    """Order twice, verify, finish."""
    for sku in SKUS:
        order(run, sku)
    run.verify()
    run.finish()


def order_once(run: Session) -> Any:
    return order(run)


@contextmanager
def staged(
    shop: Shop,
    level: Level,
    *,
    program: Any = restock,
    is_watched: bool = True,
    backend: Backend | None = None,
    of: Callable[[Service], Service] = lambda declared: declared,
    **more: Any,
) -> Generator[tuple[PlayStage, Door]]:
    """A fresh tenant of a shop, and a run that orders there, as `of` changes the declaration."""
    at = door(shop)
    backend = backend or Backend()
    token = from_environment(at.tenant)
    declared = of(service(at.url, level, token, is_watched=is_watched, **more))

    def opened() -> HttpAdapter:
        return at.open(declared, now_ms=backend.clock.now_ms)

    stage = PlayStage(
        backend=backend,
        run_id=backend.new_run(),
        task=task_of(at),
        program=program,
        adapters=lambda: (opened(),),
        count=lambda: skus(at),
        look=lambda: skus(at),
        form=EAGER,
    )
    with closing(stage):
        try:
            yield stage, at
        finally:
            at.close()


def skus(at: Door) -> tuple[str, ...]:
    """Return what was ordered, in order: the effects."""
    return tuple(str(shown["sku"]) for shown in at.orders())


def shown(stage: PlayStage) -> Run:
    return control.show(stage.parts(), stage.run_id).run


def held(stage: PlayStage, at: Door) -> None:
    """Let a call be under way at the shop, and the processes that made it be gone."""
    at.fault("hold")
    for _ in range(PROCESSES_MAX):
        try:
            stage.work(stage.parts())
        except (UnavailableError, UnknownOutcomeError):
            stage.wait()
        if at.is_begun():
            return
    raise AssertionError(f"no call of {PROCESSES_MAX} processes has begun")


def patiently(stage: PlayStage) -> None:
    """Let fresh processes work, one after the other, until the service has time for one."""
    for _ in range(PROCESSES_MAX):
        try:
            stage.work(stage.parts())
        except (UnavailableError, UnknownOutcomeError):
            stage.wait()
        else:
            return
    raise AssertionError(f"{PROCESSES_MAX} processes came to no end")


def killed(stage: PlayStage, call: str, *, is_after: bool = True) -> None:
    """Let a worker die at its first call of this name."""

    class Fated(Fate):
        def call(self, name: str, act: Any) -> Any:
            if name == call and self._death is None:
                self._death = Death(at=len(self.calls), is_after=is_after)
            return super().call(name, act)

    fate = Fated()
    try:
        stage.work(mortal(stage.parts(), fate))
    except Died:
        stage.wait()
        return
    raise AssertionError(f"the worker made no call of {call}")
