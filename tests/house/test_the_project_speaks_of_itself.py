"""A clone is all that a reader has, so no file points at what is not in it."""

import re

import pytest

from tests.support.sources import project_files, text_files

FOREIGN = [
    pytest.param(r"(?<![\w.~-])/(?:work|root)/", id="a folder of one machine"),
    pytest.param(r"(?i)\bissue #?\d", id="a number from a tracker"),
    pytest.param(
        r"(?i)pypi\.org|pythonhosted\.org|npmjs\.(?:org|com)|deb\.debian\.org",
        id="the host of a package registry",
    ),
]


@pytest.mark.parametrize("pattern", FOREIGN)
def test_no_file_names(pattern: str) -> None:
    assert [
        f"{name}:{text.count(chr(10), 0, match.start()) + 1} {match[0]}"
        for name, text in text_files()
        for match in re.finditer(pattern, text)
    ] == []


def test_a_page_that_is_named_is_in_the_project() -> None:
    pages = {path.name for path in project_files()}
    assert [
        f"{name}:{text.count(chr(10), 0, match.start()) + 1} {match[0]}"
        for name, text in text_files()
        for match in re.finditer(r"\b[A-Z][A-Z_]{3,}\.md\b", text)
        if match[0] not in pages
    ] == []
