"""Threads that meet at a port: held where tests say, and waited for without a clock."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from counterfoil.engine import grouping

PATIENCE_S = 60
"""How long a thread may take before it counts as one that waits for ever."""


class Caller(threading.Thread):
    """Makes one call, and keeps what became of it.

    Attributes:
        answer: What the call returned.
        error: What it raised.
        has_settled: Set once it is held at a gate, waits for others, or has ended.
    """

    def __init__(self, call: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self._call = call
        self.answer: Any = None
        self.error: BaseException | None = None
        self.has_settled = threading.Event()
        self.start()

    def run(self) -> None:
        try:
            self.answer = self._call()
        except BaseException as error:  # noqa: BLE001 - what died is what the test looks at
            self.error = error
        finally:
            self.has_settled.set()

    def settled(self) -> "Caller":
        """Wait until it goes no further by itself."""
        assert self.has_settled.wait(PATIENCE_S)
        return self

    def end(self) -> "Caller":
        """Wait for the end of the call, which must come."""
        self.join(PATIENCE_S)
        assert not self.is_alive(), "a call waits for ever"
        return self


def _settle() -> None:
    thread = threading.current_thread()
    if isinstance(thread, Caller):
        thread.has_settled.set()


def note_waiting(patch: pytest.MonkeyPatch) -> None:
    """Let callers settle when they begin to wait for others."""
    wait = grouping._Turn.wait

    def noted(turn: Any) -> None:
        _settle()
        wait(turn)

    patch.setattr(grouping._Turn, "wait", noted)


class Gate:
    """Stands before a port's calls that share; holds them while it is shut.

    Attributes:
        batches: What each call brought, in order.
        threads: Who made each call.
        trouble: What the next calls do before they go on, one each.
    """

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._is_open = threading.Event()
        self._is_open.set()
        self.batches: list[list[Any]] = []
        self.threads: list[int] = []
        self.trouble: list[Callable[[Sequence[Any]], object]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def put(self, batch: Sequence[Any]) -> None:
        self._pass(batch)
        self._inner.put(batch)

    def advance(self, batch: Sequence[Any]) -> Any:
        self._pass(batch)
        return self._inner.advance(batch)

    def commit(self, rows: Sequence[Any], moves: Sequence[Any]) -> Any:
        self._pass(moves)
        return self._inner.commit(rows, moves)

    def _pass(self, batch: Sequence[Any]) -> None:
        self.batches.append(list(batch))
        self.threads.append(threading.get_ident())
        if not self._is_open.is_set():
            _settle()
            assert self._is_open.wait(PATIENCE_S)
        if self.trouble:
            self.trouble.pop(0)(batch)

    @property
    def sizes(self) -> list[int]:
        return [len(batch) for batch in self.batches]

    def shut(self) -> None:
        self._is_open.clear()

    def open(self) -> None:
        self._is_open.set()


def crowd(gate: Gate, calls: Sequence[Callable[[], object]]) -> list[Caller]:
    """Make the first call, let the others come while it is under way, and see them end."""
    gate.shut()
    callers = [Caller(call).settled() for call in calls]
    gate.open()
    return [caller.end() for caller in callers]


def refusing(error: BaseException) -> Callable[[Sequence[Any]], object]:
    """Return trouble that raises."""

    def refuse(batch: Sequence[Any]) -> None:
        raise error

    return refuse


def passing(batch: Sequence[Any]) -> None:
    """Make no trouble."""


class Lockstep:
    """Lets a write go only when every session that lives has come to one: the slowest disk.

    So whatever can meet does meet, however fast the disk of this machine is. A session has
    left its write when the write is over, even if its thread has not run since.
    """

    def __init__(self, sessions: int) -> None:
        self._living = sessions
        self._inside: set[str] = set()
        self._changed = threading.Condition()
        self.writes = 0

    def around(self, shared: Any) -> Any:
        """Return a port that notes whose sessions have come to a shared write."""
        return _Noting(shared, self)

    def before(self, inner: Any) -> Any:
        """Return a port that waits for everybody before each of its writes."""
        return _Waiting(inner, self)

    def enter(self, runs: set[str]) -> None:
        with self._changed:
            self._inside |= runs
            self._changed.notify_all()

    def leave(self, runs: set[str]) -> None:
        with self._changed:
            self._inside -= runs

    def end(self) -> None:
        """Note that a session has ended."""
        with self._changed:
            self._living -= 1
            self._changed.notify_all()

    def write(self) -> None:
        with self._changed:
            self.writes += 1
            is_met = self._changed.wait_for(lambda: len(self._inside) == self._living, PATIENCE_S)
            assert is_met, "somebody neither writes nor ends"


def _runs(items: Any) -> set[str]:
    """Return whose rows or moves these are."""
    return {getattr(item, "run_id", "") or item.expected.run_id for item in items}


SHARED = ("put", "advance", "commit")


class _Noting:
    def __init__(self, inner: Any, step: Lockstep) -> None:
        self._inner = inner
        self._step = step

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._inner, name)
        if name not in SHARED:
            return call

        def noted(*given: Any) -> Any:
            self._step.enter(_runs(given[0]))
            try:
                return call(*given)
            except BaseException:
                self._step.leave(_runs(given[0]))
                raise

        return noted


class _Waiting(_Noting):
    def __getattr__(self, name: str) -> Any:
        call = getattr(self._inner, name)
        if name not in SHARED:
            return call

        def held(*given: Any) -> Any:
            self._step.write()
            answer = call(*given)
            self._step.leave(_runs(given[0]))
            return answer

        return held
