"""Threats T4 to T6 on servers: what was restored from a backup, emptied or set up anew.

Whatever is brought back is genuine. Either it is refused by name, or what happens is what
`docs/explanation/protection.md` says; and no effect is repeated that it does not name.
"""

import shutil
import subprocess
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest

from counterfoil.core.errors import (
    FencedError,
    FormatError,
    FrozenError,
    HeadMissingError,
    IntegrityError,
    LostRaceError,
    RollbackError,
)
from counterfoil.core.words import Level
from counterfoil.local.etcd import LocalEtcd
from counterfoil.local.postgres import LocalPostgres
from counterfoil.testing.mortal import Death, Died, Fate
from tests.support.pairs import (
    SERVERS,
    DatabasePlace,
    EtcdPlace,
    Kind,
    Pair,
    Place,
    has_completed,
    works,
)
from tests.support.postgres import execute, fresh_database
from tests.support.stages import Form, PlayStage, files_stage, sandbox_stage, shop_stage

pytest_plugins = ["tests.support.postgres", "tests.support.etcd"]

EAGER = Form(merges=False)
MARKED = Form(merges=False, marks=True)
MERGED = Form(merges=True)
FORMS = (EAGER, MARKED, MERGED)
SEPARATE = (Kind.APART, Kind.MIXED, Kind.ETCD)

T = TypeVar("T")
Moment = tuple[str, int]
"""Right after the n-th call of a name, from 1."""


@dataclass(frozen=True)
class StartedServers:
    """Servers of the session, each started when it is first asked for."""

    request: pytest.FixtureRequest

    def databases(self) -> tuple[str, str]:
        found: tuple[str, str] = self.request.getfixturevalue("databases")
        return found

    def etcd(self) -> LocalEtcd:
        server: LocalEtcd = self.request.getfixturevalue("etcd")
        return server


@pytest.fixture(scope="module")
def postgres(fragile: LocalPostgres) -> LocalPostgres:
    """The server that is stopped here: one that holds little is soon back."""
    return fragile


@pytest.fixture(scope="module")
def databases(postgres: LocalPostgres) -> tuple[str, str]:
    """Two databases, in which each test has schemas of its own."""
    return fresh_database(postgres), fresh_database(postgres)


Make = Callable[[Kind], Pair]


@pytest.fixture
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """Return what makes a fresh pair of a kind."""
    return lambda kind: Pair(kind, tmp_path, StartedServers(request))


class Story(Fate):
    """Calls people in at one moment, and ends the process at another."""

    def __init__(self, *, dies: Moment, then: Callable[[], object] = tuple, at: Moment = ("", 0)):
        super().__init__()
        self._dies, self._then, self._at = dies, then, at

    def call(self, name: str, act: Callable[[], T]) -> T:
        number = self.calls.count(name) + 1
        if (name, number) == self._dies:
            self._death = Death(at=len(self.calls), is_after=True)
        answer = super().call(name, act)
        if (name, number) == self._at:
            self._then()
        return answer


def lives(pair: Pair, stage: PlayStage, fate: Fate | None = None) -> None:
    """Let a worker live until it is done or dead, and leave its lease to time."""
    try:
        works(pair, stage, fate)
    finally:
        pair.end_leases()


def dies(pair: Pair, stage: PlayStage, fate: Fate) -> None:
    with pytest.raises(Died):
        lives(pair, stage, fate)


def restored(*places: Place) -> None:
    for place in places:
        place.restore()


@contextmanager
def staged(target: str, pair: Pair, folder: Path, form: Form) -> Generator[PlayStage]:
    """Return a target that counts what happens to it, by what it remembers."""
    with ExitStack() as stack:
        match target:
            case "sandbox":
                made = sandbox_stage(pair, form=form)
            case "files":
                made = files_stage(pair, folder / "folders", form=form)
            case "shop":
                made = shop_stage(pair, level=Level.DEDUPLICATING, form=form)
            case _:
                made = shop_stage(pair, level=Level.QUERYABLE, in_flight_ms=1, form=form)
        yield stack.enter_context(made)


