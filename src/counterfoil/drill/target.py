"""The counting target: a program of its own, with its own database, that counts arrivals.

It is where effects are counted, and it believes nobody. Calls arrive late now and then:
some are held back for longer than a lease, whoever sent them and is dead by then. Each
promise that it makes can be broken on purpose. It ends when its standard input does.
"""

import argparse
import random
import sqlite3
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import ClassVar

from counterfoil.drill import calls
from counterfoil.drill.calls import (
    KINDS,
    Asked,
    Check,
    Checked,
    Conflicts,
    Do,
    Done,
    Effect,
    Fenced,
    Find,
    Nothing,
    Seen,
    Take,
    Taken,
)
from counterfoil.drill.family import end_with_input
from counterfoil.drill.plan import Sabotage

LATE_SHARE = 0.02
"""Of arrivals that are held back; each costs its run a failed call and a look-up."""

LATE_SHARE_OF_SABOTAGE = 0.25
"""The same, where a promise is broken that only a late call can show to be broken."""

TRIP_MS_MAX = 8
"""Of all other arrivals: uneven, so that calls overtake each other."""

FORGETS_EVERY = 7
"""Of effects that a sabotaged target says to be done, and are not."""

_SCHEMA = """
CREATE TABLE arrival (
    number INTEGER PRIMARY KEY, what TEXT NOT NULL, key TEXT NOT NULL, verdict TEXT NOT NULL
) STRICT;
CREATE TABLE effect (
    number INTEGER PRIMARY KEY, what TEXT NOT NULL, run_id TEXT NOT NULL, key TEXT NOT NULL,
    digest TEXT NOT NULL, at_ms INTEGER NOT NULL
) STRICT;
CREATE INDEX effect_key ON effect (key);
CREATE INDEX effect_run ON effect (run_id);
CREATE TABLE fence (
    run_id TEXT PRIMARY KEY, lease_version INTEGER NOT NULL, nonce TEXT NOT NULL,
    generation INTEGER NOT NULL, checkpoint TEXT NOT NULL
) STRICT
"""
_FIND = "SELECT number, run_id, digest, at_ms FROM effect WHERE key = ? ORDER BY number LIMIT 1"


