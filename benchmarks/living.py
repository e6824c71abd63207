"""A process that is a worker with many live runs: `python -m benchmarks.living`."""

import json
import subprocess
import sys
import threading
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.holder import resident_bytes
from benchmarks.places import keeper_on
from benchmarks.stage import TASK, do_steps
from counterfoil import Session

STEPS_EACH = 3
"""Steps of each run before it stands still."""

PATIENCE_SECONDS = 600


@dataclass(frozen=True, kw_only=True, slots=True)
class Alive:
    """What a worker took.

    Attributes:
        runs: Runs that were live at once.
        resident_bytes: Memory of its process then.
    """

    runs: int
    resident_bytes: int


def keep_alive(project: Path, runs: int) -> Alive:
    """Have another process be a worker with `runs` live runs."""
    command = [sys.executable, "-m", "benchmarks.living", str(project), str(runs)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return Alive(**json.loads(done.stdout))


def _worked(project: Path, runs: int) -> Alive:
    """Let a worker claim runs that stand still after their first steps, until all are there."""
    standing, may_end = threading.Semaphore(0), threading.Event()
    with keeper_on(project) as keeper:

        @keeper.program(TASK)
        def _stand(run: Session) -> None:
            do_steps(run, STEPS_EACH)
            standing.release()
            may_end.wait()

        for number in range(runs):
            keeper.submit(TASK, f"run-{number}")
        worker = keeper.worker(concurrency=runs)
        thread = threading.Thread(target=worker.run)
        thread.start()
        alive = sum(standing.acquire(timeout=PATIENCE_SECONDS) for _ in range(runs))
        found = Alive(runs=alive, resident_bytes=resident_bytes())
        may_end.set()
        worker.stop()
        thread.join()
    return found


if __name__ == "__main__":
    print(json.dumps(asdict(_worked(Path(sys.argv[1]), int(sys.argv[2])))))
