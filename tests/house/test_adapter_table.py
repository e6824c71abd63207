"""The README's table of adapters says what adapters declare, and names what shows it."""

from collections.abc import Callable, Iterable, Mapping
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
from tests.conformance import test_trials
from tests.crash import test_enumeration
from tests.support import (
    files_scene,
    http_bench,
    http_worker,
    mcp_bench,
    s3_bench,
    shell_bench,
    sql_bench,
)
from tests.support.letter_desk import bench_of
from tests.support.sources import ROOT
from tests.targets import test_git_kills, test_mcp_kills, test_s3_kills

BEGIN, END = "<!-- adapters: made by tests/house/test_adapter_table.py -->", "<!-- end -->"

UNCERTAIN = {
    Level.TRANSACTIONAL: "asked by key; absent is certain",
    Level.DEDUPLICATING: "asked, or sent again under its key while keys are kept",
    Level.CONDITIONAL: "read; sent once more when nothing of it can land",
    Level.QUERYABLE: "asked; absent counts once no call is in flight",
    Level.BLIND: "a person decides",
}
"""What becomes of a call whose answer was lost."""

LEVELS_MAX = 4
"""A row with as many levels says where they are explained, and does not repeat it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One adapter.

    Attributes:
        page: Its how-to page, from docs.
        kinds: How its kinds are named; empty for those that it declares.
        specs: What it declares, in every form that its tests put it into.
        drills: The modules that kill it.
        killed: What they kill: each kind, or each level where a user names the kinds.
    """

    page: str
    kinds: str = ""
    specs: Callable[[], Iterable[KindSpec]]
    drills: tuple[str, ...]
    killed: Callable[[], Iterable[str]]


TRIALS = "tests/targets/test_trials.py"


def _sandbox() -> Iterable[KindSpec]:
    return [spec for level in Level for spec in SandboxAdapter(World(), level=level).kinds]


def _functions() -> Iterable[KindSpec]:
    for level in Level:
        bench = bench_of(level)
        yield from bench.open().kinds
        bench.close()


def _commands() -> Mapping[str, KindSpec]:
    return {name: found.spec for name, found in allowed(shell_bench.COMMANDS).items()}


ROWS = {
    "files": Row(
        page="reference/adapters.md",
        specs=kinds_of_files,
        drills=("tests/unit/adapters/test_files_kills.py",),
        killed=lambda: (f"files.{call['kind']}" for _, call, _ in files_scene.CHANGES.values()),
    ),
    "function": Row(
        page="how-to/declare-an-effect.md",
        kinds="your functions",
        specs=_functions,
        drills=("tests/conformance/test_trials.py",),
        killed=lambda: (desk[0] for desk in test_trials.DESKS),
    ),
    "git": Row(
        page="how-to/git.md",
        specs=lambda: kinds_of_git(1_000),
        drills=("tests/targets/test_git_kills.py",),
        killed=lambda: test_git_kills.CALLS_OF,
    ),
    "http": Row(
        page="how-to/http.md",
        kinds="the endpoints that you declare",
        specs=lambda: map(http_bench.spec_of, http_bench.CANDIDATES),
        drills=("tests/targets/test_http_kills.py", TRIALS),
        killed=lambda: (Level.BLIND, *(level for level, _ in http_worker.VARIANTS.values())),
    ),
    "mcp": Row(
        page="how-to/mcp.md",
        kinds="the tools that you declare",
        specs=lambda: map(mcp_bench.spec_of, mcp_bench.CANDIDATES),
        drills=("tests/targets/test_mcp_kills.py",),
        killed=lambda: (told.partition("-")[0] for told in test_mcp_kills.TOLD),
    ),
    "s3": Row(
        page="how-to/s3.md",
        specs=lambda: kinds_of_s3(s3_bench.TERMS),
        drills=("tests/targets/test_s3_kills.py",),
        killed=lambda: (f"s3.{name}" for name in test_s3_kills.CALLS),
    ),
    "sandbox": Row(
        page="reference/adapters.md",
        specs=_sandbox,
        drills=("tests/crash/test_enumeration.py",),
        killed=lambda: ("write_file",),
    ),
    "shell": Row(
        page="how-to/shell.md",
        kinds="the commands that you allow",
        specs=lambda: _commands().values(),
        drills=("tests/targets/test_shell_kills.py", TRIALS),
        killed=lambda: (_commands()[name].level for name in ("shell.note", "shell.place")),
    ),
    "sql": Row(
        page="how-to/sql.md",
        specs=lambda: kinds_of_sql("sql", {}, risk=Risk.IRREVERSIBLE_WRITE, call_ms=1_000),
        drills=("tests/targets/test_sql_kills.py",),
        killed=lambda: (sql_bench.write(1).kind,),
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
        if len(levels) >= LEVELS_MAX:
            claims, told = (
                f"as declared: {claims}",
                "as [its level](docs/explanation/levels.md) says",
            )
        page = f"[`{name}`](docs/{row.page})"
        drills = ", ".join(f"[{path.rpartition('/')[2]}]({path})" for path in row.drills)
        lines.append(f"| {page} | {names} | {claims} | {told} | {drills} |")
    return "\n".join(lines)


def test_every_adapter_has_a_row() -> None:
    folder = ROOT / "src/counterfoil/adapters"
    assert sorted(place.parent.name for place in folder.glob("*/__init__.py")) == sorted(ROWS)


@pytest.mark.parametrize("name", ROWS)
def test_a_row_names_what_is_there(name: str) -> None:
    row = ROWS[name]
    assert (ROOT / "docs" / row.page).is_file()
    for path in row.drills:
        assert "SIGKILL" in (ROOT / path).read_text(encoding="utf-8") or "crash" in path


@pytest.mark.parametrize("name", ROWS)
def test_the_drills_of_a_row_kill_all_that_it_names(name: str) -> None:
    row = ROWS[name]
    specs = [spec for spec in row.specs() if spec.risk.writes]
    wanted = {spec.level.value if row.kinds else spec.name for spec in specs}
    assert {str(each) for each in row.killed()} == wanted


def test_the_drill_of_the_sandbox_kills_it_at_each_level() -> None:
    killed = {name.split()[1] for name in test_enumeration.SANDBOX}
    assert killed == set(Level)


def test_the_readme_has_the_table() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    _, begin, rest = text.partition(BEGIN)
    found, end, _ = rest.partition(END)
    assert (begin, end) == (BEGIN, END)
    assert found.strip() == table(), f"put this between the two comments:\n\n{table()}\n"
