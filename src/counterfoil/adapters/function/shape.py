"""The arguments of a function, checked against its type hints."""

import inspect
import typing
from collections.abc import Callable

import msgspec

from counterfoil.core.canonical import native
from counterfoil.core.errors import ConfigError, ContractError
from counterfoil.core.plain import may_hold_mark
from counterfoil.core.words import Json


class Shape:
    """What a function takes beside its call, as a strict msgspec struct."""

    def __init__(
        self,
        kind: str,
        struct: type[msgspec.Struct],
        names: frozenset[str],
        optional: frozenset[str],
    ) -> None:
        self._kind = kind
        self._struct = struct
        self._names = names
        self.optional = optional

    def check(self, arguments: dict[str, Json]) -> dict[str, Json]:
        """Return the arguments unchanged if they fit.

        What was left out stays out: a missing argument and one that is given its
        default are two intents.

        Raises:
            ContractError: One is missing, unknown or of another type.
        """
        self._fitted(native(arguments) if may_hold_mark(arguments) else arguments)
        return arguments

    def build(self, arguments: dict[str, Json]) -> dict[str, object]:
        """Return keyword arguments as the hints want them."""
        built = self._fitted(native(arguments))
        return {name: getattr(built, name) for name in arguments}

    def _fitted(self, arguments: dict[str, Json]) -> msgspec.Struct:
        if not self._names.issuperset(arguments):
            unknown = min(set(arguments) - self._names)
            raise ContractError(f"{self._kind} takes no argument {unknown!r:.80}")
        try:
            return msgspec.convert(arguments, self._struct, strict=True)
        except msgspec.ValidationError as error:
            raise ContractError(f"arguments of {self._kind}: {error!s:.200}") from error


def shape_of(kind: str, function: Callable[..., object]) -> Shape:
    """Return the shape of a function `(call, *, name: type, ...)`.

    Raises:
        ConfigError: A parameter is positional, has no hint, or has one that JSON
            cannot carry.
    """
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters or parameters[0].kind is inspect.Parameter.KEYWORD_ONLY:
        raise ConfigError(f"effect {kind} must take the call as its first parameter")
    hints = typing.get_type_hints(function)
    fields: list[tuple[str, type] | tuple[str, type, object]] = []
    for parameter in parameters[1:]:
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
            raise ConfigError(f"effect {kind}: put {parameter.name} behind a bare *")
        if parameter.name not in hints:
            raise ConfigError(f"effect {kind}: parameter {parameter.name} has no type hint")
        hint = hints[parameter.name]
        if parameter.default is inspect.Parameter.empty:
            fields.append((parameter.name, hint))
        else:
            fields.append((parameter.name, hint, None))  # never read: see `build`
    try:
        struct = msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True)
        msgspec.json.schema(struct)  # refuses hints that JSON cannot carry
    except TypeError as error:
        raise ConfigError(f"effect {kind}: {error!s:.200}") from error
    names = frozenset(parameter.name for parameter in parameters[1:])
    optional = frozenset(field[0] for field in fields if len(field) == 3)
    return Shape(kind, struct, names, optional)
