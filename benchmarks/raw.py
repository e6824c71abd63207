"""The limit: the same bytes into the same two kinds of files, and nothing else."""

from pathlib import Path

import apsw

from counterfoil.stores.sqlite_heads import HEADS_SCHEMA
from counterfoil.stores.sqlite_store import STORE_SCHEMA

HEAD_BYTES = 220

CACHE_KIB = 256
"""Little, since rows are only appended, and ours are measured in the same process."""


class RawFiles:
    """Two SQLite files in two folders, written as durably as ours: WAL, FULL."""

    def __init__(self, folder: Path, *, row_bytes: int) -> None:
        self._row = b"x" * row_bytes
        self._head = b"y" * HEAD_BYTES
        self._store = _opened(folder / "raw-store", STORE_SCHEMA.page_bytes)
        self._heads = _opened(folder / "raw-heads", HEADS_SCHEMA.page_bytes)
        self._store.execute("CREATE TABLE row (number INTEGER PRIMARY KEY, content BLOB)")
        self._heads.execute("CREATE TABLE head (one INTEGER PRIMARY KEY, number, content BLOB)")
        self._heads.execute("INSERT INTO head VALUES (1, 0, ?)", (self._head,))

    def commit(self) -> None:
        """Make two durable writes: a row into one file, a head over the head of the other."""
        self._store.execute("INSERT INTO row (content) VALUES (?)", (self._row,))
        self._heads.execute("UPDATE head SET number = number + 1, content = ?", (self._head,))

    def commit_some(self, count: int) -> None:
        """Make `count` such pairs of durable writes."""
        for _ in range(count):
            self.commit()

    def read(self, number: int) -> None:
        """Read one row."""
        self._store.execute("SELECT content FROM row WHERE number = ?", (number,)).fetchone()

    def close(self) -> None:
        """Let go of both files."""
        self._store.close()
        self._heads.close()


def _opened(folder: Path, page_bytes: int) -> apsw.Connection:
    folder.mkdir(parents=True)
    connection = apsw.Connection(str(folder / "raw.db"))
    connection.execute(f"PRAGMA page_size = {page_bytes}")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
    return connection
