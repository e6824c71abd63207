"""A process that is an idle worker, started for its figures: `python -m benchmarks.idler`."""

import json
import resource
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.places import keeper_on
from benchmarks.stage import TASK
from counterfoil import Session

SETTLE_SECONDS = 2
"""Opening connections and reading for the first time is not what an idle worker does."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rested:
    """What a worker took that had nothing to do.

    Attributes:
        wall_s: How long it was watched.
        cpu_s: Its processor time meanwhile, in the kernel and out of it.
    """

    wall_s: float
    cpu_s: float


def rest(project: Path, seconds: int) -> Rested:
    """Have another process be an idle worker for a while."""
    command = [sys.executable, "-m", "benchmarks.idler", str(project), str(seconds)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return Rested(**json.loads(done.stdout))


def _watched(project: Path, seconds: int) -> Rested:
    with keeper_on(project) as keeper:

        @keeper.program(TASK)
        def _never(run: Session) -> None:
            raise LookupError(f"{run.run_id} was claimed, and nothing is due")

        worker = keeper.worker()
        thread = threading.Thread(target=worker.run)
        thread.start()
        time.sleep(SETTLE_SECONDS)
        began_at, before_s = time.monotonic(), _cpu_s()
        time.sleep(seconds)
        rested = Rested(wall_s=time.monotonic() - began_at, cpu_s=_cpu_s() - before_s)
        worker.stop()
        thread.join()
    return rested


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    print(json.dumps(asdict(_watched(Path(sys.argv[1]), int(sys.argv[2])))))
