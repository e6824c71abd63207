"""An error raised in one process arrives whole in another."""

import inspect
import pickle
import typing
from enum import Enum
from types import NoneType, UnionType

import pytest

from counterfoil.core import errors

CLASSES = [
    member
    for _, member in inspect.getmembers(errors, inspect.isclass)
    if issubclass(member, errors.CounterfoilError)
]
SAMPLES = {
    str: "text",
    int: 7,
    float: 0.5,
    bool: True,
    bytes: b"\x00\xff",
    NoneType: None,
    tuple: (),
    object: "anything",
}


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_an_error_survives_pickle(kind: type[errors.CounterfoilError], protocol: int) -> None:
    error = _filled(kind)
    copy = pickle.loads(pickle.dumps(error, protocol))
    assert (type(copy), copy.args, vars(copy), str(copy)) == (
        kind,
        error.args,
        vars(error),
        str(error),
    )


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_an_error_is_one_line(kind: type[errors.CounterfoilError]) -> None:
    assert len(str(_filled(kind)).splitlines()) == 1


def _filled(kind: type[errors.CounterfoilError]) -> errors.CounterfoilError:
    """Return an error with a value in every argument, so that a lost one is seen."""
    hints = typing.get_type_hints(kind.__init__)
    parameters = list(inspect.signature(kind).parameters.values())
    kinds_given_by_name = (inspect.Parameter.KEYWORD_ONLY,)
    return kind(
        *(_sample(hints[p.name]) for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD),
        **{p.name: _sample(hints[p.name]) for p in parameters if p.kind in kinds_given_by_name},
    )


def _sample(hint: object) -> object:
    origin = typing.get_origin(hint)
    if origin in (typing.Union, UnionType):
        return _sample(typing.get_args(hint)[0])
    if origin is typing.Literal:
        return typing.get_args(hint)[0]
    plain = getattr(hint, "__supertype__", origin or hint)
    if isinstance(plain, type) and issubclass(plain, Enum):
        return next(iter(plain))
    return SAMPLES[plain]