REMEMBERING = ("sandbox", "files")
"""Targets that remember, with each receipt, which generation they served."""

kinds = pytest.mark.parametrize(
    "kind", [pytest.param(kind, id=f"T6 {kind.value}") for kind in SERVERS]
)
stores = pytest.mark.parametrize(
    "kind", [pytest.param(kind, id=f"T4 {kind.value}") for kind in SEPARATE]
)
registers = pytest.mark.parametrize(
    "kind", [pytest.param(kind, id=f"T5 {kind.value}") for kind in SEPARATE]
)
EFFECT: Moment = ("adapter.execute", 1)
HALF_WAY: Moment = ("adapter.execute", 2)
lengths = pytest.mark.parametrize(
    ("form", "end"),
    [
        *(pytest.param(form, HALF_WAY, id=f"{form.name}, half-way") for form in FORMS),
        pytest.param(EAGER, None, id="eager, at the end"),
    ],
)


def turned_back(
    pair: Pair, stage: PlayStage, end: Moment | None, *places: Place
) -> tuple[str, ...]:
    """Save places after the first effect, go on, and bring them back; return the effects.

    Args:
        pair: The stores.
        stage: The target.
        end: Where the second worker dies; None where the run ends.
        places: What is saved and brought back.
    """
    dies(pair, stage, Story(dies=EFFECT))
    for place in places:
        place.save()
    if end is None:
        lives(pair, stage)
    else:
        dies(pair, stage, Story(dies=end))
    restored(*places)
    pair.end_leases()
    return stage.effects()


# ---------------------------------------------------------------- one of two


@stores
@lengths
def test_checkpoints_of_yesterday_open_no_run(
    kind: Kind, form: Form, end: Moment | None, make: Make, tmp_path: Path
) -> None:
    pair = make(kind)
    with staged("shop", pair, tmp_path, form) as stage:
        before = turned_back(pair, stage, end, pair.store_place)
        with pytest.raises(RollbackError):
            lives(pair, stage)
        assert stage.effects() == before


@registers
@lengths
def test_heads_of_yesterday_open_no_run(
    kind: Kind, form: Form, end: Moment | None, make: Make, tmp_path: Path
) -> None:
    pair = make(kind)
    with staged("shop", pair, tmp_path, form) as stage:
        before = turned_back(pair, stage, end, pair.heads_place)
        with pytest.raises(RollbackError):
            lives(pair, stage)
        assert stage.effects() == before


@registers
def test_a_refused_run_stays_refused_whoever_tries(kind: Kind, make: Make, tmp_path: Path) -> None:
    pair = make(kind)
    with staged("shop", pair, tmp_path, EAGER) as stage:
        before = turned_back(pair, stage, HALF_WAY, pair.heads_place)
        for _ in range(3):
            with pytest.raises(RollbackError):
                lives(pair, stage)
        assert stage.effects() == before


@registers
def test_heads_brought_back_beneath_a_worker_stop_it(
    kind: Kind, make: Make, tmp_path: Path
) -> None:
    pair = make(kind)
    with staged("shop", pair, tmp_path, EAGER) as stage:

        def bring_back() -> None:
            restored(pair.heads_place)

        dies(pair, stage, Story(dies=("adapter.execute", 1)))
        pair.heads_place.save()
        fate = Story(dies=("never", 0), at=("adapter.execute", 1), then=bring_back)
        with pytest.raises((LostRaceError, IntegrityError)):
            lives(pair, stage, fate)
        before = stage.effects()
        with pytest.raises(RollbackError):
            lives(pair, stage)
        assert stage.effects() == before == ("A-7", "B-9")


# ---------------------------------------------------------------- both


@kinds
@lengths
def test_a_sandbox_shows_that_everything_was_turned_back(
    kind: Kind, form: Form, end: Moment | None, make: Make, tmp_path: Path
) -> None:
    pair = make(kind)
    with staged("sandbox", pair, tmp_path, form) as stage:
        before = turned_back(pair, stage, end, *pair.places)
        with pytest.raises((RollbackError, FencedError)):
            lives(pair, stage)
        assert stage.effects() == before


