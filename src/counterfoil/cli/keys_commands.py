"""`counterfoil keys`: which keys there are, and which one signs. No command takes a key."""

from pathlib import Path
from typing import Annotated

import typer

from counterfoil.cli.group import show_help_when_bare
from counterfoil.cli.options import JsonOption, ProjectOption, placed
from counterfoil.cli.screen import cell, heading, say, short_time, show_json, show_table
from counterfoil.core.errors import ConfigError
from counterfoil.keys import (
    KeyRow,
    KeyStatus,
    add_key,
    load_keyring,
    open_source,
    parse_source,
)
from counterfoil.keys import retire as retire_key
from counterfoil.keys import rotate as rotate_to

STYLES = {KeyStatus.ACTIVE: "green", KeyStatus.OPENING: "", KeyStatus.RETIRED: "dim"}
MEANINGS = {
    KeyStatus.ACTIVE: "signs and opens",
    KeyStatus.OPENING: "opens",
    KeyStatus.RETIRED: "opens nothing",
}

keys = typer.Typer(
    name="keys",
    invoke_without_command=True,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)

NothingMore = Annotated[list[str] | None, typer.Argument(hidden=True)]
"""Catches a key that somebody puts on the command line, so that it is refused unseen."""


@keys.callback()
def root(context: typer.Context) -> None:
    """List, add, rotate and retire checkpoint keys.

    A key is made by these commands, or named by its place in counterfoil.toml. It never
    belongs on a command line: the history of a shell and every listing of running
    programs would hold it.

    Example:  counterfoil keys list
    """
    show_help_when_bare(context)


@keys.command("list")
def list_keys(project: ProjectOption = None, as_json: JsonOption = False) -> None:
    """List the keys by id: which one signs, which ones open, which ones are retired.

    An id is derived from its key and does not give it away.

    Example:  counterfoil keys list
    """
    _, places = placed(project)
    source = parse_source(places.key_source)
    ring = load_keyring(places.keys) if places.keys else open_source(source)
    if as_json:
        show_json({"source": source.kind.value, "keys": [_facts(row) for row in ring.rows]})
        return
    where = places.keys or source.title
    rows = [
        (
            row.id,
            cell(row.status.value, STYLES[row.status]),
            MEANINGS[row.status],
            short_time(row.created_at),
        )
        for row in ring.rows
    ]
    show_table(("key", "status", "it", "made (UTC)"), rows)
    heading(f"Source: {where}", "")


@keys.command("add")
def add(
    nothing: NothingMore = None, project: ProjectOption = None, as_json: JsonOption = False
) -> None:
    """Make a key that opens and does not sign yet.

    Where several machines share a key file, all must have the key before one of them
    signs with it: add, copy the file, then rotate --to the new id.

    Example:  counterfoil keys add
    """
    _refuse_key(nothing)
    row = add_key(_key_file(project))
    _show(row, f"Key {row.id} opens from here on, and signs nothing yet.", as_json=as_json)


@keys.command("rotate")
def rotate(
    nothing: NothingMore = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="KEYID",
            help="An opening key to sign with; by default a new one is made.",
            show_default=False,
        ),
    ] = None,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Sign with another key from here on; the former one still opens.

    Programs that run already go on with the key they started with.

    Example:  counterfoil keys rotate
    """
    _refuse_key(nothing)
    row = rotate_to(_key_file(project), to=to)
    _show(row, f"Key {row.id} signs from here on; the former one still opens.", as_json=as_json)


@keys.command("retire")
def retire(
    key: Annotated[
        str, typer.Argument(metavar="KEYID", help="Id of a key, as `keys list` shows it.")
    ],
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Have a key open nothing any more, for good.

    Runs that were last written under it can then not be opened. The active key must be
    rotated away first.

    Example:  counterfoil keys retire k1-0123456789abcdef
    """
    row = retire_key(_key_file(project), key)
    _show(row, f"Key {row.id} is retired: it opens nothing any more.", as_json=as_json)


def _refuse_key(given: list[str] | None) -> None:
    if given:
        raise ConfigError(
            "a key does not belong on a command line, where history and process lists keep it",
            move="leave it out, since this command makes a fresh key; use the given one nowhere, "
            "and to bring a key of your own name its place as keys.source in counterfoil.toml",
        )


def _key_file(project: Path | None) -> Path:
    _, places = placed(project)
    if places.keys is None:
        title = parse_source(places.key_source).title
        raise ConfigError(
            f"the keys come from {title}, which only its owner changes",
            move="change them there: several with commas between, and the first one signs",
        )
    if not places.keys.exists():
        raise ConfigError(
            f"there is no key file at {places.keys}", move="run `counterfoil init`, or restore it"
        )
    return places.keys


def _facts(row: KeyRow) -> dict[str, str]:
    return {"id": row.id, "status": row.status.value, "created_at": row.created_at}


def _show(row: KeyRow, sentence: str, *, as_json: bool) -> None:
    if as_json:
        show_json({"key": _facts(row)})
    else:
        say(sentence)
