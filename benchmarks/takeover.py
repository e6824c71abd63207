"""How long a run waits whose worker was killed, as the drill finds it."""

from pathlib import Path

from benchmarks.figures import Figure, target
from benchmarks.places import ANOTHER, PAIRS, name_of
from counterfoil.drill import make_plan, run_drill
from counterfoil.drill.driver import Progress

SECONDS = 30
SECONDS_QUICK = 8
LEASE_MS = 2_000
DRILLED = [pair for pair in PAIRS if ANOTHER not in pair]
"""What a drill starts by itself: two words for one server are one database."""

MARGIN_MS = 1_000
"""Beyond the lease: half a second between two looks for work, and the claim itself."""


def measure(folder: Path, *, is_quick: bool) -> list[Figure]:
    """Return the slowest takeover after a kill on each pair; everything is throwaway."""
    return [figure for pair in DRILLED for figure in _measure(pair, is_quick=is_quick)]


def _measure(pair: tuple[str, str], *, is_quick: bool) -> list[Figure]:
    seconds = SECONDS_QUICK if is_quick else SECONDS
    plan = make_plan(
        store=pair[0], heads=pair[1], workers=4, seconds=seconds, seed=1, lease_ms=LEASE_MS
    )
    report = run_drill(plan, _look_away)
    failure = report.failure()
    if failure is not None:
        raise failure
    slowest, middle = report.slowest_after_kill_ms, report.median_takeover_ms
    if slowest is None or middle is None:
        return []
    return [
        Figure(
            name=f"takeover after {report.kills} kills, {name_of(pair)}: slowest",
            unit="ms",
            value=slowest,
            raw=LEASE_MS,
            raw_name="the lease",
            **target(slowest, "<=", LEASE_MS + MARGIN_MS, "ms"),
        ),
        Figure(
            name="  of kills and pauses, in the middle",
            unit="ms",
            value=middle,
            raw=LEASE_MS,
            raw_name="the lease",
        ),
    ]


def _look_away(progress: Progress) -> None:
    """Take no note of progress."""
