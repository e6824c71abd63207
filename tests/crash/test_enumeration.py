"""Every crash of every kind of program, and every crash of its recovery.

Each death is judged on the target: every effect once, the run as if it had never died,
the newest checkpoint always one that opens, and no budget given back.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from counterfoil.core.task import Budgets
from counterfoil.core.words import Level
from counterfoil.testing.crash import Tally, enumerate_crashes
from tests.support.stages import (
    FORMS,
    IN_FLIGHT_MS,
    SANDBOX_TASK,
    Backend,
    Form,
    Late,
    PlayStage,
    files_stage,
    plan_and_repair,
    sandbox_stage,
    shop_stage,
)

pytestmark = pytest.mark.timeout(600)  # thousands of runs, on however busy a machine

EAGER_OR_MERGED, WITH_MARKS = FORMS[:2], FORMS[2:]
ON_DISK = 1 / 6
"""Share of second deaths over SQLite; in memory it is all of them."""

Make = Callable[[Backend, Path, Form], AbstractContextManager[PlayStage]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Play:
    """A program with its target.

    Attributes:
        make: Sets it up.
        may_need_review: Whether its level lets a run end with a question.
    """

    make: Make
    may_need_review: bool = False


def _sandbox(level: Level, in_flight_ms: int | None = None, **extra: Any) -> Play:
    def make(backend: Backend, _: Path, form: Form) -> AbstractContextManager[PlayStage]:
        return sandbox_stage(backend, level=level, in_flight_ms=in_flight_ms, form=form, **extra)

    is_unsure = level is Level.BLIND or (level is Level.QUERYABLE and in_flight_ms is None)
    return Play(make=make, may_need_review=is_unsure)


def _shop(level: Level, in_flight_ms: int | None = None, **extra: Any) -> Play:
    def make(backend: Backend, _: Path, form: Form) -> AbstractContextManager[PlayStage]:
        return shop_stage(backend, level=level, in_flight_ms=in_flight_ms, form=form, **extra)

    is_unsure = level is Level.BLIND or (level is Level.QUERYABLE and in_flight_ms is None)
    moves_unasked = extra.get("is_observed", False) and not extra.get("can_be_asked", True)
    return Play(make=make, may_need_review=is_unsure or moves_unasked)


def _files(backend: Backend, place: Path, form: Form) -> AbstractContextManager[PlayStage]:
    return files_stage(backend, place, form=form)


SANDBOX = {
    "sandbox transactional": _sandbox(Level.TRANSACTIONAL),
    "sandbox deduplicating": _sandbox(Level.DEDUPLICATING),
    "sandbox conditional": _sandbox(Level.CONDITIONAL),
    "sandbox queryable with a bound": _sandbox(Level.QUERYABLE, IN_FLIGHT_MS),
    "sandbox queryable without a bound": _sandbox(Level.QUERYABLE),
    "sandbox blind": _sandbox(Level.BLIND),
}
PLANNERS = {
    "planner transactional": _sandbox(Level.TRANSACTIONAL, program=plan_and_repair),
    "planner conditional": _sandbox(Level.CONDITIONAL, program=plan_and_repair),
}
LATE = {
    f"{level} when the first call lands {when}": _sandbox(
        level,
        IN_FLIGHT_MS if level is Level.QUERYABLE else None,
        late=Late(arrives_early=when == "late"),
    )
    for level, when in (
        (Level.TRANSACTIONAL, "late"),
        (Level.TRANSACTIONAL, "last"),
        (Level.DEDUPLICATING, "late"),
        (Level.DEDUPLICATING, "last"),
        (Level.CONDITIONAL, "late"),
        (Level.CONDITIONAL, "last"),
        (Level.QUERYABLE, "late"),
    )
}
FUNCTIONS = {
    "function deduplicating": _shop(Level.DEDUPLICATING),
    "function deduplicating, observed": _shop(Level.DEDUPLICATING, is_observed=True),
    "function deduplicating, an answer lost": _shop(Level.DEDUPLICATING, loses=1),
    "function deduplicating, not asked": _shop(Level.DEDUPLICATING, can_be_asked=False),
    "function deduplicating, not asked, an answer lost": _shop(
        Level.DEDUPLICATING, can_be_asked=False, loses=1
    ),
    "function deduplicating, not asked, observed": _shop(
        Level.DEDUPLICATING, can_be_asked=False, is_observed=True
    ),
    "function queryable with a bound": _shop(Level.QUERYABLE, IN_FLIGHT_MS),
    "function queryable with a bound, observed": _shop(
        Level.QUERYABLE, IN_FLIGHT_MS, is_observed=True
    ),
    "function queryable with a bound, an answer lost": _shop(
        Level.QUERYABLE, IN_FLIGHT_MS, is_observed=True, loses=1
    ),
    "function queryable without a bound": _shop(Level.QUERYABLE),
    "function blind": _shop(Level.BLIND),
}
FILES = {"files": Play(make=_files)}
LISTED = (
    *((name, "memory") for name in SANDBOX),
    ("files", "sqlite"),
    ("function queryable with a bound", "sqlite"),
)
PLAYS = {**SANDBOX, **PLANNERS, **LATE, **FUNCTIONS, **FILES}


def _rows(plays: dict[str, Play], forms: tuple[Form, ...], where: str) -> list[Any]:
    """Name each row; those that are also run without assertions bear the list's numbers."""
    return [
        pytest.param(name, form, id=f"{_number(name, form, where)}{where}, {name}, {form.name}")
        for name in plays
        for form in forms
    ]


