"""Folders for crash tests: in memory where that is possible.

A killed process loses nothing that it wrote, so what these tests judge does not depend
on the disk; what a power cut leaves is tested at the stores and the files adapter.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

SHARED_MEMORY = Path("/dev/shm")


@pytest.fixture
def quick_folder(tmp_path: Path) -> Iterator[Path]:
    """Return a fresh folder on the fastest file system there is."""
    if not SHARED_MEMORY.is_dir():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="counterfoil-", dir=SHARED_MEMORY) as folder:
        yield Path(folder)
