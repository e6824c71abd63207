"""A desk that keeps letters in a file, at any level, with flaws to be found.

It stands beside the bench of a user: `bench_of` is what he would write.
"""

import fcntl
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import counterfoil as cf
from counterfoil.adapters.function import FunctionAdapter
from counterfoil.core.receipt import Fence, Served
from counterfoil.core.words import Digest
from counterfoil.testing.adapter_bench import AdapterBench, Call, Trait

SCHEMA = """
CREATE TABLE letter (key TEXT, run TEXT, digest TEXT, text TEXT);
CREATE TABLE fence (run TEXT PRIMARY KEY, version INT, nonce TEXT, generation INT, served TEXT);
CREATE TABLE forbidden (key TEXT PRIMARY KEY);
CREATE TABLE theirs (text TEXT);
"""
INSERT = "INSERT INTO letter VALUES (:key, :run, :digest, :text)"
COMPLETE = "UPDATE letter SET key = :key, run = :run, digest = :digest WHERE key = ''"
FENCES = ("transactional", "conditional")
DEDUPES = ("transactional", "deduplicating")
FLIGHT_MS = 5
"""A letter is there when its call ends; a little is enough to see that it is waited for."""

LONG_FLIGHT_MS = 600_000

STEP_S = 0.01


class Desk:
    """One target, with an adapter of some level over it."""

    def __init__(self, level: str, flaws: tuple[str, ...], call_ms: int) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "desk.db"
        self.level = level
        self.flaws = flaws
        self.call_ms = call_ms
        self.loses = self.is_cut_off = False
        with sqlite3.connect(self.path) as desk:
            desk.executescript(f"PRAGMA synchronous = OFF; {SCHEMA}")

    @contextmanager
    def reached(self) -> Iterator[sqlite3.Connection]:
        if self.is_cut_off:
            raise ConnectionError("the desk is cut off")
        desk = sqlite3.connect(self.path, isolation_level=None, timeout=30)
        try:
            desk.execute("PRAGMA synchronous = OFF")
            desk.execute("BEGIN IMMEDIATE")
            yield desk
            desk.execute("COMMIT")
        finally:
            desk.close()

    def letters(self) -> list[str]:
        with self.reached() as desk:
            return [text for (text,) in desk.execute("SELECT text FROM letter ORDER BY rowid")]

    def count(self) -> int:
        return len(self.letters())

    def disturb(self) -> None:
        with self.reached() as desk:
            desk.execute("INSERT INTO theirs VALUES ('theirs')")

    def lose_answer(self) -> None:
        self.loses = True

    def cut_off(self) -> None:
        self.is_cut_off = True

    # What the adapter is made of

    def state(self) -> cf.State:
        with self.reached() as desk:
            return self._state(desk)

    def _state(self, desk: sqlite3.Connection) -> cf.State:
        (written,) = desk.execute("SELECT count(*) FROM letter").fetchone()
        (theirs,) = desk.execute("SELECT count(*) FROM theirs").fetchone()
        return cf.State(instance="desk", version=written, fingerprint=f"{written} {theirs}")

    def find(self, key: str) -> cf.Found | None:
        with self.reached() as desk:
            return None if "forgets" in self.flaws else self._found(desk, key)

    def _found(
        self, desk: sqlite3.Connection, key: str, *, replayed: bool = False
    ) -> cf.Found | None:
        row = desk.execute(
            "SELECT rowid, run, digest, text FROM letter WHERE key = ?", (key,)
        ).fetchone()
        if row is None:
            return None
        return cf.Found(
            id=f"letter {row[0]}",
            run_id=row[1],
            digest=row[2],
            committed_at_ms=1,
            result=row[3],
            replayed=replayed,
        )

    def forbid(self, key: str) -> cf.Found | None:
        with self.reached() as desk:
            found = self._found(desk, key)
            if found is None:
                desk.execute("INSERT OR IGNORE INTO forbidden VALUES (?)", (key,))
            return found

    def take(self, run_id: str, fence: Fence) -> Served | None:
        with self.reached() as desk:
            self._raise(desk, run_id, fence)
            generation, served = desk.execute(
                "SELECT generation, served FROM fence WHERE run = ?", (run_id,)
            ).fetchone()
        return Served(generation=generation, checkpoint=Digest(served)) if served else None

    def _raise(self, desk: sqlite3.Connection, run_id: str, fence: Fence) -> None:
        desk.execute("INSERT OR IGNORE INTO fence VALUES (?, 0, '', 0, '')", (run_id,))
        version, nonce = desk.execute(
            "SELECT version, nonce FROM fence WHERE run = ?", (run_id,)
        ).fetchone()
        is_older = (fence.lease_version, fence.nonce) != (version, nonce)
        if is_older and fence.lease_version <= version and "fenceless" not in self.flaws:
            raise cf.FencedError("a newer lease stands", run_id)
        desk.execute(
            "UPDATE fence SET version = ?, nonce = ? WHERE run = ?",
            (fence.lease_version, fence.nonce, run_id),
        )

    def letter(self, call: cf.Call, text: str) -> cf.Found:
        if "hangs" in self.flaws:
            time.sleep(3_600)
        if "leaves" in self.flaws:
            raise SystemExit(0)
        with self.one_at_a_time():
            if "two steps" in self.flaws and self.find(call.key) is None:
                with self.reached() as desk:
                    desk.execute("INSERT INTO letter VALUES ('', '', '', ?)", (text,))
                time.sleep(STEP_S)
            with self.reached() as desk:
                answer = self._letter(desk, call, text)
        if self.loses:
            self.loses = False
            raise ConnectionError("the answer was lost")
        return answer

    @contextmanager
    def one_at_a_time(self) -> Iterator[None]:
        """Let one call in; the lock ends with its process."""
        with self.path.with_name("lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _letter(self, desk: sqlite3.Connection, call: cf.Call, text: str) -> cf.Found:
        if desk.execute("SELECT 1 FROM forbidden WHERE key = ?", (call.key,)).fetchone():
            raise cf.RefusedError("the key was made impossible", call.run_id, call.key)
        if self.level in FENCES:
            self._raise(desk, call.run_id, call.fence)
        known = self._found(desk, call.key, replayed=True)
        if known is not None and self.level in DEDUPES and "doubles" not in self.flaws:
            if (known.run_id, known.digest) != (call.run_id, call.digest):
                raise cf.IdempotencyConflictError("another letter lies here", call.run_id, call.key)
            return known
        has_moved = self._state(desk).fingerprint != call.prestate.fingerprint
        if self.level == "conditional" and has_moved and "unconditional" not in self.flaws:
            raise cf.StaleObservationError("the desk has moved", call.run_id, call.key)
        row = {"key": call.key, "run": call.run_id, "digest": call.digest, "text": text}
        is_made = "two steps" in self.flaws
        desk.execute(COMPLETE if is_made else INSERT, row)
        if "overwrites" in self.flaws:
            desk.execute("UPDATE letter SET text = :text", row)
        if call.served is not None:
            desk.execute(
                "UPDATE fence SET generation = ?, served = ? WHERE run = ?",
                (call.served.generation, call.served.checkpoint, call.run_id),
            )
        made = self._found(desk, call.key)
        assert made is not None
        return made

    def adapter(self) -> FunctionAdapter:
        effects = cf.Effects()
        is_queryable, is_blind = self.level == "queryable", self.level == "blind"
        cannot_be_asked = is_blind and "remembers" not in self.flaws
        forbids = "forbids" in self.flaws
        flight_ms = LONG_FLIGHT_MS if "slow" in self.flaws else FLIGHT_MS
        in_flight_ms = flight_ms if is_queryable else None

        @effects.effect(
            "desk.letter",
            level=self.level,
            look_up=None if cannot_be_asked else self.find,
            take=self.take if self.level in FENCES and not forbids else None,
            forbid=self.forbid if forbids else None,
            bounds=cf.Bounds(call_ms=self.call_ms, in_flight_ms=in_flight_ms),
        )
        def letter(call: cf.Call, *, text: str) -> cf.Found:
            return self.letter(call, text)

        @effects.effect("desk.letters", risk="read_only")
        def letters(call: cf.Call) -> list[str]:
            return self.letters()

        if "unseen" not in self.flaws:
            effects.observer("desk")(self.state)
        (opened,) = effects.adapters(lambda: 1)
        return opened


def bench_of(level: str, *flaws: str, call_ms: int = 10_000) -> AdapterBench:
    """Return a fresh desk; `bare` is a bench that can do nothing but what it must."""
    desk = Desk(level, flaws, call_ms)
    bench = AdapterBench(
        open=desk.adapter,
        write=lambda number: Call(kind="desk.letter", arguments={"text": f"letter {number}"}),
        count=desk.count,
        close=desk.folder.cleanup,
        scope={},
    )
    if "bare" in flaws:
        return bench
    checks = {Trait.CHECKS_PRESTATE} if level == "conditional" else set[Trait]()
    return replace(
        bench,
        reads=(Call(kind="desk.letters", arguments={}),),
        garbled=(Call(kind="desk.letter", arguments={"text": 1}),),
        traits=frozenset({Trait.DISTURBS, Trait.LOSES_ANSWERS, Trait.CUTS_OFF} | checks),
        disturb=desk.disturb,
        lose_answer=desk.lose_answer,
        cut_off=desk.cut_off,
        effects=None if "nameless" in flaws else desk.letters,
    )
