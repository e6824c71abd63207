"""Who held which run under which lease, and how long a run waited after its holder was struck."""

from collections import Counter
from dataclasses import dataclass, field

from counterfoil.drill.faults import Action
from counterfoil.drill.lines import FromCrew, Gave, Refused, Told, Took

REASONS_MAX = 5
ALARMS = frozenset({"refused", "broken", "parked", "waits", "ended with", "cannot look for work"})
"""Events of workers that no kill and no pause explains."""


@dataclass(kw_only=True, slots=True)
class _Holding:
    pid: int
    lease_version: int
    since_ns: int
    was_given_back: bool = False


@dataclass(kw_only=True, slots=True)
class Chronicle:
    """What was heard of the workers so far.

    Attributes:
        strikes: Faults so far.
        takeovers: Runs that another worker claimed from a holder that had not let go.
        waits_ms: From a strike at a holder to the next claim of its run, by what struck it.
        stale_commits: Commits that were refused to a worker whose lease was another's.
        told: Events of workers, counted.
        alarms: What no kill and no pause explains; the first ones alone.
    """

    strikes: Counter[Action] = field(default_factory=Counter[Action])
    takeovers: int = 0
    waits_ms: dict[Action, list[float]] = field(default_factory=dict[Action, list[float]])
    stale_commits: int = 0
    told: Counter[str] = field(default_factory=Counter[str])
    alarms: list[str] = field(default_factory=list[str])
    _held: dict[str, _Holding] = field(default_factory=dict[str, _Holding])
    _struck: dict[int, tuple[Action, int]] = field(default_factory=dict[int, tuple[Action, int]])

    def strike(self, pid: int, action: Action, at_ns: int) -> None:
        """Note that a worker was killed or paused."""
        self.strikes[action] += 1
        self._struck[pid] = (action, at_ns)

    def hear(self, line: FromCrew) -> None:
        """Note what a worker tells."""
        match line:
            case Took():
                self._take(line)
            case Gave():
                held = self._held.get(line.run_id)
                if held is not None and held.lease_version == line.lease_version:
                    held.was_given_back = True
            case Refused():
                self.stale_commits += 1
            case Told():
                self._note(line)
            case _:
                pass

    def _take(self, line: Took) -> None:
        """Note a claim; a worker that was stopped in between may tell it too late to matter."""
        before = self._held.get(line.run_id)
        if before is not None and before.lease_version >= line.lease_version:
            return
        self._held[line.run_id] = _Holding(
            pid=line.pid, lease_version=line.lease_version, since_ns=line.at_ns
        )
        if before is None or before.was_given_back or before.pid == line.pid:
            return
        self.takeovers += 1
        if line.lease_version > before.lease_version + 1:
            return  # somebody claimed it in between, and was struck before it could tell
        struck = self._struck.get(before.pid)
        if struck is not None and struck[1] >= before.since_ns:
            action, at_ns = struck
            self.waits_ms.setdefault(action, []).append((line.at_ns - at_ns) / 1e6)

    def _note(self, line: Told) -> None:
        self.told[line.event] += 1
        is_alarm = any(line.event.startswith(word) for word in ALARMS)
        if is_alarm and len(self.alarms) < REASONS_MAX:
            self.alarms.append(" ".join(f"{line.event} {line.run_id} {line.reason}".split()))
