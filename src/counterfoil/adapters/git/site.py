"""The repository that an adapter works on, and the private git directory it works through.

Git obeys the configuration of the repository it is called in, and that may name
programs: hooks, filters, helpers, monitors. So no command is called in it. The private
directory inside it has a configuration of its own and reaches only what is data: refs,
objects, reflogs. Whatever else is found in there was put there by somebody else, and is
refused. The working tree and the index of the user are never opened.
"""

import os
import re
import secrets
import stat
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from counterfoil.adapters.git.command import Git, promised
from counterfoil.core.canonical import canonical, digest
from counterfoil.core.errors import ConfigError, UnavailableError
from counterfoil.locks import locked

PRIVATE = "counterfoil"
"""Name of the private directory inside the repository's git directory."""

ASIDE = "aside"
"""Folder of locks that our own killed commands left, kept as evidence."""

INDEX_START = "index-"
LOCK = "lock"
BUSY = "the repository"
"""What other workers may keep busy."""

CONFIG = "config"
HEAD = "HEAD"
INSTANCE = "instance"
DRAFT_END = ".new"

GIT_LEAST = (2, 36)
"""First version that can make each of its files durable (`core.fsync`)."""

_LINKS = ("refs", "objects", "logs", "packed-refs", "shallow")
"""What the private directory shares with the repository: data, no instructions."""

_OWN = (CONFIG, HEAD, INSTANCE, LOCK, ASIDE)

_ALTERNATES = ("objects/info/alternates", "objects/info/http-alternates")

_EXTENSIONS = ("objectformat", "noop", "noop-v1", "preciousobjects", "worktreeconfig")
"""Extensions of the format that change nothing here; others are refused."""

_SHARED = re.compile(r"umask|group|all|world|everybody|true|false|[012]|0[0-7]{3}")

