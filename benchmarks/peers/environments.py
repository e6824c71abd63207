"""Environments of peers: each its own, with pinned versions and hashes, made when missing."""

import hashlib
import subprocess
import sys
from pathlib import Path

from benchmarks.peers.sides import Keeps, Side

ROOT = Path(__file__).resolve().parents[2]
REQUIREMENTS = Path(__file__).parent / "requirements"
ENVIRONMENTS = ROOT / ".cache" / "peers"
RESTATE = ROOT / ".cache" / "restate"
INSTALL_SECONDS_MAX = 600
STAMP = ".installed"


class InstallError(Exception):
    """A peer cannot be installed here; the message says why."""


def install(side: Side) -> Path:
    """Return the Python that runs a side's program, installed if it is missing.

    Raises:
        InstallError: It cannot be had.
    """
    if not side.environment:
        return Path(sys.executable)
    if Keeps.RESTATE in side.keeps:
        _run(["bash", ROOT / "scripts/install-restate", sys.executable, RESTATE])
    folder = ENVIRONMENTS / side.environment
    python = folder / "bin" / "python"
    pins = REQUIREMENTS / f"{side.environment}.txt"
    wanted = hashlib.sha256(pins.read_bytes()).hexdigest()
    stamp = folder / STAMP
    if stamp.exists() and stamp.read_text(encoding="ascii") == wanted and python.exists():
        return python
    _run(["bash", ROOT / "scripts/make-venv", folder])
    _run(
        [
            python,
            *["-m", "pip", "install", "--quiet", "--disable-pip-version-check"],
            "--require-hashes",
            "-r",
            pins,
        ]
    )
    stamp.write_text(wanted, encoding="ascii")
    return python


def version_of(side: Side) -> str:
    """Return the version of a side's package, as it is pinned; empty for none."""
    pins = REQUIREMENTS / f"{side.environment}.txt"
    if not side.package or not pins.exists():
        return ""
    for line in pins.read_text(encoding="utf-8").splitlines():
        name, _, rest = line.partition("==")
        if name.strip() == side.package:
            return rest.split()[0]
    return ""


def _run(words: list[object]) -> None:
    command = [str(word) for word in words]
    try:
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=INSTALL_SECONDS_MAX
        )
    except subprocess.TimeoutExpired as error:
        raise InstallError(f"{command[0]} took more than {INSTALL_SECONDS_MAX} s") from error
    except OSError as error:
        raise InstallError(f"{command[0]}: {error.strerror}") from error
    if done.returncode != 0:
        raise InstallError(" ".join(done.stderr.split())[-400:] or f"{command[0]} failed")
