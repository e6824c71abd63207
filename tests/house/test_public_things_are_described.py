"""Whoever reads the library finds a contract at every public thing."""

import ast
from collections.abc import Iterator

from tests.support.sources import Source, library, name_of

INHERITED = {"overload", "override", "setter", "deleter"}
"""Decorators of functions whose contract stands elsewhere."""


def test_every_module_says_what_lives_in_it() -> None:
    assert [
        source.at(1, "has no docstring")
        for source in library()
        if not ast.get_docstring(source.tree)
    ] == []


def test_every_public_class_and_function_has_a_docstring() -> None:
    assert [
        source.at(node.lineno, f"{name} has no docstring")
        for source in library()
        if not any(
            part.startswith("_") for part in source.path.with_suffix("").parts if part != "__init__"
        )
        for name, node in _public(source)
        if not ast.get_docstring(node)
    ] == []


def _public(
    source: Source,
) -> Iterator[tuple[str, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Yield public classes, their public methods, and public functions."""
    waiting: list[tuple[str, ast.stmt]] = [("", node) for node in _statements(source.tree.body)]
    while waiting:
        prefix, node = waiting.pop(0)
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if node.name.startswith("_") or _is_inherited(node):
            continue
        yield f"{prefix}{node.name}", node
        if isinstance(node, ast.ClassDef):
            waiting += [(f"{prefix}{node.name}.", child) for child in _statements(node.body)]


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a block, and of its `if` and `try` blocks."""
    for node in body:
        yield node
        if isinstance(node, ast.If | ast.Try):
            yield from _statements([*node.body, *node.orelse])


def _is_inherited(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return bool(INHERITED & {name_of(decorator) for decorator in node.decorator_list})
