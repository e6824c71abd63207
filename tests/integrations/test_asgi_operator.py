"""What an operator does with a journal of receipts at a command line."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from counterfoil.integrations.asgi import Commits, Journal, open_journal
from counterfoil.integrations.asgi.__main__ import main
from counterfoil.integrations.asgi.call import Call
from counterfoil.integrations.asgi.rows import Verdict

pytest_plugins = ["tests.support.postgres", "tests.support.asgi_bench"]

CALL = Call(client="c", key="key", fingerprint="f", commits=Commits.APART)
LONG_AGO_MS = 1_700_000_000_000


@pytest.fixture
def dead(place: str) -> str:
    """A journal with one key that nobody can tell of."""
    main(["install", place])
    _with(place, lambda journal: journal.claim(CALL, "one", now_ms=LONG_AGO_MS, lease_ms=1))
    return place


def _with(place: str, work: Callable[[Journal], Any]) -> Any:
    journal = open_journal(place)
    try:
        return work(journal)
    finally:
        journal.close()


def _verdict(place: str) -> Verdict:
    found = _with(place, lambda journal: journal.look_up("c", "key", now_ms=LONG_AGO_MS + 1))
    verdict: Verdict = found.verdict
    return verdict


def test_unsettled_keys_are_listed(dead: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["unsettled", dead])
    assert json.loads(capsys.readouterr().out) == {
        "attempt": "one",
        "key": "key",
        "client": "c",
        "run": "",
        "commits": "apart",
        "started_at": "2023-11-14T22:13:20Z",
    }


def test_more_keys_than_a_page_are_listed_in_order(
    dead: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("counterfoil.integrations.asgi.journal.UNSETTLED_MAX", 2)
    _with(dead, lambda journal: [_claim(journal, number) for number in range(4)])
    main(["unsettled", dead])
    shown = [json.loads(line)["attempt"] for line in capsys.readouterr().out.splitlines()]
    assert shown == ["one", "attempt 0", "attempt 1", "attempt 2", "attempt 3"]


def test_a_key_beyond_any_page_can_be_settled(dead: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("counterfoil.integrations.asgi.journal.UNSETTLED_MAX", 1)
    _with(dead, lambda journal: [_claim(journal, number) for number in range(2)])
    code = main(["settle", dead, "attempt 1", "--nothing-happened"])
    assert (code, _with(dead, lambda journal: journal.read("c", "key 1"))) == (0, None)


def _claim(journal: Journal, number: int) -> None:
    """Leave a key open; by pairs they began in the same moment."""
    call = replace(CALL, key=f"key {number}")
    started_ms = LONG_AGO_MS + 1 + number // 2
    journal.claim(call, f"attempt {number}", now_ms=started_ms, lease_ms=1)


def test_a_key_is_not_settled_whose_receipt_the_service_commits(place: str) -> None:
    together = replace(CALL, commits=Commits.TOGETHER)
    main(["install", place])
    _with(place, lambda journal: journal.claim(together, "one", now_ms=LONG_AGO_MS, lease_ms=1))
    assert main(["settle", place, "one", "--status", "201"]) == 2


def test_a_key_is_freed_where_nothing_happened(dead: str) -> None:
    main(["settle", dead, "one", "--nothing-happened"])
    assert _verdict(dead) is Verdict.ABSENT


def test_a_key_is_answered_where_it_happened(dead: str, tmp_path: Path) -> None:
    body = tmp_path / "answer.json"
    body.write_bytes(b'{"order": 7}')
    main(["settle", dead, "one", "--status", "201", "--body", str(body)])
    row = _with(dead, lambda journal: journal.read("c", "key"))
    assert (row.status, row.body, row.headers) == (
        201,
        b'{"order": 7}',
        '[["content-type", "application/json"], ["content-length", "12"]]',
    )


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["two", "--nothing-happened"], id="another attempt"),
        pytest.param(["one", "--status", "99"], id="no final status"),
        pytest.param(["one", "--status", "201", "--body", "/nowhere/at/all"], id="no such file"),
    ],
)
def test_a_wrong_word_settles_nothing(
    dead: str, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["settle", dead, *words])
    assert (code, _verdict(dead), capsys.readouterr().err != "") == (2, Verdict.UNKNOWN, True)


def test_a_journal_that_is_not_there_is_not_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "nothing.db"
    code = main(["unsettled", str(path)])
    assert (code, path.exists(), "install PLACE" in capsys.readouterr().err) == (2, False, True)
