"""Servers crash, lose their quorum and go out of reach in the middle of runs.

A session may end with an error that says so, and with no other. What comes after it
completes the run, with every effect once. The targets here dedupe nothing by themselves,
so that a call that is made twice counts twice.
"""

import select
import threading
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import pytest

from counterfoil.core.errors import (
    CounterfoilError,
    LostRaceError,
    UnavailableError,
    UnknownOutcomeError,
)
from counterfoil.core.words import Level
from counterfoil.engine.clock import SystemClock
from counterfoil.keeper import Keeper
from counterfoil.local.etcd import LocalEtcd
from counterfoil.local.postgres import LocalPostgres
from counterfoil.stores import postgres_pool
from counterfoil.stores.etcd import Patience
from counterfoil.testing.mortal import Fate, mortal
from tests.support.outages import (
    HALF_ANSWER,
    HALF_REQUEST,
    LOST_ANSWER,
    LOST_REQUEST,
    Cut,
    Network,
)
from tests.support.pairs import EtcdPlace, Kind, Pair, has_completed, works
from tests.support.postgres import fresh_database
from tests.support.stages import Form, PlayStage, shop_stage

pytest_plugins = ["tests.support.postgres", "tests.support.etcd"]

EAGER = Form(merges=False)
DONE = ("A-7", "B-9")
SESSIONS_MAX = 4
IN_FLIGHT_MS = 1_000
HURRY = Patience(connect=0.5, ask=0.5, act=1.0, bound=1.0)
POOL_SECONDS = 0.3
"""In place of five: how long a port waits for a server that may be starting again."""

OUTAGES = (LostRaceError, UnavailableError, UnknownOutcomeError)
"""What a session may say of a server or a network. Anything else fails a test."""

