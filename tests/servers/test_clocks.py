"""Wrong clocks, of workers and of servers: a lease is over when its register says so.

One thing differs from the field case: there a renewal also raises the lease version.
Here it moves the expiry alone, so that a holder's commits and renewals never meet.
"""

import json
import tempfile
from collections.abc import Callable, Generator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from counterfoil.core.errors import LeaseLostError, UnavailableError, UnknownOutcomeError
from counterfoil.core.words import Digest
from counterfoil.engine.clock import SystemClock
from counterfoil.keeper import Keeper
from counterfoil.local.etcd import LocalEtcd
from counterfoil.local.postgres import LocalPostgres
from counterfoil.ports import HeadRegister
from counterfoil.stores import etcd as etcd_stores
from counterfoil.stores import postgres as postgres_stores
from counterfoil.testing.mortal import Fate, mortal
from tests.servers.conftest import APART, ETCD, JOINT, MIXED, PAIRS, STORY_TERMS, Start, Tell, Urls
from tests.support import wrong_clocks
from tests.support.etcd import fresh_prefix
from tests.support.nursery import DONE, LOST
from tests.support.postgres import fresh_database
from tests.support.rivals import COMMITS
from tests.support.workshop import ARRIVED, CHANGED, RUN_ID, TASK, fresh_workshop, order_only

pytest_plugins = ["tests.support.etcd", "tests.support.postgres"]

_T = TypeVar("_T")
CLOCKS = "tests.support.wrong_clocks"
HOUR = str(wrong_clocks.HOUR_S)
LONG_MS = 600_000
"""Longer than any server takes to come back, on however busy a machine."""

SHORT_MS = 1_000
SEEDS = tuple(str(seed) for seed in range(12))
FIRST = Digest("0" * 64)


@pytest.fixture(scope="module")
def postgres(fragile: LocalPostgres) -> LocalPostgres:
    """The server that is stopped here: one that holds little is soon back."""
    return fragile


def pairs(row: str, names: tuple[str, ...] = PAIRS) -> pytest.MarkDecorator:
    params = [pytest.param(pair, id=f"{row} {pair}") for pair in names]
    return pytest.mark.parametrize("pair", params)


def once(told: dict[str, Any]) -> bool:
    return (told["arrived"], told["changed"]) == (list(ARRIVED), list(CHANGED))


# ---------------------------------------------------------------- workers


@pairs("C11 ahead or behind")
def test_a_worker_with_a_wrong_clock_cannot_take_a_lease_that_stands(pair: str, tell: Tell) -> None:
    for each in tell("ahead", pair, HOUR, f"-{HOUR}", module=CLOCKS, **STORY_TERMS[pair]):
        assert once(each)
        assert (each["codes"], each["lease"]) == ([DONE, LOST], 1)
        assert "'holder' holds the run under lease 1" in each["words"][1][0]


@pairs("C11 behind or ahead")
def test_a_worker_with_a_wrong_clock_takes_over_when_the_register_says_so(
    pair: str, tell: Tell
) -> None:
    for each in tell("behind", pair, f"-{HOUR}", HOUR, module=CLOCKS, **STORY_TERMS[pair]):
        assert once(each)
        assert (each["codes"], each["lease"]) == ([DONE], 2)


@pairs("C11 the holder")
def test_the_lease_of_a_holder_with_a_wrong_clock_ends_like_any_other(
    pair: str, tell: Tell
) -> None:
    for each in tell("holding", pair, HOUR, f"-{HOUR}", module=CLOCKS, **STORY_TERMS[pair]):
        assert once(each)
        assert (each["codes"], each["lease"]) == ([DONE], 2)


# ---------------------------------------------------------------- holders


