"""A project in a folder of its own, with user folders of its own."""

from pathlib import Path

import pytest

from tests.support.commands import Project, new_project


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    for name in ("NO_COLOR", "FORCE_COLOR", "COUNTERFOIL_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return new_project(tmp_path / "project")
