"""How often an effect happens that is wanted once, counted on a target outside each peer.

The target is a ledger that does as it is told and keeps the key of each entry, so that
it can be asked. Each side makes the payment as its own documentation has it, with the
retries that it ships with, under its own key for a run or a call.
"""

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from benchmarks.peers.program import Program, ProgramError
from benchmarks.peers.programs.talk import LEDGER
from benchmarks.peers.results import Duplicates
from benchmarks.peers.servers import Place, ServerError, Servers
from benchmarks.peers.sides import Side
from benchmarks.peers.stage import Stage
from counterfoil import CounterfoilError

SCENARIO = "duplicates"
KEY, AMOUNT, OTHER_AMOUNT = "payment-1", 10, 20
CALLS = 3
LOST = 2
"""Answers that get lost; the third call gets through."""

RESTARTS = 2
DEATH_SECONDS = 60
KEYLESS = ("langgraph-sqlite", "langgraph-postgresql")
"""A thread of theirs is a conversation, and no key: another input is another turn."""


def count_duplicates(stage: Stage, sides: Sequence[Side]) -> list[Duplicates]:
    """Return what each side's program did to its target."""
    rows: list[Duplicates] = []
    with stage.scene(SCENARIO) as owner:
        for side in sides:
            if side.kind == "raw" or not side.merges:
                continue
            try:
                rows.append(_row(stage, owner, side))
            except (ProgramError, ServerError, CounterfoilError) as error:
                stage.skip(SCENARIO, side, error)
    return rows


def _row(stage: Stage, owner: Servers, side: Side) -> Duplicates:
    return Duplicates(
        side=side.name,
        reset=str(_after_lost_answers(stage, owner, side)),
        kill=str(_after_a_kill(stage, owner, side)),
        other_intent="no key" if side.name in KEYLESS else _with_another_intent(stage, owner, side),
    )


def _after_lost_answers(stage: Stage, owner: Servers, side: Side) -> int:
    place = _place(owner, side, lost=LOST)
    with _opened(stage, side, place) as program:
        for _ in range(CALLS):
            _paid(program, AMOUNT)
        program.ask(do="close")
    return entries(place)


def _after_a_kill(stage: Stage, owner: Servers, side: Side) -> int:
    place = _place(owner, side, kills=True)
    with _opened(stage, side, place) as program:
        program.tell(do="pay", key=KEY, amount=AMOUNT)
        if not program.wait_for_death(DEATH_SECONDS):
            raise ProgramError(f"{side.name} was not killed by its effect")
    place.told["is_resumed"] = True
    for _ in range(RESTARTS):
        time.sleep(side.lease_s)
        with _opened(stage, side, place) as program:
            _paid(program, AMOUNT)
            program.ask(do="close")
    return entries(place)


def _with_another_intent(stage: Stage, owner: Servers, side: Side) -> str:
    place = _place(owner, side)
    with _opened(stage, side, place) as program:
        first = program.ask(do="pay", key=KEY, amount=AMOUNT)["result"]
        second = _paid(program, OTHER_AMOUNT)
        program.ask(do="close")
    if entries(place) > 1:
        return "executes"
    return "refused" if second is None else _answered(first, second)


def _answered(first: object, second: object) -> str:
    return "old result, silently" if first == second else f"answers {second}"


def _paid(program: Program, amount: int) -> object | None:
    """Return the answer to a payment; None if the program raised."""
    try:
        answer: object = program.ask(do="pay", key=KEY, amount=amount)["result"]
    except ProgramError:
        if not program.is_running:
            raise
        return None
    return answer


def _place(owner: Servers, side: Side, **more: object) -> Place:
    place = owner.place(side)
    place.told.update(more, ledger=str(place.folder / "ledger.db"))
    return place


@contextmanager
def _opened(stage: Stage, side: Side, place: Place) -> Iterator[Program]:
    with ExitStack() as stack:
        program = stage.started(side, place, stack)
        program.ask(do="open", place=place.told)
        yield program


def entries(place: Place) -> int:
    """Return how many entries the target has."""
    with closing(sqlite3.connect(Path(place.told["ledger"]))) as connection:
        connection.execute(LEDGER)
        (count,) = connection.execute("SELECT count(*) FROM entry").fetchone()
    return int(count)
