"""Absurd: tasks of steps in PostgreSQL, worked on by threads with a connection each."""

import threading
import time
from typing import Any

from absurd_sdk import Absurd, TaskContext, get_current_context
from talk import Effect, Threaded, serve

QUEUE = "bench"
CLAIM_SECONDS = 10
POLL_SECONDS = 0.02
WORKERS = 16
"""One connection makes one commit at a time, so more of them let commits meet."""


class Absurdly(Threaded):
    """A client that spawns tasks and waits for them, beside workers of the same process."""

    def __init__(self, place: dict[str, Any], effect: Effect) -> None:
        self._effect = effect
        self._url = place["url"]
        self._client = Absurd(self._url, queue_name=QUEUE)
        if not place.get("is_resumed"):
            self._client.create_queue(QUEUE)
        self._tasks: dict[str, str] = {}
        self._workers = [self._worker() for _ in range(WORKERS)]

    def run(self, run: str, steps: int) -> None:
        self._await(self._spawned("steps", run, {"run": run, "steps": steps}))

    def resume(self, run: str, steps: int) -> None:
        self.run(run, steps)  # spawning again under the same key spawns nothing

    def together(self, runs: list[str], steps: int) -> None:
        tasks = [self._spawned("steps", run, {"run": run, "steps": steps}) for run in runs]
        for task in tasks:
            self._await(task)

    def pay(self, key: str, amount: int) -> dict[str, Any]:
        return self._await(self._spawned("payment", key, {"key": key, "amount": amount}))

    def close(self) -> None:
        for worker in self._workers:
            worker.stop_worker()
        self._client.close()

    def _spawned(self, name: str, key: str, given: dict[str, Any]) -> str:
        spawned = self._client.spawn(name, given, queue=QUEUE, idempotency_key=key)
        return str(spawned["task_id"])

    def _await(self, task: str) -> dict[str, Any]:
        while True:
            seen = self._client.fetch_task_result(task)
            if seen is not None and seen.state == "completed":
                return seen.result
            if seen is not None and seen.state in ("failed", "cancelled"):
                raise LookupError(f"the task ended as {seen.state}: {seen.failure}")
            time.sleep(POLL_SECONDS)

    def _worker(self) -> Absurd:
        worker = Absurd(self._url, queue_name=QUEUE)

        @worker.register_task("steps")
        def steps(given: dict[str, Any], context: TaskContext) -> None:
            for number in range(given["steps"]):
                context.step(f"step-{number}", lambda number=number: self._do(given["run"], number))

        @worker.register_task("payment")
        def payment(given: dict[str, Any], context: TaskContext) -> dict[str, Any]:
            return context.step("pay", lambda: self._effect.pay(given["key"], given["amount"]))

        threading.Thread(
            target=worker.start_worker,
            kwargs={"claim_timeout": CLAIM_SECONDS, "concurrency": 1, "poll_interval": 0.1},
            daemon=True,
        ).start()
        return worker

    def _do(self, run: str, number: int) -> dict[str, Any]:
        """Make a step; the claim is kept while it stands still."""
        context = get_current_context()
        return self._effect.do(run, number, beat=context.heartbeat)


if __name__ == "__main__":
    serve(Absurdly)
