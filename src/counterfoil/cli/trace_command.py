"""`counterfoil trace`: every event of a run, verified, in order."""

import time
from collections.abc import Sequence
from typing import Annotated

import msgspec
import typer
from rich import box
from rich.table import Table
from rich.text import Text

from counterfoil.cli.options import JsonOption, ProjectOption, RunArgument, records, run_of
from counterfoil.cli.screen import cell, console, moment, show, show_json
from counterfoil.core.trace import Event, Outcome
from counterfoil.core.words import Json, RunId
from counterfoil.engine.audit import Link, chain
from counterfoil.engine.control import show as view_of
from counterfoil.engine.parts import Parts

FOLLOW_MS = 500
"""Pause between two looks at the head: one row is read, so once or twice a second is cheap."""

NARROW = 140
"""Columns of a screen below which kind, key and reason share one column."""

SHORT_KEY = 12
"""Characters of a key that tell it from others on a narrow screen; --json has all."""

GOOD = frozenset({Outcome.EXECUTED, Outcome.RECONCILED, Outcome.VERIFIED, Outcome.FINISHED})
OPEN = frozenset({Outcome.PENDING, Outcome.RESENT, Outcome.ASKED, Outcome.NEEDS_REVIEW})
PLAIN = frozenset(
    {Outcome.OPENED, Outcome.READ, Outcome.REMEMBERED, Outcome.OBSERVED, Outcome.REPLAYED}
)

Numbered = tuple[int, Event]

FollowOption = Annotated[
    bool,
    typer.Option(
        "--follow", "-f", help="Go on until the run has ended; leave with Ctrl-C (exit code 130)."
    ),
]


def trace(
    run: RunArgument,
    follow: FollowOption = False,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the trace of a run: each event with its index, outcome, kind, key and reason.

    Every checkpoint is verified before its events are shown. With --follow, new events
    appear as they are committed; with --json too, each event is one object on one line.

    Example:  counterfoil trace restock-42 --follow
    """
    name = run_of(run)
    with records(project) as keeper:
        if follow:
            _follow(keeper.parts, name, as_json=as_json)
            return
        events = _numbered(list(chain(keeper.parts, name)), 0)
    if as_json:
        show_json({"run": name, "events": [_json(index, event) for index, event in events]})
        return
    _show(events, has_header=True)


def _follow(parts: Parts, run_id: RunId, *, as_json: bool) -> None:
    """Print what is new at each look, until the run has ended."""
    last: Link | None = None
    size = 0
    while True:
        has_ended = view_of(parts, run_id).run.phase.has_ended
        links = list(chain(parts, run_id, after=last))
        events = _numbered(links, size)
        if as_json:
            for index, event in events:
                show_json(_json(index, event), is_line=True)
        elif events:
            _show(events, has_header=last is None)
        last, size = links[-1] if links else last, size + len(events)
        if has_ended:
            return
        time.sleep(FOLLOW_MS / 1000)


def _numbered(links: Sequence[Link], first: int) -> list[Numbered]:
    return list(enumerate((event for link in links for event in link.events), start=first))


def _show(events: Sequence[Numbered], *, has_header: bool) -> None:
    """Print rows whose columns are as wide in every batch."""
    is_narrow = console().width < NARROW
    table = Table(
        box=box.SIMPLE_HEAD,
        show_header=has_header,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    table.add_column("#", justify="right", width=4)
    table.add_column("time (UTC)", width=14, no_wrap=True)
    table.add_column("outcome", width=12, overflow="fold")
    table.add_column("prop", justify="right", width=4)
    table.add_column("pos", justify="right", width=3)
    if is_narrow:
        table.add_column("kind, key, reason", overflow="fold")
    else:
        table.add_column("kind", width=20, overflow="fold")
        table.add_column("key", width=52, overflow="fold")
        table.add_column("reason", overflow="fold")
    for index, event in events:
        table.add_row(*_first_cells(index, event), *_last_cells(event, is_narrow=is_narrow))
    show(table)


def _first_cells(index: int, event: Event) -> tuple[Text, ...]:
    return (
        cell(index, "dim"),
        cell(moment(event.at_ms)[5:19].replace("T", " ")),
        cell(event.outcome.value, _style(event.outcome)),
        cell(event.proposal or ""),
        cell(event.position if event.position >= 0 else ""),
    )


def _last_cells(event: Event, *, is_narrow: bool) -> tuple[Text, ...]:
    if not is_narrow:
        return (cell(event.kind), cell(event.key), cell(event.reason))
    key = event.key if len(event.key) <= SHORT_KEY else f"{event.key[:SHORT_KEY]}…"
    name = Text(" ").join(part for part in (cell(event.kind), cell(key, "dim")) if part)
    return (Text("\n").join(part for part in (name, cell(event.reason)) if part),)


def _style(outcome: Outcome) -> str:
    if outcome in GOOD:
        return "green"
    if outcome in OPEN:
        return "yellow"
    return "" if outcome in PLAIN else "red"


def _json(index: int, event: Event) -> dict[str, Json]:
    fields: dict[str, Json] = msgspec.to_builtins(event)
    always = {
        "index": index,
        "at": moment(event.at_ms),
        "outcome": event.outcome.value,
        "proposal": event.proposal,
        "position": event.position,
        "kind": event.kind,
        "key": event.key,
        "reason": event.reason,
    }
    return {**fields, **always}
