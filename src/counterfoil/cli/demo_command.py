"""`counterfoil demo`: the proof that a newcomer can watch."""

import importlib
from pathlib import Path
from typing import Annotated

import typer

from counterfoil.cli.options import JsonOption

SEED = 1
"""One seed, one order of kills: two people who watch the demo see the same."""


def demo(
    as_json: JsonOption = False,
    seed: Annotated[
        int, typer.Option("--seed", min=0, help="Order of kills; the same seed kills alike.")
    ] = SEED,
    keep: Annotated[
        Path | None,
        typer.Option(
            "--keep",
            metavar="FOLDER",
            help="Keep everything in a new folder, to look at afterwards.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Kill a real task in every crash window and watch it recover.

    Starts a small shop and a worker in a folder of its own, kills the worker with
    SIGKILL in every window of every step, restarts it until the task is done, counts
    the effects on the shop itself, and shows three attacks refused. Needs no project.
    Exits with 1 if an effect is lost or doubled, or an attack is not refused.

    Example:  counterfoil demo
    """
    # Only this command needs the demo, and loading it would slow every other one down.
    stage = importlib.import_module("counterfoil.demo")
    raise typer.Exit(stage.run_demo(as_json=as_json, seed=seed, folder=keep))
