"""What is measured: short runs, many runs, long runs, large results, and going on."""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import NamedTuple

from benchmarks.peers.program import ProgramError
from benchmarks.peers.results import measured
from benchmarks.peers.servers import Servers
from benchmarks.peers.sides import LONG_STEPS, Keeps, Side
from benchmarks.peers.stage import Act, Stage, ask_all

RATE, SECONDS, BYTES = "steps/s", "s", "bytes"
RESUMED = 3
BEYOND = RESUMED + 3
"""Steps after the last one that is timed: a run must not end where it is measured."""

ONE, MANY, FIRST, LAST = "one", "many", "first", "last"
RESUME, SIZE, LOGGED, REFERENCE = "resume", "size", "logged", "reference"
FLAT_FIRST, FLAT_LAST = "flat-first", "flat-last"
LONG, FLAT = "long", "flat"

RUNS, RUNS_QUICK = 64, 8
STEPS_EACH, STEPS_EACH_QUICK = 50, 5


class Length(NamedTuple):
    """A scenario of long runs: its name, those of its ends, and each side's steps."""

    scenario: str
    first: str
    last: str
    steps: dict[str, int]


def one_run(stage: Stage, sides: Sequence[Side]) -> None:
    """One run of 1,000 write steps, in blocks."""
    rounds, block = stage.of(20, 4), stage.of(50, 5)
    _timed_blocks(stage, ONE, sides, rounds, block)


def large_results(stage: Stage, sides: Sequence[Side]) -> None:
    """Steps whose result is 10 MB in a file, synced, and named by its digest."""
    rounds, block = stage.of(8, 2), stage.of(4, 1)
    large = stage.home / "large"
    large.mkdir()
    _timed_blocks(stage, REFERENCE, sides, rounds, block, large=str(large))


def _timed_blocks(
    stage: Stage, scenario: str, sides: Sequence[Side], rounds: int, block: int, **more: object
) -> None:
    steps = (rounds + 1) * block
    with stage.scene(scenario) as owner, stage.acts(scenario, sides, owner, **more) as acts:
        ask_all(stage, scenario, acts, do="start", run="one", steps=steps + BEYOND)
        ask_all(stage, scenario, acts, do="block", count=block)  # warms up
        walls: dict[str, list[float]] = {name: [] for name in acts}
        cpus: dict[str, float] = dict.fromkeys(acts, 0.0)
        for turn in range(rounds):
            answers = ask_all(stage, scenario, acts, turn, do="block", count=block)
            for name, answer in answers.items():
                walls[name].append(block / answer["wall_s"])
                cpus[name] += answer["cpu_s"]
        _ended(stage, scenario, acts, steps + BEYOND)
        for name, act in acts.items():
            cpu_us = cpus[name] / (rounds * block) * 1e6
            stage.note(scenario, act.side, RATE, walls[name], cpu_us)


def many_runs(stage: Stage, sides: Sequence[Side]) -> None:
    """64 runs of 50 steps at once, from their start to their end."""
    rounds, runs = stage.of(5, 1), stage.of(RUNS, RUNS_QUICK)
    steps = stage.of(STEPS_EACH, STEPS_EACH_QUICK)
    with stage.scene(MANY) as owner, stage.acts(MANY, sides, owner) as acts:
        rates: dict[str, list[float]] = {name: [] for name in acts}
        cpus: dict[str, float] = dict.fromkeys(acts, 0.0)
        for turn in range(-1, rounds):  # the first round warms up
            names = [f"many-{turn + 1}-{number}" for number in range(runs)]
            answers = ask_all(stage, MANY, acts, turn, do="together", runs=names, steps=steps)
            for name, answer in answers.items():
                if answer["effects"] != runs * steps:
                    why = f"{answer['effects']} effects of {runs * steps} steps"
                    stage.skip(MANY, acts.pop(name).side, why)
                elif turn >= 0:
                    rates[name].append(runs * steps / answer["wall_s"])
                    cpus[name] += answer["cpu_s"]
        ask_all(stage, MANY, acts, do="close")
        for name, act in acts.items():
            stage.note(
                MANY, act.side, RATE, rates[name], cpus[name] / (rounds * runs * steps) * 1e6
            )


