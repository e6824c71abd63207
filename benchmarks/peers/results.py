"""What one run of the peers found, as it is kept: one JSON file for each."""

import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

FOLDER = Path(__file__).resolve().parents[1] / "results"
FORMAT = 1
DIGITS = 6


class Measure(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One side in one scenario.

    Attributes:
        scenario: Which.
        side: Whose.
        unit: Of the values.
        median: The middle of the values.
        low: A quarter of them is below this.
        high: A quarter of them is above this.
        values: One for each round; the same round of two sides was measured side by side.
        cpu_us: Processor time of the side's own process for a step, in microseconds.
    """

    scenario: str
    side: str
    unit: str
    median: float
    low: float
    high: float
    values: tuple[float, ...]
    cpu_us: float | None = None


class Missing(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A side that was not measured in a scenario, and why."""

    scenario: str
    side: str
    why: str


class Duplicates(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How often an effect happened that was wanted once, counted on its target.

    Attributes:
        side: Whose program.
        reset: Answers lost twice, and three calls.
        kill: Its process killed right after the effect, and started again twice.
        other_intent: What the same key with another amount did.
    """

    side: str
    reset: str
    kill: str
    other_intent: str


class Results(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One run.

    Attributes:
        format: Version of this layout.
        taken: Day and time it began, UTC, RFC 3339.
        seconds: How long it took.
        is_quick: Whether it only shows that everything runs.
        machine: Processor, memory, disks and system.
        versions: Of every side's package, and of servers.
        titles: How each side is called in tables, in their order.
        load: Load average of a minute at the start of each scenario.
        measures: What was measured.
        missing: What was not, and why.
        duplicates: Effects that happened again.
    """

    format: int
    taken: str
    seconds: float
    is_quick: bool
    machine: dict[str, str]
    versions: dict[str, str]
    titles: dict[str, str]
    load: dict[str, float]
    measures: tuple[Measure, ...]
    missing: tuple[Missing, ...] = ()
    duplicates: tuple[Duplicates, ...] = ()

    def of(self, scenario: str, side: str) -> Measure | None:
        """Return what one side did in one scenario; None if it was not measured."""
        for measure in self.measures:
            if (measure.scenario, measure.side) == (scenario, side):
                return measure
        return None

    def ratio(self, scenario: str, ours: str, other: str) -> float | None:
        """Return the middle of ours ÷ another's over the rounds; None without both."""
        first, second = self.of(scenario, ours), self.of(scenario, other)
        if first is None or second is None:
            return None
        pairs = zip(first.values, second.values, strict=False)
        return statistics.median(one / two for one, two in pairs)


class ResultsError(Exception):
    """A file of results cannot be read or written; the message says which and why."""


def measured(
    scenario: str, side: str, unit: str, values: Sequence[float], cpu_us: float | None = None
) -> Measure:
    """Return the measure of these values; at least one."""
    ordered = sorted(values)
    quarter = len(ordered) // 4
    return Measure(
        scenario=scenario,
        side=side,
        unit=unit,
        median=round(statistics.median(ordered), DIGITS),
        low=round(ordered[quarter], DIGITS),
        high=round(ordered[-1 - quarter], DIGITS),
        values=tuple(round(value, DIGITS) for value in values),
        cpu_us=None if cpu_us is None else round(cpu_us, 1),
    )


def write(results: Results, folder: Path) -> Path:
    """Write results under the day they were taken on, and return the file.

    Raises:
        ResultsError: The folder cannot be written to.
    """
    path = folder / f"{stem_of(results)}.json"
    text = msgspec.json.format(msgspec.json.encode(results), indent=1)
    write_text(path, text.decode() + "\n")
    return path


def stem_of(results: Results) -> str:
    """Return how the files of a run are called, without an ending."""
    return results.taken[:10] + ("-quick" if results.is_quick else "")


def write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all.

    Raises:
        ResultsError: Its folder cannot be written to.
    """
    part = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    except OSError as error:
        raise ResultsError(f"{path.parent} cannot be written to: {error.strerror}") from error


def read(path: Path) -> Results:
    """Return the results in a file.

    Raises:
        ResultsError: There is no such file, or it holds something else.
    """
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Results)
    except OSError as error:
        raise ResultsError(f"{path} cannot be read: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise ResultsError(f"{path} holds no results: {error!s:.200}") from error
    if found.format != FORMAT:
        raise ResultsError(f"{path} has format {found.format}, and {FORMAT} is known")
    return found


def latest(folder: Path = FOLDER) -> Path | None:
    """Return the newest file of a whole run in a folder; None if it holds none."""
    whole: Iterable[Path] = (path for path in folder.glob("*.json") if "quick" not in path.name)
    return max(whole, default=None)
