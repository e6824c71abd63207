"""Where the service under test does its effects: a table that tests count."""

import json
import os
import signal
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import apsw
import psycopg

from counterfoil.integrations.asgi import Answer, PromisedReceipt

BUSY_MS = 20_000
CREATE = "CREATE TABLE IF NOT EXISTS effects (n {serial}, route TEXT NOT NULL, name TEXT NOT NULL)"


def is_postgres(place: str) -> bool:
    return place.startswith("postgresql://")


@contextmanager
def connected(place: str) -> Generator[Any]:
    """A connection whose transactions are begun and ended by statements."""
    if is_postgres(place):
        with psycopg.connect(place, autocommit=True) as connection:
            yield connection
        return
    connection = apsw.Connection(place)
    connection.set_busy_timeout(BUSY_MS)
    try:
        yield connection
    finally:
        connection.close()


def create(place: str) -> None:
    serial = "INTEGER PRIMARY KEY AUTOINCREMENT"
    if is_postgres(place):
        serial = "BIGSERIAL PRIMARY KEY"
    with connected(place) as connection:
        connection.execute(CREATE.format(serial=serial))


def add(connection: Any, place: str, route: str, name: str) -> int:
    statement = "INSERT INTO effects (route, name) VALUES (?, ?) RETURNING n"
    if is_postgres(place):
        statement = statement.replace("?", "%s")
    ((number,),) = connection.execute(statement, (route, name)).fetchall()
    return int(number)


def effects(place: str, route: str, name: str) -> int:
    """Return how many effects a request had."""
    return dict(counted(place)).get((route, name), 0)


def counted(place: str) -> list[tuple[tuple[str, str], int]]:
    statement = "SELECT route, name, count(*) FROM effects GROUP BY route, name"
    with connected(place) as connection:
        rows = connection.execute(statement).fetchall()
    return [((route, name), int(count)) for route, name, count in rows]


def created(number: int) -> Answer:
    """An answer that no other execution gives."""
    body = json.dumps({"number": number, "nonce": os.urandom(8).hex()}).encode()
    headers = ((b"content-type", b"application/json"), (b"x-number", b"%d" % number))
    return Answer(status_code=201, raw_headers=headers, body=body)


def die(when: str, wanted: str) -> None:
    """End this process as a crash would, where the request says so."""
    if when == wanted:
        os.kill(os.getpid(), signal.SIGKILL)


def transfer(
    place: str, receipt: PromisedReceipt, name: str, death: str, route: str = "transfers"
) -> Answer:
    """Do an effect and write its receipt in one transaction."""
    with connected(place) as connection:
        connection.execute("BEGIN" if is_postgres(place) else "BEGIN IMMEDIATE")
        try:
            die("before-effect", death)
            answer = created(add(connection, place, route, name))
            die("before-receipt", death)
            receipt.commit_in(connection, answer)
            die("before-commit", death)
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        die("after-commit", death)
        return answer


async def transfer_async(place: str, receipt: PromisedReceipt, name: str, death: str) -> Answer:
    """Do what `transfer` does on an asynchronous connection of psycopg."""
    async with await psycopg.AsyncConnection.connect(place) as connection:
        die("before-effect", death)
        cursor = await connection.execute(
            "INSERT INTO effects (route, name) VALUES ('transfers', %s) RETURNING n", (name,)
        )
        row = await cursor.fetchone()
        answer = created(row[0] if row else 0)
        die("before-receipt", death)
        await receipt.commit_in_async(connection, answer)
        die("before-commit", death)
    die("after-commit", death)
    return answer


def order(place: str, route: str, name: str, death: str) -> Answer:
    """Do an effect by itself, and answer."""
    die("before-effect", death)
    with connected(place) as connection:
        number = add(connection, place, route, name)
    die("after-commit", death)
    return created(number)
