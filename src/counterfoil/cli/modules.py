"""Objects of the user's own modules, named on the command line as MODULE:NAME."""

import importlib
import sys
import sysconfig
import traceback
from pathlib import Path

from counterfoil.core.errors import ConfigError

MOVE = "correct it and start again"


def named_object(text: str, what: str) -> object:
    """Return what `MODULE:NAME` names; modules of the present folder are found.

    Args:
        text: The name.
        what: What it is, for messages.

    Raises:
        ConfigError: It names nothing, or its module cannot be imported.
    """
    module, _, name = text.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), name)):
        raise ConfigError(f"{what} {text!r:.100} is not MODULE:NAME", move=MOVE)
    sys.path.insert(0, str(Path.cwd()))
    try:
        found = importlib.import_module(module)
    except (Exception, SystemExit) as error:  # the user's own lines may raise anything
        told_error = f"{what} {module!r:.100} cannot be imported: {told(error)}"
        raise ConfigError(told_error, move=MOVE) from error
    if not hasattr(found, name):
        raise ConfigError(f"{what} {text!r:.100}: the module has no {name}", move=MOVE)
    return getattr(found, name)


def told(error: BaseException) -> str:
    """Return what a user's own lines raised, and on which of them, in one phrase."""
    lines = [
        f
        for f in traceback.extract_tb(error.__traceback__)
        if not f.filename.startswith(_OF_OTHERS)
    ]
    where = f" in {Path(lines[-1].filename).name}, line {lines[-1].lineno}" if lines else ""
    words = " ".join(str(error).split())
    return f"{type(error).__name__}{where}" + (f": {words:.200}" if words else "")


_LIBRARIES = (sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))
_OF_OTHERS = ("<", str(Path(__file__).parents[1]), *_LIBRARIES)
"""How names of files begin that are not the user's own."""
