"""What is shown: escaped text and tables for people, one JSON object for programs.

Facts go to standard output, errors to standard error. Text that comes from runs is
never markup and never reaches a terminal as a control character. Colours are for
terminals alone, and NO_COLOR turns them off.
"""

import json
import os
import sys
from collections.abc import Sequence

from rich import box
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from counterfoil.core.codec import rfc3339
from counterfoil.core.errors import CounterfoilError
from counterfoil.core.words import Json

PIPE_COLUMNS = 500
"""Width where nobody looks: rows are not folded for programs that read lines."""

END_OF_CALENDAR_MS = 253_402_300_800_000
"""Year 10000: registers keep numbers, and whoever writes to one may write any."""

INDENT = 2
DELETE = "\x7f"
"""The one control character that JSON leaves as it is."""


def printable(text: str) -> str:
    """Return text in which every character that could steer a terminal is escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _escaped(c) for c in text)


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


def cell(text: object, style: str = "") -> Text:
    """Return text of any origin as rich shows it: no markup, nothing unprintable."""
    return Text(printable(str(text)), style=style)


def console(*, is_error: bool = False) -> Console:
    """Return a console for standard output or standard error, as they are just then."""
    stream = sys.stderr if is_error else sys.stdout
    is_terminal = stream.isatty()
    return Console(
        file=stream,
        force_terminal=is_terminal,
        color_system="auto" if is_terminal and not os.environ.get("NO_COLOR") else None,
        width=None if is_terminal else PIPE_COLUMNS,
        markup=False,
        emoji=False,
        highlight=False,
    )


def show(shown: RenderableType) -> None:
    """Print something on standard output; no spaces at the end of lines in a pipe."""
    screen = console()
    if screen.is_terminal:
        screen.print(shown)
        return
    with screen.capture() as captured:
        screen.print(shown)
    lines = captured.get().splitlines()
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in lines))


def say(sentence: str, style: str = "") -> None:
    """Print one sentence on standard output."""
    console().print(cell(sentence, style), soft_wrap=not sys.stdout.isatty())


def heading(text: str, style: str = "bold") -> None:
    """Print an empty line and a heading."""
    show(Text(""))
    say(text, style)


def show_json(value: Json, *, is_error: bool = False, is_line: bool = False) -> None:
    """Print one JSON object; in one line where several follow each other."""
    text = json.dumps(value, indent=None if is_line else INDENT)
    stream = sys.stderr if is_error else sys.stdout
    stream.write(text.replace(DELETE, "\\u007f") + "\n")
    stream.flush()


def show_facts(rows: Sequence[tuple[str, object]]) -> None:
    """Print names with their values, one below the other."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in rows:
        grid.add_row(cell(name, "bold"), value if isinstance(value, Text) else cell(value))
    show(grid)


def show_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table; columns whose name starts with ">" are set to the right."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in columns:
        table.add_column(
            name.removeprefix(">"),
            justify="right" if name.startswith(">") else "left",
            overflow="fold",
        )
    for row in rows:
        table.add_row(*(value if isinstance(value, Text) else cell(value) for value in row))
    show(table)


def moment(at_ms: int) -> str:
    """Return a moment as programs read it: UTC, RFC 3339; empty where no calendar has it."""
    return rfc3339(at_ms) if 0 < at_ms < END_OF_CALENDAR_MS else ""


def clock_time(at_ms: int) -> str:
    """Return a moment as people read it: UTC, to the second."""
    written = moment(at_ms)
    return f"{short_time(written)} UTC" if written else "an unknown time"


def short_time(written: str) -> str:
    """Return a moment in RFC 3339 without its fraction and zone, for a column."""
    return written[:19].replace("T", " ")


def duration(ms: int) -> str:
    """Return a duration in its two largest units, such as "3 h 12 min"."""
    seconds = max(0, ms) // 1000
    for unit, below, name, smaller in (
        (86_400, 3_600, "d", "h"),
        (3_600, 60, "h", "min"),
        (60, 1, "min", "s"),
    ):
        if seconds >= unit:
            return f"{seconds // unit} {name} {seconds % unit // below} {smaller}"
    return f"{seconds} s"


def family_of(error: CounterfoilError) -> str:
    """Return the name of the family that an error belongs to."""
    line = type(error).__mro__
    return line[line.index(CounterfoilError) - 1].__name__ if len(line) > 1 else ""


def report(error: CounterfoilError, *, as_json: bool) -> None:
    """Print an error on standard error: one sentence, or one JSON object."""
    if as_json:
        fields = {
            "family": family_of(error),
            "name": type(error).__name__,
            "message": error.message,
            "run": error.run_id,
            "key": error.key,
            "next": error.move or error.next_move,
            "exit_code": error.exit_code,
        }
        show_json({"error": fields}, is_error=True)
        return
    screen = console(is_error=True)
    line = Text.assemble(cell(f"{type(error).__name__}: ", "bold red"), cell(error))
    screen.print(line, soft_wrap=not screen.is_terminal)