class Wall:
    """A wall clock that tests move."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return SystemClock().now_ms() + self.ahead_ms


Opened = tuple[HeadRegister, Wall]


@pytest.fixture(params=["PostgreSQL", "etcd"])
def register(
    request: pytest.FixtureRequest, postgres: LocalPostgres, etcd: LocalEtcd
) -> Generator[Opened]:
    """A register on a server, and the wall clock of the machine that uses it."""
    wall = Wall()
    if request.param == "etcd":
        url = etcd.url(fresh_prefix())
        heads: HeadRegister = etcd_stores.open_heads(url, create=True, now_ms=wall.now_ms)
    else:
        heads = postgres_stores.open_heads(fresh_database(postgres), create=True)
    yield heads, wall
    heads.close()


@pytest.mark.parametrize(
    "moved_ms",
    [
        pytest.param(0, id="C11 twice at once"),
        pytest.param(-300_000, id="C11 five minutes back"),
        pytest.param(300_000, id="C11 five minutes on"),
    ],
)
def test_a_renewal_never_shortens_a_lease(register: Opened, moved_ms: int) -> None:
    heads, wall = register
    held = heads.create(RUN_ID, FIRST, "holder", "nonce", LONG_MS)
    ends_ms = [held.expires_at_ms]
    for term_ms in (SHORT_MS, SHORT_MS, LONG_MS, LONG_MS, SHORT_MS):
        held = heads.renew(held, term_ms)
        wall.ahead_ms = moved_ms
        ends_ms.append(held.expires_at_ms)
    present = heads.read(RUN_ID)
    assert present is not None
    assert ends_ms == sorted(ends_ms)
    assert (present.lease_version, present.nonce) == (1, "nonce")
    assert present.expires_at_ms == ends_ms[-1]
    with pytest.raises(LeaseLostError):
        heads.acquire(present, "rival", "another", LONG_MS)


class SlowClock(SystemClock):
    """Clocks of a machine on which a term passes between two instructions."""

    def __init__(self) -> None:
        self.passed_ms = 0

    def monotonic_ms(self) -> int:
        return super().monotonic_ms() + self.passed_ms


class Cut(Fate):
    """Lets a term pass and the register vanish once an intent is durable."""

    def __init__(self, cut: Callable[[], object]) -> None:
        super().__init__()
        self._cut = cut

    def call(self, name: str, act: Callable[[], _T]) -> _T:
        answer = super().call(name, act)
        if name in COMMITS and "adapter.take" in self.calls and self._cut:
            self._cut()
        return answer


@pairs("C11 it stops by itself", (APART, ETCD))
def test_a_holder_stops_by_its_own_clock_before_its_lease_is_over(
    pair: str, urls: Urls, postgres: LocalPostgres, etcd: LocalEtcd, tmp_path: Path
) -> None:
    clock = SlowClock()

    def cut() -> None:
        clock.passed_ms = LONG_MS
        if pair == ETCD:
            etcd.kill(0)
        else:
            postgres.crash()

    def mend() -> None:
        if pair == ETCD:
            etcd.restart(0)
        else:
            postgres.start()

    workshop = fresh_workshop(tmp_path, "cut", ttl_ms=LONG_MS, **urls(pair))
    fate = Cut(cut)
    parts = replace(workshop.parts(owner="holder", joins=False), clock=clock)
    with Keeper(parts):
        try:
            with (
                pytest.raises((UnavailableError, UnknownOutcomeError)),
                Keeper(mortal(parts, fate)).run(TASK, RUN_ID) as run,
            ):
                order_only(run)
        finally:
            mend()
        assert "heads.renew" in fate.calls
        assert "adapter.execute" not in fate.calls
        assert workshop.arrived() == ()
        head = parts.heads.read(RUN_ID)
        assert head is not None
        with pytest.raises(LeaseLostError, match="'holder' holds the run under lease 1"):
            parts.heads.acquire(head, "rival", "another", LONG_MS)


# ---------------------------------------------------------------- servers


@pytest.fixture(scope="module")
def warp_file() -> Generator[Path]:
    """A file with an offset in seconds; whoever runs the server can read it."""
    with tempfile.TemporaryDirectory(prefix="counterfoil-clock-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder) / "offset"
    wrong_clocks.sweep()


@pytest.fixture(scope="module")
def warped(warp_file: Path) -> Generator[LocalPostgres]:
    """A PostgreSQL whose clock goes by the offset in the file."""
    with ExitStack() as stack:
        with wrong_clocks.warped(warp_file):
            server = stack.enter_context(LocalPostgres())
        yield server


@pytest.mark.timeout(300)
@pairs("C11 the register's clock jumps", (JOINT, MIXED))
def test_a_clock_that_jumps_on_and_back_repeats_no_effect(
    pair: str,
    warped: LocalPostgres,
    warp_file: Path,
    start: Start,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heads = fresh_database(warped)
    fields = {"heads_url": heads, "ship_level": "transactional"}
    fields |= {"store_url": heads} if pair == JOINT else {}
    monkeypatch.setenv(wrong_clocks.WARP_FILE, str(warp_file))
    told = start(CLOCKS, "jumps", json.dumps(fields), *SEEDS)
    assert [fault for each in told for fault in each["faults"]] == []
    assert [each for each in told if each["is_overtaken"]] != []
