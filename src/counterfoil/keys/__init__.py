"""Where checkpoint keys come from: a key file, the environment, or a command.

A source is opened into a `Keyring`, which signs with one key, opens with several, and
shows the secret of none.
"""

from counterfoil.keys.keyfile import (
    add_key,
    check_apart,
    create_keyring,
    load_keyring,
    retire,
    rotate,
)
from counterfoil.keys.keyring import (
    SECRET_BYTES,
    Keyring,
    KeyRow,
    KeyStatus,
    Purpose,
    keyring_of,
)
from counterfoil.keys.source import KeySource, open_source, parse_source

__all__ = [
    "SECRET_BYTES",
    "KeyRow",
    "KeySource",
    "KeyStatus",
    "Keyring",
    "Purpose",
    "add_key",
    "check_apart",
    "create_keyring",
    "keyring_of",
    "load_keyring",
    "open_source",
    "parse_source",
    "retire",
    "rotate",
]