_CONFIG = """\
[core]
\trepositoryformatversion = {version}
\tbare = true
\thooksPath = /dev/null
\tlogAllRefUpdates = {logs}
\tsharedRepository = {shared}
\tfilesRefLockTimeout = 1000
\tpackedRefsTimeout = 1000
\tattributesFile = /dev/null
\texcludesFile = /dev/null
\tfsmonitor = false
\tcommitGraph = false
\tprotectHFS = true
\tprotectNTFS = true
[extensions]
\tobjectFormat = {objects}
[credential]
\thelper =
[submodule]
\trecurse = false
[protocol]
\tversion = 2
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Site:
    """An opened repository.

    Attributes:
        common: Its git directory.
        private: The private directory in there.
        git: Calls git through it, or in the repository itself where that is trusted.
        instance: Identity of this environment.
        is_bare: Whether nothing is checked out beside it.
        trusts: Whether hooks, configuration and alternates of the repository apply.
        remotes: URLs by name.
        now_ms: Clock, UTC.
        pause: Waits for so many seconds.
    """

    common: Path
    private: Path
    git: Git
    instance: str
    is_bare: bool
    trusts: bool
    remotes: Mapping[str, str]
    now_ms: Callable[[], int]
    pause: Callable[[float], None]


def open_site(
    repository: Path,
    *,
    program: str,
    remotes: Mapping[str, str],
    environment: Mapping[str, str],
    trusts: bool,
    now_ms: Callable[[], int],
    pause: Callable[[float], None],
) -> Site:
    """Open a repository.

    Raises:
        ConfigError: It is none that can be used safely, or git is too old.
        UnavailableError: Something cannot be opened now.
    """
    _check_version(program)
    common = _git_directory(repository)
    settings = _settings(_asking(program), common)
    private = common / PRIVATE
    try:
        identity = _prepared(private, _config(settings), pause)
        target = canonical([identity, _place(common), dict(sorted(remotes.items()))])
    except OSError as error:
        raise _unusable(common, error) from error
    git = Git(
        program=program,
        folder=private,
        git_dir=common if trusts else private,
        environment=environment,
        settings=promised(remotes.values()),
    )
    site = Site(
        common=common,
        private=private,
        git=git,
        instance=f"git:{digest(target)[:40]}",
        is_bare=settings.get("core.bare") == "true",
        trusts=trusts,
        remotes=dict(remotes),
        now_ms=now_ms,
        pause=pause,
    )
    guard(site)
    return site


def _prepared(private: Path, config: str, pause: Callable[[float], None]) -> str:
    """Make the private directory ready, and return the identity that is kept there."""
    with suppress(FileExistsError):
        private.mkdir(mode=0o700)
    _check_folder(private)
    with locked(private / LOCK, pause, BUSY):
        _sweep(private)
        _link(private)
        _write(private, CONFIG, config)
        _write(private, HEAD, "ref: refs/heads/.none\n")
        return _identity(private)


def _unusable(common: Path, error: OSError) -> UnavailableError:
    return UnavailableError(
        f"the git directory {common} cannot be used now ({type(error).__name__})"
    )


@contextmanager
def turn(site: Site) -> Generator[int]:
    """Hold the repository against other workers; yield the descriptor that holds it.

    A command that inherits the descriptor holds it too: whoever gets the lock knows that
    none of our commands is still at work within the repository.

    Raises:
        ConfigError: The repository is no longer one that can be used safely.
        UnavailableError: Others held it all the while, or it is gone.
    """
    try:
        guard(site)
        with locked(site.private / LOCK, site.pause, BUSY) as descriptor:
            yield descriptor
    except OSError as error:
        raise _unusable(site.common, error) from error


def guard(site: Site) -> None:
    """Refuse a repository that borrows objects from elsewhere, or is gone.

    Raises:
        ConfigError: It has alternates and is not trusted.
        UnavailableError: It is not there.
    """
    if not (site.private / CONFIG).is_file():
        raise UnavailableError(f"the git directory {site.common} is not there")
    for name in _ALTERNATES:
        if not site.trusts and os.path.lexists(site.common / name):
            raise ConfigError(
                f"{site.common} borrows objects from elsewhere ({name})",
                move="copy them with `git repack -a -d` and remove that file, or trust it",
            )


def _asking(program: str) -> Git:
    return Git(program=program, folder=Path("/"), environment={})


@cache
def _check_version(program: str) -> None:
    """Refuse a program that is too old; one that was found good once is not asked again."""
    said = _asking(program).run("version").out.decode("ascii", "replace")
    number = re.match(r"git version (\d+)\.(\d+)", said)
    if number is None or (int(number[1]), int(number[2])) < GIT_LEAST:
        raise ConfigError(
            f"git {'.'.join(map(str, GIT_LEAST))} or later is needed, this is {said.strip()!r:.80}"
        )


def _git_directory(repository: Path) -> Path:
    """Return the git directory of a repository, never one that a file or a link points to."""
    inner = repository / ".git"
    if inner.is_symlink() or inner.is_file():
        raise ConfigError(
            f"{inner} points at a git directory elsewhere",
            move="name the repository that it points at, if that is the one you mean",
        )
    common = (inner if inner.is_dir() else repository).absolute()
    for name in ("refs", "objects", "logs"):
        place = common / name
        if place.is_symlink() or not (place.is_dir() or name == "logs"):
            raise ConfigError(f"{repository} is no git repository: {name} is no folder in {common}")
    if not (common / HEAD).exists() or (common / "commondir").exists():
        raise ConfigError(f"{repository} is no git repository with refs of its own")
    return common


def _settings(asking: Git, common: Path) -> dict[str, str]:
    """Return the repository's configuration as data; nothing in it is followed.

    Raises:
        ConfigError: It cannot be read, or asks for a format that is not supported.
    """
    path = common / CONFIG
    if path.is_symlink() or not path.is_file():
        raise ConfigError(f"{path} is no file")
    ran = asking.run("config", "--file", str(path), "--no-includes", "--null", "--list")
    if not ran.is_done:
        raise ConfigError(f"{path} cannot be read: {ran.trouble:.200}")
    entries = ran.out.decode("utf-8", "replace").split("\0")
    settings = {name: value for name, _, value in (entry.partition("\n") for entry in entries)}
    for name in settings:
        start, _, extension = name.partition(".")
        if start == "extensions" and extension not in _EXTENSIONS:
            raise ConfigError(
                f"{path} asks for the extension {extension!r:.80}, not supported here"
            )
    if settings.get("core.repositoryformatversion", "0") not in ("0", "1"):
        raise ConfigError(f"{path} asks for a format that is not supported here")
    if settings.get("extensions.objectformat", "sha1") not in ("sha1", "sha256"):
        raise ConfigError(f"{path} asks for an object format that is not supported here")
    return settings


def _config(settings: Mapping[str, str]) -> str:
    shared = settings.get("core.sharedrepository", "umask")
    return _CONFIG.format(
        version=1,
        objects=settings.get("extensions.objectformat", "sha1"),
        logs="false" if settings.get("core.bare") == "true" else "true",
        shared=shared if _SHARED.fullmatch(shared) else "umask",
    )


def _check_folder(private: Path) -> None:
    """Refuse a private directory that holds what this adapter never puts there."""
    status = private.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise ConfigError(f"{private} is no folder of this user")
    for place in private.iterdir():
        name = place.name
        is_link = name in _LINKS and place.is_symlink() and place.readlink() == _shared(name)
        is_draft = name.startswith(INDEX_START) or name.removesuffix(DRAFT_END) in (CONFIG, HEAD)
        is_own = (name in _OWN or is_draft or name == f"{INSTANCE}{DRAFT_END}") and (
            not place.is_symlink()
        )
        if not is_link and not is_own:
            raise ConfigError(
                f"{private} holds {name!r:.80}, which was not put there by Counterfoil",
                move="look where it comes from, and remove the folder if nobody works with it",
            )


def _sweep(private: Path) -> None:
    """Remove the indexes of workers that were killed; the lock is held."""
    for place in private.glob(f"{INDEX_START}*"):
        place.unlink(missing_ok=True)


def _shared(name: str) -> Path:
    return Path("..") / name


def _link(private: Path) -> None:
    for name in _LINKS:
        with suppress(FileExistsError):
            (private / name).symlink_to(_shared(name))


def _write(private: Path, name: str, text: str) -> None:
    """Put a file there in one act, unless it is there with this text already."""
    place, draft = private / name, private / f"{name}{DRAFT_END}"
    if place.is_file() and place.read_text(encoding="utf-8") == text:
        return
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.rename(place)
    sync_folder(private)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable.

    Raises:
        OSError: They cannot be.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _identity(private: Path) -> str:
    place = private / INSTANCE
    if not place.exists():
        _write(private, INSTANCE, secrets.token_hex(16))
    return place.read_text(encoding="utf-8")


def _place(common: Path) -> str:
    """Return where the repository is, as the file system counts: a copy is elsewhere."""
    status = common.stat()
    return f"{os.statvfs(common).f_fsid:x}:{status.st_ino:x}"
