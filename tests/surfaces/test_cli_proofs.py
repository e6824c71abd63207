"""A proof is checked without a store, and one that was tampered with is refused."""

import base64
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import RUN, Project

Proof = dict[str, Any]


@pytest.fixture
def file(project: Project, tmp_path: Path) -> Path:
    project.make()
    made = tmp_path / "proof.json"
    answer = project.call("prove", RUN, "2", "--output", str(made))
    assert answer.exit_code == 0, answer.output
    return made


def changed(file: Path, change: Callable[[Proof], Proof]) -> None:
    proof: Proof = json.loads(file.read_bytes())
    file.write_text(json.dumps(change(proof), separators=(",", ":")), encoding="utf-8")


def test_a_proof_needs_no_store(project: Project, file: Path) -> None:
    shutil.rmtree(project.store.parent)
    shutil.rmtree(project.heads.parent)
    answer = project.started("check-proof", str(file), "--json")
    facts = json.loads(answer.stdout)
    assert (answer.returncode, facts["event"], facts["outcome"]) == (0, 2, "executed")
    assert (facts["merkle_checked"], facts["signature_checked"]) == (True, True)


def test_a_proof_is_printed_where_no_file_is_named(project: Project, file: Path) -> None:
    assert project.call("prove", RUN, "2").stdout == file.read_text(encoding="utf-8")


def test_a_proof_of_an_event_that_is_not_there_is_refused(project: Project) -> None:
    project.make()
    answer = project.call("prove", RUN, "5")
    assert (answer.exit_code, "the trace has 5" in answer.stderr) == (2, True)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        pytest.param(
            lambda proof: proof | {"event": base64.b64encode(b'{"at_ms":1}').decode()},
            "FormatError",
            id="another event",
        ),
        pytest.param(lambda proof: proof | {"index": 1}, "FormatError", id="another index"),
        pytest.param(
            lambda proof: proof | {"path": [proof["path"][0][::-1], *proof["path"][1:]]},
            "FormatError",
            id="another path",
        ),
        pytest.param(lambda proof: proof | {"run": "run-2"}, "FormatError", id="another run"),
        pytest.param(lambda proof: proof | {"more": 1}, "FormatError", id="an unknown member"),
        pytest.param(
            lambda proof: proof | {"envelope": resealed(proof)},
            "SignatureError",
            id="a header that nobody signed",
        ),
        pytest.param(lambda proof: {}, "FormatError", id="nothing"),
    ],
)
def test_a_tampered_proof_is_refused_by_name(
    project: Project, file: Path, change: Callable[[Proof], Proof], name: str
) -> None:
    changed(file, change)
    answer = project.call("check-proof", str(file))
    assert (answer.exit_code, answer.stdout) == (4, "")
    assert answer.stderr.startswith(f"{name}: ")


def resealed(proof: Proof) -> str:
    """Return the proof's envelope with another moment in its header."""
    envelope = json.loads(base64.b64decode(proof["envelope"]))
    header = json.loads(base64.b64decode(envelope["payload"]))
    header["written_at"] = "1999-01-01T00:00:00.000Z"
    payload = json.dumps(header, separators=(",", ":")).encode()
    envelope["payload"] = base64.b64encode(payload).decode()
    return base64.b64encode(json.dumps(envelope, separators=(",", ":")).encode()).decode()


def elsewhere(project: Project, folder: Path, *words: str) -> tuple[int, str, str]:
    """Check a proof where no project is, as somebody does who was sent it."""
    folder.mkdir()
    answer = project.started("check-proof", *words, cwd=folder)
    return answer.returncode, answer.stdout, answer.stderr


def test_half_a_proof_is_not_taken_for_a_whole_one(
    project: Project, file: Path, tmp_path: Path
) -> None:
    code, shown, trouble = elsewhere(project, tmp_path / "away", str(file))
    assert (code, "NOT CHECKED" in shown, "--unsigned-ok" in trouble) == (3, True, True)


def test_half_a_proof_is_enough_for_who_says_so(
    project: Project, file: Path, tmp_path: Path
) -> None:
    code, shown, trouble = elsewhere(
        project, tmp_path / "away", str(file), "--unsigned-ok", "--json"
    )
    assert (code, json.loads(shown)["signature_checked"], trouble) == (0, False, "")


def test_the_merkle_part_is_checked_even_without_a_key(
    project: Project, file: Path, tmp_path: Path
) -> None:
    changed(file, lambda proof: proof | {"index": 1})
    code, shown, trouble = elsewhere(project, tmp_path / "away", str(file), "--unsigned-ok")
    assert (code, shown, trouble.partition(":")[0]) == (4, "", "FormatError")


def test_a_proof_that_another_project_signed_is_refused(
    project: Project, file: Path, tmp_path: Path
) -> None:
    stranger = tmp_path / "stranger"
    stranger.mkdir()
    project.call("init", str(stranger))
    answer = project.call("check-proof", str(file), "--project", str(stranger))
    assert (answer.exit_code, answer.stderr.partition(":")[0]) == (4, "SignatureError")


def test_a_file_that_is_far_too_large_is_no_proof(project: Project, tmp_path: Path) -> None:
    file = tmp_path / "large"
    with file.open("wb") as opened:
        opened.truncate(100 * 1024 * 1024)
    answer = project.call("check-proof", str(file))
    assert (answer.exit_code, answer.stderr.partition(":")[0]) == (4, "FormatError")
