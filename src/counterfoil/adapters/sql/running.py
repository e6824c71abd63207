"""Running registered statements in an open transaction, and holding them to what is expected.

An expectation that does not hold raises, and the transaction is undone with all that was
changed in it.
"""

from collections.abc import Mapping

from counterfoil.adapters.sql.database import Connection, Rows
from counterfoil.adapters.sql.kinds import ROWS_MAX
from counterfoil.adapters.sql.statements import Known
from counterfoil.adapters.sql.trouble import Sort, Trouble
from counterfoil.adapters.sql.values import are_same, records, size_of
from counterfoil.core.bounds import RESULT_BYTES_MAX
from counterfoil.core.errors import RefusedError, StaleObservationError
from counterfoil.core.words import Json
from counterfoil.ports import Operation

WATCHED_ROWS_MAX = 10_000
"""Rows of a fingerprint: they are read before and after each change."""

ROWS_BYTES_MAX = RESULT_BYTES_MAX - 1024
"""Rows of one answer to a read, with room for what stands around them."""


def watched(connection: Connection, text: str) -> Rows:
    """Return what the fingerprint covers.

    Raises:
        Trouble: There are more than `WATCHED_ROWS_MAX` rows, or the query fails.
    """
    rows = connection.run(text, {}, WATCHED_ROWS_MAX)
    if rows.has_more:
        raise Trouble(Sort.SETUP, f"the watch returns more than {WATCHED_ROWS_MAX} rows")
    return rows


def answered(connection: Connection, known: Known, arguments: dict[str, Json]) -> Json:
    """Return the rows of a query, as many as fit, and whether there are more."""
    answer = _run(connection, known, arguments.get("parameters", {}))
    kept: list[Json] = []
    size = 0
    for record in records(answer):
        size += size_of(record) + 1
        if size > ROWS_BYTES_MAX:
            return {"rows": kept, "has_more": True}
        kept.append(record)
    return {"rows": kept, "has_more": answer.has_more}


def checked(connection: Connection, known: Known, arguments: dict[str, Json]) -> Json:
    """Return whether a query sees exactly the expected rows, in order, and how many it sees."""
    answer = _run(connection, known, arguments.get("parameters", {}))
    rows = records(answer)
    passed = not answer.has_more and are_same(rows, arguments["expected"])
    return {"passed": passed, "rows": len(rows), "has_more": answer.has_more}


def changed(
    connection: Connection,
    statements: Mapping[str, Known],
    arguments: dict[str, Json],
    operation: Operation,
) -> Json:
    """Run the statements of a change one after the other, and return what each did.

    Raises:
        RefusedError: One returns more rows than a receipt can hold.
        StaleObservationError: One changes or returns other rows than expected.
        Trouble: As the driver says.
    """
    results: list[Json] = []
    for call in arguments["statements"]:
        known = statements[call["name"]]
        answer = _run(connection, known, call.get("parameters", {}))
        if answer.has_more:
            raise RefusedError(
                f"{known.name} returns more than {ROWS_MAX} rows", operation.run_id, operation.key
            )
        rows = records(answer)
        _hold(known, call, answer, rows, operation)
        done: dict[str, Json] = {"name": known.name, "rows": answer.count}
        results.append(done | {"returned": rows} if answer.columns else done)
    return {"statements": results}


def _hold(
    known: Known, call: dict[str, Json], answer: Rows, rows: list[Json], operation: Operation
) -> None:
    for wanted in (known.statement.rows, call.get("rows")):
        if wanted is not None and answer.count != wanted:
            raise StaleObservationError(
                f"{known.name} meets {answer.count} rows, expected were {wanted}",
                operation.run_id,
                operation.key,
            )
    if "returning" in call and not are_same(rows, call["returning"]):
        raise StaleObservationError(
            f"{known.name} returns other rows than expected", operation.run_id, operation.key
        )


def _run(connection: Connection, known: Known, parameters: dict[str, Json]) -> Rows:
    try:
        return connection.run(known.statement.text, known.bound(parameters), ROWS_MAX)
    except Trouble as trouble:
        words = f"statement {known.name}: {trouble.words}"
        raise Trouble(trouble.sort, words, trouble.move) from trouble
