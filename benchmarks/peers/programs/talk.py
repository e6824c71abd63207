"""What all programs share: the work of a step, the target, and the talk with the parent.

A run stands still in the effect of a step that was not let through yet. So a block is
whole steps of a run that goes on, whatever its engine does between two of them, and the
parent can let many sides take turns. Nothing but the standard library is imported.
"""

import asyncio
import json
import os
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol

ARGUMENTS: dict[str, Any] = {
    "account": "warehouse-17",
    "entry": "restock of item A-7 by order 2041",
    "lines": [
        {"sku": f"A-{number:04}", "quantity": number, "note": "counted on arrival"}
        for number in range(5)
    ],
}
"""With kind, adapter and key, an intent of about 390 bytes."""

RESULT: dict[str, Any] = {
    "id": "entry-000000",
    "accepted": True,
    "balance": 123_456,
    "lines": [
        {"sku": f"A-{number:04}", "booked": number, "place": "aisle 4, shelf 2"}
        for number in range(5)
    ],
    "note": "booked by the nightly batch of the warehouse",
}
"""About 400 bytes as JSON."""

LARGE_BYTES = 10 * 1024 * 1024
"""Of a result that is kept in a file, and named by its digest."""

PATIENCE_SECONDS = 1_800
BEAT_SECONDS = 0.5
LEDGER = """
CREATE TABLE IF NOT EXISTS entry (number INTEGER PRIMARY KEY, key TEXT, amount INTEGER)
"""


def no_beat() -> None:
    """Tell nobody that a step still stands."""


class LostAnswerError(ConnectionResetError):
    """The target did what was asked, and its answer got lost."""