def long_run(stage: Stage, sides: Sequence[Side]) -> None:
    """One run of 10,000 steps, its ends, what it takes, and going on after a kill."""
    with stage.scene(LONG) as owner, stage.acts(LONG, sides, owner) as acts:
        whole = stage.of(LONG_STEPS, 60)
        lengths = {name: min(act.side.long_steps_max, whole) for name, act in acts.items()}
        _long(stage, owner, Length(LONG, FIRST, LAST, lengths), acts)
        for name, act in list(acts.items()):
            if act.side.kind == "raw":
                continue
            try:
                _go_on(stage, act, lengths[name])
            except ProgramError as error:
                stage.skip(RESUME, act.side, error)


def flat_run(stage: Stage, sides: Sequence[Side]) -> None:
    """One run of 100,000 steps, ours alone: whether the last thousand costs what the first did."""
    ours = [
        side
        for side in sides
        if side.kind == "ours" and side.merges and Keeps.ETCD not in side.keeps
    ]
    with stage.scene(FLAT) as owner, stage.acts(FLAT, ours, owner) as acts:
        lengths = dict.fromkeys(acts, stage.of(100_000, 120))
        _long(stage, owner, Length(FLAT, FLAT_FIRST, FLAT_LAST, lengths), acts)


def _long(stage: Stage, owner: Servers, length: Length, acts: dict[str, Act]) -> None:
    """Make runs of these lengths in blocks, and note the rates of both ends, and the sizes."""
    block, window = stage.of(100, 10), stage.of(1_000, 20)
    scenario, steps = length.scenario, length.steps
    before = {name: owner.size_bytes(act.side, act.place) for name, act in acts.items()}
    for name in list(acts):
        act, whole = acts[name], steps[name] + BEYOND
        if not ask_all(stage, scenario, {name: act}, do="start", run="long", steps=whole):
            del acts[name]
    rates: dict[str, list[float]] = {name: [] for name in acts}
    logged: dict[str, int] = dict.fromkeys(acts, 0)
    for turn in range(max(steps.values(), default=0) // block):
        going = {name: act for name, act in acts.items() if turn * block < steps[name]}
        for name, act in going.items():
            began = owner.wal_position(act.place)
            answers = ask_all(stage, scenario, {name: act}, do="block", count=block)
            if not answers:
                del acts[name]
                continue
            logged[name] += owner.wal_position(act.place) - began
            rates[name].append(block / answers[name]["wall_s"])
    for name, act in acts.items():
        stage.note(length.first, act.side, RATE, rates[name][: window // block])
        stage.note(length.last, act.side, RATE, rates[name][-window // block :])
        if act.place.database and scenario == LONG:
            stage.note(LOGGED, act.side, BYTES, [logged[name] / steps[name]])
        taken = owner.size_bytes(act.side, act.place) - before[name]
        stage.note(f"{scenario}-{SIZE}", act.side, BYTES, [taken / steps[name]])


def _go_on(stage: Stage, act: Act, steps: int) -> None:
    """Kill a process after its run's steps, and see how long another takes to go on.

    The step that was under way is made again; the clock stops at the effect after it,
    so that an engine that makes a lost call again on its own must have its run back.
    """
    values: list[float] = []
    program, rounds = act.program, stage.of(RESUMED, 1)
    with ExitStack() as stack:
        for turn in range(rounds):
            program.kill()
            time.sleep(act.side.lease_s)
            program = stage.started(act.side, act.place, stack)
            said = {"place": act.place.told | {"is_resumed": True}, "run": "long"}
            until = steps + 1 + turn  # each round leaves one more step behind it
            answer = program.ask(do="resume", steps=steps + BEYOND, until=until, **said)
            values.append(answer["wall_s"])
        program.ask(do="end", count=BEYOND)
        program.ask(do="close")
    stage.measures.append(measured(RESUME, act.side.name, SECONDS, values))


def _ended(stage: Stage, scenario: str, acts: dict[str, Act], steps: int) -> None:
    """Let all runs end, and leave those out that made another number of effects."""
    for name, answer in ask_all(stage, scenario, acts, do="end", count=steps).items():
        if answer["effects"] != steps:
            why = f"{answer['effects']} effects of {steps} steps"
            stage.skip(scenario, acts.pop(name).side, why)
    ask_all(stage, scenario, acts, do="close")
