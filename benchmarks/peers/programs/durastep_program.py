"""durastep: one SQLite file in WAL mode, as it comes."""

from typing import Any

import durastep
from talk import ARGUMENTS, Effect, Threaded, serve


def _number(run: str, number: int, arguments: dict[str, Any]) -> int:
    return number


def _key(key: str, amount: int) -> str:
    return key


class Durastep(Threaded):
    """Steps under a decorator; a result is stored once a step has returned."""

    def __init__(self, place: dict[str, Any], effect: Effect) -> None:
        self._store = durastep.SQLiteStore(f"{place['folder']}/durastep.db")

        @durastep.step(name="step", key=_number)
        def step(run: str, number: int, arguments: dict[str, Any]) -> dict[str, Any]:
            return effect.do(run, number)

        @durastep.step(name="pay", key=_key)
        def pay(key: str, amount: int) -> dict[str, Any]:
            return effect.pay(key, amount)

        self._step, self._pay = step, pay

    def run(self, run: str, steps: int) -> None:
        with durastep.run(run, store=self._store):
            for number in range(steps):
                self._step(run, number, ARGUMENTS)

    def pay(self, key: str, amount: int) -> dict[str, Any]:
        with durastep.run("payments", store=self._store):
            return self._pay(key, amount)


if __name__ == "__main__":
    serve(Durastep)
