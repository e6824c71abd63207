"""Nothing is switched off, swallowed or left for later without saying why."""

import ast
import re
from collections.abc import Iterator

from tests.support.sources import Source, comments, functions, library, name_of, python_files

EVERYTHING_IS_CAUGHT = {
    "adapters/function/adapter.py": "whatever a user's function raises is an unknown outcome",
    "engine/acting.py": "whatever an adapter raises is an unknown outcome: the call may have left",
    "testing/trial.py": "a stranger's adapter may raise anything, and the verdict says what",
    "testing/trial_caller.py": "the same, in a process of its own: it is told to the other one",
    "cli/adapters_check.py": "a stranger's bench may raise anything, and is refused in a sentence",
    "cli/modules.py": "a stranger's module may raise anything when it is imported",
    "engine/labour.py": "the loop that serves many runs must outlive what one of them raises",
}
"""The modules that may catch `Exception`, and why."""

SILENCED = re.compile(r"#\s*(type:\s*ignore|pyright:\s*ignore|noqa|pragma:\s*no)\b")
EXCUSED = re.compile(
    r"""\#\s*
    (?: (?:type|pyright):\s*ignore\[[\w, -]+\]   # a checker, and which rule
      | noqa:\s*[A-Z]+\d+(?:,\s*[A-Z]+\d+)*      # the linter, and which rules
      | pragma:\s*no\s\w+
    )
    \s+(?:\#|-)\s*\S+\s+\S+                      # a reason of two words or more
    """,
    re.VERBOSE,
)
WHOLE_FILE = re.compile(
    r"#\s*(ruff|flake8|mypy|pyright|type)\s*:\s*(noqa|ignore|basic)(?!\[)|#\s*mypy:"
)
FOR_LATER = re.compile(r"\b(TODO|FIXME|XXX|HACK|WIP)\b")

EVERYWHERE = ("src", "tests", "examples", "benchmarks", "scripts")


def test_a_silenced_check_has_a_code_and_a_reason() -> None:
    assert [
        source.at(line, text)
        for source in python_files(*EVERYWHERE)
        for line, text in comments(source)
        if SILENCED.search(text) and not EXCUSED.search(text)
    ] == []


def test_no_check_is_silenced_for_a_whole_module() -> None:
    assert [
        source.at(line, text)
        for source in library()
        for line, text in comments(source)
        if WHOLE_FILE.match(text) and not SILENCED.match(text)
    ] == []


def test_a_cast_has_a_reason_beside_or_above_it() -> None:
    assert [
        source.at(node.lineno, "cast without a comment that says why")
        for source in library()
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call) and name_of(node.func) == "cast"
        if not {node.lineno, node.lineno - 1} & {line for line, _ in comments(source)}
    ] == []


def test_the_library_never_asserts() -> None:
    assert [
        source.at(node.lineno, "assert is gone under python -O; raise an error of the taxonomy")
        for source in library()
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Assert)
    ] == []


def test_nothing_is_left_for_later() -> None:
    assert [
        source.at(number, line.strip())
        for source in library()
        for number, line in enumerate(source.text.splitlines(), start=1)
        if FOR_LATER.search(line)
    ] == []


def test_no_function_is_a_stub() -> None:
    assert [source.at(line, what) for source in library() for line, what in _stubs(source)] == []


def test_only_a_listed_module_catches_everything() -> None:
    assert [
        source.at(handler.lineno, "catches everything; catch what can be told apart")
        for source in library()
        if source.name not in EVERYTHING_IS_CAUGHT
        for handler in ast.walk(source.tree)
        if isinstance(handler, ast.ExceptHandler) and _swallows_everything(handler)
    ] == []


def _stubs(source: Source) -> Iterator[tuple[int, str]]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Name) and node.id == "NotImplementedError":
            yield node.lineno, "NotImplementedError"
    promised = {
        id(method)
        for node in ast.walk(source.tree)
        if isinstance(node, ast.ClassDef) and "Protocol" in {name_of(base) for base in node.bases}
        for method in node.body
    }
    for function in functions(source):
        overload = "overload" in {name_of(item) for item in function.decorator_list}
        if id(function) not in promised and not overload and _is_empty(function):
            yield function.lineno, f"{function.name} does nothing"


def _is_empty(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether the body is `...`, with or without a docstring before it."""
    last = function.body[-1]
    return (
        isinstance(last, ast.Expr)
        and isinstance(last.value, ast.Constant)
        and (last.value.value is Ellipsis)
    )


def _swallows_everything(handler: ast.ExceptHandler) -> bool:
    """Return whether any error ends here; one that is raised again does not."""
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    names = {"BaseException" if kind is None else name_of(kind) for kind in kinds}
    last = handler.body[-1]
    raised_again = isinstance(last, ast.Raise) and last.exc is None
    return bool(names & {"Exception", "BaseException"}) and not raised_again
