"""Objects of the user's own modules, named on the command line as MODULE:NAME."""

import importlib
import sys
from pathlib import Path

from counterfoil.core.errors import ConfigError


def named_object(text: str, what: str) -> object:
    """Return what `MODULE:NAME` names; modules of the present folder are found.

    Args:
        text: The name.
        what: What it is, for messages.

    Raises:
        ConfigError: It names nothing, or its module cannot be imported.
    """
    module, _, name = text.partition(":")
    if not module or not name:
        raise ConfigError(f"{what} {text!r:.100} is not MODULE:NAME")
    sys.path.insert(0, str(Path.cwd()))
    try:
        return getattr(importlib.import_module(module), name, None)
    except (ImportError, SyntaxError) as error:
        raise ConfigError(f"{what} {module!r:.100} cannot be imported: {error!s:.200}") from error
