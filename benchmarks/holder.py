"""A process that holds one run, started for its figures: `python -m benchmarks.holder`.

Memory and opening are measured where nothing else has been done before.
"""

import json
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.raw import RawFiles
from benchmarks.stage import RUN_ID, TASK, do_steps, keeper_in
from benchmarks.step import WARM_UP, row_bytes

BLOCK = 20
"""Steps between two looks at the clock, and between raw commits of as many pairs."""

EARLY = 10
"""Steps after which memory is read first."""

PAGE_BYTES = 4096
STATM = Path("/proc/self/statm")


@dataclass(frozen=True, kw_only=True, slots=True)
class Written:
    """What writing a run of many steps cost.

    Attributes:
        ours_s: Seconds of each block of steps.
        cpu_s: Seconds of processor time in each of them.
        raw_s: Seconds of as many raw pairs of commits, right after it; first and last
            window only, next to nothing elsewhere.
        grown_bytes: Memory at the end, less memory after `EARLY` steps.
    """

    ours_s: list[float]
    cpu_s: list[float]
    raw_s: list[float]
    grown_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Held:
    """What holding a prepared run costs.

    Attributes:
        opened_s: Seconds that `keeper.run` took.
        resident_bytes: Memory of the process then.
    """

    opened_s: float
    resident_bytes: int


def write_run(folder: Path, steps: int, window: int) -> Written:
    """Have another process write a run of `steps`; raw pairs go beside first and last `window`."""
    return Written(**_asked("write", folder, steps, window))


def hold_run(folder: Path) -> Held:
    """Have another process open a prepared run."""
    return Held(**_asked("open", folder))


def _asked(*words: object) -> dict[str, object]:
    command = [sys.executable, "-m", "benchmarks.holder", *(str(word) for word in words)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    answer: dict[str, object] = json.loads(done.stdout)
    return answer


def resident_bytes() -> int:
    """Return the memory of this process that is not swapped out."""
    return int(STATM.read_text(encoding="ascii").split()[1]) * PAGE_BYTES


def _write(folder: Path, steps: int, window: int) -> Written:
    ours: list[float] = []
    cpu: list[float] = []
    raws: list[float] = []
    with ExitStack() as stack:
        keeper = stack.enter_context(keeper_in(folder))
        run = stack.enter_context(keeper.run(TASK, RUN_ID))
        do_steps(run, EARLY)
        early_bytes = resident_bytes()
        raw = RawFiles(folder / "raw", row_bytes=row_bytes(folder / "project"))
        stack.callback(raw.close)
        raw.commit_some(WARM_UP if window else 0)
        for done in range(0, steps - EARLY, BLOCK):
            began, cpu_began = time.perf_counter(), time.process_time()
            do_steps(run, min(BLOCK, steps - EARLY - done))
            ended, cpu_ended = time.perf_counter(), time.process_time()
            ours.append(ended - began)
            cpu.append(cpu_ended - cpu_began)
            is_watched = done < window or done >= steps - window
            raw.commit_some(BLOCK if is_watched and window else 0)
            raws.append(time.perf_counter() - ended)
        grown_bytes = resident_bytes() - early_bytes
    return Written(ours_s=ours, cpu_s=cpu, raw_s=raws, grown_bytes=grown_bytes)


def _open(folder: Path) -> Held:
    with keeper_in(folder) as keeper:
        began = time.perf_counter()
        with keeper.run(TASK, RUN_ID):
            opened_s = time.perf_counter() - began
            return Held(opened_s=opened_s, resident_bytes=resident_bytes())


def main(words: list[str]) -> None:
    """Do one of `write FOLDER STEPS WINDOW` and `open FOLDER`, and print what it cost."""
    match words:
        case ["write", folder, steps, window]:
            cost: Written | Held = _write(Path(folder), int(steps), int(window))
        case ["open", folder]:
            cost = _open(Path(folder))
        case _:
            raise SystemExit("write FOLDER STEPS WINDOW | open FOLDER")
    print(json.dumps(asdict(cost)))


if __name__ == "__main__":
    main(sys.argv[1:])
