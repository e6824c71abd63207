"""Who holds a lease on this machine, and whether that process is known to have died.

A holder's name says where it runs: boot, process namespace, process id and start time.
A holder that is seen to be gone cannot act any more, so its lease need not be waited
for. One that runs elsewhere, or cannot be seen, counts as alive.
"""

import os
import socket
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
START_TIME_FIELD = 19
"""Of /proc/PID/stat, counted behind the command's closing bracket (proc(5), field 22)."""

DEAD_STATES = ("Z", "X")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Place:
    boot: str
    namespace: str


def this_holder() -> str:
    """Return the name of this process as a holder: unique among all that ever ran."""
    place = _this_place()
    pid = os.getpid()
    start = _start_time(pid) or "0"
    return f"{socket.gethostname()[:64]}/{place.boot}/{place.namespace}/{pid}/{start}"


def is_dead(holder: str) -> bool:
    """Return whether `holder` ran here and is gone; False whenever that is not certain."""
    parts = holder.split("/")
    if len(parts) != 5 or not parts[3].isdigit():
        return False
    _, boot, namespace, pid, start = parts
    here = _this_place()
    if not here.boot or (boot, namespace) != (here.boot, here.namespace) or start == "0":
        return False
    return _start_time(int(pid)) != start


def _this_place() -> _Place:
    try:
        boot = (PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        namespace = str((PROC / "self/ns/pid").readlink()).strip("pid:[]")
    except OSError:
        return _Place(boot="", namespace="")
    return _Place(boot=boot, namespace=namespace)


def _start_time(pid: int) -> str | None:
    """Return when a process started, in clock ticks since boot; None when it is gone."""
    try:
        stat = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    if len(fields) <= START_TIME_FIELD or fields[0] in DEAD_STATES:
        return None
    return fields[START_TIME_FIELD]
