"""The demo does what it says, and its count is not rigged."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from counterfoil.demo.children import ShopChild
from counterfoil.demo.counting import Target
from counterfoil.demo.plan import LADDER, Window, make_plan
from counterfoil.demo.shop import rows_by_key

SECONDS_MAX = 100


def demo(*arguments: str) -> tuple[int, dict[str, Any]]:
    ran = subprocess.run(
        [sys.executable, "-m", "counterfoil.demo", "--json", *arguments],
        capture_output=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert ran.stderr == b""
    return ran.returncode, json.loads(ran.stdout)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo") / "kept"


@pytest.fixture(scope="module")
def result(kept: Path) -> tuple[int, dict[str, Any]]:
    return demo("--seed", "3", "--keep", str(kept))


def test_the_demo_holds(result: tuple[int, dict[str, Any]]) -> None:
    code, found = result
    assert (code, found["failure"], found["verified"]) == (0, "", True)


def test_a_worker_dies_in_every_window_of_every_step(result: tuple[int, dict[str, Any]]) -> None:
    _, found = result
    assert found["steps"] >= 12
    assert set(found["windows"]) == set(Window)
    assert min(found["windows"].values()) >= found["steps"]
    assert found["kills"] == sum(found["windows"].values()) == found["steps"] * len(LADDER)


def test_every_effect_happened_once_on_the_target(
    result: tuple[int, dict[str, Any]], kept: Path
) -> None:
    _, found = result
    assert found["effects"] == {"expected": 12, "counted": 12}
    assert (found["duplicates"], found["lost"]) == (0, 0)
    plan = make_plan(3)
    assert list(rows_by_key(kept / f"{plan.instances[0]}.db").values()) == [1] * len(plan.items)
    files = (kept / "project/warehouse/orders").iterdir()
    assert sorted(file.name for file in files) == sorted(f"{item.sku}.json" for item in plan.items)


def test_every_attack_is_refused_by_name(result: tuple[int, dict[str, Any]]) -> None:
    _, found = result
    assert list(found["attacks"].values()) == [True] * 3
    assert list(found["answers"].values()) == [
        "FormatError",
        "RollbackError",
        "FrozenError: environment_drift",
    ]


def test_a_look_up_that_lies_is_counted_on_the_target_and_fails_the_demo() -> None:
    code, found = demo("--sabotage")
    assert code == 1
    assert found["duplicates"] >= 6
    assert found["effects"]["counted"] == found["effects"]["expected"] + found["duplicates"]


def test_a_file_that_is_written_twice_counts_twice(tmp_path: Path) -> None:
    plan, log = make_plan(1), tmp_path / "log"
    with ShopChild(tmp_path / "shop.db", "shop-1", log=log, forgets_keys=False) as shop:
        folder = tmp_path / "files"
        file = folder / "orders" / f"{plan.items[0].sku}.json"
        file.parent.mkdir(parents=True)
        target = Target(plan=plan, port=shop.port, database=shop.database, folder=folder)
        counted: list[int] = []
        for _ in range(2):
            (tmp_path / "draft").write_text("{}")
            (tmp_path / "draft").replace(file)
            counted += [target.effects()[plan.steps[1].name] for _ in range(2)]
    assert counted == [1, 1, 2, 2]


def test_a_seed_gives_one_plan() -> None:
    assert make_plan(4) == make_plan(4) != make_plan(5)


def test_a_folder_that_holds_something_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("kept")
    ran = subprocess.run(
        [sys.executable, "-m", "counterfoil.demo", "--keep", str(tmp_path)],
        capture_output=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert ran.returncode != 0
    assert b"is not an empty folder" in ran.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL])
def test_no_process_outlives_a_demo_that_is_ended(ending: signal.Signals, tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "counterfoil.demo"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    ) as driver:
        assert driver.stdout is not None
        while b"step  1 of" not in driver.stdout.readline():
            pass
        driver.send_signal(ending)
        driver.wait(SECONDS_MAX)
        give_up_at = time.monotonic() + SECONDS_MAX
        while alive := processes_about(tmp_path):
            assert time.monotonic() < give_up_at, alive
            time.sleep(0.01)
    if ending is signal.SIGINT:
        assert list(tmp_path.iterdir()) == []


def processes_about(folder: Path) -> list[str]:
    found: list[str] = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            words = (place / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if str(folder) in words:
            found.append(words)
    return found
