"""Temporal: workflows of activities on its dev server, with one worker."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, TypeVar

from talk import ARGUMENTS, Effect, Threaded, serve
from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

_T = TypeVar("_T")

CALL = timedelta(hours=1)
BEAT = timedelta(seconds=2)
STICKY = timedelta(seconds=1)
"""How long a task waits for a worker that is dead before another gets it."""

THREADS = 80


@workflow.defn
class Steps:
    """A run: one activity after the other."""

    @workflow.run
    async def run(self, run: str, steps: int) -> None:
        for number in range(steps):
            await workflow.execute_activity(
                "step",
                args=[run, number, ARGUMENTS],
                start_to_close_timeout=CALL,
                heartbeat_timeout=BEAT,
            )


@workflow.defn
class Payment:
    """A run of one activity, with the retries that are the default."""

    @workflow.run
    async def run(self, key: str, amount: int) -> dict[str, Any]:
        return await workflow.execute_activity(
            "pay", args=[key, amount], start_to_close_timeout=CALL, heartbeat_timeout=BEAT
        )


class Temporal(Threaded):
    """A client and a worker on a loop in a thread of its own."""

    def __init__(self, place: dict[str, Any], effect: Effect) -> None:
        self._queue = place["queue"]
        self._effect = effect
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self._client = self._done(Client.connect(place["address"]))
        self._done(self._begin_to_work())

    def run(self, run: str, steps: int) -> None:
        self._done(self._made(Steps.run, run, [run, steps]))

    def together(self, runs: list[str], steps: int) -> None:
        async def whole() -> None:
            await asyncio.gather(*(self._made(Steps.run, run, [run, steps]) for run in runs))

        self._done(whole())

    def pay(self, key: str, amount: int) -> dict[str, Any]:
        return self._done(self._made(Payment.run, key, [key, amount]))

    async def _made(self, what: Callable[..., Any], name: str, given: list[Any]) -> _T:
        """Begin a workflow, or join the one of that name that runs; one that ran is refused."""
        handle = await self._client.start_workflow(
            what,
            args=given,
            id=f"{self._queue}-{name}",
            task_queue=self._queue,
            id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        )
        result: _T = await handle.result()
        return result

    async def _begin_to_work(self) -> None:
        effect = self._effect

        @activity.defn
        def step(run: str, number: int, arguments: dict[str, Any]) -> dict[str, Any]:
            return effect.do(run, number, beat=activity.heartbeat)

        @activity.defn
        def pay(key: str, amount: int) -> dict[str, Any]:
            return effect.pay(key, amount)

        worker = Worker(
            self._client,
            task_queue=self._queue,
            workflows=[Steps, Payment],
            activities=[step, pay],
            activity_executor=ThreadPoolExecutor(THREADS),
            max_concurrent_activities=THREADS,
            workflow_runner=UnsandboxedWorkflowRunner(),
            sticky_queue_schedule_to_start_timeout=STICKY,
        )
        self._work = asyncio.create_task(worker.run())

    def _done(self, what: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(what, self._loop).result()


if __name__ == "__main__":
    serve(Temporal)
