"""File systems that die, fail, forget, fold spellings, or are shared with somebody else."""

import errno
import os
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

from counterfoil.adapters.files.disk import EXCHANGE, Disk

CHANGING = ("create_file", "write", "own", "make_folder", "link", "unlink", "rename", "sync")
"""Methods that change something, or promise that it stays."""


class Death(BaseException):
    """The process is gone: nothing that it would have done next happens."""


class SteppingDisk(Disk):
    """A disk that can be stopped at moments: before and after each changing call."""

    def step(self, method: str, moment: str, arguments: tuple[Any, ...]) -> None:
        """Be told of a moment."""


def _stepping(method: str) -> Callable[..., Any]:
    plain = getattr(Disk, method)

    def call(self: SteppingDisk, *arguments: Any) -> Any:
        self.step(method, "before", arguments)
        answer = plain(self, *arguments)
        self.step(method, "after", arguments)
        return answer

    return call


for _method in CHANGING:
    setattr(SteppingDisk, _method, _stepping(_method))


class DyingDisk(SteppingDisk):
    """Dies at the n-th moment, and does nothing after it."""

    def __init__(self, moment: int) -> None:
        self.left = moment
        self.passed: list[str] = []

    def step(self, method: str, moment: str, arguments: tuple[Any, ...]) -> None:
        self.left -= 1
        if self.left < 0:
            raise Death
        self.passed.append(f"{moment} {method}")


class FailingDisk(SteppingDisk):
    """Fails the n-th call of one method, once, without doing it."""

    def __init__(self, method: str, nth: int, number: int) -> None:
        self.method = method
        self.left = nth
        self.number = number

    def step(self, method: str, moment: str, arguments: tuple[Any, ...]) -> None:
        if (method, moment) != (self.method, "before"):
            return
        self.left -= 1
        if self.left == 0:
            raise OSError(self.number, os.strerror(self.number))

    @property
    def has_failed(self) -> bool:
        """Whether the call came."""
        return self.left <= 0


class SharedDisk(SteppingDisk):
    """Another program acts at the n-th time of one moment."""

    def __init__(self, method: str, moment: str, act: Callable[[], object], nth: int = 1) -> None:
        self.wanted = (method, moment)
        self.left = nth
        self.act = act

    def step(self, method: str, moment: str, arguments: tuple[Any, ...]) -> None:
        if (method, moment) != self.wanted:
            return
        self.left -= 1
        if self.left == 0:
            self.act()


class VolatileDisk(DyingDisk):
    """Dies at the n-th moment, and then forgets names and content that were not synced."""

    def __init__(self, moment: int, graveyard: Path) -> None:
        super().__init__(moment)
        self._graveyard = graveyard
        self._undo: list[tuple[frozenset[int], Callable[[], object]]] = []
        self._written: dict[int, int] = {}

    def step(self, method: str, moment: str, arguments: tuple[Any, ...]) -> None:
        if (method, moment) == ("unlink", "before"):
            folder, name = arguments
            os.link(name, self._grave(), src_dir_fd=folder)
        if moment == "after":
            self._remember(method, arguments)
        super().step(method, moment, arguments)

    def _grave(self) -> Path:
        return self._graveyard / str(len(self.passed) - len(self.passed) % 2)

    def _remember(self, method: str, arguments: tuple[Any, ...]) -> None:
        match method, arguments:
            case "create_file", (folder, name, _):
                self._log(lambda held: os.unlink(name, dir_fd=held[0]), folder)
            case "write", (descriptor, _):
                self._written[os.fstat(descriptor).st_ino] = os.dup(descriptor)
            case "make_folder", (folder, name):
                self._log(lambda held: os.rmdir(name, dir_fd=held[0]), folder)
            case "link", (folder, _, other):
                self._log(lambda held: os.unlink(other, dir_fd=held[0]), folder)
            case "unlink", (folder, name):
                grave = self._grave()
                self._log(lambda held: os.link(grave, name, dst_dir_fd=held[0]), folder)
            case "rename", (folder, name, other_folder, other, flags):
                self._log(
                    lambda held: _move(held[1], other, held[0], name, flags), folder, other_folder
                )
            case "sync", (descriptor,):
                self._keep(os.fstat(descriptor).st_ino)
            case _:
                pass

    def _keep(self, number: int) -> None:
        if number in self._written:
            os.close(self._written.pop(number))
        self._undo = [entry for entry in self._undo if number not in entry[0]]

    def cut_power(self) -> None:
        """Lose what was not synced."""
        for descriptor in self._written.values():
            os.ftruncate(descriptor, 0)
            os.close(descriptor)
        for _, undo in reversed(self._undo):
            undo()
        self._undo, self._written = [], {}

    def _log(self, undo: Callable[[tuple[int, ...]], object], *folders: int) -> None:
        held = tuple(os.dup(folder) for folder in folders)
        numbers = frozenset(os.fstat(folder).st_ino for folder in folders)

        def run() -> None:
            undo(held)
            for descriptor in held:
                os.close(descriptor)

        self._undo.append((numbers, run))


def _move(folder: int, name: str, other_folder: int, other: str, flags: int) -> None:
    Disk().rename(folder, name, other_folder, other, flags)


class FoldingDisk(Disk):
    """Finds a name under every spelling that folds to it, as some file systems do."""

    def stat(self, folder: int, name: str) -> os.stat_result | None:
        return super().stat(folder, _spelt(folder, name))

    def serial(self, folder: int, name: str) -> str | None:
        return super().serial(folder, _spelt(folder, name))

    def open_file(self, folder: int, name: str) -> int:
        return super().open_file(folder, _spelt(folder, name))

    def open_folder(self, folder: int, name: str) -> int:
        return super().open_folder(folder, _spelt(folder, name))

    def create_file(self, folder: int, name: str, mode: int) -> int:
        return super().create_file(folder, _spelt(folder, name), mode)

    def rename(self, folder: int, name: str, other_folder: int, other: str, flags: int) -> None:
        super().rename(
            folder, _spelt(folder, name), other_folder, _spelt(other_folder, other), flags
        )

    def unlink(self, folder: int, name: str) -> None:
        super().unlink(folder, _spelt(folder, name))


def _spelt(folder: int, name: str) -> str:
    """Return the name in the folder that a folding file system takes this one for."""
    folded = _folded(name)
    return next((held for held in os.listdir(folder) if _folded(held) == folded), name)


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()


class LackingDisk(Disk):
    """A file system without one kind of rename."""

    def __init__(self, flags: int = EXCHANGE) -> None:
        self.lacking = flags

    def rename(self, folder: int, name: str, other_folder: int, other: str, flags: int) -> None:
        if flags == self.lacking:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        super().rename(folder, name, other_folder, other, flags)
