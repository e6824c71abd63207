"""Statements that an operator registers, and that planners name: text is never theirs.

A statement is one that a transaction can undo: reads and changes of rows. What commits
by itself in some databases (definitions of tables, transaction control) is refused here.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType, UnionType
from typing import cast

import msgspec

from counterfoil.adapters.sql.database import READS, STYLES, Value
from counterfoil.core.canonical import native
from counterfoil.core.errors import ConfigError, ContractError
from counterfoil.core.words import Json, identifier

TEXT_CHARS_MAX = 16 * 1024
"""A page of SQL."""

STATEMENTS_REGISTERED_MAX = 1_000
"""What a person can still review."""

CHANGES = (*READS, "INSERT", "UPDATE", "DELETE", "MERGE", "REPLACE")
"""First words; whatever begins otherwise may commit by itself."""

PARAMETER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,59}")
"""Names that every driver takes as they are."""

_TYPES: tuple[type, ...] = (bool, int, float, str, bytes, type(None))
_WORD = re.compile(r"\s*([A-Za-z]+)\b")
_NO_PARAMETERS: Mapping[str, type | UnionType] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True, slots=True)
class Statement:
    """One statement that planners may name.

    Attributes:
        text: One statement in the driver's own style, at most `TEXT_CHARS_MAX`
            characters, without a semicolon except at its end: `:name` for SQLite,
            `%(name)s` for PostgreSQL, what its driver takes for others.
        parameters: Type of each parameter: bool, int, float, str or bytes, or one of them
            or None. Drivers that know no names get the values in this order.
        is_query: It only reads, so `query` and `check` may name it.
        rows: How many rows it must change or return, whatever the planner expects; None
            for any number.
    """

    text: str
    parameters: Mapping[str, type | UnionType] = field(default_factory=lambda: _NO_PARAMETERS)
    is_query: bool = False
    rows: int | None = None


class Known:
    """A registered statement, with the shape of its parameters."""

    def __init__(self, name: str, statement: Statement, shape: type[msgspec.Struct]) -> None:
        self.name = name
        self.statement = statement
        self._shape = shape

    def check(self, given: object, where: str) -> None:
        """Refuse parameters that do not fit.

        Raises:
            ContractError: They are no object, or one is missing, unknown, of another
                type, or text that no database can hold.
        """
        if not isinstance(given, dict):
            raise ContractError(f"{where} is no object")
        self._bound(cast("dict[str, Json]", given), where)  # narrowed only to dict[Unknown]

    def bound(self, given: dict[str, Json]) -> dict[str, Value]:
        """Return the values that are bound, in the order of the declaration."""
        return self._bound(given, f"parameters of {self.name}")

    def _bound(self, given: dict[str, Json], where: str) -> dict[str, Value]:
        for name in given:
            if name not in self.statement.parameters:
                raise ContractError(f"{where}: {self.name} takes no {name!r:.80}")
        values = cast("dict[str, Json]", native(given))  # an object stays one
        try:
            shaped = msgspec.convert(values, self._shape, strict=True, builtin_types=(bytes,))
        except msgspec.ValidationError as error:
            raise ContractError(f"{where} of {self.name}: {error!s:.200}") from error
        bound: dict[str, Value] = {name: getattr(shaped, name) for name in self._names()}
        for name, value in bound.items():
            if isinstance(value, str) and "\0" in value:
                raise ContractError(f"{where}.{name} holds a NUL, which databases do not keep")
        return bound

    def _names(self) -> tuple[str, ...]:
        return tuple(self.statement.parameters)


def registered(
    statements: Mapping[str, Statement], style: str, reads: tuple[str, ...] = READS
) -> dict[str, Known]:
    """Return the statements by name, having looked at each.

    Args:
        statements: What the operator gives.
        style: How the driver writes parameters.
        reads: Words that a query may begin with.

    Raises:
        ConfigError: There is none, or one cannot be used as it is.
    """
    if not 0 < len(statements) <= STATEMENTS_REGISTERED_MAX:
        raise ConfigError(
            f"{len(statements)} statements are registered, "
            f"there must be 1 to {STATEMENTS_REGISTERED_MAX}"
        )
    return {name: _known(name, statement, style, reads) for name, statement in statements.items()}


def _known(name: str, statement: Statement, style: str, reads: tuple[str, ...]) -> Known:
    try:
        identifier(name, "the name of a statement")
    except ContractError as error:
        raise ConfigError(error.message) from error
    check_text(f"statement {name}", statement.text, reads if statement.is_query else CHANGES)
    if statement.rows is not None and statement.rows < 0:
        raise ConfigError(f"statement {name}: rows is {statement.rows}, below 0")
    fields: list[tuple[str, type | UnionType]] = []
    for parameter, kind in statement.parameters.items():
        if PARAMETER.fullmatch(parameter) is None:
            raise ConfigError(f"statement {name}: {parameter!r:.80} is no name of a parameter")
        if style in ("named", "pyformat"):
            written = STYLES[style].format(name=parameter)
            if written not in statement.text:
                raise ConfigError(f"statement {name}: the text lacks {written}")
        if not _is_plain(kind):
            raise ConfigError(f"statement {name}: the type of {parameter} is not one of {_NAMES}")
        fields.append((parameter, kind))
    shape = msgspec.defstruct("Parameters", fields, kw_only=True, forbid_unknown_fields=True)
    return Known(name, statement, shape)


_NAMES = "bool, int, float, str and bytes, or one of them or None"


def _is_plain(kind: type | UnionType) -> bool:
    if isinstance(kind, UnionType):
        members = [member for member in kind.__args__ if member is not type(None)]
        return len(members) == 1 and members[0] in _TYPES
    return kind in _TYPES and kind is not type(None)


def check_text(what: str, text: str, words: tuple[str, ...]) -> None:
    """Refuse a text that is no single statement of the wanted sort.

    Raises:
        ConfigError: It is too long, holds a semicolon or a NUL, or begins with another
            word.
    """
    if len(text) > TEXT_CHARS_MAX:
        raise ConfigError(f"{what} has {len(text)} characters, the bound is {TEXT_CHARS_MAX}")
    if ";" in text.rstrip().removesuffix(";") or "\0" in text:
        raise ConfigError(f"{what} holds a semicolon before its end; give such text as a parameter")
    first = _WORD.match(text)
    if first is None or first[1].upper() not in words:
        raise ConfigError(f"{what} must begin with one of {', '.join(words)}")
