"""What a row becomes in a result: one plain value for each value of a database.

Whole floats become integers, as they are in arguments, so that an expectation and a row
compare by their one form. What has no JSON form becomes text, so that nothing of it is
lost; bytes and numbers beyond JSON stay, since whoever keeps a result marks them.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import cast

from counterfoil.adapters.sql.database import Rows
from counterfoil.adapters.sql.trouble import Sort, Trouble
from counterfoil.core.bounds import INTEGER_MAX
from counterfoil.core.canonical import canonical, digest, encode, storable
from counterfoil.core.words import Digest, Json


def records(answer: Rows) -> list[Json]:
    """Return the rows of an answer as objects by column name.

    Raises:
        Trouble: Two columns have one name.
    """
    if len(set(answer.columns)) != len(answer.columns):
        raise Trouble(Sort.SETUP, "two columns of an answer have one name")
    return [
        {name: plain(value) for name, value in zip(answer.columns, row, strict=True)}
        for row in answer.rows
    ]


def plain(value: object) -> Json:
    """Return what stands for a value of a database."""
    match value:
        case float() if value.is_integer() and abs(value) <= INTEGER_MAX:
            return int(value)
        case datetime():
            moment = value if value.utcoffset() is None else value.astimezone(UTC)
            return moment.isoformat().replace("+00:00", "Z")
        case date() | time():
            return value.isoformat()
        case timedelta():
            return plain(value.total_seconds())
        case memoryview():
            return value.tobytes()
        case list() | tuple():
            items = cast("Sequence[object]", value)  # narrowed only as far as list[Unknown]
            return [plain(item) for item in items]
        case dict():
            members = cast("Mapping[object, object]", value)  # the same, of dict
            return {name: plain(item) for name, item in members.items()}
        case None | bool() | int() | float() | str() | bytes():
            return value
        case _:
            return str(value)


def are_same(rows: Iterable[Json], expected: Iterable[Json]) -> bool:
    """Return whether rows are the expected ones, in order; the order of columns is free."""
    return [canonical(storable(row)) for row in rows] == [canonical(row) for row in expected]


def size_of(record: Json) -> int:
    """Return how many bytes a row takes in a result."""
    return len(encode(storable(record)))


def fingerprint_of(answer: Rows) -> Digest:
    """Return the digest of what a query saw, whatever the order of its rows."""
    rows = sorted(encode(storable([plain(value) for value in row])) for row in answer.rows)
    return digest(encode(answer.columns) + b"\n" + b"\n".join(rows))
