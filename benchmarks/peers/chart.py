"""A chart of rates as SVG: bars, words and a background of its own, for light and dark."""

from dataclasses import dataclass
from html import escape

from benchmarks.figures import shown
from benchmarks.peers.results import Measure, Results
from benchmarks.peers.scenarios import MANY, ONE

WIDTH, MARGIN, ROW, HEAD = 860, 24, 24, 56
NAMES, NUMBERS = 270, 70
STYLE = """
  svg { font: 13px system-ui, sans-serif }
  .ground { fill: #ffffff } text { fill: #1f2328 } .note { fill: #59636e }
  .ours { fill: #0969da } .peer { fill: #8c959f } .raw { fill: #c4cdd6 }
  @media (prefers-color-scheme: dark) {
    .ground { fill: #0d1117 } text { fill: #e6edf3 } .note { fill: #9198a1 }
    .ours { fill: #4493f8 } .peer { fill: #6e7681 } .raw { fill: #4c555f }
  }
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Bar:
    title: str
    shade: str
    measure: Measure


def chart(results: Results) -> str:
    """Return the rates of one run and of many at once as an SVG picture."""
    parts: list[str] = []
    top = MARGIN
    for scenario, title in ((ONE, "One run"), (MANY, "64 runs at once")):
        bars = _bars(results, scenario)
        if bars:
            parts += _panel(bars, title, top)
            top += HEAD + ROW * len(bars)
    quick = ", in small numbers that do not count" if results.is_quick else ""
    note = f"Steps per second, medians, {results.taken[:10]}{quick}. Every step is durable."
    parts.append(_text(MARGIN, top + 12, note, "note"))
    height = top + MARGIN + 8
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" role="img" aria-label="{escape(note)}">'
    )
    ground = f'<rect class="ground" width="{WIDTH}" height="{height}" rx="8"/>'
    return (
        "\n".join(
            (
                head,
                f"<title>{escape(note)}</title>",
                f"<style>{STYLE}</style>",
                ground,
                *parts,
                "</svg>",
            )
        )
        + "\n"
    )


def _bars(results: Results, scenario: str) -> list[_Bar]:
    """Return the bars of a scenario, the longest first."""
    bars = []
    for side, title in results.titles.items():
        measure = results.of(scenario, side)
        shade = next((kind for word, kind in SHADES.items() if side.startswith(word)), "peer")
        if measure is not None:
            bars.append(_Bar(title=title, shade=shade, measure=measure))
    return sorted(bars, key=lambda bar: -bar.measure.median)


SHADES = {"counterfoil-": "ours", "raw-": "raw"}


def _panel(bars: list[_Bar], title: str, top: int) -> list[str]:
    room = WIDTH - 2 * MARGIN - NAMES - NUMBERS
    longest = max(bar.measure.median for bar in bars)
    parts = [f'<text x="{MARGIN}" y="{top + 16}" font-size="16" font-weight="600">{title}</text>']
    left = MARGIN + NAMES
    for number, bar in enumerate(bars):
        y = top + 30 + ROW * number
        width = max(1.0, room * bar.measure.median / longest)
        parts.append(_text(MARGIN, y + 14, bar.title, ""))
        parts.append(
            f'<rect class="{bar.shade}" x="{left}" y="{y + 2}" '
            f'width="{width:.1f}" height="16" rx="2"/>'
        )
        parts.append(_text(left + width + 6, y + 14, shown(bar.measure.median), "note"))
    return parts


def _text(x: float, y: float, words: str, shade: str) -> str:
    kind = f' class="{shade}"' if shade else ""
    return f'<text{kind} x="{x:.1f}" y="{y:.1f}">{escape(words)}</text>'
