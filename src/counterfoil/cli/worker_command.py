"""`counterfoil worker` and `unpark`: run programs for whoever submitted them."""

import getpass
import json
import logging
import os
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType
from typing import Annotated

import typer

from counterfoil.cli.modules import named_object
from counterfoil.cli.options import (
    JsonOption,
    ProjectOption,
    RunArgument,
    WaitOption,
    run_of,
    targets_or_records,
)
from counterfoil.cli.screen import printable, say, show_json
from counterfoil.core.codec import rfc3339
from counterfoil.core.errors import ConfigError
from counterfoil.core.words import identifier
from counterfoil.engine import control
from counterfoil.engine.worker import Worker
from counterfoil.keeper import Keeper

FACTS = (
    "run",
    "generation",
    "lease",
    "reason",
    "failures",
    "pause_ms",
    "concurrency",
    "left",
    "asks",
)
"""Members of a log record that are printed, in this order."""

TriesOption = Annotated[
    int,
    typer.Option(
        "--tries",
        min=1,
        metavar="N",
        help="Failures in a row at one position after which a run is parked.",
    ),
]
GraceOption = Annotated[
    int,
    typer.Option(
        "--grace-s",
        min=1,
        max=3_600,
        metavar="S",
        help="How long programs go on after SIGTERM, and again to come to an end.",
    ),
]


def worker(
    *,
    app: Annotated[
        str,
        typer.Option(
            "--app",
            metavar="MODULE:NAME",
            help="Where the keeper with its programs is: a keeper, or a function that opens one.",
        ),
    ],
    concurrency: Annotated[
        int, typer.Option("--concurrency", min=1, max=1_000, metavar="N", help="Runs at once.")
    ] = 4,
    tries: TriesOption = 5,
    grace_s: GraceOption = 10,
    burst: Annotated[
        bool, typer.Option("--burst", help="Stop when nothing is due, instead of waiting.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print each event as one JSON object on one line.")
    ] = False,
) -> None:
    """Claim runs that are due and call their programs, until SIGTERM or Ctrl-C.

    Due are runs that were submitted, runs whose worker died, runs with a statement in the
    inbox, and runs whose pause after a failure is over. Any number of workers may share a
    store and a register. Each event is one line: time, event, run, generation, lease.
    SIGTERM drains: nothing more is claimed, programs come to an end, leases are given up.
    A program that does not end is left where it is: its run is taken over after its lease.

    Example:  counterfoil worker --app shop:keeper --concurrency 8
    """
    with _logged(as_json=as_json), _keeper(app) as keeper:
        made = keeper.worker(
            concurrency=concurrency, tries_max=tries, grace_ms=grace_s * 1_000, is_burst=burst
        )
        with _stopped_by_signal(made):
            left = made.run()
        if left:  # what they still call must not be closed under them, and they end with us
            sys.stdout.flush()
            os._exit(0)


def unpark(
    run: RunArgument,
    *,
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="What was mended, for the trace.")
    ],
    actor: Annotated[
        str | None,
        typer.Option(
            "--actor",
            metavar="NAME",
            help="Who does it; by default your user name.",
            show_default=False,
        ),
    ] = None,
    wait_ms: WaitOption = 0,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give a parked run back to the workers.

    A run is parked when its program failed too often at one position. Mend the reason
    that `counterfoil show` names first: the run goes on where it stopped.

    Example:  counterfoil unpark restock-42 --reason "the shop has stock again"
    """
    name = run_of(run)
    who = identifier(getpass.getuser() if actor is None else actor, "--actor")
    with targets_or_records(project, None) as keeper:
        failure = control.unpark(keeper.parts, name, actor=who, reason=reason, wait_ms=wait_ms)
    if as_json:
        show_json(
            {"run": name, "actor": who, "parked_for": failure.reason, "failures": failure.count}
        )
        return
    say(f"Run {name} is free again; it was parked for: {failure.reason}")


def _keeper(app: str) -> Keeper:
    """Return the keeper that `MODULE:NAME` names."""
    found = named_object(app, "app")
    keeper = found() if callable(found) else found
    if not isinstance(keeper, Keeper):
        raise ConfigError(f"{app:.100} is neither a keeper nor a function that opens one")
    return keeper


@contextmanager
def _stopped_by_signal(made: Worker) -> Generator[None]:
    """Drain on the first signal, and die on the second as any process does."""

    def stop(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        made.stop()

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _logged(*, as_json: bool) -> Generator[None]:
    log, handler = logging.getLogger("counterfoil"), logging.StreamHandler(sys.stdout)
    handler.setFormatter(_Lines(as_json=as_json))
    errors = logging.StreamHandler(sys.stderr)
    errors.setFormatter(_Tracebacks())
    errors.addFilter(lambda record: record.exc_info is not None)
    level, log.level = log.level, logging.INFO
    log.addHandler(handler)
    log.addHandler(errors)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.removeHandler(errors)
        log.setLevel(level)


class _Lines(logging.Formatter):
    """One event, one line."""

    def __init__(self, *, as_json: bool) -> None:
        super().__init__()
        self._as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        """Return time, event and facts of a record."""
        at = rfc3339(int(record.created * 1000))
        facts = {name: getattr(record, name) for name in FACTS if hasattr(record, name)}
        event = record.getMessage()
        if self._as_json:
            return json.dumps({"at": at, "event": event, **facts}, ensure_ascii=True)
        words = " ".join(f"{name}={_quoted(fact)}" for name, fact in facts.items())
        return printable(f"{at} {event} {words}".rstrip())


class _Tracebacks(logging.Formatter):
    """What a program raised, for whoever mends it."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the traceback of a record, under the name of the run."""
        raised = "" if record.exc_info is None else self.formatException(record.exc_info)
        text = f"run {getattr(record, 'run', '')}\n{raised}"
        return "\n".join(printable(line) for line in text.splitlines())


def _quoted(fact: object) -> str:
    text = str(fact)
    return text if text and " " not in text and '"' not in text else json.dumps(text)
