"""Names are the field's own nouns, spelt out."""

import ast
import re
from collections.abc import Iterator

from tests.support.sources import Source, definitions, functions, library

BANNED = frozenset(
    """manager managers handler handlers helper helpers util utils data info process
    processes""".split()
)
"""Words that name anything and so say nothing."""

ABBREVIATIONS = frozenset(
    """addr attr attrs buf cb cfg cnt conf conn ctx cur curr dest dst elem err exc fn func idx impl
    msg num obj opt opts param params pkg prev proc ptr recv req res resp ret src stmt tmp val vals
    var vars""".split()
)
"""Common short forms. `id` and `db` are words here; the language's own names stay as they are."""


def test_no_name_is_an_empty_word() -> None:
    assert [
        source.at(line, f"{name} holds the word {word!r}")
        for source in library()
        for line, name in _names(source)
        for word in sorted(BANNED.intersection(_words(name)))
    ] == []


def test_no_name_is_abbreviated() -> None:
    assert [
        source.at(line, f"{name} abbreviates: {word!r}")
        for source in library()
        for line, name in (*_names(source), *_parameters(source))
        for word in sorted(ABBREVIATIONS.intersection(_words(name)))
    ] == []


def _names(source: Source) -> Iterator[tuple[int, str]]:
    yield 1, source.path.parent.name if source.path.stem == "__init__" else source.path.stem
    for node in definitions(source):
        yield node.lineno, node.name


def _parameters(source: Source) -> Iterator[tuple[int, str]]:
    for node in functions(source):
        if not node.name.startswith("__"):
            yield from ((arg.lineno, arg.arg) for arg in _arguments(node.args))


def _arguments(args: ast.arguments) -> Iterator[ast.arg]:
    yield from (*args.posonlyargs, *args.args, *args.kwonlyargs)


def _words(name: str) -> set[str]:
    """Split `snake_case` and `CamelCase` into lower-case words."""
    return {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)}
