"""The README's figures are those of the latest whole run of the peers."""

from benchmarks.peers.results import FOLDER, latest, read
from benchmarks.peers.table import readme
from tests.support.sources import ROOT

BEGIN, END = "<!-- figures: made by tests/house/test_figures.py -->", "<!-- end -->"


def test_the_readme_has_the_latest_figures() -> None:
    path = latest(FOLDER)
    wanted = readme(read(path) if path else None, path.stem if path else "")
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    _, begin, rest = text.partition(BEGIN)
    found, end, _ = rest.partition(END)
    assert (begin, end) == (BEGIN, END)
    assert found.strip() == wanted, f"put this between the two comments:\n\n{wanted}\n"


def test_every_kept_run_has_its_page_and_its_chart() -> None:
    kept = [path for path in FOLDER.glob("*.json") if "quick" not in path.name]
    beside = [path.with_suffix(ending) for path in kept for ending in (".md", ".svg")]
    assert [path.name for path in beside if not path.is_file()] == []
