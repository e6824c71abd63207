"""What an idle worker costs: many runs that wait for a person, many whose pause is not over."""

import os
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.figures import Figure, target
from benchmarks.idler import Rested, rest
from benchmarks.places import ETCD, POSTGRESQL, SQLITE, Servers, keeper_on, name_of, servers, set_up
from benchmarks.stage import scratch
from counterfoil.core.words import Digest, RunId
from counterfoil.ports import Advance, Head, HeadRegister

RUNS = 10_000
RUNS_QUICK = 1_000
"""Of each kind."""

SECONDS = 30
SECONDS_QUICK = 8
WRITERS = 16
PAUSE_MS = 3_600_000
TTL_MS = 600_000
PAIRS = ((SQLITE, SQLITE), (POSTGRESQL, POSTGRESQL), (SQLITE, ETCD))
CORE_PERCENT_MAX = 1.0
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def measure(folder: Path, *, is_quick: bool) -> list[Figure]:
    """Return the share of a core that a worker takes that has nothing to do."""
    figures: list[Figure] = []
    with servers() as owner, scratch(folder) as home:
        for number, pair in enumerate(PAIRS):
            figures += measure_pair(pair, home / f"idle-{number}", owner, is_quick=is_quick)
    return figures


def measure_pair(
    pair: tuple[str, str], place: Path, owner: Servers, *, is_quick: bool
) -> list[Figure]:
    """Return that share on one pair, and its server's; the first figure is the worker's."""
    count = RUNS_QUICK if is_quick else RUNS
    seconds = SECONDS_QUICK if is_quick else SECONDS
    project = set_up(place, *owner.urls(pair, place))
    empty = _rested(project, pair, owner, seconds)
    with keeper_on(project) as keeper:
        _fill(keeper.parts.heads, count)
    return _figures(name_of(pair), 2 * count, empty, _rested(project, pair, owner, seconds))


def _rested(
    project: Path, pair: tuple[str, str], owner: Servers, seconds: int
) -> tuple[Rested, float | None]:
    """Return what a worker took, and a server for its sake, in seconds of processor time."""
    heads = pair[1]
    if heads == SQLITE:
        return rest(project, seconds), None
    pid = owner.postgres.pid if heads == POSTGRESQL else owner.etcd.pid(0)
    before_s = _server_cpu_s(pid)
    rested = rest(project, seconds)
    return rested, _server_cpu_s(pid) - before_s


def _fill(heads: HeadRegister, count: int) -> None:
    """Register runs as submitting and freezing or failing leaves them."""

    def waiting(number: int) -> None:
        head = _created(heads, f"waits-{number:05}")
        move = Advance(expected=head, checkpoint=_digest(1), status="frozen", ttl_ms=TTL_MS)
        heads.release(heads.advance((move,))[0])

    def paused(number: int) -> None:
        heads.release(_created(heads, f"pauses-{number:05}"), PAUSE_MS)

    acts: tuple[Callable[[int], None], ...] = (waiting, paused)
    with ThreadPoolExecutor(max_workers=WRITERS) as pool:
        for act in acts:
            list(pool.map(act, range(count)))


def _created(heads: HeadRegister, run_id: str) -> Head:
    return heads.create(RunId(run_id), _digest(0), "bench", secrets.token_hex(16), TTL_MS)


def _digest(number: int) -> Digest:
    return Digest(f"{number:064x}")


def _server_cpu_s(pid: int) -> float:
    """Return the processor time of a server and its children, those that ended included."""
    total = 0
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = place.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        if pid in {int(place.parent.name), int(fields[1])}:
            own = slice(11, 15) if int(place.parent.name) == pid else slice(11, 13)
            total += sum(int(ticks) for ticks in fields[own])
    return total / TICKS_PER_SECOND


def _figures(
    name: str,
    runs: int,
    empty: tuple[Rested, float | None],
    full: tuple[Rested, float | None],
) -> list[Figure]:
    percent = 100 * full[0].cpu_s / full[0].wall_s
    figures = [
        Figure(
            name=f"idle worker, {runs} runs that wait, {name}",
            unit="% of a core",
            value=percent,
            raw=100 * empty[0].cpu_s / empty[0].wall_s,
            raw_name="the same without any run",
            **target(percent, "<=", CORE_PERCENT_MAX, "% of a core"),
        )
    ]
    if full[1] is not None and empty[1] is not None:
        figures.append(
            Figure(
                name="  its server, for its sake",
                unit="% of a core",
                value=100 * full[1] / full[0].wall_s,
                raw=100 * empty[1] / empty[0].wall_s,
                raw_name="the same without any run",
            )
        )
    return figures
