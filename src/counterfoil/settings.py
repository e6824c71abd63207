"""Settings: `counterfoil.toml` in the project's folder, strictly read, all optional."""

import tomllib
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from counterfoil.core.bounds import INTEGER_MAX
from counterfoil.core.errors import ConfigError
from counterfoil.urls import shown

FILE_NAME = "counterfoil.toml"
FOLDER_NAME = ".counterfoil"
SETTINGS_BYTES_MAX = 64 * 1024
LEASE_MS_MIN = 1_000
"""Shorter leases are lost to one slow disk write."""


class Project(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which project this is.

    Attributes:
        id: Names the project's heads and keys in the user's folders. A copy of the
            project keeps it, so that both copies meet at the same heads. Derived from
            the folder's path when it is not set.
    """

    id: str = ""


class Store(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where checkpoints are, and statements that wait with them.

    Attributes:
        url: "sqlite:" and a path, relative to the project; "postgresql://" and a
            database; or "memory:".
    """

    url: str = "sqlite:.counterfoil/checkpoints.db"

    def __repr__(self) -> str:
        return f"Store(url={shown(self.url)!r})"


class Heads(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where heads are.

    Attributes:
        url: "sqlite:" and a path; "postgresql://" and a database; "etcd://" and a
            prefix; or "memory:". By default a file in the user's state folder
            ($XDG_STATE_HOME/counterfoil), so that restoring the project's folder
            cannot turn time back.
    """

    url: str = ""

    def __repr__(self) -> str:
        return f"Heads(url={shown(self.url)!r})"


class Keys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where checkpoint keys come from.

    Attributes:
        source: "file:PATH", "env:NAME" or "command:ARGV"; by default a file in the
            user's configuration folder ($XDG_CONFIG_HOME/counterfoil).
    """

    source: str = ""


class Trust(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who may sign statements.

    Attributes:
        file: Path of the trust file, outside the project; by default in the user's
            configuration folder ($XDG_CONFIG_HOME/counterfoil).
    """

    file: str = ""


class Lease(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long a worker holds a run without renewing.

    Attributes:
        ttl_ms: Term in milliseconds; longer than any single call may take.
    """

    ttl_ms: Annotated[int, Meta(ge=LEASE_MS_MIN, le=INTEGER_MAX)] = 30_000


class Commit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How commits are made.

    Attributes:
        durability: "merged" lets a receipt ride with the next intent, where the adapter
            can be asked for it again: one commit per step. "strict" commits each receipt
            before the step returns: two.
        marker: Whether a signed marker is written before each effect, for registers
            that may lose their last write.
    """

    durability: Literal["merged", "strict"] = "merged"
    marker: bool = False


class Retention(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When `counterfoil gc` archives a finished run.

    Attributes:
        finished_before: How long it must have ended, such as "90d"; empty where the
            command says it each time.
    """

    finished_before: str = ""


class Files(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `files` adapter.

    Attributes:
        root: Folder it may touch, relative to the project.
    """

    root: str = "."


class Adapters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Adapters that need no code.

    Attributes:
        files: Settings of the `files` adapter.
    """

    files: Files = Files()


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings of a project.

    Attributes:
        app: Module that declares effects, for commands that must reach targets.
        project: Which project this is.
        store: Where checkpoints are.
        heads: Where heads are.
        keys: Where keys come from.
        trust: Who may sign statements.
        lease: Terms of leases.
        commit: How commits are made.
        retention: When finished runs are archived.
        adapters: Adapters that need no code.
    """

    app: str = ""
    project: Project = Project()
    store: Store = Store()
    heads: Heads = Heads()
    keys: Keys = Keys()
    trust: Trust = Trust()
    lease: Lease = Lease()
    commit: Commit = Commit()
    retention: Retention = Retention()
    adapters: Adapters = Adapters()


def find_project(start: Path) -> Path:
    """Return the nearest folder at or above `start` that holds a project; else `start`."""
    start = start.resolve()
    for folder in (start, *start.parents):
        if (folder / FILE_NAME).is_file() or (folder / FOLDER_NAME).is_dir():
            return folder
    return start


def read_settings(project: Path) -> Settings:
    """Return the project's settings; all defaults when there is no file.

    Raises:
        ConfigError: The file is too large, no TOML, or has an unknown or mistyped
            setting, which the message names.
    """
    path = project / FILE_NAME
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return Settings()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    if len(raw) > SETTINGS_BYTES_MAX:
        raise ConfigError(f"{path} has {len(raw)} bytes, the bound is {SETTINGS_BYTES_MAX}")
    try:
        return msgspec.convert(tomllib.loads(raw.decode("utf-8")), Settings, strict=True)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: {error!s:.200}") from error
    except ValueError as error:
        raise ConfigError(f"{path} is no TOML: {error!s:.200}") from error
