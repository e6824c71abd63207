"""The limits: the same bytes as durably, with nothing around them.

A step is a row where checkpoints lie and a head where heads lie; many runs at once are
one writer that puts a row and a head of each run into one commit.
"""

import base64
import json
from pathlib import Path
from typing import Any

import httpx
import psycopg
from talk import Effect, Threaded, serve

from benchmarks.places import ROW_BYTES
from benchmarks.raw import HEAD_BYTES, RawFiles

ROW, HEAD = b"x" * ROW_BYTES, b"y" * HEAD_BYTES
RUNS_MAX = 64


class Raw(Threaded):
    """Commits in a row, after the effect of each step."""

    def __init__(self, place: dict[str, Any], effect: Effect) -> None:
        self._effect = effect

    def commit(self, heads: list[int]) -> None:
        """Make one durable commit of a row and a head for each of `heads`."""
        raise LookupError(f"{type(self).__name__} commits nothing")

    def run(self, run: str, steps: int) -> None:
        for number in range(steps):
            self._effect.do(run, number)
            self.commit([0])

    def together(self, runs: list[str], steps: int) -> None:
        heads = list(range(len(runs)))
        for number in range(steps):
            for run in runs:
                self._effect.do(run, number)
            self.commit(heads)

    def pay(self, key: str, amount: int) -> dict[str, Any]:
        return self._effect.pay(key, amount)


class RawSqlite(Raw):
    """Two SQLite files in two folders."""

    def __init__(self, place: dict[str, Any], effect: Effect) -> None:
        super().__init__(place, effect)
        self._files = RawFiles(Path(place["folder"]), row_bytes=ROW_BYTES)
        self._store, self._heads = self._files._store, self._files._heads
        self._heads.executemany(
            "INSERT OR IGNORE INTO head VALUES (?, 0, ?)",
            [(number, HEAD) for number in range(RUNS_MAX)],
        )

    def commit(self, heads: list[int]) -> None:
        with self._store:
            self._store.executemany("INSERT INTO row (content) VALUES (?)", [(ROW,)] * len(heads))
        with self._heads:
            self._heads.executemany(
                "UPDATE head SET number = number + 1, content = ? WHERE one = ?",
                [(HEAD, head) for head in heads],
            )

    def close(self) -> None:
        self._files.close()


class RawPostgres(Raw):
    """One database: rows and heads in one statement."""

    STATEMENT = (
        "WITH put AS (INSERT INTO row (content) SELECT unnest(%s::bytea[])) "
        "UPDATE head SET number = number + 1, content = %s WHERE run = ANY(%s)"
    )

    def __init__(self, place: dict[str, Any], effect: Effect) -> None:
        super().__init__(place, effect)
        self._connection = psycopg.connect(place["url"], autocommit=True, prepare_threshold=0)
        self._connection.execute("CREATE TABLE row (number serial PRIMARY KEY, content bytea)")
        self._connection.execute(
            "CREATE TABLE head (run integer PRIMARY KEY, number integer, content bytea)"
        )
        self._connection.execute(
            "INSERT INTO head SELECT generate_series(0, %s), 0, %s", (RUNS_MAX - 1, HEAD)
        )

    def commit(self, heads: list[int]) -> None:
        self._connection.execute(self.STATEMENT, ([ROW] * len(heads), HEAD, heads))

    def close(self) -> None:
        self._connection.close()


class RawEtcd(Raw):
    """One etcd: heads alone, each compared with what it was, over the JSON gateway."""

    def __init__(self, place: dict[str, Any], effect: Effect) -> None:
        super().__init__(place, effect)
        self._http = httpx.Client(timeout=60, trust_env=False)
        self._url = f"http://{place['etcd']}/v3/kv/txn"
        prefix = Path(place["folder"]).name
        names = [f"{prefix}/{number}" for number in range(RUNS_MAX)]
        self._keys = [base64.b64encode(name.encode()).decode() for name in names]
        self._versions = [0] * RUNS_MAX
        self._value = base64.b64encode(HEAD).decode()

    def commit(self, heads: list[int]) -> None:
        compare = [
            {"key": self._keys[n], "target": "VERSION", "version": str(self._versions[n])}
            for n in heads
        ]
        puts = [{"request_put": {"key": self._keys[n], "value": self._value}} for n in heads]
        body = json.dumps({"compare": compare, "success": puts}).encode()
        if not self._http.post(self._url, content=body).raise_for_status().json()["succeeded"]:
            raise LookupError("another writer moved a head")
        for head in heads:
            self._versions[head] += 1

    def close(self) -> None:
        self._http.close()


def make(place: dict[str, Any], effect: Effect) -> Raw:
    """Return the limit of a place."""
    if place.get("etcd"):
        return RawEtcd(place, effect)
    return RawPostgres(place, effect) if place["url"] else RawSqlite(place, effect)


if __name__ == "__main__":
    serve(make)
