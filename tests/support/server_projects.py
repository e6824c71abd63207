"""Projects whose checkpoints and heads lie on real servers, and their programs.

The target keeps one file per key and one line per arrival, so that a test counts what
happened, whoever is dead by then.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from counterfoil.local.etcd import LocalEtcd
from counterfoil.local.postgres import LocalPostgres
from tests.support.commands import Project
from tests.support.postgres import fresh_database

SECONDS_MAX = 90
STEPS = 5
RUN = "r-1"
DIED = 9

PROGRAM = """\
import os
import sys
from pathlib import Path

import counterfoil as cf
from counterfoil.adapters.function.effects import Bounds

BOX = Path(__file__).with_name("box")
STEPS, DIED = 5, 9


def find(key):
    place = BOX / key
    return {"at": place.read_text()} if place.exists() else None


def die_where_asked(item, at):
    if os.environ.get("DIES") == f"{at} {item}":
        os._exit(DIED)


@cf.effect("box.put", level="deduplicating", look_up=find, bounds=Bounds(call_ms=500))
def put(call: cf.Call, *, item: str) -> dict:
    die_where_asked(item, "before")
    BOX.mkdir(exist_ok=True)
    with (BOX / "arrivals").open("a") as arrivals:
        arrivals.write(f"{item}\\n")
    (BOX / call.key).write_text(item)
    die_where_asked(item, "after")
    return {"at": item}


if __name__ == "__main__":
    folder = Path(__file__).parent
    with cf.open(folder) as keeper:
        with keeper.run(folder / "fill.toml", sys.argv[1], wait_ms=30_000) as run:
            for number in range(STEPS):
                run.do("box.put", item=str(number))
"""

TASK = """\
id = "fill"

[policy]
permissions = ["box.put"]

[budgets]
proposals = 20
steps = 10
"""


@dataclass(kw_only=True)
class ServerProject(Project):
    """A project that need not be set up yet."""

    def init(self) -> int:
        """Set it up as a person does, and return the exit code."""
        return self.call("init", str(self.folder)).exit_code

    def work(self, run_id: str = RUN, *, dies: str = "") -> subprocess.CompletedProcess[str]:
        """Run the program in a process of its own, which ends itself where it is told to."""
        return subprocess.run(
            [sys.executable, "fill.py", run_id],
            cwd=self.folder,
            env=self.environment | {"DIES": dies},
            check=False,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
        )

    def arrivals(self) -> list[str]:
        """Return what reached the target, in order."""
        log = self.folder / "box" / "arrivals"
        return log.read_text(encoding="utf-8").split() if log.exists() else []

    def error(self, *words: str) -> tuple[int, str]:
        """Return how a command with --json ends, and the name of the error it prints."""
        answer = self.call(*words, "--json")
        return answer.exit_code, json.loads(answer.stderr)["error"]["name"]

    def checks(self) -> tuple[int, dict[str, Any], dict[str, str]]:
        """Return the exit code of doctor, the first line of each check, and the cases."""
        answer = self.call("doctor", "--json")
        facts = json.loads(answer.stdout)
        lines: dict[str, Any] = {}
        for line in facts["checks"]:
            lines.setdefault(line["check"], line)
        return answer.exit_code, lines, {c["hazard"]: c["protected"] for c in facts["protects"]}


def write_project(
    folder: Path, *, store: str = "", heads: str = "", more: str = ""
) -> ServerProject:
    """Write a project's settings and program, and set nothing up."""
    folder.mkdir()
    text = '[project]\nid = "filling"\n\n[lease]\nttl_ms = 1000\n'
    for name, url in (("store", store), ("heads", heads)):
        text += f"\n[{name}]\nurl = {json.dumps(url)}\n" if url else ""
    (folder / "counterfoil.toml").write_text(text, encoding="utf-8")
    (folder / "fill.py").write_text(PROGRAM, encoding="utf-8")
    (folder / "fill.toml").write_text(TASK, encoding="utf-8")
    kept = ("PATH", "HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "LANG")
    environment = {name: os.environ[name] for name in kept if name in os.environ}
    return ServerProject(folder=folder, environment=environment)


@pytest.fixture(scope="session")
def lone_etcd() -> Generator[LocalEtcd]:
    """A cluster of one, without users, of this test process."""
    with LocalEtcd() as server:
        yield server


Maker = Callable[[LocalPostgres, LocalEtcd, str], tuple[str, str]]

PAIRS: dict[str, Maker] = {
    "sqlite+sqlite": lambda _p, _e, _n: ("", ""),
    "postgresql+postgresql": lambda p, _e, _n: (fresh_database(p),) * 2,
    "postgresql+another": lambda p, _e, _n: (fresh_database(p), fresh_database(p)),
    "sqlite+postgresql": lambda p, _e, _n: ("", fresh_database(p)),
    "postgresql+sqlite": lambda p, _e, _n: (fresh_database(p), ""),
    "postgresql+etcd": lambda p, e, n: (fresh_database(p), e.url(n)),
    "sqlite+etcd": lambda _p, e, n: ("", e.url(n)),
}
"""Urls of checkpoints and heads; empty for the default."""
