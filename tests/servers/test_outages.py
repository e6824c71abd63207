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

import pytest

from counterfoil.core.errors import (
    LostRaceError,
    UnavailableError,
    UnknownOutcomeError,
)
from counterfoil.engine.clock import SystemClock
from counterfoil.keeper import Keeper
from counterfoil.local.etcd import LocalEtcd
from counterfoil.local.postgres import LocalPostgres
from counterfoil.stores import postgres_pool
from counterfoil.stores.etcd import Patience
from counterfoil.testing.mortal import Fate, mortal
from tests.support.meddling import (
    DONE,
    OUTAGES,
    Meddling,
    at_number,
    calls_of,
    first,
    staged,
    survives,
    where,
)
from tests.support.outages import (
    HALF_ANSWER,
    HALF_REQUEST,
    LOST_ANSWER,
    LOST_REQUEST,
    Cut,
    Network,
)
from tests.support.pairs import EtcdPlace, Kind, Pair, works
from tests.support.postgres import fresh_database
from tests.support.stages import PlayStage

pytest_plugins = ["tests.support.postgres", "tests.support.etcd"]

HURRY = Patience(connect=0.5, ask=0.5, act=1.0, bound=1.0)
IMPATIENT = "?timeout=1&connect_timeout=2"
POOL_SECONDS = 0.3
"""In place of five: how long a port waits for a server that may be starting again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ground:
    """Where pairs stand: servers of the session, each started when it is first asked for."""

    request: pytest.FixtureRequest
    folder: Path
    query: str = ""

    def pair(self, kind: Kind, *, query: str = "") -> Pair:
        """Return a fresh pair, whose clients are in a hurry where there is etcd."""
        pair = Pair(kind, self.folder, replace(self, query=query))
        pair.patience = HURRY
        return pair

    def databases(self) -> tuple[str, str]:
        store, heads = self.request.getfixturevalue("databases")
        return f"{store}{self.query}", f"{heads}{self.query}"

    def etcd(self) -> LocalEtcd:
        name = "cluster" if "cluster" in self.request.fixturenames else "etcd"
        server: LocalEtcd = self.request.getfixturevalue(name)
        return server

    def ports(self, pair: Pair) -> tuple[int, int]:
        """Return where the servers of a pair listen."""
        server: LocalPostgres = self.request.getfixturevalue("postgres")
        if isinstance(pair.heads_place, EtcdPlace):
            return server.port, int(self.etcd().endpoints[0].rpartition(":")[2])
        return server.port, server.port

    @contextmanager
    def behind(self, pair: Pair) -> Generator[dict[str, Network]]:
        """Put a network of its own before each place of a pair; one place has one."""
        store_port, heads_port = self.ports(pair)
        with ExitStack() as stack:
            store = heads = stack.enter_context(Network(store_port))
            if pair.kind is not Kind.JOINT:
                heads = stack.enter_context(Network(heads_port))
            pair.store_way, pair.heads_way = store.through, heads.through
            yield {"store": store, "heads": heads, "joint": store}


@pytest.fixture
def ground(request: pytest.FixtureRequest, tmp_path: Path) -> Ground:
    return Ground(request=request, folder=tmp_path)


@pytest.fixture(scope="module")
def postgres(fragile: LocalPostgres) -> LocalPostgres:
    """The server that is stopped here: one that holds little is soon back."""
    return fragile


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


# ---------------------------------------------------------------- PostgreSQL crashes


@contextmanager
def running_again(server: LocalPostgres) -> Generator[None]:
    try:
        yield
    finally:
        server.start()


EVERY = {Kind.JOINT: 1, Kind.APART: 3}
"""Of how many calls one is preceded by a crash: two databases are crashed as one is."""


@pytest.mark.parametrize("kind", EVERY, ids=lambda kind: kind.value)
def test_a_crash_between_any_two_calls_is_survived(
    kind: Kind, postgres: LocalPostgres, ground: Ground
) -> None:
    pair = ground.pair(kind)

    def crash() -> None:
        postgres.crash()
        postgres.start()

    with running_again(postgres):
        for at in range(0, len(calls_of(pair)), EVERY[kind]):
            with staged(pair) as stage:
                survives(pair, stage, Meddling(at_number(at, crash)))


@pytest.mark.parametrize("kind", [Kind.JOINT, Kind.APART, Kind.MIXED], ids=lambda k: k.value)
def test_a_server_that_stays_down_ends_a_session_before_it_acts_unrecorded(
    kind: Kind, postgres: LocalPostgres, ground: Ground
) -> None:
    pair = ground.pair(kind)
    with running_again(postgres):
        commits = where(calls_of(pair), "heads.advance", "joint.commit")
        for at in commits[:4]:
            with staged(pair) as stage:
                fate = Meddling(at_number(at, postgres.crash))
                with pytest.raises((UnavailableError, UnknownOutcomeError)):
                    works(pair, stage, fate)
                assert len(stage.effects()) == fate.calls[:at].count("adapter.execute")
                assert "adapter.execute" not in fate.calls[at:]
                postgres.start()
                pair.end_leases()
                stage.wait()
                survives(pair, stage, Fate())


INSTANTS = (0.0, 0.01, 0.02, 0.04, 0.06, 0.09, 0.13, 0.18)
"""Seconds after a session began."""


def test_a_crash_at_any_instant_is_survived(postgres: LocalPostgres, ground: Ground) -> None:
    pair = ground.pair(Kind.JOINT)

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
    cluster: LocalEtcd, ground: Ground
) -> None:
    pair = ground.pair(Kind.ETCD)
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
    call: str, recorded: int, cluster: LocalEtcd, ground: Ground
) -> None:
    pair = ground.pair(Kind.ETCD)

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


CUTS = {
    "the request is lost": LOST_REQUEST,
    "half of the request is lost": HALF_REQUEST,
    "the answer is lost": LOST_ANSWER,
    "half of the answer is lost": HALF_ANSWER,
}
WRITES = ("store.put", "store.mark", "joint.commit", "heads.create", "heads.advance")
PLACES = {
    Kind.JOINT: ("store.", "heads.", "joint."),
    Kind.APART: ("store.", "heads."),
    Kind.ETCD: ("heads.",),
}
"""What goes over a network that is cut; of a pair with etcd, what no other pair has."""


@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)
@pytest.mark.parametrize("kind", PLACES, ids=lambda kind: kind.value)
def test_a_connection_that_breaks_in_any_call_is_survived(
    kind: Kind, cut: Cut, ground: Ground
) -> None:
    pair = ground.pair(kind)
    calls = calls_of(pair)
    at_all = [
        number
        for number in where(calls, *PLACES[kind])
        if calls[number] in WRITES or cut.after_bytes == 0
    ]
    with ground.behind(pair) as networks:
        for at in at_all:
            network = networks[calls[at].partition(".")[0]]
            before = network.cuts
            with staged(pair) as stage:
                fate = Meddling(at_number(at, lambda network=network: network.cut(cut)))
                survives(pair, stage, fate, network.heal)
            assert network.cuts == before + 1


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
    ground: Ground,
) -> None:
    pair = ground.pair(kind, query=IMPATIENT)
    with ground.behind(pair) as networks:
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
    ground: Ground,
) -> None:
    pair = ground.pair(kind, query=IMPATIENT)
    with ground.behind(pair) as networks:

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


def test_a_worker_that_was_cut_off_past_its_lease_finds_the_run_taken(ground: Ground) -> None:
    pair = ground.pair(Kind.APART)
    with ground.behind(pair) as networks, timed(pair) as scene:

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
