"""`counterfoil init`: set a project up, and say where everything of it lies."""

from pathlib import Path
from typing import Annotated

import typer

from counterfoil.backends import Content, contents_of, grant_roles
from counterfoil.cli.options import JsonOption
from counterfoil.cli.screen import say, show_facts, show_json
from counterfoil.compose import init_project, places_of
from counterfoil.core.errors import ConfigError
from counterfoil.engine.clock import SystemClock
from counterfoil.settings import FILE_NAME, read_settings

FolderArgument = Annotated[
    Path | None,
    typer.Argument(
        metavar="FOLDER",
        help="Folder of the project; by default this one.",
        show_default=False,
    ),
]
WorkerOption = Annotated[
    str,
    typer.Option(
        "--worker",
        metavar="ROLE",
        help="Role of PostgreSQL that may do what workers need, and nothing past the rules.",
        show_default=False,
    ),
]
ReaderOption = Annotated[
    str,
    typer.Option(
        "--reader",
        metavar="ROLE",
        help="Role of PostgreSQL that may read, and write nothing.",
        show_default=False,
    ),
]


def init(
    folder: FolderArgument = None,
    worker: WorkerOption = "",
    reader: ReaderOption = "",
    as_json: JsonOption = False,
) -> None:
    """Set a project up: its id, its key, its checkpoints and its heads.

    Prints where each of them lies. What is there is kept as it is, so calling it twice
    changes nothing. On servers that the settings name, it alone makes schemas, tables
    and prefixes, and grants roles what they need.

    Example:  counterfoil init --worker app
    """
    project = (folder or Path()).resolve()
    if not project.is_dir():
        raise ConfigError(f"{project} is no folder", move="make the folder first")
    known = _known(project)
    places = init_project(project)
    if worker or reader:
        grant_roles(places, worker=worker, reader=reader)
    named = {
        "settings": str(project / FILE_NAME),
        "checkpoints": places.store_shown,
        "heads": places.heads_shown,
        "keys": str(places.keys or ""),
    }
    made = [name for name, where in named.items() if where and name not in known]
    if as_json:
        paths = {name: where or None for name, where in named.items()}
        source = places.key_source.partition(":")[0]
        show_json({"project": str(project), **paths, "key_source": source, "made": made})
        return
    rows: list[tuple[str, object]] = [("project", project)]
    for name, where in named.items():
        nowhere = "in memory" if name != "keys" else "from the environment or a command"
        rows.append((name, f"{where or nowhere}{' (kept)' if name in known else ''}"))
    show_facts(rows)
    say("The project is ready." if made else "Everything was there; nothing changed.")


def _known(project: Path) -> set[str]:
    """Return what is there; without settings there is no id, so nothing is."""
    file = project / FILE_NAME
    if not file.exists():
        return set()
    places = places_of(project, read_settings(project))
    found = contents_of(places, SystemClock())
    is_known = {
        "settings": True,
        "checkpoints": found.store is not Content.ABSENT,
        "heads": found.heads is not Content.ABSENT,
        "keys": places.keys is not None and places.keys.exists(),
    }
    return {name for name, is_there in is_known.items() if is_there}
