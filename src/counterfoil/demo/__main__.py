"""`python -m counterfoil.demo`: the demo without the command line around it."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from counterfoil.demo import run_demo


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo and return its exit code."""
    parser = argparse.ArgumentParser(prog="counterfoil.demo")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, metavar="FOLDER")
    parser.add_argument("--sabotage", action="store_true")
    given = parser.parse_args(arguments)
    return run_demo(
        as_json=given.json, seed=given.seed, folder=given.keep, is_sabotaged=given.sabotage
    )


if __name__ == "__main__":
    sys.exit(main())
