"""`counterfoil init`: set a project up, and say where everything of it lies."""

from pathlib import Path
from typing import Annotated

import typer

from counterfoil.cli.options import JsonOption
from counterfoil.cli.screen import cell, say, show_facts, show_json
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
    file = project / FILE_NAME
    had_file = file.exists()
    # A folder without settings has no id yet, so nothing of it can be there.
    before = places_of(project, read_settings(project)) if had_file else None
    known = (
        {
            path
            for path in (before.store, before.heads, before.keys)
            if path is not None and path.exists()
        }
        if before
        else set[Path]()
    )
    places = init_project(project)
    named = (
        ("settings", file, had_file),
        ("checkpoints", places.store, places.store in known),
        ("heads", places.heads, places.heads in known),
        ("keys", places.keys, places.keys in known),
    )
    made = [name for name, path, was_there in named if path is not None and not was_there]
    if as_json:
        paths = {name: None if path is None else str(path) for name, path, _ in named}
        source = places.key_source.partition(":")[0]
        show_json({"project": str(project), **paths, "key_source": source, "made": made})
        return
    rows: list[tuple[str, object]] = [("project", project)]
    for name, path, was_there in named:
        where = path or ("in memory" if name != "keys" else "from the environment or a command")
        rows.append((name, cell(f"{where}{' (kept)' if was_there else ''}")))
    show_facts(rows)
    say("Everything was there; nothing changed." if not made else "The project is ready.")
