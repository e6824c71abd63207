"""The command line as a whole: its commands, and what they have in common."""

from typing import Annotated

import typer

import counterfoil
from counterfoil.cli.adapters_command import adapters
from counterfoil.cli.demo_command import demo
from counterfoil.cli.doctor_command import doctor
from counterfoil.cli.drill_command import drill
from counterfoil.cli.gc_command import gc
from counterfoil.cli.group import Commands, show_help_when_bare
from counterfoil.cli.init_command import init
from counterfoil.cli.keys_commands import keys
from counterfoil.cli.proof_commands import check_proof_file, prove, verify
from counterfoil.cli.recover_commands import abort, recover
from counterfoil.cli.request_commands import approve, deny, refresh, requests, revoke
from counterfoil.cli.review_commands import review
from counterfoil.cli.runs_command import runs
from counterfoil.cli.show_command import show
from counterfoil.cli.sign_commands import migrate, sign, submit
from counterfoil.cli.trace_command import trace
from counterfoil.cli.trust_commands import keygen, trust
from counterfoil.cli.worker_command import unpark, worker

app = typer.Typer(
    name="counterfoil",
    cls=Commands,
    invoke_without_command=True,
    rich_markup_mode="markdown",
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"counterfoil {counterfoil.__version__}")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Long tasks that act on the real world, and can be killed at any instant.

    Every command that prints facts takes --json. Exit codes: 0 done, 2 correct the call,
    3 refused, 4 integrity (stop), 5 another worker, 6 outcome unknown (do not repeat),
    7 try again later.

    Start with:  counterfoil demo
    """
    show_help_when_bare(context)


app.command()(init)
app.command()(demo)
app.command()(drill)
app.command()(runs)
app.command()(show)
app.command()(trace)
app.command()(verify)
app.command()(gc)
app.command()(worker)
app.command()(recover)
app.command()(abort)
app.command()(unpark)
app.command()(requests)
app.command()(approve)
app.command()(deny)
app.command()(refresh)
app.command()(revoke)
app.command()(sign)
app.command()(submit)
app.command()(migrate)
app.command()(keygen)
app.command()(prove)
app.command("check-proof")(check_proof_file)
app.command()(doctor)
app.add_typer(review)
app.add_typer(trust)
app.add_typer(keys)
app.add_typer(adapters)


def main() -> None:
    """Run the command line of this process."""
    app(prog_name="counterfoil")