@kinds
def test_a_folder_shows_that_everything_was_turned_back(
    kind: Kind, make: Make, tmp_path: Path
) -> None:
    pair = make(kind)
    with staged("files", pair, tmp_path, EAGER) as stage:
        before = turned_back(pair, stage, HALF_WAY, *pair.places)
        with pytest.raises((RollbackError, FencedError)):
            lives(pair, stage)
        assert stage.effects() == before


@kinds
@lengths
def test_where_nobody_remembers_a_deduplicating_target_repeats_nothing(
    kind: Kind, form: Form, end: Moment | None, make: Make, tmp_path: Path
) -> None:
    pair = make(kind)
    with staged("shop", pair, tmp_path, form) as stage:
        turned_back(pair, stage, end, *pair.places)
        lives(pair, stage)
        assert stage.effects() == ("A-7", "B-9")
        assert has_completed(stage)


# ---------------------------------------------------------------- one lost commit

FIRST_LEASE: Moment = ("adapter.take", 1)
A_NOTE: Moment = ("heads.advance", 1)
BEFORE_THE_INTENT = {"sandbox": A_NOTE}
"""What the program commits before; `FIRST_LEASE` where that is nothing."""

INTENT: Moment = ("heads.advance", 1)
RECEIPT: Moment = ("heads.advance", 2)
MARKER_OF_THE_RECEIPT: Moment = ("store.mark", 3)
"""Of an eager worker that takes a run over before anything has happened under it; its
first mark is its lease record, and the second is the marker of the intent."""


def heads_lose(pair: Pair, stage: PlayStage, *, all_after: Moment, dies_after: Moment) -> None:
    """Let heads lose what they acknowledged last; the worker dies with it."""
    dies(pair, stage, Story(dies=("heads.create", 1)))
    dies(pair, stage, Story(dies=dies_after, then=pair.heads_place.save, at=all_after))
    restored(pair.heads_place)
    pair.end_leases()


@registers
@pytest.mark.parametrize("form", [EAGER, MARKED], ids=lambda form: form.name)
def test_one_lost_receipt_is_asked_for_again(
    kind: Kind, form: Form, make: Make, tmp_path: Path
) -> None:
    pair = make(kind)
    with staged("shop", pair, tmp_path, form) as stage:
        heads_lose(pair, stage, all_after=INTENT, dies_after=RECEIPT)
        lives(pair, stage)
        assert stage.effects() == ("A-7", "B-9")
        assert has_completed(stage)


@registers
def test_a_marker_shows_one_lost_receipt(kind: Kind, make: Make, tmp_path: Path) -> None:
    pair = make(kind)
    with staged("shop", pair, tmp_path, MARKED) as stage:
        heads_lose(pair, stage, all_after=INTENT, dies_after=MARKER_OF_THE_RECEIPT)
        with pytest.raises(RollbackError):
            lives(pair, stage)
        assert stage.effects() == ("A-7",)


@registers
def test_two_lost_commits_of_one_lease_open_no_run(kind: Kind, make: Make, tmp_path: Path) -> None:
    pair = make(kind)
    with staged("shop", pair, tmp_path, EAGER) as stage:
        heads_lose(pair, stage, all_after=FIRST_LEASE, dies_after=RECEIPT)
        with pytest.raises(RollbackError):
            lives(pair, stage)
        assert stage.effects() == ("A-7",)


@registers
@pytest.mark.parametrize("target", REMEMBERING)
def test_one_lost_intent_is_shown_by_a_target_that_remembers(
    kind: Kind, target: str, make: Make, tmp_path: Path
) -> None:
    pair = make(kind)
    before_it = BEFORE_THE_INTENT.get(target, FIRST_LEASE)
    with staged(target, pair, tmp_path, EAGER) as stage:
        heads_lose(pair, stage, all_after=before_it, dies_after=EFFECT)
        before = stage.effects()
        with pytest.raises(RollbackError):
            lives(pair, stage)
        assert stage.effects() == before


