"""Restate: handlers of a service, called through the ingress, on HTTP/2."""

import asyncio
import http.client
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import hypercorn.asyncio
import hypercorn.config
import restate
from talk import Effect, Threaded, serve

HOST = "127.0.0.1"
PATIENCE_SECONDS = 1_800
NEVER = timedelta(days=1)
"""A run that stands still between two blocks is not to be suspended."""

AGAIN = restate.InvocationRetryPolicy(
    initial_interval=timedelta(milliseconds=50), max_interval=timedelta(milliseconds=200)
)


class Restate(Threaded):
    """A client of the ingress, beside the endpoint that Restate calls."""

    def __init__(self, place: dict[str, Any], effect: Effect) -> None:
        self._effect = effect
        self._name = f"Bench_{place['queue']}"
        self._ingress, self._admin = place["ingress"], place["admin"]
        self._begin_to_serve(place["port"])
        if not place.get("is_resumed"):
            self._register(place["port"])

    def run(self, run: str, steps: int) -> None:
        self._called("steps", run, {"run": run, "steps": steps})

    def together(self, runs: list[str], steps: int) -> None:
        with ThreadPoolExecutor(len(runs)) as pool:
            list(pool.map(lambda run: self.run(run, steps), runs))

    def pay(self, key: str, amount: int) -> dict[str, Any]:
        return self._called("pay", key, {"key": key, "amount": amount})

    def _service(self) -> restate.Service:
        service = restate.Service(
            self._name, inactivity_timeout=NEVER, abort_timeout=NEVER, invocation_retry_policy=AGAIN
        )
        effect = self._effect

        @service.handler()
        async def steps(ctx: restate.Context, given: dict[str, Any]) -> None:
            for number in range(given["steps"]):

                async def step(number: int = number) -> dict[str, Any]:
                    return await effect.do_async(given["run"], number)

                await ctx.run_typed("step", step)

        @service.handler()
        async def pay(ctx: restate.Context, given: dict[str, Any]) -> dict[str, Any]:
            async def paid() -> dict[str, Any]:
                return effect.pay(given["key"], given["amount"])

            return await ctx.run_typed("pay", paid)

        return service

    def _begin_to_serve(self, port: int) -> None:
        config = hypercorn.config.Config()
        config.bind = [f"{HOST}:{port}"]
        config.accesslog = config.errorlog = None
        config.keep_alive_timeout = PATIENCE_SECONDS
        app = restate.app([self._service()])
        ready = threading.Event()

        async def whole() -> None:
            async def never() -> None:
                ready.set()
                await asyncio.Event().wait()

            await hypercorn.asyncio.serve(app, config, shutdown_trigger=never)

        threading.Thread(target=lambda: asyncio.run(whole()), daemon=True).start()
        if not ready.wait(PATIENCE_SECONDS):
            raise TimeoutError("the endpoint does not come up")

    def _register(self, port: int) -> None:
        body = {"uri": f"http://{HOST}:{port}", "force": True}
        _posted(self._admin, "/deployments", body, {})

    def _called(self, handler: str, key: str, given: dict[str, Any]) -> dict[str, Any]:
        return _posted(self._ingress, f"/{self._name}/{handler}", given, {"idempotency-key": key})


def _posted(port: int, path: str, body: dict[str, Any], headers: dict[str, str]) -> dict[str, Any]:
    connection = http.client.HTTPConnection(HOST, port, timeout=PATIENCE_SECONDS)
    headers = {"content-type": "application/json", **headers}
    connection.request("POST", path, json.dumps(body), headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    if answer.status >= 300:
        raise LookupError(f"{path} answered {answer.status}: {text[:300]}")
    return json.loads(text) if text else {}


if __name__ == "__main__":
    serve(Restate)
