"""What a person is shown of a change of files before it happens."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from counterfoil.adapters.files import FilesAdapter, open_files
from counterfoil.core.canonical import MARK, digest
from counterfoil.core.errors import ContractError, CounterfoilError, PermissionDeniedError
from counterfoil.core.words import Json
from counterfoil.ports import PREVIEW_CHARS_MAX


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    folder.mkdir()
    (folder / "note.txt").write_text("one\ntwo\n", encoding="utf-8")
    (folder / "image").write_bytes(b"\x00\x01")
    return folder


@pytest.fixture
def files(root: Path, tmp_path: Path) -> Iterator[FilesAdapter]:
    adapter = open_files(root, journal=tmp_path / "journal", now_ms=lambda: 1)
    yield adapter
    adapter.close()


@pytest.mark.parametrize(
    ("kind", "arguments", "shown"),
    [
        pytest.param(
            "files.write",
            {"path": "note.txt", "content": "one\n2\n"},
            "--- note.txt\n+++ note.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+2",
            id="a changed text",
        ),
        pytest.param(
            "files.write",
            {"path": "new.txt", "content": "one\n"},
            "--- (no file)\n+++ new.txt\n@@ -0,0 +1 @@\n+one",
            id="a new text",
        ),
        pytest.param(
            "files.write",
            {"path": "note.txt", "content": "one\ntwo\n"},
            "write note.txt: it holds exactly this already",
            id="the same text",
        ),
        pytest.param(
            "files.write",
            {"path": "note.txt", "content": "one\r\ntwo\r\n"},
            "write note.txt: only the ends of lines differ",
            id="other ends of lines",
        ),
        pytest.param(
            "files.write",
            {"path": "image", "content": {MARK: "bytes", "base64": "AAI="}},
            f"write image\nthere is: 2 bytes, SHA-256 {digest(bytes([0, 1]))}\n"
            f"there would be: 2 bytes, SHA-256 {digest(bytes([0, 2]))}",
            id="no text",
        ),
        pytest.param(
            "files.delete",
            {"path": "image"},
            f"delete image: 2 bytes, SHA-256 {digest(bytes([0, 1]))}",
            id="a deletion",
        ),
        pytest.param(
            "files.move",
            {"source": "image", "target": "other"},
            f"move image to other: 2 bytes, SHA-256 {digest(bytes([0, 1]))}",
            id="a move",
        ),
        pytest.param("files.read", {"path": "note.txt"}, "", id="a read"),
    ],
)
def test_a_change_is_shown(
    files: FilesAdapter, kind: str, arguments: dict[str, Json], shown: str
) -> None:
    assert files.preview(kind, arguments) == shown


def test_a_long_difference_is_cut_and_says_so(files: FilesAdapter) -> None:
    text = files.preview("files.write", {"path": "new.txt", "content": "word\n" * 1_999})
    assert (len(text), text.endswith("… (cut here)")) == (PREVIEW_CHARS_MAX, True)


def test_a_preview_changes_nothing(files: FilesAdapter, root: Path) -> None:
    files.preview("files.write", {"path": "a/b/new.txt", "content": "one\n"})
    assert sorted(path.name for path in root.iterdir()) == ["image", "note.txt"]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        pytest.param({"path": "../x", "content": ""}, ContractError, id="out of the root"),
        pytest.param({"path": "link", "content": ""}, PermissionDeniedError, id="over a link"),
        pytest.param({"path": "note.txt"}, ContractError, id="without content"),
    ],
)
def test_a_preview_is_refused(
    files: FilesAdapter, root: Path, arguments: dict[str, Json], error: type[CounterfoilError]
) -> None:
    (root / "link").symlink_to("/etc/hostname")
    with pytest.raises(error):
        files.preview("files.write", arguments)