class Effect:
    """Every side effect there is: steps of runs, and payments on a ledger outside."""

    def __init__(self, place: dict[str, Any]) -> None:
        self.count = 0
        self._large = Path(place["large"]) if place.get("large") else None
        self._ledger = place.get("ledger", "")
        self._lost = int(place.get("lost", 0))
        self._kills = bool(place.get("kills", False))
        self._lock = threading.Lock()
        self._change = threading.Condition()
        self._gated = ""
        self._allowed = 0
        self._arrived: tuple[float, float] | None = None
        self._failure: BaseException | None = None
        self._has_ended = False

    def do(self, run: str, number: int, beat: Callable[[], object] = no_beat) -> dict[str, Any]:
        """Make the effect of one step, and return its result."""
        if self.holds(run, number):
            self.stand(number, beat)
        with self._lock:
            self.count += 1
        return RESULT if self._large is None else self._kept(self._large / f"{run}-{number}")

    async def do_async(self, run: str, number: int) -> dict[str, Any]:
        """Make the same effect without holding a loop up."""
        if self._large is None and not self.holds(run, number):
            return self.do(run, number)
        return await asyncio.to_thread(self.do, run, number)

    def pay(self, key: str, amount: int) -> dict[str, Any]:
        """Put one entry into the ledger; its answer may get lost, or its caller be killed."""
        connection = sqlite3.connect(self._ledger, timeout=60, isolation_level=None)
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(LEDGER)
        done = connection.execute("INSERT INTO entry (key, amount) VALUES (?, ?)", (key, amount))
        query = "SELECT count(*) FROM entry WHERE key = ?"
        (calls,) = connection.execute(query, (key,)).fetchone()
        connection.close()
        if self._kills and calls == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        if calls <= self._lost:
            raise LostAnswerError("the connection was reset after the entry was made")
        return {"entry": done.lastrowid, "amount": amount}

    def paid(self, key: str) -> dict[str, Any] | None:
        """Return the entry under `key`, as the target can tell it; None if there is none."""
        connection = sqlite3.connect(self._ledger, timeout=60, isolation_level=None)
        connection.execute(LEDGER)
        query = "SELECT number, amount FROM entry WHERE key = ? ORDER BY number"
        row = connection.execute(query, (key,)).fetchone()
        connection.close()
        return None if row is None else {"entry": row[0], "amount": row[1]}

    def _kept(self, path: Path) -> dict[str, Any]:
        """Keep a large result durably, and return what names it."""
        content = path.name.encode().ljust(64, b".") * (LARGE_BYTES // 64)
        with path.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        return {
            "file": path.name,
            "size_bytes": len(content),
            "sha256": sha256(content).hexdigest(),
        }

    # How a run is stopped between two blocks

    def gate(self, run: str, allowed: int = 0) -> None:
        """Have `run` stand still at the effect of step `allowed`."""
        with self._change:
            self._gated, self._allowed = run, allowed
            self._arrived, self._has_ended, self._failure = None, False, None

    def holds(self, run: str, number: int) -> bool:
        """Return whether a run must stand still before this step."""
        return run == self._gated and number >= self._allowed

    def stand(self, number: int, beat: Callable[[], object] = no_beat) -> None:
        """Stand still before a step until the parent lets it through."""
        with self._change:
            if number < self._allowed:
                return
            self._arrived = (time.perf_counter(), time.process_time())
            self._change.notify_all()
        while True:
            with self._change:
                if self._change.wait_for(lambda: number < self._allowed, BEAT_SECONDS):
                    return
            beat()

    def pass_on(self, count: int) -> dict[str, float]:
        """Let `count` more effects through, and return what these steps took."""
        with self._change:
            began = (time.perf_counter(), time.process_time())
            self._arrived = None
            self._allowed += count
            self._change.notify_all()
        return self.until_arrived(began)

    def until_arrived(self, began: tuple[float, float]) -> dict[str, float]:
        """Wait until the run stands at its gate or has ended."""
        with self._change:
            is_there = self._change.wait_for(
                lambda: self._arrived is not None or self._has_ended, PATIENCE_SECONDS
            )
            if self._failure is not None:
                raise self._failure
            if not is_there or self._arrived is None:
                raise TimeoutError("the run did not come to its next step")
            wall, cpu = self._arrived
        return {"wall_s": wall - began[0], "cpu_s": cpu - began[1]}

    def end(self, failure: BaseException | None) -> None:
        """Take note that the run has ended."""
        with self._change:
            self._failure, self._has_ended = failure, True
            self._change.notify_all()


class Engine(Protocol):
    """What a program makes of its peer."""

    def run(self, run: str, steps: int) -> None:
        """Make a run from its first step to its last."""

    def resume(self, run: str, steps: int) -> None:
        """Go on with a run that another process was killed in."""

    def together(self, runs: list[str], steps: int) -> None:
        """Make many runs at once."""

    def pay(self, key: str, amount: int) -> dict[str, Any]:
        """Make one run of one step: a payment under a key."""

    def close(self) -> None:
        """Let everything go."""


class Threaded:
    """An engine that has a thread for each run, and resumes a run by making it again."""

    def run(self, run: str, steps: int) -> None:
        raise LookupError(f"{type(self).__name__} makes no runs")

    def resume(self, run: str, steps: int) -> None:
        self.run(run, steps)

    def together(self, runs: list[str], steps: int) -> None:
        with ThreadPoolExecutor(len(runs)) as pool:
            list(pool.map(lambda run: self.run(run, steps), runs))

    def close(self) -> None:
        """Nothing is held."""


class Talk:
    """Carries out the parent's commands, one after the other."""

    def __init__(self, make: Callable[[dict[str, Any], Effect], Engine]) -> None:
        self._make = make
        self._effect = Effect({})
        self._engine: Engine | None = None
        self._thread: threading.Thread | None = None

    def answer(self, said: dict[str, Any]) -> dict[str, Any]:
        """Carry one command out."""
        match said:
            case {"do": "open", "place": place}:
                return self._open(place)
            case {"do": "start", "run": run, "steps": steps}:
                self._effect.gate(run)
                return self._begin(self._opened().run, run, steps)
            case {"do": "resume", "place": place, "run": run, "steps": steps, "until": until}:
                began = (time.perf_counter(), time.process_time())
                self._open(place, run, until)
                self._begin(self._opened().resume, run, steps, began)
                return self._effect.until_arrived(began)
            case {"do": "block", "count": count}:
                return self._effect.pass_on(count)
            case {"do": "end", "count": count}:
                return self._end(count)
            case {"do": "together", "runs": runs, "steps": steps}:
                return self._together(runs, steps)
            case {"do": "pay", "key": key, "amount": amount}:
                return {"result": self._opened().pay(key, amount)}
            case {"do": "close"}:
                self._opened().close()
                return {}
        raise LookupError(f"there is no command {said}")

    def _open(self, place: dict[str, Any], run: str = "", until: int = 0) -> dict[str, Any]:
        self._effect = Effect(place)
        self._effect.gate(run, until)
        self._engine = self._make(place, self._effect)
        return {}

    def _opened(self) -> Engine:
        if self._engine is None:
            raise LookupError("nothing is open")
        return self._engine

    def _begin(
        self,
        make: Callable[[str, int], None],
        run: str,
        steps: int,
        began: tuple[float, float] | None = None,
    ) -> dict[str, float]:
        effect = self._effect

        def whole() -> None:
            try:
                make(run, steps)
            except BaseException as failure:  # noqa: BLE001 - told to the parent
                effect.end(failure)
            else:
                effect.end(None)

        began = began or (time.perf_counter(), time.process_time())
        self._thread = threading.Thread(target=whole, daemon=True)
        self._thread.start()
        return effect.until_arrived(began)

    def _end(self, count: int) -> dict[str, Any]:
        """Let the run come to its end."""
        began = (time.perf_counter(), time.process_time())
        try:
            self._effect.pass_on(count)
        except TimeoutError:
            if self._thread is None or not self._effect._has_ended:
                raise
        if self._thread is not None:
            self._thread.join(PATIENCE_SECONDS)
        return {"effects": self._effect.count, "wall_s": time.perf_counter() - began[0]}

    def _together(self, runs: list[str], steps: int) -> dict[str, Any]:
        effects, began, cpu = self._effect.count, time.perf_counter(), time.process_time()
        self._opened().together(runs, steps)
        return {
            "wall_s": time.perf_counter() - began,
            "cpu_s": time.process_time() - cpu,
            "effects": self._effect.count - effects,
        }


def serve(make: Callable[[dict[str, Any], Effect], Engine]) -> None:
    """Answer the parent until it closes the line; what others print goes to standard error."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    talk = Talk(make)
    for line in sys.stdin:
        try:
            answer = talk.answer(json.loads(line))
        except Exception as error:  # noqa: BLE001 - told to the parent
            answer = {"error": f"{type(error).__name__}: {error}"[:500]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    answers.close()
    os._exit(0)  # threads of an engine must not keep it
