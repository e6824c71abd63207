"""A ledger kept by user functions, at whatever level they are declared."""

import threading
from collections.abc import Callable, Mapping

from counterfoil.adapters.function import Call, Effects, Found, FunctionAdapter, State
from counterfoil.adapters.function.effects import Bounds
from counterfoil.core.canonical import canonical, digest
from counterfoil.core.errors import IdempotencyConflictError, RefusedError
from counterfoil.core.words import Json, Level

RETENTION_MS = 3_600_000
KEEPS_KEYS = (Level.TRANSACTIONAL, Level.DEDUPLICATING)


class Entries:
    """What the functions write to; it outlives every adapter."""

    def __init__(
        self, level: Level, now_ms: Callable[[], int], *, can_be_asked: bool = True
    ) -> None:
        self.lines: list[str] = []
        self._level = level
        self._can_be_asked = can_be_asked and level is not Level.BLIND
        self._now_ms = now_ms
        self._by_key: dict[str, Found] = {}
        self._forbidden: set[str] = set()
        self._loses_answer = False
        self._is_cut_off = False
        self._lock = threading.Lock()

    def adapter(self) -> FunctionAdapter:
        """Open an adapter over the declared functions."""
        (opened,) = self._effects().adapters(self._now_ms)
        return opened

    def lose_next_answer(self) -> None:
        """Let the next call happen, and lose its answer."""
        self._loses_answer = True

    def cut_off(self) -> None:
        """Make the ledger unreachable."""
        self._is_cut_off = True

    def disturb(self) -> None:
        """Write a line as somebody else would."""
        self.lines.append("theirs")

    @property
    def count(self) -> int:
        """How many lines runs wrote."""
        return len(self.lines) - self.lines.count("theirs")

    def _effects(self) -> Effects:
        effects = Effects()
        is_transactional = self._level is Level.TRANSACTIONAL

        @effects.effect(
            "ledger.note",
            level=self._level,
            look_up=self._find if self._can_be_asked else None,
            bounds=None if self._can_be_asked else Bounds(key_retention_ms=RETENTION_MS),
            forbid=self._forbid if is_transactional else None,
        )
        def note(call: Call, *, text: str, times: int = 1) -> object:
            return self._note(call, text * times)

        @effects.effect("ledger.lines", risk="read_only")
        def lines(call: Call) -> Json:
            return list(self.lines)

        @effects.observer("ledger")
        def look() -> State:
            return self._state()

        return effects

    def _note(self, call: Call, text: str) -> object:
        with self._lock:
            known = self._by_key.get(call.key) if self._level in KEEPS_KEYS else None
            if call.key in self._forbidden:
                raise RefusedError("the key was made impossible", call.run_id, call.key)
            if known is not None:
                if (known.digest, known.run_id) != (call.digest, call.run_id):
                    raise IdempotencyConflictError("the key is used", call.run_id, call.key)
                return _again(known)
            self.lines.append(text)
            made = Found(
                result={"line": len(self.lines)},
                id=f"line-{len(self.lines)}",
                digest=call.digest,
                committed_at_ms=self._now_ms(),
                run_id=call.run_id,
            )
            self._by_key[call.key] = made
        if self._loses_answer:
            self._loses_answer = False
            raise ConnectionError("the answer was lost")
        return made

    def _find(self, key: str) -> Found | None:
        self._reach()
        return self._by_key.get(key)

    def _forbid(self, key: str) -> Found | None:
        with self._lock:
            if key not in self._by_key:
                self._forbidden.add(key)
            return self._by_key.get(key)

    def _state(self) -> State:
        self._reach()
        seen: Mapping[str, Json] = {str(at): line for at, line in enumerate(self.lines)}
        return State(
            instance="ledger-1",
            version=len(self.lines),
            fingerprint=digest(canonical(dict(seen))),
        )

    def _reach(self) -> None:
        if self._is_cut_off:
            raise ConnectionError("the ledger is cut off")


def _again(known: Found) -> Found:
    return Found(
        result=known.result,
        id=known.id,
        digest=known.digest,
        committed_at_ms=known.committed_at_ms,
        replayed=True,
        run_id=known.run_id,
    )
