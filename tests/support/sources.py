"""The project's own files, as house tests read them."""

import ast
import io
import subprocess
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "counterfoil"

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """One Python file: where it is, what it says, how it parses."""

    path: Path
    text: str
    tree: ast.Module

    def at(self, line: int, what: str) -> str:
        """Return a finding the way editors can open it."""
        return f"{self.path.relative_to(ROOT)}:{line} {what}"

    @property
    def name(self) -> str:
        """Path inside the package, such as `core/errors.py`."""
        return self.path.relative_to(PACKAGE).as_posix()


@cache
def python_files(*folders: str) -> tuple[Source, ...]:
    """Return every Python file below `folders`, which are relative to the project."""
    paths = sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    return tuple(_read(path) for path in paths)


def library() -> tuple[Source, ...]:
    """Return every module of the package."""
    return python_files("src/counterfoil")


def functions(source: Source) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield every function of a module, methods and inner functions included."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def definitions(source: Source) -> Iterator[Definition]:
    """Yield every class and function of a module."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def comments(source: Source) -> Iterator[tuple[int, str]]:
    """Yield line and text of every comment; a string that looks like one is none."""
    for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def name_of(node: ast.expr) -> str:
    """Return the last name in an expression: `c` of `a.b.c`, `f` of `f(x)`, or nothing."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Call(func=func):
            return name_of(func)
        case ast.Subscript(value=value):
            return name_of(value)
        case _:
            return ""


def imported(source: Source) -> Iterator[tuple[int, str]]:
    """Yield line and full name of every module that is imported, wherever it is."""
    for node in ast.walk(source.tree):
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, alias.name) for alias in names)
            case ast.ImportFrom(module=str(module)):
                yield node.lineno, module


@cache
def project_files() -> tuple[Path, ...]:
    """Return every file that is under version control, or would be if it were added."""
    answer = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    paths = (ROOT / name for name in answer.stdout.split("\0") if name)
    return tuple(sorted(path for path in paths if path.is_file()))


def text_files() -> Iterator[tuple[str, str]]:
    """Yield name and text of every project file that is text."""
    for path in project_files():
        try:
            yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue


def _read(path: Path) -> Source:
    text = path.read_text(encoding="utf-8")
    return Source(path=path, text=text, tree=ast.parse(text, filename=str(path)))
