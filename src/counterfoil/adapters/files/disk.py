"""The system calls that the files adapter makes, each relative to an open folder.

No call here follows a symbolic link in its last part, and none takes more than one
part of a path, so a link that is swapped in anywhere is met as a link. Tests give the
adapter a disk of their own: one that fails, dies, forgets, or folds spellings.
"""

import ctypes
import errno
import os
from pathlib import Path
from struct import Struct

NOREPLACE = 1
EXCHANGE = 2
"""Flags of renameat2."""

AT_EMPTY_PATH = 0x1000
"""Flag of name_to_handle_at: the descriptor itself."""

HANDLE_BYTES_MAX = 128
"""MAX_HANDLE_SZ of Linux."""

READ_BYTES = 1024 * 1024
"""How much of a file is held while it is hashed."""

_HEAD = Struct("Ii")
"""struct file_handle: its size and kind, before its content."""

_HANDLE_BYTES = _HEAD.size + HANDLE_BYTES_MAX

_NO_HANDLES = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EPERM, errno.EINVAL)
"""What file systems without handles say, and filters of system calls."""

_LIBRARY = ctypes.CDLL(None, use_errno=True)


class Disk:
    """The file system as it is. Every method is one system call, or one until it is done."""

    def open_root(self, path: Path) -> int:
        """Open the folder that everything else is relative to."""
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY)

    def open_folder(self, folder: int, name: str) -> int:
        """Open a folder in a folder; a link is `NotADirectoryError`."""
        return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)

    def open_file(self, folder: int, name: str) -> int:
        """Open a file to read; a link is `OSError` with ELOOP, and nothing waits."""
        return os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)

    def create_file(self, folder: int, name: str, mode: int) -> int:
        """Create a file to write; one that is there is `FileExistsError`."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        return os.open(name, flags, mode, dir_fd=folder)

    def write(self, descriptor: int, content: bytes) -> None:
        """Write all of `content`."""
        view = memoryview(content)
        while view:
            view = view[os.write(descriptor, view) :]

    def read(self, descriptor: int) -> bytes:
        """Read the next piece, at most `READ_BYTES`."""
        return os.read(descriptor, READ_BYTES)

    def own(self, descriptor: int, user: int, group: int, mode: int) -> None:
        """Set owner, group and permissions."""
        status = os.fstat(descriptor)
        if (status.st_uid, status.st_gid) != (user, group):
            os.fchown(descriptor, user, group)
        os.fchmod(descriptor, mode)

    def stat(self, folder: int, name: str) -> os.stat_result | None:
        """Return what a name stands for, links not followed, or None."""
        try:
            return os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def status(self, descriptor: int) -> os.stat_result:
        """Return what an open file is."""
        return os.fstat(descriptor)

    def serial(self, folder: int, name: str) -> str | None:
        """Return what the file system never gives to another object, or None for no object.

        An inode number is given again as soon as its file is gone; a file handle is not.
        Where there are no handles, the number must do.
        """
        try:
            return _handle(folder, os.fsencode(name), 0)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno not in _NO_HANDLES:
                raise
        status = self.stat(folder, name)
        return None if status is None else f"inode-{status.st_ino}"

    def serial_of(self, descriptor: int) -> str:
        """Return the same of an open file or folder."""
        try:
            return _handle(descriptor, b"", AT_EMPTY_PATH)
        except OSError as error:
            if error.errno not in _NO_HANDLES:
                raise
        return f"inode-{self.status(descriptor).st_ino}"

    def read_link(self, folder: int, name: str) -> str:
        """Return the target of a symbolic link, as text."""
        return os.readlink(name, dir_fd=folder)

    def names(self, folder: int) -> list[str]:
        """Return the names in a folder, as they are spelt there."""
        return os.listdir(folder)

    def make_folder(self, folder: int, name: str) -> None:
        """Make a folder; one that is there is `FileExistsError`."""
        os.mkdir(name, dir_fd=folder)

    def link(self, folder: int, name: str, other: str) -> None:
        """Give a file a second name in its folder."""
        os.link(name, other, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)

    def unlink(self, folder: int, name: str) -> None:
        """Remove a name."""
        os.unlink(name, dir_fd=folder)

    def rename(self, folder: int, name: str, other_folder: int, other: str, flags: int) -> None:
        """Rename in one atomic act: to a name that is free, or by exchange with one that is not.

        Raises:
            FileExistsError: `NOREPLACE`, and the other name is taken.
            FileNotFoundError: A name that must stand for something does not.
            OSError: Nothing happened, for any reason but EIO.
        """
        _rename(folder, os.fsencode(name), other_folder, os.fsencode(other), flags)

    def sync(self, descriptor: int) -> None:
        """Return when a file, or the names in a folder, are durable."""
        os.fsync(descriptor)


def _rename(folder: int, name: bytes, other_folder: int, other: bytes, flags: int) -> None:
    try:
        renameat2 = _LIBRARY.renameat2
    except AttributeError as error:
        raise OSError(errno.ENOSYS, "this C library has no renameat2") from error
    if renameat2(folder, name, other_folder, other, ctypes.c_uint(flags)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), os.fsdecode(other))


def _handle(folder: int, name: bytes, flags: int) -> str:
    try:
        name_to_handle_at = _LIBRARY.name_to_handle_at
    except AttributeError as error:
        raise OSError(errno.ENOSYS, "this C library has no name_to_handle_at") from error
    handle = ctypes.create_string_buffer(_HEAD.pack(HANDLE_BYTES_MAX, 0), _HANDLE_BYTES)
    mount = ctypes.c_int()
    if name_to_handle_at(folder, name, handle, ctypes.byref(mount), flags) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), os.fsdecode(name))
    size, kind = _HEAD.unpack_from(handle)
    return f"{kind:x}-{handle.raw[_HEAD.size : _HEAD.size + size].hex()}"
