"""What a check of `doctor` says: a line with what is, and how to mend it."""

from dataclasses import dataclass
from enum import StrEnum

from counterfoil.core.errors import CounterfoilError, UsageError


class State(StrEnum):
    """How a check came out."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """What one check found.

    Attributes:
        name: What was looked at.
        state: How it came out.
        found: What is.
        mend: What to do; empty when all is well.
        exit_code: Of the family of the error that was met; 0 without one.
    """

    name: str
    state: State
    found: str
    mend: str = ""
    exit_code: int = 0


def ok(name: str, found: str) -> Line:
    """Return a line that says that all is well."""
    return Line(name=name, state=State.OK, found=found)


def warned(name: str, found: str, mend: str) -> Line:
    """Return a line that somebody should read."""
    return Line(name=name, state=State.WARN, found=found, mend=mend)


def unfit(name: str, found: str, mend: str) -> Line:
    """Return a line of something that must be corrected before anything runs on it."""
    return Line(name=name, state=State.FAIL, found=found, mend=mend, exit_code=UsageError.exit_code)


def failed(name: str, error: CounterfoilError) -> Line:
    """Return the line of a check that met an error."""
    return Line(
        name=name,
        state=State.FAIL,
        found=f"{type(error).__name__}: {error.message}",
        mend=error.move or error.next_move,
        exit_code=error.exit_code,
    )
