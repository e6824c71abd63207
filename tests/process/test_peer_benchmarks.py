"""The run of the peers, with our own sides: what it writes, and what it says of bad input."""

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from benchmarks.peers.__main__ import main
from benchmarks.peers.chart import chart
from benchmarks.peers.environments import REQUIREMENTS
from benchmarks.peers.results import (
    Duplicates,
    Measure,
    Missing,
    Results,
    ResultsError,
    latest,
    measured,
    read,
    write,
)
from benchmarks.peers.sides import SIDES
from benchmarks.peers.table import NOT_TAKEN, readme, report

OURS, DBOS, RAW = "counterfoil-sqlite-merged", "dbos-sqlite", "raw-sqlite"


def results(*measures: Measure, is_quick: bool = False, taken: str = "2026-12-01") -> Results:
    return Results(
        format=1,
        taken=f"{taken}T10:00:00Z",
        seconds=1,
        is_quick=is_quick,
        machine={"processor": "2 cores", "disk": "ext4"},
        versions={"dbos": "3.4.0"},
        titles={OURS: "Counterfoil <SQLite>", DBOS: "DBOS", RAW: "raw"},
        load={"one": 0.5},
        measures=measures,
        missing=(Missing(scenario="many", side=DBOS, why="it ended | early"),),
        duplicates=(Duplicates(side=DBOS, reset="1", kill="2", other_intent="old result"),),
    )


STORED = results(
    measured("one", OURS, "steps/s", [200.0, 300.0, 1_000.0], 250.0),
    measured("one", DBOS, "steps/s", [100.0, 100.0, 100.0]),
    measured("one", RAW, "steps/s", [400.0, 600.0, 1_000.0]),
    measured("first", OURS, "steps/s", [100.0]),
    measured("last", OURS, "steps/s", [99.0]),
    measured("seal", OURS, "µs", [61.0]),
)


def taken(tmp_path: Path, *words: str) -> Path:
    """Take figures in small numbers, and return the file of results."""
    places = ["--folder", str(tmp_path / "disk"), "--results", str(tmp_path / "results")]
    assert main([*words, "--quick", *places]) == 0
    assert list((tmp_path / "disk").iterdir()) == []
    (path,) = (tmp_path / "results").glob("*.json")
    return path


def sides_of(found: Results, scenario: str) -> list[str]:
    return [measure.side for measure in found.measures if measure.scenario == scenario]


