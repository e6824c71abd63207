"""A project is set up once; one of which a part is missing is refused."""

from pathlib import Path

import pytest

from counterfoil.adapters.function import Call, Effects
from counterfoil.compose import init_project, open_keeper
from counterfoil.core.errors import (
    ConfigError,
    CounterfoilError,
    HeadMissingError,
    LeaseLostError,
    RollbackError,
)
from counterfoil.core.task import Policy, Task
from counterfoil.keeper import Keeper

TASK = Task(id="t", policy=Policy(permissions=("box.put",)))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def effects_of(calls: list[str]) -> Effects:
    effects = Effects()

    @effects.effect("box.put", level="deduplicating", look_up=lambda key: None)
    def put(call: Call) -> None:
        calls.append(call.key)

    return effects


def opened(project: Path, calls: list[str] | None = None) -> Keeper:
    return open_keeper(project, effects=effects_of(calls if calls is not None else []))


def run_once(project: Path, calls: list[str]) -> None:
    with opened(project, calls) as keeper, keeper.run(TASK, "r") as run:
        run.do("box.put")


def test_a_folder_with_nothing_in_it_becomes_a_project(project: Path) -> None:
    calls: list[str] = []
    run_once(project, calls)
    run_once(project, calls)
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("place", "mode"),
    [
        ("config/counterfoil", 0o700),
        ("state/counterfoil", 0o700),
        ("project/.counterfoil", 0o700),
    ],
)
def test_folders_and_files_are_for_their_owner_alone(
    project: Path, tmp_path: Path, place: str, mode: int
) -> None:
    run_once(project, [])
    found = [path for path in (tmp_path / place).rglob("*.[dj]*") if path.is_file()]
    assert found
    assert {path.stat().st_mode & 0o077 for path in found} == {0}


def test_setting_up_twice_changes_nothing(project: Path) -> None:
    first = init_project(project)
    text = (project / "counterfoil.toml").read_text()
    assert (init_project(project), (project / "counterfoil.toml").read_text()) == (first, text)


def test_a_copy_of_the_project_meets_the_same_heads(project: Path, tmp_path: Path) -> None:
    init_project(project)
    calls: list[str] = []
    run_once(project, calls)
    copy = tmp_path / "copy"
    project.rename(copy)
    run_once(copy, calls)
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("lost", "error"),
    [
        pytest.param("project/.counterfoil/checkpoints.db", RollbackError, id="C16 T4 the store"),
        pytest.param("state", HeadMissingError, id="C16 T5 the heads"),
        pytest.param("config", ConfigError, id="the key"),
    ],
)
def test_a_project_that_lost_a_part_is_refused_and_acts_no_more(
    project: Path, tmp_path: Path, lost: str, error: type[CounterfoilError]
) -> None:
    calls: list[str] = []
    run_once(project, calls)
    for path in (tmp_path / lost).parent.glob(f"{Path(lost).name}*"):
        path.rename(tmp_path / f"lost-{path.name}")
    with pytest.raises(error):
        run_once(project, calls)
    assert len(calls) == 1


def test_a_wiped_project_folder_does_not_make_its_runs_new(project: Path, tmp_path: Path) -> None:
    init_project(project)
    calls: list[str] = []
    run_once(project, calls)
    (project / ".counterfoil").rename(tmp_path / "gone")
    with pytest.raises(RollbackError):
        run_once(project, calls)
    assert len(calls) == 1


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("[lease]\nttl = 5", id="an unknown setting"),
        pytest.param("[lease]\nttl_ms = true", id="a bool for an integer"),
        pytest.param("[lease]\nttl_ms = 1", id="a lease below its bound"),
        pytest.param("[store]\nurl = 'mysql://x'", id="an unknown store"),
        pytest.param("[keys]\nsource = 'file:keys.json'", id="a key inside the project"),
        pytest.param("[project]\nid = '../x'", id="an id that is a path"),
        pytest.param("not toml", id="no TOML"),
    ],
)
def test_a_setting_that_cannot_be_used_is_refused_by_name(project: Path, text: str) -> None:
    (project / "counterfoil.toml").write_text(text)
    with pytest.raises(ConfigError):
        opened(project)


def test_a_live_holder_in_another_keeper_is_not_taken_over(project: Path) -> None:
    with (
        opened(project) as first,
        first.run(TASK, "r"),
        opened(project) as second,
        pytest.raises(LeaseLostError),
    ):
        second.run(TASK, "r")


def test_a_project_is_found_from_a_folder_inside_it(project: Path) -> None:
    init_project(project)
    inner = project / "a" / "b"
    inner.mkdir(parents=True)
    calls: list[str] = []
    run_once(project, calls)
    run_once(inner, calls)
    assert len(calls) == 1
