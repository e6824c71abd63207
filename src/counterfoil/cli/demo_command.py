"""`counterfoil demo`: the proof that a newcomer can watch."""

import importlib
from typing import Annotated

import typer

from counterfoil.cli.options import JsonOption
from counterfoil.core.errors import ConfigError

SEED = 1
"""One seed, one order of kills: two people who watch the demo see the same."""


def demo(
    as_json: JsonOption = False,
    seed: Annotated[
        int, typer.Option("--seed", min=0, help="Order of kills; the same seed kills alike.")
    ] = SEED,
) -> None:
    """Kill a real task in every crash window and watch it recover.

    Starts a small shop and a worker in a folder of its own, kills the worker with
    SIGKILL in every window of every step, restarts it until the task is done, counts
    the effects on the shop itself, and shows three attacks refused. Needs no project.

    Example:  counterfoil demo
    """
    try:
        stage = importlib.import_module("counterfoil.demo")
    except ModuleNotFoundError as error:
        raise ConfigError("the demo is not installed", move="install the package anew") from error
    stage.run_demo(json=as_json, seed=seed)
