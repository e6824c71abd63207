"""What the figures were taken on."""

import os
import platform
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from benchmarks.peers.environments import ROOT, version_of
from benchmarks.peers.sides import SIDES
from counterfoil import __version__
from counterfoil.local.postgres import find_binaries

SYNCS = 200
SYNC_BYTES = 1024
MOUNTS = Path("/proc/mounts")


def machine(folder: Path) -> dict[str, str]:
    """Return the processor, memory, disks and system, in words."""
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    servers = Path(tempfile.gettempdir())
    return {
        "processor": f"{os.cpu_count()} cores, {_processor()}",
        "memory": f"{memory_gib:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "disk": f"{_file_system(folder)}, fdatasync of 1 KiB {_sync_ms(folder):.2f} ms",
        "servers' disk": f"{_file_system(servers)}, fdatasync of 1 KiB {_sync_ms(servers):.2f} ms",
    }


def versions() -> dict[str, str]:
    """Return the version of every side and server that has one."""
    found = {"counterfoil": _own()}
    for side in SIDES:
        if side.package:
            found[side.package] = version_of(side)
    found["restate-server"] = (ROOT / "scripts/restate-version").read_text().strip()
    found["postgresql"] = _said([str(find_binaries() / "postgres"), "--version"])
    found["etcd"] = _said(["etcd", "--version"])
    temporal = ROOT / ".cache/peers/temporal/bin/temporal"
    if temporal.exists():
        found["temporal-server"] = _said([str(temporal), "--version"])
    return found


def _own() -> str:
    commit = _said(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"])
    return f"{__version__} {commit}".strip()


def _said(words: list[str]) -> str:
    """Return the first line that a program prints; empty if it is not there."""
    try:
        done = subprocess.run(words, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.partition("\n")[0].strip()


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _file_system(folder: Path) -> str:
    """Return the kind of file system that a folder lies on."""
    place, best = folder.resolve(), ("", "unknown")
    for line in MOUNTS.read_text(encoding="utf-8").splitlines():
        _, mounted, kind, *_ = line.split()
        if place.is_relative_to(mounted) and len(mounted) >= len(best[0]):
            best = (mounted, kind)
    return best[1]


def _sync_ms(folder: Path) -> float:
    times = []
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        for _ in range(SYNCS):
            began = time.perf_counter()
            file.write(b"x" * SYNC_BYTES)
            file.flush()
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - began)
    return statistics.median(times) * 1e3
