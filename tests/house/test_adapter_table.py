"""The README's table of adapters says what adapters declare, and names what shows it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pytest

from counterfoil.adapters.files.kinds import kinds as kinds_of_files
from counterfoil.adapters.git.kinds import kinds as kinds_of_git
from counterfoil.adapters.s3.kinds import kinds as kinds_of_s3
from counterfoil.adapters.sandbox import SandboxAdapter, World
from counterfoil.adapters.shell.kinds import allowed
from counterfoil.adapters.sql.kinds import kinds as kinds_of_sql
from counterfoil.core.intent import KindSpec
from counterfoil.core.words import Level, Risk
from tests.support import http_bench, mcp_bench, s3_bench, shell_bench
from tests.support.ledger_effects import Entries
from tests.support.sources import ROOT

BEGIN, END = "<!-- adapters: made by tests/house/test_adapter_table.py -->", "<!-- end -->"

UNCERTAIN = {
    Level.TRANSACTIONAL: "asked by key; absent is certain",
    Level.DEDUPLICATING: "asked, or sent again under its key while keys are kept",
    Level.CONDITIONAL: "sent again on the same condition, and then read",
    Level.QUERYABLE: "asked; absent counts once no call is in flight",
    Level.BLIND: "a person decides",
}
"""What becomes of a call whose answer was lost."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One adapter.

    Attributes:
        page: Its how-to page, from docs.
        kinds: How its kinds are named; empty for those that it declares.
        specs: What it declares, in every form that its tests put it into.
        drill: The module that kills it.
    """

    page: str
    kinds: str = ""
    specs: Callable[[], Iterable[KindSpec]]
    drill: str


OF_FUNCTIONS = (Level.TRANSACTIONAL, Level.DEDUPLICATING, Level.QUERYABLE, Level.BLIND)


def _sandbox() -> Iterable[KindSpec]:
    return [spec for level in Level for spec in SandboxAdapter(World(), level=level).kinds]


def _functions() -> Iterable[KindSpec]:
    return [s for level in OF_FUNCTIONS for s in Entries(level, lambda: 0).adapter().kinds]


ROWS = {
    "files": Row(
        page="reference/adapters.md",
        specs=kinds_of_files,
        drill="tests/crash/test_enumeration.py",
    ),
    "function": Row(
        page="how-to/declare-an-effect.md",
        kinds="your functions",
        specs=_functions,
        drill="tests/process/test_kills.py",
    ),
    "git": Row(
        page="how-to/git.md",
        specs=lambda: kinds_of_git(1_000),
        drill="tests/targets/test_git_kills.py",
    ),
    "http": Row(
        page="how-to/http.md",
        kinds="the endpoints that you declare",
        specs=lambda: map(http_bench.spec_of, http_bench.CANDIDATES),
        drill="tests/targets/test_http_kills.py",
    ),
    "mcp": Row(
        page="how-to/mcp.md",
        kinds="the tools that you declare",
        specs=lambda: map(mcp_bench.spec_of, mcp_bench.CANDIDATES),
        drill="tests/targets/test_mcp_kills.py",
    ),
    "s3": Row(
        page="how-to/s3.md",
        specs=lambda: kinds_of_s3(s3_bench.TERMS),
        drill="tests/targets/test_s3_kills.py",
    ),
    "sandbox": Row(
        page="reference/adapters.md",
        specs=_sandbox,
        drill="tests/crash/test_enumeration.py",
    ),
    "shell": Row(
        page="how-to/shell.md",
        kinds="the commands that you allow",
        specs=lambda: [found.spec for found in allowed(shell_bench.COMMANDS).values()],
        drill="tests/targets/test_shell_kills.py",
    ),
    "sql": Row(
        page="how-to/sql.md",
        specs=lambda: kinds_of_sql("sql", {}, risk=Risk.IRREVERSIBLE_WRITE, call_ms=1_000),
        drill="tests/targets/test_sql_kills.py",
    ),
}


def table() -> str:
    """Return the table as the README must have it."""
    lines = ["| adapter | kinds | level | a call whose answer was lost is | killed in |"]
    lines.append("| --- | --- | --- | --- | --- |")
    for name, row in ROWS.items():
        specs = [spec for spec in row.specs() if spec.risk.writes]
        levels = [level for level in Level if any(spec.level is level for spec in specs)]
        names = row.kinds or ", ".join(sorted({f"`{spec.name}`" for spec in specs}))
        claims = ", ".join(level.value for level in levels)
        told = "; ".join(
            UNCERTAIN[level] if len(levels) == 1 else f"{level.value}: {UNCERTAIN[level]}"
            for level in levels
        )
        if len(levels) >= len(OF_FUNCTIONS):
            claims, told = (
                f"as declared: {claims}",
                "as [its level](docs/explanation/levels.md) says",
            )
        page = f"[`{name}`](docs/{row.page})"
        drill = f"[{row.drill.rpartition('/')[2]}]({row.drill})"
        lines.append(f"| {page} | {names} | {claims} | {told} | {drill} |")
    return "\n".join(lines)


def test_every_adapter_has_a_row() -> None:
    folder = ROOT / "src/counterfoil/adapters"
    assert sorted(place.parent.name for place in folder.glob("*/__init__.py")) == sorted(ROWS)


@pytest.mark.parametrize("name", ROWS)
def test_a_row_names_what_is_there(name: str) -> None:
    row = ROWS[name]
    assert (ROOT / "docs" / row.page).is_file()
    assert "SIGKILL" in (ROOT / row.drill).read_text(encoding="utf-8") or "crash" in row.drill


def test_the_readme_has_the_table() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    _, begin, rest = text.partition(BEGIN)
    found, end, _ = rest.partition(END)
    assert (begin, end) == (BEGIN, END)
    assert found.strip() == table(), f"put this between the two comments:\n\n{table()}\n"
