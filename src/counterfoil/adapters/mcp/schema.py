"""Arguments against the schema that a server declares for them.

A schema comes from the server and is data: nothing is fetched for it, and no pattern of
it is run, since one can be written that never ends.
"""

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any, cast

from referencing.exceptions import Unresolvable

from counterfoil.core.errors import ConfigError, ContractError
from counterfoil.core.words import Json

_validators: Any = import_module("jsonschema.validators")
_exceptions: Any = import_module("jsonschema.exceptions")
_referencing: Any = import_module("referencing")
"""They have no types, or half of them, so they are used at the JSON edge and nowhere else."""

PATTERNS = "patternProperties"


def checker(schema: dict[str, Any], marks: Mapping[str, str]) -> Callable[[dict[str, Json]], None]:
    """Return what refuses arguments that a schema refuses, but for marks and patterns.

    Raises:
        ConfigError: The schema is none, or takes no argument of a mark's name.
    """
    properties = schema.get("properties")
    known = cast("dict[str, Any]", properties) if isinstance(properties, dict) else {}  # of JSON
    if missing := sorted(set(marks) - set(known)):
        raise ConfigError(f"the tool takes no argument {missing[0]!r:.80}, which is marked")
    kind = _validators.validator_for(schema)
    try:
        kind.check_schema(schema)
    except (_exceptions.SchemaError, RecursionError) as error:
        raise ConfigError("the tool's input schema is no JSON Schema") from error
    extra = kind.VALIDATORS.get("additionalProperties", _nothing)

    def additional(*given: Json) -> Iterator[Json]:
        if PATTERNS not in given[3]:
            yield from extra(*given) or ()

    careful = {"pattern": _nothing, PATTERNS: _nothing, "additionalProperties": additional}
    registry = _referencing.Registry()
    validator = _validators.extend(kind, careful)(schema, registry=registry)

    def check(arguments: dict[str, Json]) -> None:
        whole = {**arguments, **dict.fromkeys(marks, "")}
        try:
            for error in validator.iter_errors(whole):
                if not error.absolute_path or error.absolute_path[0] not in marks:
                    raise ContractError(_told(error))
        except (RecursionError, Unresolvable) as error:
            raise ContractError(
                f"the tool's input schema cannot be followed: {type(error).__name__}"
            ) from error

    return check


def _nothing(*_: Json) -> Iterator[Json]:
    """Check nothing."""
    yield from ()


def _told(error: Json) -> str:
    """Return which field breaks which rule; a payload is not quoted, nor is its message."""
    field = "/".join(str(part) for part in ("arguments", *error.absolute_path))
    return f"{field:.200} breaks {error.validator!s:.40} of the tool's schema"