T = TypeVar("T")
Moment = Callable[[int, str], object]
"""What is told the number and the name of each call."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Started:
    """Servers for a pair."""

    urls: tuple[str, str]
    nodes: LocalEtcd | None = None

    def databases(self) -> tuple[str, str]:
        return self.urls

    def etcd(self) -> LocalEtcd:
        assert self.nodes is not None
        return self.nodes


@pytest.fixture(scope="module")
def databases(postgres: LocalPostgres) -> tuple[str, str]:
    """Two databases, in which each run has schemas of its own."""
    return fresh_database(postgres), fresh_database(postgres)


@pytest.fixture(scope="module")
def three() -> Generator[LocalEtcd]:
    with LocalEtcd(3) as server:
        yield server


@pytest.fixture
def cluster(three: LocalEtcd) -> Generator[LocalEtcd]:
    """Three nodes, all of which run before the test and after it."""
    yield three
    three.start()


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_pool, "WAIT_SECONDS", POOL_SECONDS)


class Meddling(Fate):
    """Lets something happen right before or right after calls."""

    def __init__(
        self,
        before: Moment = lambda *_: None,
        after: Moment = lambda *_: None,
    ) -> None:
        super().__init__()
        self._before, self._after = before, after

    def call(self, name: str, act: Callable[[], T]) -> T:
        number = len(self.calls)
        self._before(number, name)
        try:
            return super().call(name, act)
        finally:
            self._after(number, name)


def at_number(wanted: int, act: Callable[[], object]) -> Moment:
    """Return what acts at the call with this number, from 0."""
    return lambda number, _: act() if number == wanted else None


def first(wanted: str, act: Callable[[], object]) -> Moment:
    """Return what acts at the first call of this name."""
    left = [act]
    return lambda _, name: left.pop()() if name == wanted and left else None


def nothing() -> None:
    """Mend nothing."""


def survives(
    pair: Pair, stage: PlayStage, fate: Fate, heal: Callable[[], object] = nothing
) -> list[CounterfoilError]:
    """Let sessions follow each other until the run is done; return how they ended.

    Only the first one has a fate; then the world is mended, and leases are over.
    """
    errors: list[CounterfoilError] = []
    for session in range(SESSIONS_MAX):
        try:
            works(pair, stage, fate if session == 0 else None)
        except OUTAGES as error:
            errors.append(error)
        heal()
        pair.end_leases()
        stage.wait()
        if len(errors) == session:
            break
    assert stage.effects() == DONE
    assert has_completed(stage)
    return errors


@contextmanager
def staged(pair: Pair) -> Generator[PlayStage]:
    """Return a shop that can be asked by key, and does again what it is told again."""
    made = shop_stage(pair, level=Level.QUERYABLE, in_flight_ms=IN_FLIGHT_MS, form=EAGER)
    with made as stage:
        yield stage


def calls_of(pair: Pair) -> list[str]:
    """Return the calls of a session that nothing befalls."""
    fate = Fate()
    with staged(pair) as stage:
        assert survives(pair, stage, fate) == []
    return fate.calls


def where(calls: list[str], *names: str) -> list[int]:
    """Return the numbers of calls with one of these beginnings."""
    return [number for number, name in enumerate(calls) if name.startswith(names)]


# ---------------------------------------------------------------- PostgreSQL crashes


@contextmanager
def running_again(server: LocalPostgres) -> Generator[None]:
    try:
        yield
    finally:
        server.start()


@pytest.mark.parametrize("kind", [Kind.JOINT, Kind.APART], ids=lambda kind: kind.value)
def test_a_crash_between_any_two_calls_is_survived(
    kind: Kind, postgres: LocalPostgres, databases: tuple[str, str], tmp_path: Path
) -> None:
    pair = Pair(kind, tmp_path, Started(urls=databases))

    def crash() -> None:
        postgres.crash()
        postgres.start()

    with running_again(postgres):
        for at in range(len(calls_of(pair))):
            with staged(pair) as stage:
                survives(pair, stage, Meddling(at_number(at, crash)))


@pytest.mark.parametrize("kind", [Kind.JOINT, Kind.APART, Kind.MIXED], ids=lambda k: k.value)
def test_a_server_that_stays_down_ends_a_session_before_it_acts_unrecorded(
    kind: Kind, postgres: LocalPostgres, databases: tuple[str, str], tmp_path: Path
) -> None:
    pair = Pair(kind, tmp_path, Started(urls=databases))
    with running_again(postgres):
        commits = where(calls_of(pair), "heads.advance", "joint.commit")
        for at in commits[:4]:
            with staged(pair) as stage:
                recorded = (commits.index(at) + 1) // 2
                fate = Meddling(at_number(at, postgres.crash))
                with pytest.raises((UnavailableError, UnknownOutcomeError)):
                    works(pair, stage, fate)
                assert len(stage.effects()) == recorded
                assert "adapter.execute" not in fate.calls[at:]
                postgres.start()
                pair.end_leases()
                stage.wait()
                survives(pair, stage, Fate())


INSTANTS = (0.0, 0.01, 0.02, 0.04, 0.06, 0.09, 0.13, 0.18)
"""Seconds after a session began."""


def test_a_crash_at_any_instant_is_survived(
    postgres: LocalPostgres, databases: tuple[str, str], tmp_path: Path
) -> None:
    pair = Pair(Kind.JOINT, tmp_path, Started(urls=databases))

    def crash_after(seconds: float) -> None:
        select.select([], [], [], seconds)
        postgres.crash()
        postgres.start()

    with running_again(postgres):
        for seconds in INSTANTS:
            with staged(pair) as stage:
                crash = threading.Thread(target=crash_after, args=(seconds,))
                crash.start()
                survives(pair, stage, Fate(), heal=crash.join)


# ---------------------------------------------------------------- etcd


def test_a_leader_that_dies_before_any_commit_or_effect_is_survived(
    cluster: LocalEtcd, databases: tuple[str, str], tmp_path: Path
) -> None:
    pair = Pair(Kind.ETCD, tmp_path, Started(urls=databases, nodes=cluster))
    pair.patience = HURRY
    killed: list[int] = []

    def kill() -> None:
        killed.append(cluster.leader())
        cluster.kill(killed[0])

    for at in where(calls_of(pair), "heads.advance", "adapter.execute")[:4]:
        with staged(pair) as stage:
            survives(pair, stage, Meddling(at_number(at, kill)), cluster.start)
        assert killed.pop() in range(3)


@pytest.mark.parametrize(
    ("call", "recorded"),
    [
        pytest.param("heads.advance", 0, id="before an intent is durable"),
        pytest.param("adapter.execute", 1, id="when an intent is durable"),
    ],
)
def test_without_a_quorum_nothing_is_done_that_is_not_on_record(
    call: str, recorded: int, cluster: LocalEtcd, databases: tuple[str, str], tmp_path: Path
) -> None:
    pair = Pair(Kind.ETCD, tmp_path, Started(urls=databases, nodes=cluster))
    pair.patience = HURRY

    def kill_two() -> None:
        cluster.kill(0)
        cluster.kill(1)

    with staged(pair) as stage:
        with pytest.raises((UnavailableError, UnknownOutcomeError)):
            works(pair, stage, Meddling(first(call, kill_two)))
        assert len(stage.effects()) == recorded
        with pytest.raises(UnavailableError):
            works(pair, stage)
        assert len(stage.effects()) == recorded
        cluster.restart(0)
        pair.end_leases()
        stage.wait()
        survives(pair, stage, Fate())


# ---------------------------------------------------------------- networks


@contextmanager
def behind(pair: Pair, servers: tuple[int, int]) -> Generator[dict[str, Network]]:
    """Put a network of its own before each place of a pair; one place has one."""
    with ExitStack() as stack:
        store = stack.enter_context(Network(servers[0]))
        heads = store if pair.kind is Kind.JOINT else stack.enter_context(Network(servers[1]))
        pair.store_way, pair.heads_way = store.through, heads.through
        yield {"store": store, "heads": heads, "joint": store}


CUTS = {
    "the request is lost": LOST_REQUEST,
    "half of the request is lost": HALF_REQUEST,
    "the answer is lost": LOST_ANSWER,
    "half of the answer is lost": HALF_ANSWER,
}
PLACES = ("store.", "heads.", "joint.")


@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)
@pytest.mark.parametrize("kind", Kind, ids=lambda kind: kind.value)
def test_a_connection_that_breaks_in_any_call_is_survived(
    kind: Kind,
    cut: Cut,
    postgres: LocalPostgres,
    etcd: LocalEtcd,
    databases: tuple[str, str],
    tmp_path: Path,
) -> None:
    pair = Pair(kind, tmp_path, Started(urls=databases, nodes=etcd))
    calls = calls_of(pair)
    with behind(pair, (postgres.port, heads_port(pair, postgres, etcd))) as networks:
        for at in remote(pair, calls):
            network = networks[calls[at].partition(".")[0]]
            before = network.cuts
            with staged(pair) as stage:
                fate = Meddling(at_number(at, lambda network=network: network.cut(cut)))
                survives(pair, stage, fate, network.heal)
            assert network.cuts == before + 1


def remote(pair: Pair, calls: list[str]) -> list[int]:
    """Return the numbers of calls that go over a network."""
    places = ("heads.",) if pair.kind is Kind.MIXED else PLACES
    return where(calls, *places)


def heads_port(pair: Pair, postgres: LocalPostgres, etcd: LocalEtcd) -> int:
    if isinstance(pair.heads_place, EtcdPlace):
        return int(etcd.endpoints[0].rpartition(":")[2])
    return postgres.port


@pytest.mark.parametrize("how", [Network.refuse, Network.stall], ids=["refuses", "stalls"])
@pytest.mark.parametrize(
    ("kind", "place"),
    [
        pytest.param(Kind.JOINT, "joint", id="one PostgreSQL database"),
        pytest.param(Kind.APART, "store", id="checkpoints in PostgreSQL"),
        pytest.param(Kind.APART, "heads", id="heads in PostgreSQL"),
        pytest.param(Kind.ETCD, "heads", id="heads in etcd"),
    ],
)
def test_while_a_place_is_out_of_reach_nothing_is_done_that_is_not_on_record(
    kind: Kind,
    place: str,
    how: Callable[[Network], None],
    postgres: LocalPostgres,
    etcd: LocalEtcd,
    databases: tuple[str, str],
    tmp_path: Path,
) -> None:
    urls = tuple(f"{url}?timeout=1" for url in databases)
    pair = Pair(kind, tmp_path, Started(urls=(urls[0], urls[1]), nodes=etcd))
    pair.patience = HURRY
    with behind(pair, (postgres.port, heads_port(pair, postgres, etcd))) as networks:
        network = networks[place]
        for call, recorded in ((FIRST_CALL[place], 0), ("adapter.execute", 1)):
            with staged(pair) as stage:
                with pytest.raises((UnavailableError, UnknownOutcomeError)):
                    works(pair, stage, Meddling(first(call, lambda: how(network))))
                assert len(stage.effects()) == recorded
                network.heal()
                pair.end_leases()
                stage.wait()
                survives(pair, stage, Fate())


FIRST_CALL = {"store": "store.put", "heads": "heads.advance", "joint": "joint.commit"}
"""That makes an intent durable, or the very first checkpoint."""


# ---------------------------------------------------------------- terms

TTL_MS, CALL_MS = 1_200, 300
MARGIN_MS = 250
LATE_SECONDS = (TTL_MS - CALL_MS - MARGIN_MS) / 1_000 + 0.1
"""After which a call could outlast the lease."""


@contextmanager
def timed(pair: Pair) -> Generator["TimedStage"]:
    """Return a stage by the machine's own clock, whose workers renew by themselves."""
    with staged(pair) as stage:
        yield TimedStage(pair=pair, stage=stage)


