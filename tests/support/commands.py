"""A project on disk, its runs, and the `counterfoil` command as a person uses it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw
from typer.testing import CliRunner, Result

from counterfoil.adapters.function import Call, Effects
from counterfoil.cli import app
from counterfoil.compose import Places, init_project, open_keeper, places_of
from counterfoil.core.errors import FrozenError
from counterfoil.core.task import Policy, Task
from counterfoil.core.words import Json
from counterfoil.engine.session import Session
from counterfoil.keeper import Keeper
from counterfoil.settings import read_settings

COMMAND = Path(sys.executable).with_name("counterfoil")
SECONDS_MAX = 60
RUN = "run-1"
ESCAPE = "\x1b"

TASK_TEXT = """\
id = "restock"

[policy]
permissions = ["box.put", "box.mail"]

[budgets]
proposals = 50
steps = 20
"""
TASK = Task(id="restock", policy=Policy(permissions=("box.put", "box.mail")))

APP_TEXT = """\
import os
import signal
import sys
from pathlib import Path

import counterfoil as cf

BOX = Path(__file__).with_name("box")


def find(key):
    place = BOX / key
    return {"at": place.read_text()} if place.exists() else None


def die_where_asked(at):
    if os.environ.get("DIES") == at:
        os.kill(os.getpid(), signal.SIGKILL)


@cf.effect("box.put", level="deduplicating", look_up=find)
def put(call: cf.Call, *, item: str) -> dict:
    die_where_asked("before")
    BOX.mkdir(exist_ok=True)
    (BOX / call.key).write_text(item)
    die_where_asked("after")
    return {"at": item}


@cf.effect("box.mail", level="blind")
def mail(call: cf.Call, *, to: str) -> dict:
    die_where_asked("mail")
    return {}


def main(run_id, kind):
    folder = Path(__file__).parent
    with cf.open(folder) as keeper, keeper.run(folder / "restock.toml", run_id=run_id) as run:
        if kind == "mail":
            run.do("box.mail", to="a")
        run.do("box.put", item="a")


if __name__ == "__main__":
    main(*sys.argv[1:])
"""


class Killed(BaseException):
    """The worker dies here."""


def box_effects(trouble: BaseException | None = None) -> Effects:
    """Return effects that put things nowhere; a call raises `trouble`, if there is one."""
    effects = Effects()

    @effects.effect("box.put", level="deduplicating", look_up=lambda key: None)
    def put(call: Call, *, item: str = "") -> Json:
        if trouble is not None:
            raise trouble
        return {"at": item}

    @effects.effect("box.mail", level="blind")
    def mail(call: Call, *, to: str = "") -> Json:
        if trouble is not None:
            raise trouble
        return {}

    return effects


@dataclass(kw_only=True)
class Project:
    """A project that was set up, and what a person does with it.

    Attributes:
        folder: Where it is; commands are told by COUNTERFOIL_PROJECT.
        environment: Variables for commands in processes of their own.
    """

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def places(self) -> Places:
        return places_of(self.folder, read_settings(self.folder))

    @property
    def store(self) -> Path:
        place = self.places.store
        assert place is not None
        return place

    @property
    def heads(self) -> Path:
        place = self.places.heads
        assert place is not None
        return place

    @property
    def keys(self) -> Path:
        place = self.places.keys
        assert place is not None
        return place

    # Commands

    def call(self, *words: str) -> Result:
        """Run a command in this process."""
        return CliRunner().invoke(app, list(words), env={"COUNTERFOIL_PROJECT": str(self.folder)})

    def facts(self, *words: str) -> Any:
        """Return what a command says with --json, which must succeed."""
        answer = self.call(*words, "--json")
        assert answer.exit_code == 0, answer.output
        return json.loads(answer.stdout)

    def started(self, *words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run the installed command in a process of its own."""
        return subprocess.run(
            [COMMAND, *words],
            cwd=cwd or self.folder,
            env=self.environment,
            check=False,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
        )

    def program(self, run_id: str, kind: str, *, dies: str = "") -> int:
        """Run the project's program, which kills itself where it is told to."""
        answer = subprocess.run(
            [sys.executable, "restock.py", run_id, kind],
            cwd=self.folder,
            env=self.environment | {"DIES": dies},
            check=False,
            capture_output=True,
            timeout=SECONDS_MAX,
        )
        assert answer.returncode == (-signal.SIGKILL if dies else 0), answer.stderr
        return answer.returncode

    # Runs

    def keeper(self, trouble: BaseException | None = None) -> Keeper:
        """Open the project as a program does."""
        return open_keeper(self.folder, effects=box_effects(trouble))

    @contextmanager
    def opened(self, run_id: str = RUN) -> Iterator[Session]:
        """Hold a run open."""
        with self.keeper() as keeper, keeper.run(TASK, run_id) as run:
            yield run

    def make(self, run_id: str = RUN, *, items: Sequence[str] = ("a", "b")) -> None:
        """Make a run, or go on with it, and put things."""
        with self.opened(run_id) as run:
            for item in items:
                run.do("box.put", item=item)
                run.flush()

    def leave_pending(self, run_id: str = RUN, kind: str = "box.put") -> None:
        """Have a worker die during a call."""
        try:
            with self.keeper(Killed()) as keeper, keeper.run(TASK, run_id) as run:
                run.do(kind)
        except Killed:
            return
        raise AssertionError("the worker lived")

    def freeze(self, run_id: str = RUN) -> None:
        """Make a run that waits for a person: a blind call whose answer was lost."""
        self.leave_pending(run_id, "box.mail")
        with self.keeper() as keeper, keeper.run(TASK, run_id) as run:
            try:
                run.settle()
            except FrozenError:
                return
        raise AssertionError("the run did not freeze")

    # What a thief of the disk does

    def change_store(self, statement: str, *bindings: object) -> None:
        """Change the checkpoint store behind everybody's back."""
        _change(self.store, statement, bindings)

    def change_heads(self, statement: str, *bindings: object) -> None:
        """Change the head register behind everybody's back."""
        _change(self.heads, statement, bindings)


def new_project(folder: Path) -> Project:
    """Set a project up, with a program of its own."""
    folder.mkdir()
    init_project(folder)
    (folder / "restock.py").write_text(APP_TEXT, encoding="utf-8")
    (folder / "restock.toml").write_text(TASK_TEXT, encoding="utf-8")
    kept = ("PATH", "HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "LANG")
    environment = {name: os.environ[name] for name in kept if name in os.environ}
    return Project(folder=folder, environment=environment)


def copied(files: Path) -> dict[str, bytes]:
    """Return the files of a folder, its database and log among them."""
    return {path.name: path.read_bytes() for path in files.iterdir() if path.is_file()}


def put_back(folder: Path, files: dict[str, bytes]) -> None:
    """Put an earlier copy of a folder in place of what is there."""
    for path in folder.iterdir():
        if path.is_file():
            path.unlink()
    for name, content in files.items():
        (folder / name).write_bytes(content)
        (folder / name).chmod(0o600)


def _change(path: Path, statement: str, bindings: Sequence[Any]) -> None:
    connection = apsw.Connection(str(path))
    try:
        # The library takes a missing log for lost commits, so this one stays.
        connection.pragma("wal_autocheckpoint", 0)
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        connection.execute(statement, tuple(bindings))
    finally:
        connection.close()
