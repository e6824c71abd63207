"""The three kinds of action on a database: their arguments, checked, and what they touch."""

from collections.abc import Callable, Mapping
from typing import cast

from counterfoil.adapters.sql.statements import Known
from counterfoil.core.canonical import normalise
from counterfoil.core.errors import ContractError
from counterfoil.core.intent import KindSpec
from counterfoil.core.words import Json, Level, Risk

NAME = "sql"
"""Name of the adapter where the operator gives none."""

EXECUTE = "execute"
QUERY = "query"
CHECK = "check"
"""What stands after the adapter's name and a dot."""

STATEMENTS = "statements"
"""The scope list: names of statements."""

CALL_MS = 10_000
"""Longest call where the operator names none: a wait for locks, and some statements."""

STATEMENTS_MAX = 32
"""Statements of one transaction: more belong into a procedure of the database."""

ROWS_MAX = 1_000
"""Rows of one answer."""

_ARGUMENTS = {
    EXECUTE: ((STATEMENTS,), ()),
    QUERY: (("statement",), ("parameters",)),
    CHECK: (("statement", "expected"), ("parameters",)),
}
"""Per kind, the arguments that must be there and those that may."""

_MEMBERS = ("name", "parameters", "rows", "returning")


def kinds(
    name: str, statements: Mapping[str, Known], *, risk: Risk, call_ms: int
) -> tuple[KindSpec, ...]:
    """Return what the adapter declares."""
    risks = {EXECUTE: risk, QUERY: Risk.READ_ONLY, CHECK: Risk.VERIFICATION}
    return tuple(
        KindSpec(
            name=f"{name}.{verb}",
            adapter=name,
            risk=each,
            level=Level.TRANSACTIONAL,
            permission=f"{name}.{verb}",
            normalise=_normaliser(f"{name}.{verb}", verb, statements),
            touches=touches,
            call_ms=call_ms,
            linearizable=True,
            fences=True,
            forbids=True,
        )
        for verb, each in risks.items()
    )


def touches(arguments: dict[str, Json]) -> tuple[tuple[str, str], ...]:
    """Return the names of the statements that normalised arguments hold."""
    if STATEMENTS in arguments:
        return tuple((STATEMENTS, each["name"]) for each in arguments[STATEMENTS])
    return ((STATEMENTS, arguments["statement"]),)


def _normaliser(
    kind: str, verb: str, statements: Mapping[str, Known]
) -> Callable[[dict[str, Json]], dict[str, Json]]:
    required, optional = _ARGUMENTS[verb]

    def checked(arguments: dict[str, Json]) -> dict[str, Json]:
        for name in required:
            if name not in arguments:
                raise ContractError(f"{kind} lacks its argument {name}")
        for name in arguments:
            if name not in (*required, *optional):
                raise ContractError(f"{kind} takes no argument {name!r:.80}")
        given = {name: normalise(value, f"arguments.{name}") for name, value in arguments.items()}
        if verb == EXECUTE:
            _check_calls(given[STATEMENTS], statements)
            return given
        known = _known(given["statement"], "arguments.statement", statements)
        if not known.statement.is_query:
            raise ContractError(f"{known.name} is no query, so {kind} cannot name it")
        known.check(given.get("parameters", {}), "arguments.parameters")
        if verb == CHECK:
            _check_rows(given["expected"], "arguments.expected")
        return given

    return checked


def _check_calls(given: Json, statements: Mapping[str, Known]) -> None:
    where = f"arguments.{STATEMENTS}"
    if not isinstance(given, list):
        raise ContractError(f"{where} is no list")
    calls = cast("list[Json]", given)  # narrowed only as far as list[Unknown]
    if not 0 < len(calls) <= STATEMENTS_MAX:
        raise ContractError(f"{where} has {len(calls)} entries, not 1 to {STATEMENTS_MAX}")
    for number, call in enumerate(calls):
        _check_call(call, f"{where}[{number}]", statements)


def _check_call(given: Json, where: str, statements: Mapping[str, Known]) -> None:
    if not isinstance(given, dict) or "name" not in given:
        raise ContractError(f"{where} is no object with a name")
    call = cast("dict[str, Json]", given)  # narrowed only as far as dict[Unknown]
    for member in call:
        if member not in _MEMBERS:
            raise ContractError(f"{where} takes no member {member!r:.80}")
    known = _known(call["name"], f"{where}.name", statements)
    known.check(call.get("parameters", {}), f"{where}.parameters")
    rows = call.get("rows", 0)
    if isinstance(rows, bool) or not isinstance(rows, int) or rows < 0:
        raise ContractError(f"{where}.rows is no number of rows")
    if "returning" in call:
        _check_rows(call["returning"], f"{where}.returning")


def _known(name: Json, where: str, statements: Mapping[str, Known]) -> Known:
    known = statements.get(name) if isinstance(name, str) else None
    if known is None:
        raise ContractError(f"{where} {name!r:.80} is no registered statement")
    return known


def _check_rows(given: Json, where: str) -> None:
    if not isinstance(given, list):
        raise ContractError(f"{where} is no list of rows")
    rows = cast("list[Json]", given)  # narrowed only as far as list[Unknown]
    if len(rows) > ROWS_MAX:
        raise ContractError(f"{where} has {len(rows)} rows, the bound is {ROWS_MAX}")
    for number, row in enumerate(rows):
        if not isinstance(row, dict):
            raise ContractError(f"{where}[{number}] is no object by column name")
