"""Results as Markdown: what the README shows, and all of it for a file beside the results."""

from collections.abc import Sequence

from benchmarks.figures import shown
from benchmarks.peers.alone import LIVING, WAITING
from benchmarks.peers.goals import GOALS
from benchmarks.peers.results import Measure, Results
from benchmarks.peers.scenarios import (
    FIRST,
    FLAT_FIRST,
    FLAT_LAST,
    LAST,
    LOGGED,
    LONG,
    MANY,
    ONE,
    REFERENCE,
    RESUME,
    SIZE,
)

NOT_TAKEN = "No figures are kept here yet; `make bench` takes them."
SHORTER = "Temporal's long run has 5,000 steps."
OURS = "counterfoil-"


def readme(results: Results | None, stem: str) -> str:
    """Return the README's part: the chart, and the figures that most people ask for."""
    if results is None:
        return NOT_TAKEN
    chart = f"![Steps per second of each side](benchmarks/results/{stem}.svg)"
    machine = results.machine
    told = (
        f"Taken on {results.taken[:10]} on {machine.get('processor', 'an unknown machine')}; "
        f"disk: {machine.get('disk', 'unknown')}. All sides took turns in one run; medians. "
        f"{SHORTER} "
        f"[All figures](benchmarks/results/{stem}.md), and "
        "[how they are taken](docs/explanation/figures.md#beside-peers)."
    )
    return "\n\n".join((chart, _rates(results), told, duplicates(results))).rstrip()


def report(results: Results, stem: str) -> str:
    """Return every figure of a run as one page."""
    quick = (
        "\n\nTaken in small numbers, to show that it runs: no figure here counts."
        * results.is_quick
    )
    head = f"# Figures of {results.taken[:10]}{quick}\n\n![Steps per second]({stem}.svg)"
    parts = (
        head,
        f"Medians of rounds in which all sides took turns; in brackets, the quartiles. {SHORTER}",
        _rates(results),
        _goals(results),
        _long(results),
        _flat(results),
        _workers(results),
        _spread(results),
        duplicates(results),
        _missing(results),
        _pairs("machine", results.machine),
        _pairs("version", results.versions),
        _pairs("load average", {name: str(load) for name, load in results.load.items()}),
    )
    return "\n\n".join(part for part in parts if part) + "\n"


def _rates(results: Results) -> str:
    rows = []
    for side, title in results.titles.items():
        first, last = results.of(FIRST, side), results.of(LAST, side)
        cells = (
            _short(results.of(ONE, side)),
            _short(results.of(MANY, side)),
            f"{last.median / first.median:.2f}" if first and last else "",
            _short(results.of(f"{LONG}-{SIZE}", side)),
            _short(results.of(RESUME, side)),
        )
        if any(cells):
            words = (title, *cells)
            rows.append([_bold(word) for word in words] if side.startswith(OURS) else words)
    head = (
        "side",
        "one run, steps/s",
        "64 runs at once, steps/s",
        "last ÷ first 1,000 of 10,000",
        "bytes per step",
        "resume after 10,000 steps, s",
    )
    return _table(head, rows)


def _bold(word: str) -> str:
    return f"**{word}**" if word else ""


def _goals(results: Results) -> str:
    rows = []
    for goal in GOALS:
        reached = goal.reached(results)
        if reached is not None:
            met = "yes" if goal.is_met(reached) else "no"
            rows.append((goal.text, _number(reached), f"{goal.relation} {goal.bound:g}", met))
    return _table(("figure", "reached", "goal", "met"), rows)


def _long(results: Results) -> str:
    rows = []
    for side, title in results.titles.items():
        cells = [_whole(results.of(name, side)) for name in (FIRST, LAST, LOGGED, REFERENCE)]
        if any(cells):
            rows.append((title, *cells))
    head = (
        "side",
        "first thousand, steps/s",
        "last thousand, steps/s",
        "log of PostgreSQL, bytes per step",
        "10 MB results by reference, steps/s",
    )
    return _table(head, rows)


def _flat(results: Results) -> str:
    rows = []
    for side, title in results.titles.items():
        first, last = results.of(FLAT_FIRST, side), results.of(FLAT_LAST, side)
        if first and last:
            rows.append((title, _whole(first), _whole(last), f"{last.median / first.median:.2f}"))
    head = (
        "100,000 steps of one run",
        "first thousand, steps/s",
        "last thousand, steps/s",
        "ratio",
    )
    return _table(head, rows)


def _workers(results: Results) -> str:
    rows = []
    for side, title in results.titles.items():
        cells = (_short(results.of(WAITING, side)), _short(results.of(LIVING, side)))
        if any(cells):
            rows.append((title, *cells))
    head = (
        "a worker",
        "idle, 10,000 runs that wait for people and 10,000 that pause, % of a core",
        "1,000 live runs, MiB",
    )
    return _table(head, rows)


def _spread(results: Results) -> str:
    rows = []
    for side, title in results.titles.items():
        one, many = results.of(ONE, side), results.of(MANY, side)
        if one or many:
            rows.append((title, _whole(one), _cpu(one), _whole(many), _cpu(many)))
    head = (
        "side",
        "one run, steps/s",
        "its processor time, µs per step",
        "64 runs at once, steps/s",
        "its processor time, µs per step",
    )
    return _table(head, rows)


def duplicates(results: Results) -> str:
    """Return the table of effects that happened again; empty for none."""
    rows = [
        (
            results.titles.get(row.side, row.side),
            _right(row.reset),
            _right(row.kill),
            row.other_intent,
        )
        for row in results.duplicates
    ]
    head = (
        "effects of one payment (1 is right)",
        "two answers lost, three calls",
        "killed after the effect, two restarts",
        "same key, another amount",
    )
    return _table(head, rows)


def _missing(results: Results) -> str:
    rows = [
        (lack.scenario, results.titles.get(lack.side, lack.side), lack.why.replace("|", "/"))
        for lack in results.missing
    ]
    return _table(("not measured", "side", "why"), rows)


def _pairs(what: str, pairs: dict[str, str]) -> str:
    return _table((what, ""), list(pairs.items()))


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _right(count: str) -> str:
    return count if count == "1" else f"**{count}**"


def _short(measure: Measure | None) -> str:
    return "" if measure is None else _number(measure.median)


def _whole(measure: Measure | None) -> str:
    if measure is None:
        return ""
    middle = _number(measure.median)
    if len(measure.values) == 1:
        return middle
    return f"{middle} ({_number(measure.low)} to {_number(measure.high)})"


def _cpu(measure: Measure | None) -> str:
    return "" if measure is None or measure.cpu_us is None else shown(measure.cpu_us)


def _number(value: float) -> str:
    return f"{value:.4f}" if abs(value) < 0.095 else shown(value)
