"""A process with one thread that forks workers, each of which kills itself at one instant.

`python -m tests.support.http_worker VARIANT PORT PLACE FOLDER` kills a worker before calls
of a port and moves on the wire, lets others finish its run, and prints a report. All that
belongs to the first order is struck by each variant, and every sixth of the others, each
variant beginning with another one.
"""

import json
import os
import select
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import counterfoil as cf
from counterfoil.adapters.http import open_http, wire
from counterfoil.core.words import Level, RunId
from counterfoil.engine import audit
from counterfoil.keeper import Keeper
from counterfoil.testing.mortal import Fate, mortal
from tests.support.http_bench import (
    LOOPBACK,
    UNASKED,
    Door,
    Shop,
    from_environment,
    now_ms,
    service,
)
from tests.support.http_scene import SKUS, restock, task_of

_T = TypeVar("_T")
VARIANTS: dict[str, tuple[Level, dict[str, Any]]] = {
    "deduplicating": (Level.DEDUPLICATING, {}),
    "never asked": (Level.DEDUPLICATING, {"is_watched": False, **UNASKED}),
    "transactional": (Level.TRANSACTIONAL, {}),
    "queryable": (Level.QUERYABLE, {"is_watched": False}),
}
RUN = "restock-1"
DONE, AGAIN, REVIEW, FAILED = 0, 3, 4, 5
SESSIONS_MAX = 100
STRIDE = 6
PAUSE_S = 0.02
KILLED = -signal.SIGKILL


class Reaper(Fate):
    """Kills its own process before the call of one number, for real."""

    def __init__(self, at: int | None) -> None:
        super().__init__()
        self._at = at

    def call(self, name: str, act: Callable[[], _T]) -> _T:
        if len(self.calls) == self._at:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().call(name, act)


class Port:
    """Stands for a proxy where there is none."""

    def __init__(self, port: int) -> None:
        self.port = port


def watch_wire(fate: Fate) -> None:
    """Let the moves on the wire of this process go through its fate."""
    for kind, name in ((wire.Line, "connect_tcp"), (wire.Wire, "write"), (wire.Wire, "read")):
        inner: Any = getattr(kind, name)

        def fated(
            self: Any, *given: Any, _inner: Any = inner, _name: str = name, **more: Any
        ) -> Any:
            return fate.call(f"wire.{_name}", lambda: _inner(self, *given, **more))

        setattr(kind, name, fated)


def live(at: Door, level: Level, folder: Path, fate: Fate, more: dict[str, Any]) -> int:
    """Be a worker to its end."""
    declared = service(at.url, level, from_environment(at.tenant), **more)
    adapter = open_http(declared, now_ms=now_ms, networks=LOOPBACK)
    watch_wire(fate)
    try:
        with cf.open(folder, effects=cf.Effects(), adapters=(adapter,)) as keeper:
            parts = mortal(keeper.parts, fate)
            with Keeper(parts).run(task_of(at), RUN) as run:
                restock(run)
    except (cf.UnknownOutcomeError, cf.UnavailableError):
        return AGAIN
    except cf.FrozenError:
        return REVIEW
    return DONE


def forked(act: Callable[[], int]) -> int:
    """Let a child do something, and return how it ended."""
    child = os.fork()
    if child == 0:
        code = FAILED
        try:
            code = act()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


class Story:
    """One run, killed at one instant or at none."""

    def __init__(self, variant: str, port: int, place: str, folder: Path, number: int) -> None:
        shop = Shop(module="", place=place, listener=None)  # type: ignore[arg-type] # - not served
        tenant = f"{variant.replace(' ', '-')}-{number:04}"
        self.at = Door(shop=shop, tenant=tenant, proxy=Port(port))  # type: ignore[arg-type] # - no proxy
        self.level, self.more = VARIANTS[variant]
        self.folder = folder / str(number)
        self.folder.mkdir()
        os.environ["XDG_STATE_HOME"] = str(self.folder / "state")
        os.environ["XDG_CONFIG_HOME"] = str(self.folder / "config")
        (self.folder / "project").mkdir()

    def worker(self, fate: Fate) -> int:
        return live(self.at, self.level, self.folder / "project", fate, self.more)

    def judged(self, code: int, story: str) -> list[str]:
        """Return what does not hold at the end."""
        orders = Counter(shown["sku"] for shown in self.at.orders())
        checks = {f"no order twice: {orders}": all(count == 1 for count in orders.values())}
        if code == REVIEW:
            checks["only what cannot be settled needs a person"] = self.level in MAY_ASK
        else:
            checks["it ends"] = code == DONE
            checks[f"each order once: {orders}"] = orders == Counter(SKUS)
            with cf.open(self.folder / "project", effects=cf.Effects()) as keeper:
                try:
                    audit.audit(keeper.parts, RunId(RUN))
                except cf.CounterfoilError as error:
                    checks[f"the audit passes: {error!r}"] = False
        return [f"{story}: not so: {what}" for what, holds in checks.items() if not holds]


MAY_ASK = (Level.QUERYABLE, Level.BLIND)


def struck(calls: list[str], offset: int) -> list[int]:
    """Return the boundaries to strike: all of the first order, and a part of the others."""
    first = calls.index("adapter.execute")
    last = calls.index("store.put", first)
    return [at for at in range(len(calls)) if first <= at <= last or at % STRIDE == offset]


def main(variant: str, port: int, place: str, folder: Path) -> None:
    def story(number: int) -> Story:
        return Story(variant, port, place, folder, number)

    fate = Fate()
    rehearsal = story(0)
    reader, writer = os.pipe()

    def rehearse() -> int:
        code = rehearsal.worker(fate)
        os.write(writer, json.dumps(fate.calls).encode())
        return code

    faults = rehearsal.judged(forked(rehearse), "unharmed")
    calls: list[str] = json.loads(os.read(reader, 1_000_000))
    killed_before: list[str] = []
    reviews = 0
    for number in struck(calls, list(VARIANTS).index(variant)):
        told = story(number + 1)
        code = forked(lambda told=told, number=number: told.worker(Reaper(number)))
        if code != KILLED:
            faults += told.judged(code, f"not killed, for want of a boundary {number}")
            continue
        killed_before.append(calls[number])
        for _ in range(SESSIONS_MAX):
            code = forked(lambda told=told: told.worker(Fate()))
            if code != AGAIN:
                break
            select.select([], [], [], PAUSE_S)
        reviews += code == REVIEW
        faults += told.judged(code, f"killed before boundary {number}")
    report = {"killed_before": killed_before, "reviews": reviews, "faults": faults}
    sys.stdout.write(json.dumps(report))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], Path(sys.argv[4]))
