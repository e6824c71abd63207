"""Stores, registers and inboxes under test: one fresh backend of each kind."""

from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from counterfoil.stores.memory import MemoryHeads, MemoryInbox, MemoryStore
from counterfoil.stores.sqlite import SqliteHeads, open_heads, open_inbox, open_store
from counterfoil.testing.store_bench import HeadBench, InboxBench, StoreBench

NOW_MS = 1_700_000_000_000
INCARNATION = "5eed" * 8


class Closes(Protocol):
    def close(self) -> None: ...


Opened = TypeVar("Opened", bound=Closes)
Wrap = Callable[..., Any]


@dataclass
class Wall:
    """A wall clock that tests move."""

    at_ms: int = NOW_MS

    def now_ms(self) -> int:
        return self.at_ms

    def advance(self, ms: int) -> None:
        self.at_ms += ms


def _closing(stack: ExitStack, open_one: Callable[[], Opened]) -> Callable[[], Opened]:
    """Return what opens a connection that is closed with the bench."""

    def opened() -> Opened:
        connection = open_one()
        stack.callback(connection.close)
        return connection

    return opened


@contextmanager
def memory_store(folder: Path) -> Generator[StoreBench]:
    store = MemoryStore()
    yield StoreBench(open=lambda: store)


@contextmanager
def sqlite_store(folder: Path) -> Generator[StoreBench]:
    with ExitStack() as stack:
        path = folder / "store" / "store.db"
        yield StoreBench(open=_closing(stack, lambda: open_store(path, create=True)))


@contextmanager
def memory_heads(folder: Path, wall: Wall | None = None) -> Generator[HeadBench]:
    wall = wall or Wall()
    heads = MemoryHeads(now_ms=wall.now_ms, incarnation=INCARNATION)
    yield HeadBench(open=lambda: heads, advance_clock=wall.advance)


@contextmanager
def sqlite_heads(folder: Path, wall: Wall | None = None) -> Generator[HeadBench]:
    wall = wall or Wall()

    now_ms = wall.now_ms

    def opened() -> SqliteHeads:
        return open_heads(
            folder / "state" / "heads.db",
            create=True,
            now_ms=now_ms,
            incarnation=lambda: INCARNATION,
        )

    with ExitStack() as stack:
        yield HeadBench(open=_closing(stack, opened), advance_clock=wall.advance)


@contextmanager
def memory_inbox(folder: Path) -> Generator[InboxBench]:
    inbox = MemoryInbox()
    yield InboxBench(open=lambda: inbox)


@contextmanager
def sqlite_inbox(folder: Path) -> Generator[InboxBench]:
    with ExitStack() as stack:
        path = folder / "inbox" / "inbox.db"
        yield InboxBench(open=_closing(stack, lambda: open_inbox(path, create=True)))


@contextmanager
def spoiled_store(bench: Callable[..., Any], wrap: Wrap, folder: Path) -> Generator[StoreBench]:
    """Return a bench whose connections are each spoiled by themselves."""
    with bench(folder) as made:
        yield StoreBench(open=lambda: wrap(made.open()))


@contextmanager
def spoiled_heads(bench: Callable[..., Any], wrap: Wrap, folder: Path) -> Generator[HeadBench]:
    wall = Wall()
    with bench(folder, wall) as made:
        yield HeadBench(
            open=lambda: wrap(made.open(), wall.now_ms), advance_clock=made.advance_clock
        )


@contextmanager
def spoiled_inbox(bench: Callable[..., Any], wrap: Wrap, folder: Path) -> Generator[InboxBench]:
    with bench(folder) as made:
        yield InboxBench(open=lambda: wrap(made.open()))
