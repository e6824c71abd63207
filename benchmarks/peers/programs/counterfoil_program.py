"""Ours: any pair of places, receipts that ride or do not, as the project's settings say."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from talk import ARGUMENTS, Effect, Threaded, serve

from benchmarks.places import keeper_on, set_up
from counterfoil import Bounds, Effects, Policy, Session, Task
from counterfoil.adapters.function import Call, Found
from counterfoil.settings import FILE_NAME

STEP, PAY = "ledger.add", "ledger.pay"
TASK = Task(id="bench", policy=Policy(permissions=(STEP, PAY)))
LEASE_MS = 10_000
CALL_MS = 2_000


class Counterfoil(Threaded):
    """Sessions of one keeper; the target can be asked by key."""

    def __init__(self, place: dict[str, Any], effect: Effect) -> None:
        home = Path(place["folder"]) / "home"
        user = home / "user"
        store = place["store"] or f"sqlite:{home}/project/checkpoints.db"
        heads = place["heads"] or f"sqlite:{user}/heads.db"
        if not home.exists():
            project = set_up(home, store, heads)
            with (project / FILE_NAME).open("a", encoding="utf-8") as file:
                file.write(f'[commit]\ndurability = "{place["durability"]}"\n')
                file.write(f"[lease]\nttl_ms = {LEASE_MS}\n")
        os.environ["XDG_STATE_HOME"] = os.environ["XDG_CONFIG_HOME"] = str(user)
        self._effect = effect
        self._context = keeper_on(home / "project", _effects(effect))
        self._keeper = self._context.__enter__()

    def run(self, run: str, steps: int) -> None:
        with self._keeper.run(TASK, run) as session:
            self._go_on(session, steps)

    def resume(self, run: str, steps: int) -> None:
        with self._keeper.run(TASK, run) as session:
            session.settle()  # a planner goes on where the run stands, and replays nothing
            self._go_on(session, steps)

    def together(self, runs: list[str], steps: int) -> None:
        with ThreadPoolExecutor(len(runs)) as pool:
            list(pool.map(lambda run: self.run(run, steps), runs))

    def pay(self, key: str, amount: int) -> dict[str, Any]:
        with self._keeper.run(TASK, "payments") as session:
            result: Any = session.do(PAY, key=key, amount=amount)
            return dict(result)

    def _go_on(self, session: Session, steps: int) -> None:
        """Make steps to the end; a block ends once its last receipt is durable.

        A call may not outlast its bound, so the run stands between calls and not in one.
        """
        for number in range(session.state.cursor, steps):
            if self._effect.holds(session.run_id, number):
                session.flush()
                self._effect.stand(number)
            session.do(STEP, number=number, **ARGUMENTS)

    def close(self) -> None:
        self._context.__exit__(None, None, None)


def _effects(target: Effect) -> Effects:
    effects = Effects()
    bounds = Bounds(call_ms=CALL_MS)

    def look_up(key: str) -> Found | None:
        return None  # steps are made again under their key: the target drops the second

    def look_up_payment(key: str) -> Found | None:
        entry = target.paid(key)
        return None if entry is None else Found(result=entry)

    @effects.effect(
        STEP, level="deduplicating", risk="reversible_write", look_up=look_up, bounds=bounds
    )
    def add(
        call: Call, *, number: int, account: str, entry: str, lines: list[dict[str, str | int]]
    ) -> dict[str, object]:
        return target.do(call.run_id, number)

    @effects.effect(PAY, level="queryable", look_up=look_up_payment, bounds=bounds)
    def pay(call: Call, *, amount: int) -> dict[str, object]:
        return target.pay(call.key, amount)

    return effects


if __name__ == "__main__":
    serve(Counterfoil)
