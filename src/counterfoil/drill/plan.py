"""What a drill is asked to do, and every rate, share and bound that follows from it."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from counterfoil.core.errors import ConfigError
from counterfoil.places import HEADS_SCHEMES, STORE_SCHEMES
from counterfoil.urls import Scheme, scheme_of, shown

SQLITE, POSTGRESQL, ETCD = "sqlite", "postgresql", "etcd"
STORE_WORDS = (SQLITE, POSTGRESQL)
HEADS_WORDS = (SQLITE, POSTGRESQL, ETCD)
"""In place of a URL: a throwaway one on this machine."""

STEPS = 6
"""Write steps of a run: two of each kind, so that a lease spans several."""

CONCURRENCY = 8
OPEN_RUNS = 3
"""Runs that one worker may have at once, and runs that are open for each worker: with
others killed and asleep there is still room, so that a takeover never waits for it."""

CALL_SHARE = 3
"""A call may take this part of a lease: then one that hangs is noticed within it."""

SETTLE_LEASES = 15
SETTLE_SECONDS = 45
"""How long runs may take to complete once nobody is killed any more: leases end, failed
programs pause for seconds, and a busy machine takes its time."""


class Sabotage(StrEnum):
    """What the target may be made to do wrong, to see the drill find it."""

    KEYS = "keys"
    FENCES = "fences"
    EFFECTS = "effects"


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What a drill is asked to do.

    Attributes:
        store: Where checkpoints lie: a URL, or a word of `STORE_WORDS`.
        heads: Where heads lie: a URL, or a word of `HEADS_WORDS`.
        workers: Worker processes, 1 or more.
        seconds: How long workers are killed and paused.
        seed: Of every draw; the same seed draws the same faults.
        lease_ms: Term of a lease.
        sabotage: What the target does wrong; None for nothing.
    """

    store: str
    heads: str
    workers: int
    seconds: int
    seed: int
    lease_ms: int
    sabotage: Sabotage | None = None

    @property
    def call_ms(self) -> int:
        """Longest call of the target."""
        return self.lease_ms // CALL_SHARE

    @property
    def late_ms(self) -> int:
        """How long a late arrival is held back: longer than the lease of who sent it."""
        return self.lease_ms * 3 // 2

    @property
    def open_runs_max(self) -> int:
        """Runs that are open at once."""
        return self.workers * OPEN_RUNS

    @property
    def settle_seconds(self) -> float:
        """How long runs may take to complete once nobody is killed any more."""
        return SETTLE_SECONDS + SETTLE_LEASES * self.lease_ms / 1000

    @property
    def command(self) -> str:
        """The command that repeats the drill; it shows no password."""
        words = (
            f"counterfoil drill --store {shown(self.store)} --heads {shown(self.heads)}"
            f" --workers {self.workers} --seconds {self.seconds} --seed {self.seed}"
            f" --lease-ms {self.lease_ms}"
        )
        return f"{words} --sabotage {self.sabotage}" if self.sabotage else words


def make_plan(
    *,
    store: str,
    heads: str,
    workers: int,
    seconds: int,
    seed: int,
    lease_ms: int,
    sabotage: str | None = None,
) -> Plan:
    """Return a plan that can be carried out; numbers are as `Plan` says.

    Raises:
        ConfigError: A place is neither a word nor a URL that several programs can share,
            or there is no such sabotage.
    """
    for name, url, words, schemes in (
        ("--store", store, STORE_WORDS, STORE_SCHEMES),
        ("--heads", heads, HEADS_WORDS, HEADS_SCHEMES),
    ):
        if url not in words:
            scheme_of(url, name, tuple(each for each in schemes if each is not Scheme.MEMORY))
    known = tuple(Sabotage)
    if sabotage is not None and sabotage not in known:
        raise ConfigError(f"--sabotage {sabotage!r:.40} is none of {', '.join(known)}")
    return Plan(
        store=_absolute(store),
        heads=_absolute(heads),
        workers=workers,
        seconds=seconds,
        seed=seed,
        lease_ms=lease_ms,
        sabotage=Sabotage(sabotage) if sabotage else None,
    )


def _absolute(url: str) -> str:
    """Return a URL that means the same in every folder."""
    scheme, colon, place = url.partition(":")
    if scheme != Scheme.SQLITE or not colon:
        return url
    return f"{scheme}:{Path(place).expanduser().absolute()}"
