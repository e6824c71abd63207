"""A worker in a process of its own, so that its disk can be made to fail.

Run as `python -m tests.support.disk_worker PLACE`: it says "done", or the name of the error
that ended its session.
"""

import sys
from pathlib import Path

from counterfoil.keeper import Keeper
from tests.support.meddling import OUTAGES
from tests.support.workshop import RUN_ID, TASK, Workshop, fulfil


def main(place: str) -> None:
    """Work until the run is done, or the session has ended."""
    word = "done"
    try:
        keeper = Keeper(Workshop(place=Path(place)).parts())
        with keeper, keeper.run(TASK, RUN_ID) as run:
            fulfil(run)
    except OUTAGES as error:
        word = type(error).__name__
    sys.stdout.write(word)


if __name__ == "__main__":
    main(*sys.argv[1:])
