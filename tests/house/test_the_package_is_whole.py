"""What is built holds every file of the package, and asks only for what it declares."""

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import counterfoil
from tests.support.sources import PACKAGE, ROOT, imported, library

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LOCK = (ROOT / "requirements-dev.lock").read_text(encoding="utf-8")


def test_the_wheel_holds_every_file_of_the_package(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("counterfoil/")}
    assert inside == {
        path.relative_to(PACKAGE.parent).as_posix()
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_the_package_says_that_it_is_typed() -> None:
    assert (PACKAGE / "py.typed").is_file()


def test_the_package_and_the_project_name_one_version() -> None:
    assert counterfoil.__version__ == PROJECT["project"]["version"]


def test_the_changelog_names_the_version() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"## [{PROJECT['project']['version']}]" in changelog


def test_the_readme_is_the_page_of_the_package() -> None:
    assert PROJECT["project"].get("readme") == "README.md"


def test_the_library_imports_only_what_the_project_declares() -> None:
    declared = _names(PROJECT["project"]["dependencies"])
    for extra in PROJECT["project"]["optional-dependencies"].values():
        declared |= _names(extra)
    modules = {name.replace("-", "_") for name in declared}
    known = modules | sys.stdlib_module_names | {"counterfoil"}
    assert [
        source.at(line, f"imports {name}")
        for source in library()
        for line, name in imported(source)
        if name.partition(".")[0] not in known
    ] == []


def test_the_lock_holds_every_dependency() -> None:
    wanted = _names(PROJECT["project"]["dependencies"]) | _names(
        PROJECT["dependency-groups"]["dev"]
    )
    locked = set(re.findall(r"^([a-z0-9-]+)==", LOCK, re.MULTILINE))
    assert wanted - locked == set()


def test_every_locked_version_has_a_hash() -> None:
    pins = re.split(r"^(?=[a-z0-9-]+==)", LOCK, flags=re.MULTILINE)[1:]
    assert [pin.splitlines()[0] for pin in pins if "--hash=sha256:" not in pin] == []


def _names(requirements: list[str]) -> set[str]:
    return {re.split(r"[\[<>=~! ;]", requirement)[0] for requirement in requirements}
