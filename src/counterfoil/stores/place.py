"""Where a database file may lie: on this machine's own disk, and nobody else's to touch.

Looks at names and never opens a database file: closing it would drop the locks that
SQLite holds on it in the same process.
"""

import os
import stat
from pathlib import Path

from counterfoil.core.errors import ConfigError, UnavailableError

MOUNTS = Path("/proc/self/mountinfo")

NETWORK_KINDS = frozenset(
    {
        "9p",
        "acfs",
        "afs",
        "afpfs",
        "beegfs",
        "ceph",
        "cifs",
        "coda",
        "davfs",
        "fuse.ceph",
        "fuse.davfs",
        "fuse.gcsfuse",
        "fuse.glusterfs",
        "fuse.mfs",
        "fuse.rclone",
        "fuse.s3fs",
        "fuse.sshfs",
        "fuse.vmhgfs-fuse",
        "gfs",
        "gfs2",
        "glusterfs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "ocfs2",
        "orangefs",
        "pvfs2",
        "smb",
        "smb2",
        "smb3",
        "smbfs",
        "vboxsf",
        "virtiofs",
    }
)
"""File systems of other machines: without shared memory, WAL loses or corrupts commits."""

LOOSE = stat.S_IRWXG | stat.S_IRWXO
SHARED = stat.S_IWGRP | stat.S_IWOTH


def resolved(path: Path) -> Path:
    """Return `path` with symbolic links in its folder, but not in its name, followed."""
    return path.parent.resolve() / path.name


def make_folder(folder: Path) -> None:
    """Create a folder, and those above it, for us alone; one that is there stays as it is.

    Raises:
        UnavailableError: It cannot be created.
    """
    try:
        for missing in reversed([at for at in (folder, *folder.parents) if not at.exists()]):
            missing.mkdir(mode=0o700, exist_ok=True)
            make_durable(missing)
    except OSError as error:
        raise UnavailableError(f"cannot create the folder {folder}: {error.strerror}") from error


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable.

    Raises:
        OSError: They may not be.
    """
    folder_fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder_fd)
    finally:
        os.close(folder_fd)


def make_durable(path: Path) -> None:
    """Sync the folder of a new file or folder; one that may not last is taken away again.

    Raises:
        OSError: It cannot be synced.
    """
    try:
        sync_folder(path.parent)
    except OSError:
        if path.is_dir():
            path.rmdir()
        else:
            path.unlink(missing_ok=True)
        raise


def identity(path: str) -> tuple[int, int] | None:
    """Return what tells the present file of this name from any other, or None.

    Not for a file that is written to all the time: a look at its times makes the file
    system keep exact ones, and each sync slower.
    """
    try:
        status = os.stat(path)  # noqa: PTH116 - on the path of every commit, and three times faster
    except OSError:
        return None
    return status.st_dev, status.st_ino


def check_folder(folder: Path, mounts: Path = MOUNTS) -> None:
    """Refuse a folder that others may change, or that lies on another machine.

    Args:
        folder: Folder of the database, without symbolic links.
        mounts: Table of mounts, in the form of /proc/self/mountinfo.

    Raises:
        ConfigError: It is one of these; the message names the mend.
        UnavailableError: It cannot be looked at.
    """
    kind = mounted_kind(folder, mounts)
    if kind in NETWORK_KINDS:
        raise ConfigError(
            f"{folder} lies on a network file system ({kind}), which loses commits",
            move="choose a folder on a local disk",
        )
    status = _status(folder)
    if status is None or not stat.S_ISDIR(status.st_mode):
        raise ConfigError(f"{folder} is not a folder")
    if status.st_uid not in (0, os.geteuid()):
        raise ConfigError(f"{folder} belongs to user {status.st_uid}, not to us")
    if status.st_mode & SHARED:
        raise ConfigError(f"others may change {folder}", move=f"run `chmod go-w {folder}`")


def check_file(path: Path) -> int | None:
    """Return the size of a database file, or None if there is none.

    Raises:
        ConfigError: It is a link, no file, another user's, or open to others; the
            message names the mend.
        UnavailableError: It cannot be looked at.
    """
    status = _status(path)
    if status is None:
        return None
    if stat.S_ISLNK(status.st_mode):
        raise ConfigError(f"{path} is a symbolic link", move="name the file itself")
    if not stat.S_ISREG(status.st_mode):
        raise ConfigError(f"{path} is not a file")
    if status.st_uid != os.geteuid():
        raise ConfigError(
            f"{path} belongs to user {status.st_uid}, not to us",
            move=f"run as that user, or `chown {os.geteuid()} {path}`",
        )
    if status.st_mode & LOOSE:
        raise ConfigError(
            f"{path} has mode {stat.S_IMODE(status.st_mode):o}, so others may open it",
            move=f"run `chmod 600 {path}`",
        )
    return status.st_size


def mounted_kind(folder: Path, mounts: Path = MOUNTS) -> str:
    """Return the kind of file system that `folder` lies on; empty where nobody can say.

    Source:
        proc(5), /proc/self/mountinfo: the fifth field is the place, with octal escapes;
        the kind follows a lone dash. A later line covers an earlier one.
    """
    try:
        lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return ""
    best, found = -1, ""
    for line in lines:
        fields = line.split(" ")
        if "-" not in fields[6:]:
            continue
        place = Path(_unescaped(fields[4]))
        if folder.is_relative_to(place) and len(place.parts) >= best:
            best, found = len(place.parts), fields[fields.index("-", 6) + 1]
    return found


def _unescaped(place: str) -> str:
    for escape, letter in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        place = place.replace(escape, letter)
    return place


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.lstat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UnavailableError(f"cannot look at {path}: {error.strerror}") from error
