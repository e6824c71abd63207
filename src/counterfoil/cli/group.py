"""How every command ends: with the exit code of its error's family, and no traceback."""

import logging
import re
import sys
from collections.abc import Callable, Sequence

import typer
from typer.core import TyperGroup

from counterfoil.cli.screen import report
from counterfoil.core.errors import CounterfoilError, UsageError

FAILED = 1
JSON_FLAG = "--json"
SECRET = re.compile(r"[0-9A-Fa-f]{64,}|[0-9A-Za-z+/_-]{43}=")
"""What a key looks like on a command line; digests look alike and are not missed there."""


class Commands(TyperGroup):
    """The root of all commands."""

    def main(self, *given: object, **named: object) -> object:
        """Run a command, and turn its error into a sentence and an exit code."""
        inherited: Callable[..., object] = super().main
        words = named.get("args", given[0] if given else None)
        as_json = JSON_FLAG in (words if isinstance(words, Sequence) else sys.argv[1:])
        is_standalone = named.pop("standalone_mode", True)
        logging.getLogger("counterfoil").addHandler(_SILENCE)
        try:
            ended = inherited(*given, standalone_mode=False, **named)
        except CounterfoilError as error:
            report(error, as_json=as_json)
            sys.exit(error.exit_code)
        except typer.TyperException as error:
            report(_as_usage(error), as_json=as_json)
            sys.exit(error.exit_code)
        except typer.Abort:
            sys.exit(FAILED)
        if not is_standalone:
            return ended
        sys.exit(ended if isinstance(ended, int) else 0)


_SILENCE = logging.NullHandler()
"""A command says what happened itself; a second voice on standard error confuses."""


def _as_usage(error: typer.TyperException) -> UsageError:
    """Return what the framework found wrong with a command line, with no key in it."""
    message = SECRET.sub("…", error.format_message()).strip().rstrip(".")
    path = getattr(getattr(error, "ctx", None), "command_path", "counterfoil")
    return UsageError(message, move=f"see `{path} --help`")


def show_help_when_bare(context: typer.Context) -> None:
    """Print the help of a group that was called without a command."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(UsageError.exit_code)