@registers
def test_one_lost_intent_leads_to_the_same_key(kind: Kind, make: Make, tmp_path: Path) -> None:
    pair = make(kind)
    with staged("shop", pair, tmp_path, EAGER) as stage:
        heads_lose(pair, stage, all_after=FIRST_LEASE, dies_after=EFFECT)
        lives(pair, stage)
        assert stage.effects() == ("A-7", "B-9")
        assert has_completed(stage)


@registers
def test_one_lost_intent_calls_a_target_again_that_remembers_nothing(
    kind: Kind, make: Make, tmp_path: Path
) -> None:
    """The limit that `protection.md` states; a marker is what it names against it."""
    pair = make(kind)
    with staged("queryable shop", pair, tmp_path, EAGER) as stage:
        heads_lose(pair, stage, all_after=FIRST_LEASE, dies_after=EFFECT)
        lives(pair, stage)
        assert stage.effects() == ("A-7", "A-7", "B-9")


@registers
@pytest.mark.parametrize("target", [*REMEMBERING, "shop", "queryable shop"])
def test_a_marker_shows_one_lost_intent(
    kind: Kind, target: str, make: Make, tmp_path: Path
) -> None:
    pair = make(kind)
    before_it = BEFORE_THE_INTENT.get(target, FIRST_LEASE)
    with staged(target, pair, tmp_path, MARKED) as stage:
        heads_lose(pair, stage, all_after=before_it, dies_after=EFFECT)
        before = stage.effects()
        with pytest.raises(RollbackError):
            lives(pair, stage)
        assert stage.effects() == before


@registers
def test_one_lost_intent_is_seen_where_the_target_can_be_looked_at(
    kind: Kind, make: Make, tmp_path: Path
) -> None:
    pair = make(kind)
    with sandbox_stage(pair, level=Level.QUERYABLE, in_flight_ms=1, form=EAGER) as stage:
        heads_lose(pair, stage, all_after=A_NOTE, dies_after=EFFECT)
        with pytest.raises(FrozenError):
            lives(pair, stage)
        assert stage.effects() == ("app.py=sound",)


# ---------------------------------------------------------------- gone, and set up anew


def half_way(pair: Pair, stage: PlayStage) -> tuple[str, ...]:
    """Let a worker die after its second effect; return the effects."""
    dies(pair, stage, Story(dies=HALF_WAY))
    return stage.effects()


def set_up_anew(pair: Pair, place: Place) -> None:
    """Lose a place, and make an empty one of the same name."""
    place.wipe()
    opens = pair.open_store if place is pair.store_place else pair.open_heads
    opens(create=True).close()


LOSSES: dict[str, tuple[Callable[[Pair], object], type[IntegrityError]]] = {
    "T4 checkpoints emptied": (lambda pair: pair.empty_store(), RollbackError),
    "T4 checkpoints set up anew": (lambda pair: set_up_anew(pair, pair.store_place), RollbackError),
    "T5 heads emptied": (lambda pair: pair.empty_heads(), HeadMissingError),
    "T5 heads set up anew": (lambda pair: set_up_anew(pair, pair.heads_place), HeadMissingError),
    "T4 checkpoints gone": (lambda pair: pair.store_place.wipe(), RollbackError),
    "T5 heads gone": (lambda pair: pair.heads_place.wipe(), HeadMissingError),
}


@pytest.mark.parametrize("kind", SEPARATE, ids=lambda kind: kind.value)
@pytest.mark.parametrize(("lose", "error"), LOSSES.values(), ids=LOSSES)
def test_a_place_that_lost_its_runs_opens_none(
    kind: Kind,
    lose: Callable[[Pair], object],
    error: type[IntegrityError],
    make: Make,
    tmp_path: Path,
) -> None:
    pair = make(kind)
    with staged("shop", pair, tmp_path, EAGER) as stage:
        before = half_way(pair, stage)
        lose(pair)
        with pytest.raises(error):
            stage.work(stage.parts())
        assert stage.effects() == before


