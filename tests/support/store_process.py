"""Another process that uses stores, so that tests can kill it, starve it and race it.

Run as `python -m tests.support.store_process COMMAND FOLDER ...`. Each line that it says
is one fact: a number for a generation that is acknowledged, or the name of an error.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import apsw
from msgspec.structs import replace

from counterfoil.core.errors import (
    CounterfoilError,
    StaleHeadError,
    UnavailableError,
    UnknownOutcomeError,
)
from counterfoil.ports import Head
from counterfoil.stores.sqlite import SqliteHeads, SqliteStore, open_heads, open_store
from counterfoil.testing.store_bench import RUN, checkpoint, move

NOW_MS = 1_700_000_000_000
TRIES_MAX = 3
NONCE = "nonce"

Answer = TypeVar("Answer")


def say(fact: object) -> None:
    sys.stdout.write(f"{fact}\n")
    sys.stdout.flush()


def store_at(folder: Path) -> SqliteStore:
    return open_store(folder / "project" / "store.db", create=True)


def heads_at(folder: Path, *, now_ms: int = NOW_MS, create: bool = True) -> SqliteHeads:
    return open_heads(
        folder / "state" / "heads.db",
        create=create,
        now_ms=lambda: now_ms,
        incarnation=lambda: "5eed" * 8,
    )


def first_head(store: SqliteStore, heads: SqliteHeads) -> Head:
    row = checkpoint(0)
    store.put([row])
    return heads.create(RUN, row.digest, "one", NONCE, 60_000)


def walk(folder: Path, generations: str) -> None:
    """Commit generation after generation; look a lost answer up before trying again."""
    store, heads = settled(lambda: store_at(folder)), settled(lambda: heads_at(folder))
    for generation in range(int(generations) + 1):
        settled(lambda each=generation: store.put([checkpoint(each)]))
        settled(lambda each=generation: moved(heads, each))
        say(generation)
    heads.close()
    store.close()


def moved(heads: SqliteHeads, generation: int) -> Head:
    row, head = checkpoint(generation), heads.read(RUN)
    if head is None:
        return heads.create(RUN, row.digest, "one", NONCE, 60_000)
    if head.generation == generation:
        return head
    each = replace(move(head), checkpoint=row.digest)
    return heads.advance([each])[0]


def settled(call: Callable[[], Answer]) -> Answer:
    """Return the answer of a call that finds out by itself what an earlier one did."""
    for _ in range(TRIES_MAX):
        try:
            return call()
        except (UnknownOutcomeError, UnavailableError) as error:
            say(type(error).__name__)
    raise SystemExit("gave up")


def contend(folder: Path, wins: str) -> None:
    """Read, then write; from the start again when another was faster."""
    heads = heads_at(folder)
    say("ready")
    sys.stdin.readline()
    won = 0
    while won < int(wins):
        head = heads.read(RUN)
        if head is None:
            raise SystemExit("the head is gone")
        try:
            heads.advance([move(head, salt=str(won))])
            won += 1
        except StaleHeadError:
            continue
    heads.close()
    say(won)


def hold(folder: Path, name: str) -> None:
    """Hold the write lock of a database until a line comes in."""
    connection = apsw.Connection(str(folder / name), flags=apsw.SQLITE_OPEN_READWRITE)
    connection.execute("BEGIN IMMEDIATE")
    say("ready")
    sys.stdin.readline()
    connection.execute("ROLLBACK")
    connection.close()
    say("done")


def look(folder: Path) -> None:
    """Open both, and say what came of it."""
    for open_one in (store_at, heads_at):
        try:
            open_one(folder).close()
            say("opened")
        except CounterfoilError as error:
            say(type(error).__name__)


COMMANDS = {"walk": walk, "contend": contend, "hold": hold, "look": look}

if __name__ == "__main__":
    command, place, *rest = sys.argv[1:]
    COMMANDS[command](Path(place), *rest)
