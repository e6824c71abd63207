"""`counterfoil worker` and `unpark`, as a person uses them."""

import json
import re
import signal
import subprocess
import time

import pytest

from tests.support.commands import COMMAND, ESCAPE, RUN, SECONDS_MAX, Project

APP = """\
import threading
from pathlib import Path

import counterfoil as cf
from restock import put

HERE = Path(__file__).parent
keeper = cf.open(HERE)


def opened():
    return keeper


@keeper.program(HERE / "restock.toml")
def fulfil(run, item):
    run.do("box.put", item=item)
    if item == "broken":
        raise ValueError("card 4111")
    if item == "stuck":
        (HERE / "stuck").touch()
        threading.Event().wait()
    if item == "slow":
        (HERE / "slow").touch()
        while True:
            threading.Event().wait(0.25)
            run.do("box.put", item=item)
    run.cancel("that was all")
"""
FACT = r'[a-z_]+=("[^"]*"|\S+)'
LINE = re.compile(rf"\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{{3}}Z [a-z]+( {FACT})*")


@pytest.fixture
def shop(project: Project) -> Project:
    (project.folder / "shopapp.py").write_text(APP, encoding="utf-8")
    return project


def submit(project: Project, item: str, run_id: str = RUN) -> None:
    with project.keeper() as keeper:
        keeper.submit(project.folder / "restock.toml", run_id, {"item": item})


def test_a_worker_does_what_was_submitted_and_says_one_line_per_event(shop: Project) -> None:
    submit(shop, "a")
    answer = shop.started("worker", "--app", "shopapp:keeper", "--burst")
    assert (answer.returncode, answer.stderr) == (0, "")
    lines = answer.stdout.splitlines()
    assert [line for line in lines if not LINE.fullmatch(line)] == []
    assert [line.split()[1] for line in lines] == ["started", "claimed", "ended", "stopped"]
    assert " ended run=run-1 generation=2 lease=2 reason=cancelled" in lines[2]
    assert ESCAPE not in answer.stdout
    assert shop.facts("show", RUN)["phase"] == "cancelled"


def test_a_worker_says_the_same_to_programs(shop: Project) -> None:
    submit(shop, "a")
    answer = shop.started("worker", "--app", "shopapp:opened", "--burst", "--json")
    said = [json.loads(line) for line in answer.stdout.splitlines()]
    assert [each["event"] for each in said] == ["started", "claimed", "ended", "stopped"]
    assert {"run": RUN, "generation": 0, "lease": 2}.items() <= said[1].items()


def test_a_worker_that_is_told_to_stop_gives_its_runs_up(shop: Project) -> None:
    submit(shop, "slow")
    worker = subprocess.Popen(
        [COMMAND, "worker", "--app", "shopapp:keeper", "--grace-s", "1"],
        cwd=shop.folder,
        env=shop.environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert worker.stdout is not None
    told = [worker.stdout.readline() for _ in range(2)]
    assert "claimed" in told[1]
    worker.send_signal(signal.SIGTERM)
    rest, _ = worker.communicate(timeout=SECONDS_MAX)
    assert worker.returncode == 0
    assert "draining left=1 asks=False" in rest
    assert "the worker is stopping" in rest
    shown = shop.facts("show", RUN)
    assert (shown["status"], shown["lease"]["holder"]) == ("active", "")


def test_a_worker_leaves_a_program_that_does_not_end(shop: Project) -> None:
    submit(shop, "stuck")
    worker = subprocess.Popen(
        [COMMAND, "worker", "--app", "shopapp:keeper", "--grace-s", "1"],
        cwd=shop.folder,
        env=shop.environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    while not (shop.folder / "stuck").exists():
        time.sleep(0.01)
    worker.send_signal(signal.SIGTERM)
    told, _ = worker.communicate(timeout=SECONDS_MAX)
    assert worker.returncode == 0
    assert told.splitlines()[-1].endswith("stopped left=1")
    shown = shop.facts("show", RUN)
    assert (shown["status"], shown["lease"]["version"]) == ("active", 2)


def test_a_worker_shows_what_a_program_raised_to_whoever_mends_it(shop: Project) -> None:
    submit(shop, "broken")
    answer = shop.started("worker", "--app", "shopapp:keeper", "--burst")
    assert answer.stderr.startswith(f"run {RUN}\nTraceback")
    assert answer.stderr.endswith("ValueError: card 4111\n")
    assert [line for line in answer.stdout.splitlines() if not LINE.fullmatch(line)] == []
    assert "4111" not in answer.stdout


def test_a_parked_run_is_shown_and_given_back(shop: Project) -> None:
    submit(shop, "broken")
    shop.started("worker", "--app", "shopapp:keeper", "--burst", "--tries", "1")
    shown = shop.facts("show", RUN)
    assert shown["status"] == "frozen"
    assert shown["failure"]["is_parked"]
    assert f"counterfoil unpark {RUN}" in shown["next"]
    told = shop.call("show", RUN).stdout
    assert "ValueError at fulfil, line 19 (once at position 1)" in told
    assert "4111" not in told
    given = shop.facts("unpark", RUN, "--reason", "mended", "--actor", "ann")
    assert (given["actor"], given["failures"]) == ("ann", 1)
    assert shop.facts("show", RUN)["failure"] is None
    again = shop.call("unpark", RUN, "--reason", "mended")
    assert (again.exit_code, "is not parked" in again.stderr) == (2, True)


@pytest.mark.parametrize(
    ("app", "sentence"),
    [
        ("shopapp", "is not MODULE:NAME"),
        (":keeper", "is not MODULE:NAME"),
        ("nowhere:keeper", "cannot be imported"),
        ("shopapp:HERE", "is neither a keeper nor a function that opens one"),
        ("shopapp:nothing", "the module has no nothing"),
    ],
)
def test_an_app_that_is_no_keeper_is_refused(shop: Project, app: str, sentence: str) -> None:
    answer = shop.started("worker", "--app", app, "--burst")
    assert answer.returncode == 2
    assert sentence in answer.stderr
    assert len(answer.stderr.splitlines()) == 1
