"""A process with one thread that forks workers, each of which kills itself at one instant.

`python -m tests.support.mcp_worker PORT PATH PLACE FOLDER LEVEL-WAY...` kills a worker
before calls of a port and moves of a session with a server, lets others finish its run,
and prints a report, for each level. The levels share the boundaries.
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
from counterfoil.adapters.mcp import Http, Stdio, open_mcp, site, wire
from counterfoil.core.words import Level, RunId
from counterfoil.engine import audit
from counterfoil.keeper import Keeper
from counterfoil.testing.mortal import Fate, mortal
from tests.support import mcp_shop as shops
from tests.support.mcp_bench import HTTP, RELAY, now_ms, server
from tests.support.mcp_scene import TITLES, task_of, triage

_T = TypeVar("_T")
RUN = "triage-1"
DONE, AGAIN, REVIEW, FAILED = 0, 3, 4, 5
SESSIONS_MAX = 20
BOUNDARIES_MAX = 500
PAUSE_S = 0.05
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


def watch_wire(fate: Fate) -> None:
    """Let the requests of this process, and their answers, go through its fate."""
    leaves: Any = wire.Wire.leaves
    exchanged: Any = site._exchanged

    def fated_leaves(self: Any, name: str) -> Any:
        return fate.call("wire.leaves", lambda: leaves(self, name))

    async def fated_exchanged(*given: Any) -> Any:
        answer = await exchanged(*given)
        return fate.call("wire.answered", lambda: answer)

    wire.Wire.leaves = fated_leaves  # type: ignore[method-assign] # - for this process alone
    site._exchanged = fated_exchanged


class Story:
    """One run, killed at one instant or at none."""

    def __init__(self, given: list[str], number: int) -> None:
        port, path, self.place, folder, told = given
        level, way = told.split("-")
        self.level = Level(level)
        self.tenant = f"{told}-{number:04}"
        self.folder = Path(folder) / self.tenant
        self.folder.mkdir()
        os.environ["XDG_STATE_HOME"] = str(self.folder / "state")
        os.environ["XDG_CONFIG_HOME"] = str(self.folder / "config")
        (self.folder / "project").mkdir()
        reach: Http | Stdio
        if way == HTTP:
            headers = {"Authorization": f"Bearer {self.tenant}"}
            reach = Http(url=f"http://127.0.0.1:{port}/mcp", headers=headers)
        else:
            reach = Stdio(command=(sys.executable, "-S", "-E", str(RELAY), path, self.tenant))
        self.server = server(reach, self.level, is_watched=False)

    def live(self, fate: Fate) -> int:
        """Be a worker to its end."""
        watch_wire(fate)
        adapter = open_mcp(self.server, now_ms=now_ms)
        try:
            with cf.open(
                self.folder / "project", effects=cf.Effects(), adapters=(adapter,)
            ) as keeper:
                parts = mortal(keeper.parts, fate)
                with Keeper(parts).run(task_of(), RUN) as run:
                    triage(run)
        except (cf.UnknownOutcomeError, cf.UnavailableError):
            return AGAIN
        except cf.FrozenError:
            return REVIEW
        return DONE

    def judged(self, code: int, story: str) -> list[str]:
        """Return what does not hold at the end."""
        tickets = Counter(each["title"] for each in shops.tickets(self.place, self.tenant))
        checks = {f"no ticket twice: {tickets}": all(count == 1 for count in tickets.values())}
        if code == REVIEW:
            checks["only what cannot be settled needs a person"] = (
                self.level is not Level.DEDUPLICATING
            )
        else:
            checks[f"it ends: {code}"] = code == DONE
            checks[f"each ticket once: {tickets}"] = tickets == Counter(TITLES)
            with cf.open(self.folder / "project", effects=cf.Effects()) as keeper:
                try:
                    audit.audit(keeper.parts, RunId(RUN))
                except cf.CounterfoilError as error:
                    checks[f"the audit passes: {error!r}"] = False
        return [f"{story}: not so: {what}" for what, holds in checks.items() if not holds]


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


def warm_up(story: Story) -> None:
    """Let the SDK build here what each child would build again; no thread is left."""
    open_mcp(story.server, now_ms=now_ms).close()


def struck(given: list[str], first: int, stride: int) -> dict[str, Any]:
    """Kill workers at boundaries from the first one in strides, and report."""
    fate = Fate()
    warm_up(Story(given, BOUNDARIES_MAX + 1))
    rehearsal = Story(given, 0)
    reader, writer = os.pipe()

    def rehearse() -> int:
        code = rehearsal.live(fate)
        os.write(writer, json.dumps(fate.calls).encode())
        return code

    faults = rehearsal.judged(forked(rehearse), "unharmed")
    calls: list[str] = json.loads(os.read(reader, 1_000_000))
    kills = reviews = 0
    for number in range(first, BOUNDARIES_MAX, stride):
        told = Story(given, number + 1)
        code = forked(lambda told=told, number=number: told.live(Reaper(number)))
        if code != KILLED:
            faults += told.judged(code, f"not killed, for want of a boundary {number}")
            break
        kills += 1
        for _ in range(SESSIONS_MAX):
            code = forked(lambda told=told: told.live(Fate()))
            if code != AGAIN:
                break
            select.select([], [], [], PAUSE_S)
        reviews += code == REVIEW
        faults += told.judged(code, f"killed before boundary {number}")
    return {"calls": calls, "kills": kills, "reviews": reviews, "faults": faults}


def main(given: list[str], told: list[str]) -> None:
    reports = {each: struck([*given, each], first, len(told)) for first, each in enumerate(told)}
    sys.stdout.write(json.dumps(reports))


if __name__ == "__main__":
    import counterfoil.adapters.mcp.adapter

    main(sys.argv[1:5], sys.argv[5:])
