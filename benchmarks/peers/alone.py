"""What is measured of ours alone: an idle worker, a busy one, and the seal of a checkpoint."""

from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks import seal
from benchmarks.idle import measure_pair
from benchmarks.living import keep_alive
from benchmarks.peers.sides import Side
from benchmarks.peers.stage import Stage
from benchmarks.places import ETCD, POSTGRESQL, SQLITE, Servers, servers, set_up
from counterfoil import CounterfoilError

WAITING, LIVING, SEAL = "waiting", "living", "seal"
CORE, MEMORY, TIME = "% of a core", "MiB", "µs"
LIVE_RUNS, LIVE_RUNS_QUICK = 1_000, 20
MIB = 2**20
PAIRS = {
    "counterfoil-sqlite-merged": (SQLITE, SQLITE),
    "counterfoil-postgresql-merged": (POSTGRESQL, POSTGRESQL),
    "counterfoil-etcd-merged": (POSTGRESQL, ETCD),
}

Pair = tuple[str, str]


def idle_worker(stage: Stage, sides: Sequence[Side]) -> None:
    """Note the share of a core that a worker takes beside 20,000 runs that wait.

    Half of them wait for people, and half until their pause is over.
    """

    def measure(pair: Pair, place: Path, owner: Servers) -> float:
        return measure_pair(pair, place, owner, is_quick=stage.is_quick)[0].value

    _each_pair(stage, sides, WAITING, CORE, measure)


def busy_worker(stage: Stage, sides: Sequence[Side]) -> None:
    """Note the memory of a worker with 1,000 live runs."""
    runs = stage.of(LIVE_RUNS, LIVE_RUNS_QUICK)

    def measure(pair: Pair, place: Path, owner: Servers) -> float:
        alive = keep_alive(set_up(place, *owner.urls(pair, place)), runs)
        if alive.runs < runs:
            raise LookupError(f"{alive.runs} of {runs} runs were live")
        return alive.resident_bytes / MIB

    _each_pair(stage, sides, LIVING, MEMORY, measure)


def seal_of_a_step(stage: Stage, sides: Sequence[Side]) -> None:
    """Note what it takes to seal a state of 1 KiB with two events, on whatever side."""
    for side in sides:
        if side.name in PAIRS:
            figures = seal.measure(stage.home, is_quick=stage.is_quick)
            stage.note(SEAL, side, TIME, [figures[0].value])
            return


def _each_pair(
    stage: Stage,
    sides: Sequence[Side],
    scenario: str,
    unit: str,
    measure: Callable[[Pair, Path, Servers], float],
) -> None:
    with stage.scene(scenario), servers() as owner:
        for side in sides:
            if side.name not in PAIRS:
                continue
            place = stage.home / scenario / side.name
            try:
                value = measure(PAIRS[side.name], place, owner)
            except (CounterfoilError, LookupError) as error:
                stage.skip(scenario, side, error)
            else:
                stage.note(scenario, side, unit, [value])
