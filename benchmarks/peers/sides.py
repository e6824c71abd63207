"""Who is measured: each side is a program, an environment, and where it keeps things."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal


class Keeps(StrEnum):
    """Where a side keeps what must survive."""

    FOLDER = "folder"
    POSTGRESQL = "postgresql"
    ETCD = "etcd"
    RESTATE = "restate"
    TEMPORAL = "temporal"
    ABSURD = "absurd"


LONG_STEPS = 10_000

Kind = Literal["ours", "peer", "raw"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Side:
    """One line of the table.

    Attributes:
        name: How commands and results call it.
        title: How tables call it.
        kind: Whose it is.
        program: Module below `programs`, without its ending.
        environment: Folder of its environment and of its pinned requirements; empty
            for our own.
        keeps: The places it needs.
        merges: Whether a receipt rides with the next intent; ours only.
        long_steps_max: Steps of the longest run that it takes.
        lease_s: How long a killed process keeps its run from others, in seconds; this
            wait is a setting, and is not counted as resuming.
        package: Distribution whose version is shown; empty for ours and the raw limits.
    """

    name: str
    title: str
    kind: Kind
    program: str
    environment: str = ""
    keeps: tuple[Keeps, ...] = (Keeps.FOLDER,)
    merges: bool = True
    long_steps_max: int = LONG_STEPS
    lease_s: float = 0
    package: str = ""


def _ours(places: str, words: str, *keeps: Keeps, lease_s: float = 11) -> tuple[Side, Side]:
    merged, strict = (
        Side(
            name=f"counterfoil-{places}-{how}",
            title=f"Counterfoil, {words}, {how}",
            kind="ours",
            program="counterfoil_program",
            keeps=keeps,
            merges=how == "merged",
            lease_s=lease_s,
        )
        for how in ("merged", "strict")
    )
    return merged, strict


def _raw(places: str, words: str, *keeps: Keeps) -> Side:
    return Side(
        name=f"raw-{places}", title=f"raw: {words}", kind="raw", program="raw_program", keeps=keeps
    )


def _peer(name: str, title: str, keeps: Keeps, **more: object) -> Side:
    place = name.partition("-")[0]
    given: dict[str, object] = {
        "program": f"{place}_program",
        "environment": place,
        "package": place,
        **more,
    }
    return Side(name=name, title=title, kind="peer", keeps=(keeps,), **given)


SIDES: tuple[Side, ...] = (
    *_ours("sqlite", "SQLite in two files", Keeps.FOLDER, lease_s=0),
    *_ours("postgresql", "PostgreSQL", Keeps.POSTGRESQL),
    *_ours("etcd", "PostgreSQL and etcd", Keeps.POSTGRESQL, Keeps.ETCD),
    _peer("dbos-sqlite", "DBOS, SQLite (WAL)", Keeps.FOLDER),
    _peer("dbos-postgresql", "DBOS, PostgreSQL", Keeps.POSTGRESQL),
    _peer("langgraph-sqlite", "LangGraph, SQLite, sync", Keeps.FOLDER),
    _peer("langgraph-postgresql", "LangGraph, PostgreSQL, sync", Keeps.POSTGRESQL),
    _peer("restate", "Restate", Keeps.RESTATE, package="restate-sdk"),
    _peer(
        "temporal",
        "Temporal, dev server",
        Keeps.TEMPORAL,
        package="temporalio",
        long_steps_max=5_000,
        lease_s=3,
    ),
    _peer("absurd", "Absurd, PostgreSQL", Keeps.ABSURD, package="absurd-sdk", lease_s=11),
    _peer("durastep", "durastep, SQLite", Keeps.FOLDER),
    _raw("sqlite", "commits to two SQLite files", Keeps.FOLDER),
    _raw("postgresql", "commits to PostgreSQL", Keeps.POSTGRESQL),
    _raw("etcd", "compare-and-set in etcd", Keeps.ETCD),
)


def sides_named(names: list[str]) -> tuple[Side, ...]:
    """Return the sides of these names, or all of them for none.

    A name may be that of a side, of all that begin with it and a dash, or of a kind.

    Raises:
        LookupError: One of them is nobody's.
    """
    unknown = [name for name in names if not any(_is_called(side, name) for side in SIDES)]
    if unknown:
        known = ", ".join(side.name for side in SIDES)
        raise LookupError(f"no side is named {', '.join(unknown)}; there are {known}")
    return tuple(
        side for side in SIDES if not names or any(_is_called(side, name) for name in names)
    )


def _is_called(side: Side, name: str) -> bool:
    return name in {side.name, side.kind} or side.name.startswith(f"{name}-")
