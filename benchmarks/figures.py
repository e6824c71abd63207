"""A figure: what was measured, the limit beside it, and the target."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """One line of the table.

    Attributes:
        name: What was measured.
        unit: Of `value` and `raw`.
        value: Ours.
        raw: The limit, or what ours is compared with, from the same interleaved run.
        raw_name: What that is.
        ratio: Ours against it; 1 is the limit, for rates and for times alike.
        target: What must hold, in words.
        is_met: Whether it holds; None where there is no target.
    """

    name: str
    unit: str
    value: float
    raw: float | None = None
    raw_name: str = ""
    ratio: float | None = None
    target: str = ""
    is_met: bool | None = None


def target(
    what: float, relation: Literal["<=", ">="], bound: float, unit: str
) -> dict[str, object]:
    """Return the fields `target` and `is_met` of a figure."""
    met = what <= bound if relation == "<=" else what >= bound
    sign = "≤" if relation == "<=" else "≥"
    return {"target": f"{sign} {bound:g} {unit}".rstrip(), "is_met": met}


def as_objects(figures: Iterable[Figure]) -> list[dict[str, object]]:
    """Return figures as JSON objects."""
    return [asdict(figure) for figure in figures]


def as_table(figures: Sequence[Figure]) -> str:
    """Return figures as text in columns."""
    head = ("figure", "ours", "raw", "ratio", "target", "met", "raw is")
    rows = [head, *(_row(figure) for figure in figures)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(head))]
    lines = ["  ".join(_placed(row, widths)).rstrip() for row in rows]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)


def _placed(row: tuple[str, ...], widths: list[int]) -> list[str]:
    """Pad each cell: numbers to the right, words to the left."""
    return [
        cell.rjust(width) if at in (1, 2, 3) else cell.ljust(width)
        for at, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]


def _row(figure: Figure) -> tuple[str, ...]:
    met = {None: "", True: "yes", False: "NO"}[figure.is_met]
    return (
        figure.name,
        f"{shown(figure.value)} {figure.unit}".rstrip(),
        "" if figure.raw is None else f"{shown(figure.raw)} {figure.unit}".rstrip(),
        "" if figure.ratio is None else f"{figure.ratio:.2f}",
        figure.target,
        met,
        figure.raw_name,
    )


def shown(value: float) -> str:
    """Return a number with as many digits as mean something."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def median(samples: Iterable[float]) -> float:
    """Return the middle of the samples: one slow sync does not move it."""
    return statistics.median(samples)


def quiet(samples: Sequence[float]) -> float:
    """Return a time that a tenth of the samples beat: what remains where others pause."""
    return sorted(samples)[len(samples) // 10]
