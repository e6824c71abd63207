"""The `counterfoil` command: what an operator may see and do."""

from counterfoil.cli.root import app, main

__all__ = ["app", "main"]
