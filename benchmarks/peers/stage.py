"""Acts: the programs of one scenario, opened together and taking turns.

A side that cannot go on is left out from there, and the reason is kept; what it did
before does not count.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.peers.program import Program, ProgramError
from benchmarks.peers.results import Measure, Missing, measured
from benchmarks.peers.servers import Place, ServerError, Servers, servers
from benchmarks.peers.sides import Side
from counterfoil import CounterfoilError


@dataclass(frozen=True, kw_only=True, slots=True)
class Act:
    """One side in one scenario."""

    side: Side
    program: Program
    place: Place


@dataclass(kw_only=True)
class Stage:
    """Where scenarios are played, and what came out of them.

    Attributes:
        home: Folder on the disk that is measured.
        pythons: What runs each side's program, by its name.
        is_quick: Whether small numbers do.
        say: Told what happens, for people who wait.
    """

    home: Path
    pythons: dict[str, Path]
    is_quick: bool
    say: Callable[[str], None]
    measures: list[Measure] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)
    load: dict[str, float] = field(default_factory=dict)

    def of(self, whole: int, quick: int) -> int:
        """Return the number that is wanted."""
        return quick if self.is_quick else whole

    def skip(self, scenario: str, side: Side, why: object) -> None:
        """Keep why a side was not measured."""
        self.say(f"{scenario}: {side.name} is not measured: {why}")
        self.missing.append(Missing(scenario=scenario, side=side.name, why=str(why)))

    def note(
        self,
        scenario: str,
        side: Side,
        unit: str,
        values: Sequence[float],
        cpu_us: float | None = None,
    ) -> None:
        """Keep what a side did."""
        if values:
            self.measures.append(measured(scenario, side.name, unit, values, cpu_us))

    @contextmanager
    def scene(self, scenario: str) -> Iterator[Servers]:
        """Give the servers of a scenario, and note how busy the machine is."""
        self.load[scenario] = round(os.getloadavg()[0], 2)
        self.say(f"{scenario}: load {self.load[scenario]}")
        with servers(self.home / scenario) as owner:
            yield owner

    @contextmanager
    def acts(
        self, scenario: str, sides: Sequence[Side], owner: Servers, **more: object
    ) -> Iterator[dict[str, Act]]:
        """Give the acts of all sides that can be opened; one that fails is to be dropped."""
        acts: dict[str, Act] = {}
        with ExitStack() as stack:
            for side in sides:
                try:
                    act = self.opened(side, owner, stack, **more)
                except (ProgramError, ServerError, CounterfoilError) as error:
                    self.skip(scenario, side, error)
                else:
                    acts[side.name] = act
            yield acts

    def opened(self, side: Side, owner: Servers, stack: ExitStack, **more: object) -> Act:
        """Return a side's program, opened in a place of its own.

        Raises:
            ProgramError, ServerError, CounterfoilError: It cannot be.
        """
        place = owner.place(side)
        place.told.update(more)
        act = Act(side=side, program=self.started(side, place, stack), place=place)
        act.program.ask(do="open", place=place.told)
        return act

    def started(self, side: Side, place: Place, stack: ExitStack) -> Program:
        """Return a process that has not opened anything."""
        program = Program(side, self.pythons[side.name], place.folder)
        return stack.enter_context(program)


def ask_all(
    stage: Stage, scenario: str, acts: dict[str, Act], turn: int = 0, **said: object
) -> dict[str, dict[str, Any]]:
    """Have each act do the same, one after the other; who begins changes with the turn."""
    answers: dict[str, dict[str, Any]] = {}
    names = list(acts)
    first = turn % len(names) if names else 0
    for name in names[first:] + names[:first]:
        try:
            answers[name] = acts[name].program.ask(**said)
        except ProgramError as error:
            stage.skip(scenario, acts.pop(name).side, error)
    return answers
