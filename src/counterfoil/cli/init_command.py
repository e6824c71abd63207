"""`counterfoil init`: set a project up, and say where everything of it lies."""

from pathlib import Path
from typing import Annotated

import typer

from counterfoil.cli.options import JsonOption
from counterfoil.cli.screen import say, show_facts, show_json
from counterfoil.compose import init_project, places_of
from counterfoil.core.errors import ConfigError
from counterfoil.settings import FILE_NAME, read_settings


def init(
    folder: Annotated[
        Path | None,
        typer.Argument(
            metavar="FOLDER",
            help="Folder of the project; by default this one.",
            show_default=False,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Set a project up: its id, its key, its checkpoints and its heads.

    Prints where each of them lies. What is there is kept as it is, so calling it twice
    changes nothing.

    Example:  counterfoil init
    """
    project = (folder or Path()).resolve()
    if not project.is_dir():
        raise ConfigError(f"{project} is no folder", move="make the folder first")
    known = _known(project)
    places = init_project(project)
    named = {
        "settings": project / FILE_NAME,
        "checkpoints": places.store,
        "heads": places.heads,
        "keys": places.keys,
    }
    made = [name for name, path in named.items() if path is not None and path not in known]
    if as_json:
        paths = {name: None if path is None else str(path) for name, path in named.items()}
        source = places.key_source.partition(":")[0]
        show_json({"project": str(project), **paths, "key_source": source, "made": made})
        return
    rows: list[tuple[str, object]] = [("project", project)]
    for name, path in named.items():
        where = path or ("in memory" if name != "keys" else "from the environment or a command")
        rows.append((name, f"{where}{' (kept)' if path in known else ''}"))
    show_facts(rows)
    say("The project is ready." if made else "Everything was there; nothing changed.")


def _known(project: Path) -> set[Path]:
    """Return the files that are there; without settings there is no id, so nothing is."""
    file = project / FILE_NAME
    if not file.exists():
        return set()
    places = places_of(project, read_settings(project))
    files = (file, places.store, places.heads, places.keys)
    return {path for path in files if path is not None and path.exists()}
