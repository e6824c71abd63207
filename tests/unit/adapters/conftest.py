"""Folders for tests that make thousands of durable writes."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

IN_MEMORY = Path("/dev/shm")


@pytest.fixture
def swift_path(tmp_path: Path) -> Iterator[Path]:
    """A temporary folder in memory, where a sync costs nothing; on the disk if there is none."""
    if not os.access(IN_MEMORY, os.W_OK):
        yield tmp_path
        return
    folder = tempfile.mkdtemp(prefix="counterfoil-", dir=IN_MEMORY)
    yield Path(folder)
    shutil.rmtree(folder)
