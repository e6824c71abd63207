"""Where a drill takes place: a folder, servers, a project, a target and workers, for a while."""

import json
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from counterfoil.backends import Content, contents_of
from counterfoil.compose import init_project
from counterfoil.core.errors import ConfigError, UnavailableError
from counterfoil.drill.company import Company
from counterfoil.drill.family import Child
from counterfoil.drill.lines import Failed, FromPremises
from counterfoil.drill.plan import Plan
from counterfoil.engine.clock import SystemClock
from counterfoil.places import places_of
from counterfoil.settings import FILE_NAME, read_settings

START_SECONDS_MAX = 120
"""Until servers are up: many times over, on a busy machine."""

TARGET_SECONDS_MAX = 30
PREMISES_SECONDS = 60
"""How long servers may take to stop, and the folder to be removed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Folders and files of one drill."""

    folder: Path

    @property
    def project(self) -> Path:
        """Folder of the project."""
        return self.folder / "project"

    @property
    def database(self) -> Path:
        """What the target keeps."""
        return self.folder / "target.db"

    @property
    def log(self) -> Path:
        """What programs say when they break."""
        return self.folder / "programs.log"


@contextmanager
def premises(plan: Plan) -> Generator[Place]:
    """Make a folder, start servers, and set a project up there.

    Raises:
        ConfigError: A URL cannot be used, holds runs, or needs what is not installed.
        UnavailableError: A server cannot be started or reached.
    """
    words = ["--store", plan.store, "--heads", plan.heads]
    holder = Child("counterfoil.drill.premises", words, log=None)
    try:
        ready = msgspec.json.decode(holder.line(START_SECONDS_MAX), type=FromPremises)
        if isinstance(ready, Failed):
            kind = ConfigError if ready.is_ours else UnavailableError
            raise kind(ready.message, move=ready.move)
        place = Place(folder=Path(ready.folder))
        _set_up(place, ready.store_url, ready.heads_url, plan.lease_ms)
        yield place
    finally:
        holder.close(PREMISES_SECONDS)


def _set_up(place: Place, store_url: str, heads_url: str, lease_ms: int) -> None:
    """Set a project up with a fresh key, all of it in the folder but what URLs name."""
    (place.project / "files").mkdir(parents=True)
    home = place.folder / "home"
    home.mkdir()
    words = {
        ("project", "id"): "drill",
        ("store", "url"): store_url,
        ("heads", "url"): heads_url,
        ("keys", "source"): f"file:{home / 'keys.json'}",
        ("trust", "file"): str(home / "trust.json"),
        ("adapters.files", "root"): "files",
    }
    text = "".join(f"[{table}]\n{name} = {json.dumps(w)}\n" for (table, name), w in words.items())
    file = place.project / FILE_NAME
    file.touch(mode=0o600)  # a URL may hold a password
    file.write_text(f"{text}[lease]\nttl_ms = {lease_ms}\n", encoding="utf-8")
    places = places_of(place.project, read_settings(place.project))
    found = contents_of(places, SystemClock())
    for name, content in (("store", found.store), ("heads", found.heads)):
        if content is not Content.ABSENT:
            raise ConfigError(
                f"there is a project at the place that --{name} names",
                move="name a place of its own for the drill: another file, schema or prefix",
            )
    init_project(place.project, writes_settings=False)


@contextmanager
def target(plan: Plan, place: Place) -> Generator[int]:
    """Start the counting target, and give the port where it listens."""
    words = ["--seed", str(plan.seed), "--late-ms", str(plan.late_ms)]
    words += ["--database", str(place.database)]
    words += ["--sabotage", plan.sabotage] if plan.sabotage else []
    with Child("counterfoil.drill.target", words, log=place.log) as child:
        yield int(child.line(TARGET_SECONDS_MAX))


@contextmanager
def company(plan: Plan, place: Place, port: int) -> Generator[Company]:
    """Start the crew; nobody is hired before somebody attends."""
    made = Company(plan, project=place.project, port=port, log=place.log)
    try:
        yield made
    except UnavailableError as error:
        said = place.log.read_text(encoding="utf-8", errors="replace").strip()
        last = f": {said.splitlines()[-1]}" if said else ""
        raise UnavailableError(f"{error.message}{last}") from error
    finally:
        made.close()