@dataclass(frozen=True, kw_only=True, slots=True)
class TimedStage:
    """A stage whose sessions are short of time."""

    pair: Pair
    stage: PlayStage

    def works(self, fate: Fate, *, wait_ms: int = 0) -> None:
        parts = replace(
            self.stage.parts(), clock=SystemClock(), ttl_ms=TTL_MS, runs_background=True
        )
        kinds = {name: replace(spec, call_ms=CALL_MS) for name, spec in parts.kinds.items()}
        try:
            with Keeper(mortal(replace(parts, kinds=kinds), fate)).run(
                self.stage.task, self.stage.run_id, wait_ms=wait_ms
            ) as run:
                self.stage.program(run)
        finally:
            self.stage.close()


@pytest.mark.parametrize(
    "how", [Network.refuse, Network.stall], ids=["renewing is refused", "renewing stalls"]
)
@pytest.mark.parametrize("kind", [Kind.APART, Kind.ETCD], ids=lambda kind: kind.value)
def test_no_call_starts_that_could_outlast_a_lease_that_cannot_be_renewed(
    kind: Kind,
    how: Callable[[Network], None],
    postgres: LocalPostgres,
    etcd: LocalEtcd,
    databases: tuple[str, str],
    tmp_path: Path,
) -> None:
    urls = (databases[0], f"{databases[1]}?timeout=1")
    pair = Pair(kind, tmp_path, Started(urls=urls, nodes=etcd))
    pair.patience = HURRY
    with behind(pair, (postgres.port, heads_port(pair, postgres, etcd))) as networks:

        def lose_touch() -> None:
            how(networks["heads"])
            select.select([], [], [], LATE_SECONDS)

        with timed(pair) as scene:
            fate = Meddling(after=first("heads.advance", lose_touch))
            with pytest.raises(OUTAGES):
                scene.works(fate)
            assert "adapter.execute" not in fate.calls
            assert scene.stage.effects() == ()
            networks["heads"].heal()
            scene.works(Fate(), wait_ms=60_000)
            assert scene.stage.effects() == DONE


def test_a_worker_that_was_cut_off_past_its_lease_finds_the_run_taken(
    postgres: LocalPostgres, databases: tuple[str, str], tmp_path: Path
) -> None:
    pair = Pair(Kind.APART, tmp_path, Started(urls=databases))
    with behind(pair, (postgres.port, postgres.port)) as networks, timed(pair) as scene:

        def be_overtaken() -> None:
            networks["heads"].refuse()
            select.select([], [], [], TTL_MS / 1_000)
            networks["heads"].heal()
            successor = TimedStage(pair=pair, stage=replace(scene.stage, _opened=[]))
            successor.works(Fate(), wait_ms=60_000)
            assert scene.stage.effects() == DONE

        fate = Meddling(after=first("heads.advance", be_overtaken))
        with pytest.raises(LostRaceError):
            scene.works(fate)
        assert "adapter.execute" not in fate.calls
        assert scene.stage.effects() == DONE
