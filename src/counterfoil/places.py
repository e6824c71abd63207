"""Where everything of a project lies, by its settings and the user's folders."""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from counterfoil.core.errors import ConfigError
from counterfoil.core.words import identifier
from counterfoil.keys import check_apart, parse_source
from counterfoil.settings import Settings

INBOX_NAME = "inbox.db"
TRUST_NAME = "trust.json"

SQLITE = "sqlite:"
MEMORY = "memory:"


@dataclass(frozen=True, kw_only=True, slots=True)
class Places:
    """Where everything of a project lies.

    Attributes:
        project: The project's folder.
        store: The checkpoint file; None in memory.
        heads: The file of heads; None in memory.
        key_source: Source of the checkpoint keys.
        keys: The key file, when the source is one.
        inbox: The file of statements that wait, beside the store; None in memory.
        trust: The file of those who may sign statements; it need not be there.
    """

    project: Path
    store: Path | None
    heads: Path | None
    key_source: str
    keys: Path | None
    inbox: Path | None
    trust: Path


def places_of(project: Path, settings: Settings) -> Places:
    """Return where a project's files lie, by its settings and the user's folders.

    Raises:
        ConfigError: A url or a key source cannot be read.
    """
    name = project_name(project, settings)
    store = _path(settings.store.url, project, "store.url")
    heads = _path(settings.heads.url or _default_heads(name), project, "heads.url")
    source = settings.keys.source or f"file:{_default_keys(name)}"
    parsed = parse_source(source)
    keys = None
    if parsed.kind == "file":
        keys = Path(parsed.place).expanduser()
        keys = keys if keys.is_absolute() else project / keys
        check_apart(keys, project)
    return Places(
        project=project,
        store=store,
        heads=heads,
        key_source=source,
        keys=keys,
        inbox=store.parent / INBOX_NAME if store is not None else None,
        trust=_trust(project, settings, name),
    )


def project_name(project: Path, settings: Settings) -> str:
    """Return what names the project in the user's folders.

    Raises:
        ConfigError: The set id cannot be a folder's name.
    """
    if settings.project.id:
        name = identifier(settings.project.id, "project.id")
        if "/" in name or name.startswith("."):
            raise ConfigError("project.id must be one plain word, without '/'")
        return name
    place = hashlib.sha256(os.fsencode(project.resolve())).hexdigest()[:16]
    return f"{project.resolve().name or 'root'}-{place}"


def _default_heads(name: str) -> str:
    return f"{SQLITE}{user_folder('XDG_STATE_HOME', '.local/state')}/{name}/heads.db"


def _default_keys(name: str) -> Path:
    return user_folder("XDG_CONFIG_HOME", ".config") / name / "keys.json"


def _trust(project: Path, settings: Settings, name: str) -> Path:
    """Return the place of the trust file, where no planner can write.

    Raises:
        ConfigError: It lies inside the project.
    """
    path = user_folder("XDG_CONFIG_HOME", ".config") / name / TRUST_NAME
    if settings.trust.file:
        path = Path(settings.trust.file).expanduser()
        path = path if path.is_absolute() else project / path
    check_apart(path, project, "trust file")
    return path


def user_folder(variable: str, default: str) -> Path:
    """Return Counterfoil's folder below one of the user's own."""
    base = os.environ.get(variable, "")
    root = Path(base) if base.startswith("/") else Path.home() / default
    return root / "counterfoil"


def _path(url: str, project: Path, field: str) -> Path | None:
    if url == MEMORY:
        return None
    if not url.startswith(SQLITE) or url == SQLITE:
        raise ConfigError(f"{field} {url!r:.100} is neither 'sqlite:PATH' nor 'memory:'")
    path = Path(url.removeprefix(SQLITE)).expanduser()
    return path if path.is_absolute() else project / path