def _number(name: str, form: Form, where: str) -> str:
    is_listed = (name, where) in LISTED and form == Form()
    return "acc-A9 acc-A13 " if is_listed else ""


def _enumerated(name: str, form: Form, backend: Backend, folder: Path, share: float) -> Tally:
    play = PLAYS[name]
    return enumerate_crashes(
        lambda: play.make(backend, folder, form),
        may_need_review=play.may_need_review,
        second_deaths=share,
    )


@pytest.mark.parametrize(
    ("name", "form"),
    [
        *_rows(PLAYS, EAGER_OR_MERGED, "memory"),
        *_rows(SANDBOX, WITH_MARKS, "memory"),
    ],
)
def test_no_crash_and_no_crash_of_the_recovery_changes_the_outcome(
    name: str, form: Form, quick_folder: Path
) -> None:
    tally = _enumerated(name, form, Backend(), quick_folder, 1.0)
    assert tally.crashes == len(tally.calls) + 1
    assert tally.double_crashes > 4 * tally.crashes
    assert bool(tally.reviews) == PLAYS[name].may_need_review


@pytest.mark.parametrize(
    ("name", "form"),
    _rows({**SANDBOX, **PLANNERS, **FUNCTIONS, **FILES}, EAGER_OR_MERGED, "sqlite"),
)
def test_no_crash_changes_the_outcome_over_files(name: str, form: Form, quick_folder: Path) -> None:
    backend = Backend(quick_folder / "stores")
    tally = _enumerated(name, form, backend, quick_folder / "folders", ON_DISK)
    assert tally.crashes == len(tally.calls) + 1
    assert tally.double_crashes > tally.crashes / 2
    assert bool(tally.reviews) == PLAYS[name].may_need_review


@pytest.mark.parametrize(
    "level",
    [
        pytest.param(Level.TRANSACTIONAL, id="transactional"),
        pytest.param(Level.CONDITIONAL, id="conditional"),
    ],
)
def test_a_second_death_between_two_reads_changes_nothing_either(level: Level) -> None:
    backend = Backend()
    tally = enumerate_crashes(lambda: sandbox_stage(backend, level=level), spares_reads=False)
    assert tally.double_crashes > 20 * tally.crashes


EXACT = replace(SANDBOX_TASK, budgets=Budgets(proposals=5, steps=3))
"""Two writes, a read, a verification and the end, and not one more."""


@pytest.mark.parametrize("form", [pytest.param(form, id=f"acc-A14 {form.name}") for form in FORMS])
def test_a_run_whose_budget_is_exact_ends_whenever_it_is_killed(form: Form) -> None:
    backend = Backend()
    tally = enumerate_crashes(lambda: sandbox_stage(backend, form=form, task=EXACT))
    assert (tally.crashes, tally.reviews) == (len(tally.calls) + 1, 0)
