"""What the pair of places is said to protect from, done to real databases."""

from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from counterfoil.adapters.function import Call, Effects
from counterfoil.adapters.function.effects import Bounds
from counterfoil.compose import init_project, open_keeper
from counterfoil.core.errors import RollbackError
from counterfoil.core.task import Policy, Task
from counterfoil.keeper import Keeper
from counterfoil.local.etcd import LocalEtcd
from counterfoil.local.postgres import LocalPostgres
from counterfoil.settings import read_settings
from tests.support.commands import Killed
from tests.support.postgres import execute, fresh_database
from tests.support.server_projects import ServerProject, write_project

pytest_plugins = ["tests.support.postgres"]

TASK = Task(id="fill", policy=Policy(permissions=("box.put",)))
RUN = "r-1"
WAIT_MS = 30_000


class Box:
    """A target that deduplicates by key; it can kill the worker after an effect."""

    def __init__(self) -> None:
        self.kept: dict[str, str] = {}
        self.calls: list[str] = []
        self.kills = False

    def effects(self) -> Effects:
        effects = Effects()

        @effects.effect(
            "box.put",
            level="deduplicating",
            look_up=lambda key: {"at": self.kept[key]} if key in self.kept else None,
            bounds=Bounds(call_ms=500),
        )
        def put(call: Call, *, item: str) -> dict[str, str]:
            self.calls.append(item)
            self.kept[call.key] = item
            if self.kills:
                raise Killed
            return {"at": item}

        return effects


@pytest.fixture
def box() -> Box:
    return Box()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path


def opened(project: ServerProject, box: Box) -> Keeper:
    return open_keeper(project.folder, effects=box.effects())


def put(project: ServerProject, box: Box, *items: str) -> None:
    """Open the run as a new worker, and put things that may be put already."""
    with opened(project, box) as keeper, keeper.run(TASK, RUN, wait_ms=WAIT_MS) as run:
        for item in items:
            run.do("box.put", item=item)
            run.flush()


def made(folder: Path, *, store: str, heads: str, marker: bool = False) -> ServerProject:
    project = write_project(folder / "project", store=store, heads=heads)
    if marker:
        with (project.folder / "counterfoil.toml").open("a", encoding="utf-8") as file:
            file.write("\n[commit]\nmarker = true\n")
    init_project(project.folder)
    return project


def saved(server: LocalPostgres, url: str) -> Callable[[], None]:
    """Copy a database that nobody has open, and return what puts the copy in its place."""
    name = urlsplit(url).path.strip("/")
    execute(server.url(), f"CREATE DATABASE {name}_saved TEMPLATE {name}")

    def restore() -> None:
        execute(server.url(), f"DROP DATABASE {name} WITH (FORCE)")
        execute(server.url(), f"CREATE DATABASE {name} TEMPLATE {name}_saved")

    return restore


def test_checkpoints_from_an_older_copy_are_refused(
    home: Path, postgres: LocalPostgres, box: Box
) -> None:
    store = fresh_database(postgres)
    project = made(home, store=store, heads=fresh_database(postgres))
    put(project, box, "a")
    restore = saved(postgres, store)
    put(project, box, "a", "b")
    restore()
    with pytest.raises(RollbackError):
        put(project, box, "a", "b", "c")
    assert box.calls == ["a", "b"]


def test_heads_from_an_older_copy_are_refused(
    home: Path, postgres: LocalPostgres, box: Box
) -> None:
    heads = fresh_database(postgres)
    project = made(home, store=fresh_database(postgres), heads=heads)
    put(project, box, "a")
    restore = saved(postgres, heads)
    put(project, box, "a", "b")
    restore()
    with pytest.raises(RollbackError):
        put(project, box, "a", "b", "c")
    assert box.calls == ["a", "b"]


def test_one_database_restored_is_noticed_by_targets_alone(
    home: Path, postgres: LocalPostgres, box: Box
) -> None:
    url = fresh_database(postgres)
    project = made(home, store=url, heads=url)
    put(project, box, "a")
    restore = saved(postgres, url)
    put(project, box, "a", "b")
    restore()
    put(project, box, "a", "b", "c")
    assert (list(box.kept.values()), box.calls[-1]) == (["a", "b", "c"], "c")


def lose_the_last_commit_of_heads(project: ServerProject, box: Box) -> None:
    """Kill a worker after its effect, and take its last commit from the register alone."""
    heads = read_settings(project.folder).heads.url
    try:
        with opened(project, box) as keeper, keeper.run(TASK, RUN, wait_ms=WAIT_MS) as run:
            run.do("box.put", item="a")
            run.flush()
            execute(heads, "CREATE TABLE saved AS SELECT * FROM counterfoil.head")
            box.kills = True
            run.do("box.put", item="b")
    except Killed:
        box.kills = False
    (lost,) = execute(heads, "SELECT h.generation - s.generation FROM counterfoil.head h, saved s")
    assert lost == (1,)
    execute(heads, "ALTER TABLE counterfoil.head DISABLE TRIGGER USER")
    execute(
        heads,
        "UPDATE counterfoil.head SET generation = saved.generation, "
        "checkpoint = saved.checkpoint FROM saved",
    )
    execute(heads, "ALTER TABLE counterfoil.head ENABLE TRIGGER USER")


def test_a_marker_shows_that_heads_lost_their_last_commit(
    home: Path, postgres: LocalPostgres, box: Box
) -> None:
    urls = [fresh_database(postgres), fresh_database(postgres)]
    project = made(home, store=urls[0], heads=urls[1], marker=True)
    lose_the_last_commit_of_heads(project, box)
    with pytest.raises(RollbackError):
        put(project, box, "a", "b")
    assert box.calls == ["a", "b"]


def test_without_a_marker_nothing_shows_it_but_the_target(
    home: Path, postgres: LocalPostgres, box: Box
) -> None:
    urls = [fresh_database(postgres), fresh_database(postgres)]
    project = made(home, store=urls[0], heads=urls[1])
    lose_the_last_commit_of_heads(project, box)
    put(project, box, "a", "b")
    assert list(box.kept.values()) == ["a", "b"]


def test_heads_from_an_older_snapshot_are_refused(
    home: Path, postgres: LocalPostgres, box: Box
) -> None:
    with LocalEtcd() as etcd:
        project = made(home, store=fresh_database(postgres), heads=etcd.url("some"))
        put(project, box, "a")
        etcd.save(home / "snapshot.db")
        put(project, box, "a", "b")
        etcd.restore(home / "snapshot.db")
        with pytest.raises(RollbackError):
            put(project, box, "a", "b", "c")
        assert box.calls == ["a", "b"]


@pytest.mark.parametrize("are_one", [True, False])
def test_a_keeper_that_is_closed_leaves_no_connection(
    home: Path, postgres: LocalPostgres, box: Box, are_one: bool
) -> None:
    store = fresh_database(postgres)
    heads = store if are_one else fresh_database(postgres)
    project = made(home, store=store, heads=heads)
    with opened(project, box) as keeper, keeper.run(TASK, RUN) as run:
        run.do("box.put", item="a")
        assert keeper.parts.bell is not None
        keeper.parts.bell.wait(1)
    for url in {store, heads}:
        # PostgreSQL refuses while somebody is connected, and waits a little for who just left.
        execute(postgres.url(), f"DROP DATABASE {urlsplit(url).path.strip('/')}")
