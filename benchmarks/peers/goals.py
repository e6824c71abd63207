"""What the figures are held to: ratios of sides that took turns in one run."""

from dataclasses import dataclass
from typing import Literal

from benchmarks.peers.alone import LIVING, SEAL
from benchmarks.peers.results import Measure, Results
from benchmarks.peers.scenarios import (
    FIRST,
    FLAT_FIRST,
    FLAT_LAST,
    LAST,
    LONG,
    MANY,
    ONE,
    RESUME,
    SIZE,
)

SQLITE, SQLITE_STRICT = "counterfoil-sqlite-merged", "counterfoil-sqlite-strict"
POSTGRESQL, ETCD = "counterfoil-postgresql-merged", "counterfoil-etcd-merged"
RAW = "raw-postgresql"


@dataclass(frozen=True, kw_only=True, slots=True)
class Goal:
    """One ratio, and what it is to be.

    Attributes:
        text: What is compared.
        scenario: Where ours is measured.
        ours: Which of ours.
        other: What it is divided by; empty for nothing.
        relation: Which way the bound holds.
        bound: Of the ratio.
        other_scenario: Where the other is measured, if it is elsewhere.
        is_cpu: Whether it is of the processor time of a step, and not of the figure itself.
    """

    text: str
    scenario: str
    ours: str
    other: str = ""
    relation: Literal["≥", "≤"] = "≥"
    bound: float
    other_scenario: str = ""
    is_cpu: bool = False

    def reached(self, results: Results) -> float | None:
        """Return the figure; None where a side of it was not measured."""
        if not self.other:
            found = results.of(self.scenario, self.ours)
            return None if found is None else self._value(found)
        if not self.other_scenario:
            return results.ratio(self.scenario, self.ours, self.other)
        first, second = (
            results.of(self.scenario, self.ours),
            results.of(self.other_scenario, self.other),
        )
        return None if first is None or second is None else first.median / second.median

    def _value(self, found: Measure) -> float | None:
        return found.cpu_us if self.is_cpu else found.median

    def is_met(self, reached: float) -> bool:
        """Return whether a figure is what it is to be."""
        return reached >= self.bound if self.relation == "≥" else reached <= self.bound


def _goal(text: str, scenario: str, ours: str, other: str, bound: float) -> Goal:
    return Goal(text=text, scenario=scenario, ours=ours, other=other, bound=bound)


def _flat(text: str, side: str, first: str, last: str) -> Goal:
    text = f"last ÷ first thousand of {text}"
    return Goal(text=text, scenario=last, ours=side, other=side, other_scenario=first, bound=0.97)


def _most(text: str, scenario: str, ours: str, bound: float) -> Goal:
    return Goal(text=text, scenario=scenario, ours=ours, relation="≤", bound=bound)


def _cpu(text: str, ours: str) -> Goal:
    text = f"processor time of a step of one run, {text}, µs"
    return Goal(text=text, scenario=ONE, ours=ours, relation="≤", bound=250, is_cpu=True)


GOALS = (
    _goal("one run, PostgreSQL ÷ DBOS on PostgreSQL", ONE, POSTGRESQL, "dbos-postgresql", 5),
    _goal("the same ÷ raw PostgreSQL commits", ONE, POSTGRESQL, "raw-postgresql", 0.6),
    _goal("one run, SQLite in two files ÷ DBOS on SQLite", ONE, SQLITE, "dbos-sqlite", 2),
    _goal("the same ÷ raw commits to two files", ONE, SQLITE, "raw-sqlite", 0.7),
    _goal("the same, strict ÷ DBOS on SQLite", ONE, SQLITE_STRICT, "dbos-sqlite", 1.2),
    _goal("64 runs, PostgreSQL ÷ DBOS on PostgreSQL", MANY, POSTGRESQL, "dbos-postgresql", 8),
    _goal("the same ÷ Restate", MANY, POSTGRESQL, "restate", 2),
    _goal("the same ÷ one group writer on raw PostgreSQL", MANY, POSTGRESQL, RAW, 0.35),
    _goal("64 runs, SQLite ÷ raw group commit to two files", MANY, SQLITE, "raw-sqlite", 0.5),
    _goal("one run, PostgreSQL and etcd ÷ raw compare-and-set", ONE, ETCD, "raw-etcd", 0.7),
    _flat("10,000, SQLite", SQLITE, FIRST, LAST),
    _flat("10,000, PostgreSQL", POSTGRESQL, FIRST, LAST),
    _flat("100,000, SQLite", SQLITE, FLAT_FIRST, FLAT_LAST),
    _flat("100,000, PostgreSQL", POSTGRESQL, FLAT_FIRST, FLAT_LAST),
    Goal(
        text="resume after 10,000 steps, SQLite ÷ DBOS on SQLite",
        scenario=RESUME,
        ours=SQLITE,
        other="dbos-sqlite",
        relation="≤",
        bound=0.01,
    ),
    _most("bytes per step, SQLite in two files", f"{LONG}-{SIZE}", SQLITE, 2_500),
    _cpu("SQLite in two files", SQLITE),
    _cpu("PostgreSQL", POSTGRESQL),
    _most("seal of a usual step, µs", SEAL, SQLITE, 60),
    _most("memory of a worker with 1,000 live runs, SQLite, MiB", LIVING, SQLITE, 200),
    _most("the same, PostgreSQL", LIVING, POSTGRESQL, 200),
)
