"""`counterfoil adapters`: what adapters need at their targets."""

from typing import Annotated

import typer

from counterfoil.cli.adapters_check import check
from counterfoil.cli.group import show_help_when_bare
from counterfoil.cli.options import JsonOption
from counterfoil.cli.screen import say, show_facts, show_json
from counterfoil.compose import install_sql

HELP = {"help_option_names": ["-h", "--help"]}

adapters = typer.Typer(
    name="adapters",
    invoke_without_command=True,
    rich_markup_mode="markdown",
    context_settings=HELP,
)
sql = typer.Typer(
    name="sql", invoke_without_command=True, rich_markup_mode="markdown", context_settings=HELP
)
adapters.command()(check)
adapters.add_typer(sql)

UrlArgument = Annotated[
    str,
    typer.Argument(
        metavar="URL",
        help="sqlite:PATH, or postgresql://USER@HOST/DATABASE?schema=NAME.",
    ),
]


@adapters.callback()
def root(context: typer.Context) -> None:
    """Set up what adapters need at their targets, and hold them to what they claim.

    Example:  counterfoil adapters check shop_bench:fresh
    """
    show_help_when_bare(context)


@sql.callback()
def sql_root(context: typer.Context) -> None:
    """Set databases up for the `sql` adapter.

    Example:  counterfoil adapters sql install sqlite:shop.db
    """
    show_help_when_bare(context)


@sql.command("install")
def install(url: UrlArgument, as_json: JsonOption = False) -> None:
    """Make the tables of receipts in a database that runs are to change.

    They lie beside the tables that are changed, so that effect and receipt are one commit.
    What is there is kept as it is, so calling it twice changes nothing. Give a password by
    PGPASSWORD or ~/.pgpass: a command line is kept in histories.

    Example:  counterfoil adapters sql install postgresql://app@db.example/shop
    """
    installed = install_sql(url)
    if as_json:
        facts = {"where": installed.where, "instance": installed.instance}
        show_json({**facts, "made": list(installed.made)})
        return
    rows: list[tuple[str, object]] = [
        ("database", installed.where),
        ("instance", installed.instance),
    ]
    rows += [("made", name) for name in installed.made]
    show_facts(rows)
    say("The database is ready." if installed.made else "Everything was there; nothing changed.")
