"""A real folder as a target: it counts the changes that reach it, and can fail."""

from collections.abc import Callable
from pathlib import Path

from counterfoil.adapters.files import FilesAdapter, open_files
from counterfoil.adapters.files.disk import Disk
from counterfoil.core.receipt import Receipt
from counterfoil.ports import Operation
from counterfoil.testing.saboteur_adapters import Passing

RESERVED = ".counterfoil"


class CountingDisk(Disk):
    """The file system as it is, with a count of the names that were changed in it."""

    def __init__(self) -> None:
        self.changes = 0

    def rename(self, folder: int, name: str, other_folder: int, other: str, flags: int) -> None:
        super().rename(folder, name, other_folder, other, flags)
        self.changes += not other.startswith(RESERVED)


class Line(Passing):
    """The way to an adapter, on which one answer can be lost; closing it twice is harmless."""

    def __init__(self, inner: FilesAdapter, lost: list[bool]) -> None:
        super().__init__(inner)
        self._lost = lost
        self._is_closed = False

    def execute(self, operation: Operation) -> Receipt:
        receipt = super().execute(operation)
        if self._lost:
            self._lost.clear()
            raise ConnectionError("the answer was lost")
        return receipt

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            super().close()


class FolderWorld:
    """A folder, with the verbs of a sandbox's world."""

    def __init__(self, place: Path, files: dict[str, str], now_ms: Callable[[], int]) -> None:
        self.root = place / "root"
        self.root.mkdir()
        self._journal = place / "journal"
        self._now_ms = now_ms
        self._disk = CountingDisk()
        self._lost: list[bool] = []
        self._opened: list[Line] = []
        for path, content in files.items():
            (self.root / path).write_text(content, encoding="utf-8")

    def adapter(self) -> Line:
        """Open an adapter of the folder."""
        files = open_files(self.root, journal=self._journal, now_ms=self._now_ms, disk=self._disk)
        opened = Line(files, self._lost)
        self._opened.append(opened)
        return opened

    @property
    def files(self) -> dict[str, str]:
        """The text of each file."""
        paths = sorted(path for path in self.root.rglob("*") if path.is_file())
        return {
            path.relative_to(self.root).as_posix(): path.read_text(encoding="utf-8")
            for path in paths
        }

    @property
    def write_count(self) -> int:
        """How many changes runs made."""
        return self._disk.changes

    def other_actor_writes(self, path: str, content: str) -> None:
        """Change a file as any other program does."""
        (self.root / path).write_text(content, encoding="utf-8")

    def tamper(self, path: str, content: str) -> None:
        """Change a file; a folder has no version behind whose back that could be."""
        self.other_actor_writes(path, content)

    def lose_next_answer(self) -> None:
        """Let the next call happen, and lose its answer."""
        self._lost.append(True)

    def cut_off(self) -> None:
        """Take the folder away from its path."""
        self.root.rename(self.root.with_name("elsewhere"))

    def reconnect(self) -> None:
        """Put the folder back."""
        self.root.with_name("elsewhere").rename(self.root)

    def close(self) -> None:
        """Close every adapter."""
        for opened in self._opened:
            opened.close()