class Target:
    """Owns the database of effects; answers one question at a time."""

    def __init__(
        self, path: Path, *, seed: int, late_ms: int, sabotage: Sabotage | None = None
    ) -> None:
        self._database = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = NORMAL")  # nobody cuts its power
        self._database.executescript(_SCHEMA)
        self._seed = seed
        self._late_ms = late_ms
        self._sabotage = sabotage
        self._lock = threading.Lock()
        self._flying = 0
        self._arrived = 0

    def answer(self, asked: Asked) -> calls.Answer:
        """Do what is asked, each in one transaction."""
        if isinstance(asked, Do):
            return self._arrive(asked)
        with self._lock:
            match asked:
                case Find():
                    found = self._found(asked.key)
                    return found if found is not None else Nothing()
                case Take():
                    return self._take(asked)
                case Check():
                    return Checked(passed=self._has_all(asked))
                case calls.Look():
                    return Seen(flying=self._flying)

    def _arrive(self, asked: Do) -> calls.Answer:
        with self._lock:
            self._flying += 1
            self._arrived += 1
            number = self._arrived
        try:
            time.sleep(self._trip_ms(number) / 1000)
            with self._lock, self._database:
                self._database.execute("BEGIN IMMEDIATE")
                answer = self._done(asked)
                self._database.execute(
                    "INSERT INTO arrival (what, key, verdict) VALUES (?, ?, ?)",
                    (asked.what, asked.key, type(answer).__name__.lower()),
                )
                return answer
        finally:
            with self._lock:
                self._flying -= 1

    def _trip_ms(self, number: int) -> float:
        draw = random.Random(f"trip {self._seed} {number}")  # noqa: S311 - to be repeatable
        share = LATE_SHARE if self._sabotage is None else LATE_SHARE_OF_SABOTAGE
        return self._late_ms if draw.random() < share else draw.uniform(0, TRIP_MS_MAX)

    def _done(self, asked: Do) -> calls.Answer:
        kind = KINDS[asked.kind]
        if kind.fences and self._sabotage is not Sabotage.FENCES and not self._raised(asked.fence):
            return Fenced()
        standing = self._found(asked.key) if kind.dedupes else None
        if standing is not None and self._sabotage is not Sabotage.KEYS:
            if standing.digest != asked.digest:
                return Conflicts()
            return Done(
                number=standing.number, digest=standing.digest, at_ms=standing.at_ms, replayed=True
            )
        at_ms = time.time_ns() // 1_000_000
        if self._sabotage is Sabotage.EFFECTS and self._arrived % FORGETS_EVERY == 0:
            return Done(number=-self._arrived, digest=asked.digest, at_ms=at_ms)
        cursor = self._database.execute(
            "INSERT INTO effect (what, run_id, key, digest, at_ms) VALUES (?, ?, ?, ?, ?)",
            (asked.what, asked.run_id, asked.key, asked.digest, at_ms),
        )
        if kind.fences:
            self._database.execute(
                "UPDATE fence SET generation = ?, checkpoint = ? WHERE run_id = ?",
                (asked.generation, asked.checkpoint, asked.run_id),
            )
        return Done(number=cursor.lastrowid or 0, digest=asked.digest, at_ms=at_ms)

    def _raised(self, fence: calls.Fence) -> bool:
        """Raise the fence of a run; False when a newer one, or another's, stands."""
        row = self._database.execute(
            "SELECT lease_version, nonce FROM fence WHERE run_id = ?", (fence.run_id,)
        ).fetchone()
        if row is not None and (fence.lease_version, fence.nonce) != row:
            if fence.lease_version <= row[0]:
                return False
            self._database.execute(
                "UPDATE fence SET lease_version = ?, nonce = ? WHERE run_id = ?",
                (fence.lease_version, fence.nonce, fence.run_id),
            )
        if row is None:
            self._database.execute(
                "INSERT INTO fence VALUES (?, ?, ?, -1, '')",
                (fence.run_id, fence.lease_version, fence.nonce),
            )
        return True

    def _take(self, asked: Take) -> calls.Answer:
        if not self._raised(asked.fence):
            return Fenced()
        row = self._database.execute(
            "SELECT generation, checkpoint FROM fence WHERE run_id = ?", (asked.fence.run_id,)
        ).fetchone()
        return Taken(generation=row[0], checkpoint=row[1])

    def _found(self, key: str) -> Effect | None:
        row = self._database.execute(_FIND, (key,)).fetchone()
        if row is None:
            return None
        return Effect(number=row[0], run_id=row[1], digest=row[2], at_ms=row[3])

    def _has_all(self, asked: Check) -> bool:
        rows = self._database.execute(
            "SELECT DISTINCT what FROM effect WHERE run_id = ?", (asked.run_id,)
        ).fetchall()
        is_silent = self._sabotage is Sabotage.EFFECTS
        return is_silent or {what for (what,) in rows} >= set(asked.what)


class Counts:
    """What a target's database holds, read when all is over."""

    def __init__(self, path: Path) -> None:
        database = sqlite3.connect(path)
        try:
            self.effects: dict[str, int] = dict(
                database.execute("SELECT what, count(*) FROM effect GROUP BY what").fetchall()
            )
            self.verdicts: dict[str, int] = dict(
                database.execute("SELECT verdict, count(*) FROM arrival GROUP BY verdict")
            )
        finally:
            database.close()


class _Answers(StreamRequestHandler):
    target: ClassVar[Target]

    def handle(self) -> None:
        """Answer the one question of a connection; its sender may be dead."""
        line = self.rfile.readline(calls.LINE_BYTES_MAX)
        if not line.endswith(b"\n"):
            return
        answer = self.target.answer(calls.to_asked(line))
        try:
            self.wfile.write(calls.to_line(answer))
        except OSError:
            return


class _Server(ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 256


def main(arguments: Sequence[str] | None = None) -> None:
    """Say the port on standard output, and serve until standard input ends."""
    parser = argparse.ArgumentParser(prog="counterfoil.drill.target")
    parser.add_argument("--database", type=Path, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--late-ms", type=int, required=True)
    parser.add_argument("--sabotage", type=Sabotage)
    given = parser.parse_args(arguments)
    _Answers.target = Target(
        given.database, seed=given.seed, late_ms=given.late_ms, sabotage=given.sabotage
    )
    with _Server((calls.HOST, 0), _Answers) as server:
        sys.stdout.write(f"{server.server_address[1]}\n")
        sys.stdout.flush()
        end_with_input()
        server.serve_forever()
