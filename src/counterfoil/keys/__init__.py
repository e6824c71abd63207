"""Keys: where checkpoint keys come from, who is trusted, and what people sign with.

A source (a key file, the environment, a command) is opened into a `Keyring`, which signs
with one key, opens with several, and shows the secret of none.
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
from counterfoil.keys.trustfile import load_trust

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
    "load_trust",
    "open_source",
    "parse_source",
    "retire",
    "rotate",
]
