"""The settings reference names every setting by its path, such as `store.path`."""

from collections.abc import Iterator

from msgspec import inspect

from counterfoil.compose import Settings
from tests.support.sources import ROOT

REFERENCE = ROOT / "docs" / "reference" / "settings.md"


def test_every_setting_is_documented() -> None:
    text = REFERENCE.read_text(encoding="utf-8")
    assert [path for path in _paths(inspect.type_info(Settings)) if f"`{path}`" not in text] == []


def _paths(kind: inspect.Type, path: str = "") -> Iterator[str]:
    """Yield the dotted path of every setting; `NAME` stands for a name the user chooses."""
    match kind:
        case inspect.StructType(fields=fields) | inspect.DataclassType(fields=fields):
            for field in fields:
                yield from _paths(field.type, f"{path}.{field.encode_name}".lstrip("."))
        case inspect.DictType(value_type=inner) if _has_fields(inner):
            yield from _paths(inner, f"{path}.NAME")
        case inspect.ListType(item_type=inner) | inspect.VarTupleType(item_type=inner):
            yield from _paths(inner, path)
        case inspect.UnionType(types=types) if any(map(_has_fields, types)):
            for inner in filter(_has_fields, types):
                yield from _paths(inner, path)
        case _:
            yield path


def _has_fields(kind: inspect.Type) -> bool:
    return isinstance(kind, inspect.StructType | inspect.DataclassType)
