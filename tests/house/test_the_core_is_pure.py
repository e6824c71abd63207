"""The core reads no clock, draws no random number, and touches nothing outside itself."""

import ast

import pytest

from tests.support.sources import PACKAGE, Source, imported, library, name_of

IMPURE_MODULES = frozenset(
    """asyncio concurrent ctypes fcntl importlib io locale logging multiprocessing os pathlib
    platform random secrets select shutil signal socket sqlite3 ssl subprocess sys tempfile
    threading time urllib uuid""".split()
)
CLOCK_METHODS = frozenset({"now", "utcnow", "today"})
IMPURE_BUILTINS = frozenset({"open", "print", "input", "hash", "breakpoint", "eval", "exec"})
"""`hash` is among them because the hash of text differs from process to process."""

CORE = [source for source in library() if source.path.is_relative_to(PACKAGE / "core")]
by_module = pytest.mark.parametrize("source", CORE, ids=lambda source: source.path.stem)


@by_module
def test_a_core_module_imports_nothing_that_acts(source: Source) -> None:
    assert [
        source.at(line, f"imports {name}")
        for line, name in imported(source)
        if name.partition(".")[0] in IMPURE_MODULES
    ] == []


@by_module
def test_a_core_module_imports_only_the_core_of_the_library(source: Source) -> None:
    assert [
        source.at(line, f"imports {name}")
        for line, name in imported(source)
        if name.partition(".")[0] == "counterfoil" and not name.startswith("counterfoil.core")
    ] == []


@by_module
def test_a_core_module_asks_no_clock(source: Source) -> None:
    assert [
        source.at(node.lineno, f"calls .{name_of(node.func)}()")
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call)
        if isinstance(node.func, ast.Attribute) and node.func.attr in CLOCK_METHODS
    ] == []


@by_module
def test_a_core_module_calls_no_builtin_that_reaches_outside(source: Source) -> None:
    assert [
        source.at(node.lineno, f"calls {node.func.id}()")
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call)
        if isinstance(node.func, ast.Name) and node.func.id in IMPURE_BUILTINS
    ] == []


@by_module
def test_a_core_module_keeps_no_state_of_its_own(source: Source) -> None:
    assert [
        source.at(node.lineno, "rebinds a global name")
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Global | ast.Nonlocal)
    ] == []
