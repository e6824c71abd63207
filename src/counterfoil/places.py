"""Where everything of a project lies, by its settings and the user's folders."""

import hashlib
import os
from dataclasses import dataclass, field
from pathlib import Path

from counterfoil.core.errors import ConfigError
from counterfoil.core.words import identifier
from counterfoil.keys import check_apart, parse_source
from counterfoil.settings import Settings
from counterfoil.urls import SERVERS, Scheme, scheme_of, shown

INBOX_NAME = "inbox.db"
TRUST_NAME = "trust.json"

STORE_SCHEMES = (Scheme.SQLITE, Scheme.MEMORY, Scheme.POSTGRESQL)
HEADS_SCHEMES = (*STORE_SCHEMES, Scheme.ETCD)


@dataclass(frozen=True, kw_only=True, slots=True)
class Places:
    """Where everything of a project lies.

    Attributes:
        project: The project's folder.
        store_url: Where checkpoints lie, and statements that wait with them.
        heads_url: Where heads lie.
        store_kind: What kind of place that is.
        heads_kind: What kind of place that is.
        store: The checkpoint file; None in memory and on a server.
        heads: The file of heads; None in memory and on a server.
        key_source: Source of the checkpoint keys.
        keys: The key file, when the source is one.
        inbox: The file of statements that wait, beside the store; None as for it.
        trust: The file of those who may sign statements; it need not be there.
    """

    project: Path
    store_url: str = field(repr=False)
    heads_url: str = field(repr=False)
    store_kind: Scheme
    heads_kind: Scheme
    store: Path | None
    heads: Path | None
    key_source: str
    keys: Path | None
    inbox: Path | None
    trust: Path

    @property
    def uses_servers(self) -> bool:
        """Whether checkpoints or heads lie on a server."""
        return self.store_kind in SERVERS or self.heads_kind in SERVERS

    @property
    def store_shown(self) -> str:
        """Where checkpoints lie, for people; empty in memory."""
        return _shown(self.store_kind, self.store_url, self.store)

    @property
    def heads_shown(self) -> str:
        """Where heads lie, for people; empty in memory."""
        return _shown(self.heads_kind, self.heads_url, self.heads)


def _shown(kind: Scheme, url: str, file: Path | None) -> str:
    if kind is Scheme.MEMORY:
        return ""
    return shown(url) if file is None else str(file)


def places_of(project: Path, settings: Settings) -> Places:
    """Return where a project's files lie, by its settings and the user's folders.

    Raises:
        ConfigError: A url or a key source cannot be read.
    """
    name = project_name(project, settings)
    store_url, heads_url = settings.store.url, settings.heads.url or _default_heads(name)
    store_kind = scheme_of(store_url, "store.url", STORE_SCHEMES)
    heads_kind = scheme_of(heads_url, "heads.url", HEADS_SCHEMES)
    store, heads = _path(store_url, project), _path(heads_url, project)
    source = settings.keys.source or f"file:{_default_keys(name)}"
    parsed = parse_source(source)
    keys = None
    if parsed.kind == "file":
        keys = Path(parsed.place).expanduser()
        keys = keys if keys.is_absolute() else project / keys
        check_apart(keys, project)
    return Places(
        project=project,
        store_url=store_url,
        heads_url=heads_url,
        store_kind=store_kind,
        heads_kind=heads_kind,
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
    return f"{Scheme.SQLITE}:{user_folder('XDG_STATE_HOME', '.local/state')}/{name}/heads.db"


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


def _path(url: str, project: Path) -> Path | None:
    """Return the file that a url names; None where it names no file."""
    scheme, _, place = url.partition(":")
    if scheme != Scheme.SQLITE:
        return None
    path = Path(place).expanduser()
    return path if path.is_absolute() else project / path
