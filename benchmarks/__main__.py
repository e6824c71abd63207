"""`python -m benchmarks`: measure everything, print one table."""

import argparse
import json
import sys
import time
from pathlib import Path

from benchmarks import flat, group, idle, pairs, replay, seal, step, takeover
from benchmarks.figures import Figure, as_objects, as_table
from benchmarks.stage import SCRATCH

BENCHMARKS = {
    "seal": seal.measure,
    "step": step.measure,
    "flat": flat.measure,
    "replay": replay.measure,
    "group": group.measure,
    "pairs": pairs.measure,
    "idle": idle.measure,
    "takeover": takeover.measure,
}


def main(words: list[str]) -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(BENCHMARKS)}; all by default")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, for a first look")
    parser.add_argument("--folder", type=Path, default=SCRATCH, help="a folder on the disk to use")
    asked = parser.parse_args(words)
    unknown = sorted(set(asked.names) - set(BENCHMARKS))
    if unknown:
        parser.error(f"no benchmark is named {', '.join(unknown)}")
    began = time.perf_counter()
    figures: list[Figure] = []
    for name in asked.names or BENCHMARKS:
        figures += BENCHMARKS[name](asked.folder, is_quick=asked.quick)
    seconds = time.perf_counter() - began
    if asked.json:
        print(json.dumps({"seconds": seconds, "figures": as_objects(figures)}, indent=2))
    else:
        print(as_table(figures))
        print(f"\n{seconds:.0f} s. Absolute figures drift; ratios come from one interleaved run.")


if __name__ == "__main__":
    main(sys.argv[1:])
