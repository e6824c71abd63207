"""What an idle worker costs where thousands of runs wait: ours alone."""

from collections.abc import Sequence

from benchmarks.idle import measure_pair
from benchmarks.peers.sides import Side
from benchmarks.peers.stage import Stage
from benchmarks.places import ETCD, POSTGRESQL, SQLITE, servers
from counterfoil import CounterfoilError

WAITING = "waiting"
UNIT = "% of a core"
PAIRS = {
    "counterfoil-sqlite-merged": (SQLITE, SQLITE),
    "counterfoil-postgresql-merged": (POSTGRESQL, POSTGRESQL),
    "counterfoil-etcd-merged": (POSTGRESQL, ETCD),
}


def measure(stage: Stage, sides: Sequence[Side]) -> None:
    """Note the share of a core that a worker takes beside 20,000 runs that wait.

    Half of them wait for people, and half until their pause is over.
    """
    with stage.scene(WAITING), servers() as owner:
        for side in sides:
            if side.name not in PAIRS:
                continue
            place = stage.home / WAITING / side.name
            try:
                figures = measure_pair(PAIRS[side.name], place, owner, is_quick=stage.is_quick)
            except CounterfoilError as error:
                stage.skip(WAITING, side, error)
            else:
                stage.note(WAITING, side, UNIT, [figures[0].value])