@pytest.mark.parametrize(
    ("empty", "error"),
    [
        pytest.param(Pair.empty_store, RollbackError, id="T4 checkpoints emptied"),
        pytest.param(Pair.empty_heads, HeadMissingError, id="T5 heads emptied"),
    ],
)
def test_half_of_one_database_lost_its_rows_and_opens_no_run(
    empty: Callable[[Pair], None], error: type[IntegrityError], make: Make, tmp_path: Path
) -> None:
    pair = make(Kind.JOINT)
    with staged("shop", pair, tmp_path, EAGER) as stage:
        before = half_way(pair, stage)
        empty(pair)
        with pytest.raises(error):
            lives(pair, stage)
        assert stage.effects() == before


@pytest.mark.parametrize("row", [pytest.param("T5", id="T5 heads copied into another register")])
def test_heads_copied_into_a_register_that_was_set_up_anew_open_no_run(
    row: str, make: Make, tmp_path: Path
) -> None:
    pair = make(Kind.APART)
    place = pair.heads_place
    assert isinstance(place, DatabasePlace)
    with staged("shop", pair, tmp_path, EAGER) as stage:
        before = half_way(pair, stage)
        execute(place.url, f"CREATE TABLE public.kept AS TABLE {place.schema}.head")
        set_up_anew(pair, place)
        execute(place.url, "ALTER TABLE public.kept DROP COLUMN due_ms")  # the server's own
        execute(place.url, f"INSERT INTO {place.schema}.head TABLE public.kept")
        execute(place.url, "DROP TABLE public.kept")
        with pytest.raises(RollbackError, match="set up anew"):
            lives(pair, stage)
        assert stage.effects() == before


# ---------------------------------------------------------------- whole servers


@pytest.mark.parametrize("row", [pytest.param("T6", id="T6 a copied data directory")])
@pytest.mark.parametrize("target", ["sandbox", "shop"])
def test_a_server_that_is_brought_back_whole_takes_both_places_back(
    row: str, target: str, postgres: LocalPostgres, make: Make, tmp_path: Path
) -> None:
    pair = make(Kind.APART)
    data, copy = postgres.folder / "data", postgres.folder / "data-yesterday"
    with staged(target, pair, tmp_path, EAGER) as stage:
        dies(pair, stage, Story(dies=EFFECT))
        with stopped(postgres):
            subprocess.run(["cp", "-a", data, copy], check=True)
        dies(pair, stage, Story(dies=HALF_WAY))
        before = stage.effects()
        with stopped(postgres):
            shutil.rmtree(data)
            copy.rename(data)
        pair.end_leases()
        if target == "shop":
            lives(pair, stage)
            assert has_completed(stage)
        else:
            with pytest.raises((RollbackError, FencedError)):
                lives(pair, stage)
        assert stage.effects() == before


@contextmanager
def stopped(server: LocalPostgres) -> Generator[None]:
    server.stop()
    try:
        yield
    finally:
        server.start()


@pytest.mark.parametrize(
    ("restore", "error"),
    [
        pytest.param(EtcdPlace.restore, RollbackError, id="T5 the same cluster id"),
        pytest.param(EtcdPlace.restore_as_another_cluster, FormatError, id="T5 another cluster id"),
    ],
)
def test_an_etcd_brought_back_from_a_snapshot_opens_no_run(
    restore: Callable[[EtcdPlace], None],
    error: type[IntegrityError],
    make: Make,
    tmp_path: Path,
) -> None:
    pair = make(Kind.ETCD)
    place = pair.heads_place
    assert isinstance(place, EtcdPlace)
    with staged("shop", pair, tmp_path, EAGER) as stage:
        dies(pair, stage, Story(dies=EFFECT))
        place.save()
        before = half_way(pair, stage)
        still_open = pair.open_heads()
        still_open.read(stage.run_id)
        restore(place)
        with pytest.raises(error):
            still_open.read(stage.run_id)
        still_open.close()
        pair.end_leases()
        with pytest.raises(RollbackError):
            lives(pair, stage)
        assert stage.effects() == before
