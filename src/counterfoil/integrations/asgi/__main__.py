"""For the operator of a service: make a journal of receipts, and settle what nobody can tell.

`python -m counterfoil.integrations.asgi install PLACE`
`python -m counterfoil.integrations.asgi unsettled PLACE`
`python -m counterfoil.integrations.asgi settle PLACE ATTEMPT --nothing-happened`
`python -m counterfoil.integrations.asgi settle PLACE ATTEMPT --status 201 --body FILE`
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from counterfoil.core.errors import CounterfoilError, UsageError
from counterfoil.integrations.asgi.answer import STATUS_MAX, STATUS_MIN, Answer
from counterfoil.integrations.asgi.journal import Journal
from counterfoil.integrations.asgi.middleware import wall_clock_ms
from counterfoil.integrations.asgi.opening import install_journal, open_journal
from counterfoil.integrations.asgi.rows import Row


def main(words: Sequence[str] | None = None) -> int:
    """Run one command, and return its exit code."""
    given = _parser().parse_args(words)
    try:
        if given.command == "install":
            install_journal(given.place, schema=given.schema)
            return 0
        journal = open_journal(given.place, schema=given.schema)
        try:
            return _list(journal) if given.command == "unsettled" else _settle(journal, given)
        finally:
            journal.close()
    except CounterfoilError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m counterfoil.integrations.asgi")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, what in (
        ("install", "make the tables of a journal"),
        ("unsettled", "list keys whose request is not known to be under way"),
        ("settle", "say what became of one"),
    ):
        command = commands.add_parser(name, help=what)
        command.add_argument("place", help="a file of SQLite, or a postgresql:// URL")
        command.add_argument("--schema", default="public", help="in PostgreSQL")
        if name == "settle":
            command.add_argument("attempt", help="as `unsettled` shows it")
            outcome = command.add_mutually_exclusive_group(required=True)
            outcome.add_argument("--nothing-happened", action="store_true")
            outcome.add_argument("--status", type=int, help="of the answer from here on")
            command.add_argument("--body", type=Path, help="file with the body of the answer")
            command.add_argument("--type", default="application/json", help="of the body")
    return parser


def _list(journal: Journal) -> int:
    for row in _unsettled(journal):
        moment = datetime.fromtimestamp(row.started_at_ms / 1_000, UTC)
        started = moment.isoformat(timespec="seconds").replace("+00:00", "Z")
        shown = {
            "attempt": row.attempt,
            "key": row.key,
            "client": row.client,
            "run": row.run,
            "commits": row.commits.value,
            "started_at": started,
        }
        sys.stdout.write(f"{json.dumps(shown)}\n")
    return 0


def _unsettled(journal: Journal) -> Iterator[Row]:
    now_ms = wall_clock_ms()
    page = journal.unsettled(now_ms=now_ms)
    while page:
        yield from page
        page = journal.unsettled(now_ms=now_ms, after=page[-1])


def _settle(journal: Journal, given: argparse.Namespace) -> int:
    row = _row(journal, given.attempt)
    answer = None if given.nothing_happened else _answer(given)
    journal.settle(row, answer, now_ms=wall_clock_ms())
    return 0


def _row(journal: Journal, attempt: str) -> Row:
    row = journal.unsettled_of(attempt)
    if row is None:
        raise UsageError(f"there is no unsettled key of attempt {attempt!r:.80}")
    return row


def _answer(given: argparse.Namespace) -> Answer:
    status: int = given.status
    if not STATUS_MIN <= status <= STATUS_MAX:
        raise UsageError(f"--status is {status}, the bounds are {STATUS_MIN} and {STATUS_MAX}")
    body: Path | None = given.body
    try:
        content = body.read_bytes() if body else b""
    except OSError as error:
        raise UsageError(f"{body} cannot be read ({error.strerror})") from error
    headers = (
        (b"content-type", given.type.encode("latin-1", "replace")),
        (b"content-length", str(len(content)).encode("ascii")),
    )
    return Answer(status_code=status, raw_headers=headers, body=content)


if __name__ == "__main__":
    sys.exit(main())
