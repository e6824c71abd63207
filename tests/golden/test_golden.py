"""What was once written opens for good, and what was forged never does."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from counterfoil.core import errors
from counterfoil.core.approval import (
    check_binding,
    liveness_problem,
    open_approval,
    open_revocation,
)
from counterfoil.core.canonical import encode
from counterfoil.core.codec import Checkpoint, open_checkpoint
from counterfoil.core.errors import ApprovalError
from counterfoil.core.review import check_decision, open_decision, open_migration
from tests.golden.make_golden import HERE, files
from tests.golden.statements import CASE, NOW_MS, REQUESTS, ROOTS
from tests.support.runs import RUN_ID, TASK, VERIFIERS

FORGERIES_MIN = 60


def _entries(folder: str) -> list[dict[str, str]]:
    return list(msgspec.json.decode((HERE / folder / "manifest.json").read_bytes()))


def _named(folder: str, mark: str) -> list[Any]:
    return [pytest.param(entry, id=f"{mark} {entry['name']}") for entry in _entries(folder)]


def _approval(raw: bytes, asked: str) -> None:
    approval, signer = open_approval(raw, ROOTS)
    request = REQUESTS[asked]
    check_binding(approval, request)
    problem = liveness_problem(approval, signer, request, now_ms=NOW_MS)
    if problem:
        raise ApprovalError(problem)


def _decision(raw: bytes, asked: str) -> None:
    decision, signer = open_decision(raw, ROOTS)
    check_decision(decision, signer, CASE, run_id=RUN_ID, task=TASK.id, now_ms=NOW_MS)


def _checkpoint(raw: bytes, asked: str) -> None:
    open_checkpoint(msgspec.json.decode(raw, type=Checkpoint), VERIFIERS)


OPENED: dict[str, Callable[[bytes, str], object]] = {
    "approval": _approval,
    "decision": _decision,
    "checkpoint": _checkpoint,
    "revocation": lambda raw, asked: open_revocation(raw, ROOTS),
    "migration": lambda raw, asked: open_migration(raw, ROOTS),
}


@pytest.mark.parametrize("entry", _named("valid", "acc-A18"))
def test_what_was_written_once_opens_for_good(entry: dict[str, str]) -> None:
    OPENED[entry["sort"]]((HERE / "valid" / f"{entry['name']}.json").read_bytes(), "")


@pytest.mark.parametrize("entry", _named("forged", "T8 T9 T10 T13"))
def test_what_was_forged_is_refused_by_its_own_error(entry: dict[str, str]) -> None:
    raw = (HERE / "forged" / f"{entry['name']}.json").read_bytes()
    with pytest.raises(errors.CounterfoilError) as refused:
        OPENED[entry["sort"]](raw, entry["asked"])
    assert type(refused.value).__name__ == entry["error"]
    assert entry["phrase"] in refused.value.message


def test_the_files_are_what_their_script_makes() -> None:
    made = files()
    kept = {
        str(path.relative_to(HERE)): path.read_bytes()
        for folder in ("valid", "forged")
        for path in (HERE / folder).iterdir()
    }
    assert sorted(kept) == sorted(made)
    assert [name for name in made if made[name] != kept[name]] == []


def test_there_are_many_forgeries_and_each_is_another() -> None:
    entries = _entries("forged")
    names = {entry["name"] for entry in entries}
    assert (len(names) == len(entries), len(entries) >= FORGERIES_MIN) == (True, True)
    assert encode(entries) != b"[]"
