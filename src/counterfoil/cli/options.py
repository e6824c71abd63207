"""Arguments and options that commands share, and how a project is opened for them."""

from pathlib import Path
from typing import Annotated

import typer

from counterfoil.compose import (
    Places,
    Settings,
    import_app,
    is_set_up,
    open_keeper,
    open_records,
    places_of,
)
from counterfoil.core.errors import ConfigError, IntegrityError, UnavailableError, UsageError
from counterfoil.core.words import RunId, identifier
from counterfoil.keeper import Keeper
from counterfoil.settings import FILE_NAME, FOLDER_NAME, find_project, read_settings

ProjectOption = Annotated[
    Path | None,
    typer.Option(
        "--project",
        envvar="COUNTERFOIL_PROJECT",
        metavar="FOLDER",
        help="Folder of the project; by default the nearest one, from here upwards.",
        show_default=False,
    ),
]
JsonOption = Annotated[
    bool,
    typer.Option("--json", help="Print one JSON object, with names that stay."),
]
RunArgument = Annotated[
    str,
    typer.Argument(metavar="RUN", help="Id of the run, as `counterfoil runs` shows it."),
]
AppOption = Annotated[
    str | None,
    typer.Option(
        "--app",
        metavar="MODULE",
        help="Python module that declares the effects; by default `app` of counterfoil.toml.",
        show_default=False,
    ),
]
WaitOption = Annotated[
    int,
    typer.Option(
        "--wait-ms",
        min=0,
        max=3_600_000,
        metavar="MS",
        help="How long to wait for a worker that holds the run.",
    ),
]


def run_of(text: str) -> RunId:
    """Return a run id given on the command line.

    Raises:
        ContractError: It cannot name a run.
    """
    return RunId(identifier(text, "RUN"))


def folder_of(project: Path | None) -> Path:
    """Return the folder of a project, which need not be set up.

    Raises:
        ConfigError: What was named is no folder.
    """
    if project is not None and not project.is_dir():
        raise ConfigError(f"--project {project} is no folder", move="name a folder that exists")
    return find_project(project or Path())


def placed(project: Path | None) -> tuple[Settings, Places]:
    """Return the settings of a project, and where everything of it lies.

    Raises:
        ConfigError: A setting cannot be used as it is.
    """
    folder = folder_of(project)
    settings = read_settings(folder)
    try:
        return settings, places_of(folder, settings)
    except ConfigError as error:
        if is_marked(folder):
            raise
        raise no_project(folder) from error


def is_marked(folder: Path) -> bool:
    """Return whether a folder itself says that it is a project."""
    return (folder / FILE_NAME).is_file() or (folder / FOLDER_NAME).is_dir()


def no_project(folder: Path) -> ConfigError:
    """Return what is said where nothing was set up."""
    return ConfigError(
        f"there is no project at {folder}",
        move="run `counterfoil init` there, or name its folder with --project",
    )


def records(project: Path | None) -> Keeper:
    """Open a project's stores and keys, and no target.

    Raises:
        ConfigError: There is no project, or one that cannot be used as it is.
        IntegrityError: A store or register is missing or damaged.
    """
    _, places = placed(project)
    return open_records(places.project)


def targets(project: Path | None, app: str | None) -> Keeper:
    """Open a project with every target that it declares.

    Raises:
        ConfigError: There is no project, or no such module.
        IntegrityError: A store or register is missing or damaged.
    """
    settings, places = placed(project)
    if not is_set_up(places):
        raise no_project(places.project)
    _import(places, settings, app)
    return open_keeper(places.project)


def targets_or_records(project: Path | None, app: str | None) -> Keeper:
    """Open a project with its targets, or without them where they cannot be opened."""
    settings, places = placed(project)
    if not is_set_up(places):
        return records(project)
    _import(places, settings, app)
    try:
        return open_keeper(places.project)
    except (UsageError, IntegrityError, UnavailableError):
        # Where stores or keys are at fault, opening those alone says so again.
        return records(project)


def _import(places: Places, settings: Settings, app: str | None) -> None:
    name = settings.app if app is None else app
    if name:
        import_app(name, places.project)
