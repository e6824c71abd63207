"""`counterfoil runs`: every run that the register knows."""

from collections.abc import Iterator

from counterfoil.cli.options import JsonOption, ProjectOption, records
from counterfoil.cli.screen import (
    cell,
    clock_time,
    duration,
    moment,
    say,
    short_time,
    show_json,
    show_table,
)
from counterfoil.core import codec
from counterfoil.core.errors import IntegrityError
from counterfoil.core.words import Json
from counterfoil.engine.control import RUNS_PAGE, list_heads
from counterfoil.engine.parts import Parts
from counterfoil.ports import Head

STYLES = {"active": "green", "frozen": "yellow", "terminal": "dim"}
UNREADABLE = "cannot be read"


def runs(project: ProjectOption = None, as_json: JsonOption = False) -> None:
    """List all runs: status, generation, last commit and who holds them.

    The status is that of the head: active, frozen (waits for a person) or terminal.
    `counterfoil show RUN` says more.

    Example:  counterfoil runs --json
    """
    with records(project) as keeper:
        parts = keeper.parts
        found = [(head, _written_at(parts, head)) for head in _heads(parts)]
        now_ms = parts.clock.now_ms()
    if as_json:
        show_json({"runs": [_facts(head, written_at, now_ms) for head, written_at in found]})
        return
    if not found:
        say("There are no runs yet.")
        return
    rows = [
        (
            head.run_id,
            cell(head.status, STYLES.get(head.status, "")),
            head.generation,
            short_time(written_at) or cell(UNREADABLE, "red"),
            _holding(head, now_ms),
        )
        for head, written_at in found
    ]
    show_table(("run", "status", ">generation", "last commit (UTC)", "held by"), rows)


def _heads(parts: Parts) -> Iterator[Head]:
    after = ""
    while page := list_heads(parts, after, RUNS_PAGE):
        yield from page
        after = page[-1].run_id


def _written_at(parts: Parts, head: Head) -> str:
    """Return when the newest checkpoint was written; empty when it cannot be believed."""
    row = parts.store.get(head.run_id, head.checkpoint)
    try:
        return codec.open_header(row, parts.seals.verifiers).written_at if row else ""
    except IntegrityError:
        return ""


def is_held(head: Head, now_ms: int) -> bool:
    """Return whether a lease stands, by this machine's clock."""
    return bool(head.owner) and head.expires_at_ms > now_ms


def holder_name(owner: str) -> str:
    """Return a holder as people look for it: the process and its machine."""
    parts = owner.split("/")
    return f"process {parts[3]} on {parts[0]}" if len(parts) == 5 else owner


def lease_facts(head: Head, now_ms: int) -> dict[str, Json]:
    """Return a lease without its nonce, which is the holder's own."""
    return {
        "holder": head.owner,
        "version": head.lease_version,
        "ends_at": moment(head.expires_at_ms),
        "held": is_held(head, now_ms),
    }


def lease_text(head: Head, now_ms: int) -> str:
    """Return in one sentence who holds a lease and until when."""
    if not head.owner:
        return "free"
    name, ends = holder_name(head.owner), clock_time(head.expires_at_ms)
    if is_held(head, now_ms):
        left = duration(head.expires_at_ms - now_ms)
        return f"{name}, until {ends} (in {left})"
    return f"over: {name} held it until {ends}"


def _holding(head: Head, now_ms: int) -> str:
    return holder_name(head.owner) if is_held(head, now_ms) else ""


def _facts(head: Head, written_at: str, now_ms: int) -> dict[str, Json]:
    return {
        "run": head.run_id,
        "status": head.status,
        "generation": head.generation,
        "checkpoint": head.checkpoint,
        "written_at": written_at,
        "readable": bool(written_at),
        "lease": lease_facts(head, now_ms),
    }