def test_our_sides_and_a_limit_take_turns_and_leave_files(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    sides = [OURS, "counterfoil-sqlite-strict", RAW]
    path = taken(tmp_path, *sides, "--only", "one", "--only", "long", "--only", "duplicates")
    found = read(path)
    assert found.missing == ()
    assert sides_of(found, "one") == sides_of(found, "last") == sides
    assert sides_of(found, "resume") == sides[:2]
    assert [(row.side, row.reset, row.kill, row.other_intent) for row in found.duplicates] == [
        (OURS, "1", "1", "refused")
    ]
    assert path.with_suffix(".md").read_text(encoding="utf-8") in capfd.readouterr().out
    assert path.with_suffix(".svg").is_file()


def test_our_sides_on_servers_take_turns_too(tmp_path: Path) -> None:
    ours = ["counterfoil-postgresql-merged", "counterfoil-etcd-strict"]
    sides = [*ours, "raw-postgresql", "raw-etcd"]
    found = read(taken(tmp_path, *sides, "--only", "many", "--only", "living", "--only", "seal"))
    assert found.missing == ()
    assert sides_of(found, "many") == sides
    assert sides_of(found, "seal") == sides_of(found, "living") == sides[:1]


def test_a_ratio_is_the_middle_of_the_ratios_of_rounds() -> None:
    assert STORED.ratio("one", OURS, RAW) == 0.5
    assert STORED.ratio("one", OURS, "restate") is None


def test_a_measure_has_its_middle_and_its_quartiles() -> None:
    found = measured("one", OURS, "s", [5.0, 1.0, 2.0, 4.0, 3.0])
    assert (found.low, found.median, found.high) == (2.0, 3.0, 4.0)


def test_the_page_has_each_figure_once_it_was_measured() -> None:
    page = report(STORED, "2026-12-01")
    assert "| **Counterfoil <SQLite>** | **300** |  | **0.99** |  |  |" in page
    assert "| DBOS | 100 |  |  |  |  |" in page
    assert "| one run, SQLite in two files ÷ DBOS on SQLite | 3.00 | ≥ 2 | yes |" in page
    assert "| the same ÷ raw commits to two files | 0.50 | ≥ 0.7 | no |" in page
    assert (
        "| processor time of a step of one run, SQLite in two files, µs | 250 | ≤ 250 | yes |"
        in page
    )
    assert "| seal of a usual step, µs | 61.0 | ≤ 60 | no |" in page
    assert "| DBOS | 1 | **2** | old result |" in page
    assert "| many | DBOS | it ended / early |" in page
    assert "no figure here counts" not in page


def test_the_page_of_a_try_says_that_it_does_not_count() -> None:
    assert "no figure here counts" in report(results(is_quick=True), "x")


def test_the_readme_says_where_there_are_no_figures() -> None:
    assert readme(None, "") == NOT_TAKEN


def test_the_readme_shows_chart_and_figures() -> None:
    text = readme(STORED, "2026-12-01")
    assert text.startswith("![Steps per second of each side](benchmarks/results/2026-12-01.svg)")
    assert "| DBOS | 100 |" in text


def test_the_chart_is_a_picture_that_reads_in_light_and_dark() -> None:
    text = chart(STORED)
    picture = ET.fromstring(text)  # noqa: S314 - written a line above
    bars = [
        part
        for part in picture.iter()
        if part.tag.endswith("rect") and part.get("class") != "ground"
    ]
    assert [bar.get("class") for bar in bars] == ["raw", "ours", "peer"]  # the longest first
    widths = [float(bar.get("width", "0")) for bar in bars]
    assert widths == sorted(widths, reverse=True)
    assert "Counterfoil <SQLite>" in [part.text for part in picture.iter()]
    assert "prefers-color-scheme: dark" in text
    assert "<script" not in text


def test_the_latest_is_of_the_newest_day_and_no_try(tmp_path: Path) -> None:
    assert latest(tmp_path) is None
    write(STORED, tmp_path)
    newest = write(results(taken="2026-12-03"), tmp_path)
    write(results(taken="2026-12-04", is_quick=True), tmp_path)
    assert latest(tmp_path) == newest
    assert read(newest) == results(taken="2026-12-03")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        pytest.param(b"{", "holds no results", id="cut off"),
        pytest.param(b'{"format": "new"}', "holds no results", id="another shape"),
    ],
)
def test_a_file_that_holds_something_else_is_named(
    tmp_path: Path, content: bytes, told: str
) -> None:
    path = tmp_path / "2026-12-01.json"
    path.write_bytes(content)
    with pytest.raises(ResultsError, match=told):
        read(path)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        pytest.param(["nobody"], "no side is named nobody; there are counterfoil-", id="side"),
        pytest.param(["--only", "tea"], "no scenario is named tea; there are one,", id="scenario"),
        pytest.param(["--folder", "FILE/disk"], "FILE/disk cannot be written to", id="folder"),
        pytest.param(["--results", "FILE/kept"], "FILE/kept cannot be written to", id="results"),
        pytest.param(["--folder", "/proc/disk"], "/proc/disk cannot be written to", id="read-only"),
    ],
)
def test_bad_input_is_told_in_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], told: str
) -> None:
    file = tmp_path / "file"
    file.touch()
    given = [word.replace("FILE", str(file)) for word in words]
    if "--results" not in given:
        given += ["--results", str(tmp_path / "results")]
    assert main(given) == 2
    said = capsys.readouterr().err
    assert told.replace("FILE", str(file)) in said
    assert "Traceback" not in said


def test_every_peer_has_pinned_versions_with_hashes() -> None:
    wanted = {side.environment for side in SIDES if side.environment}
    assert {path.stem for path in REQUIREMENTS.glob("*.txt")} == wanted
    for name in wanted:
        text = (REQUIREMENTS / f"{name}.txt").read_text(encoding="utf-8")
        pins = [line for line in text.splitlines() if line[:1].isalpha()]
        assert pins
        assert all("==" in line for line in pins)
        assert text.count("--hash=sha256:") >= len(pins)
