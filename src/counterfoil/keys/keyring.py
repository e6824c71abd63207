"""Keys in memory: one signs, several open, and none shows its secret.

A keyring holds no root secret. Each purpose gets a key of its own by derivation when
the keyring is made, so that an envelope of one purpose never opens under another; what
is kept can be neither pickled nor written as JSON.

Source: RFC 5869 (HKDF).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import wraps
from types import MappingProxyType
from typing import Never, ParamSpec, TypeVar

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from counterfoil.core.envelope import MacKey
from counterfoil.core.errors import ConfigError, CounterfoilError

SECRET_BYTES = 32
"""Exact length of a root secret: the strength of SHA-256, no more and no less."""

KEYS_MAX = 64
"""Keys in one ring: years of rotation, and a listing that fits a screen."""

_LABEL = "counterfoil/v1/"
_ID_LABEL = "key-id"
_ID_HEX_CHARS = 16

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


class Purpose(StrEnum):
    """What a derived key is for; each purpose has another key."""

    CHECKPOINT = "checkpoint"
    LEASE = "lease"
    APPROVER = "approver"
    REVIEWER = "reviewer"


class KeyStatus(StrEnum):
    """What a key may still do."""

    ACTIVE = "active"
    OPENING = "opening"
    RETIRED = "retired"


@dataclass(frozen=True, kw_only=True, slots=True)
class KeyRow:
    """One key as a listing shows it.

    Attributes:
        id: Derived from the secret, which it does not give away.
        status: An active key signs and opens, an opening key opens, a retired one
            does neither.
        created_at: UTC, RFC 3339; empty when its source does not say.
    """

    id: str
    status: KeyStatus
    created_at: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RootKey:
    """A root secret on its way from its source into a keyring."""

    secret: bytes = field(repr=False)
    status: KeyStatus
    created_at: str = ""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Keyring:
    """The keys that a process signs and opens with.

    Attributes:
        rows: Every key, without its secret.
        signers: The active key, derived for each purpose.
        openers: The active and the opening keys by id, derived for each purpose.
    """

    rows: tuple[KeyRow, ...]
    signers: Mapping[Purpose, MacKey] = field(repr=False)
    openers: Mapping[Purpose, Mapping[str, MacKey]] = field(repr=False)

    def signer(self, purpose: Purpose) -> MacKey:
        """Return the active key of `purpose`."""
        return self.signers[purpose]

    def verifiers(self, purpose: Purpose) -> Mapping[str, MacKey]:
        """Return the keys that open envelopes of `purpose`, by key id."""
        return self.openers[purpose]

    def __reduce__(self) -> Never:
        raise TypeError("a keyring stays in its process: open its source again instead")


def keyring_of(active: bytes, *opening: bytes) -> Keyring:
    """Return a keyring of given root secrets, of which the first one signs.

    Args:
        active: `SECRET_BYTES` random bytes.
        opening: Further ones, which only open.

    Raises:
        ConfigError: A secret is too short, too long or not random, or is given twice.
    """
    roots = [RootKey(secret=active, status=KeyStatus.ACTIVE)]
    roots += [RootKey(secret=secret, status=KeyStatus.OPENING) for secret in opening]
    return made(roots, "the given keys")


def made(roots: Sequence[RootKey], origin: str) -> Keyring:
    """Return the keyring of root keys that came from `origin`.

    Raises:
        ConfigError: Not exactly one key is active, there are more than `KEYS_MAX`, one
            is there twice, or a secret is weak.
    """
    if len(roots) > KEYS_MAX:
        raise ConfigError(f"{origin} has {len(roots)} keys, the bound is {KEYS_MAX}")
    active = [root for root in roots if root.status is KeyStatus.ACTIVE]
    if len(active) != 1:
        raise ConfigError(f"{origin} has {len(active)} active keys, exactly one must be")
    for number, root in enumerate(roots, start=1):
        _check_secret(root.secret, f"key {number} of {origin}")
    named = [(key_id(root.secret), root) for root in roots]
    if len({name for name, _ in named}) != len(named):
        raise ConfigError(f"{origin} has one key twice")
    alive = [(name, root) for name, root in named if root.status is not KeyStatus.RETIRED]
    openers = {
        purpose: MappingProxyType({name: _derived(name, root, purpose) for name, root in alive})
        for purpose in Purpose
    }
    signing = key_id(active[0].secret)
    return Keyring(
        rows=tuple(
            KeyRow(id=name, status=root.status, created_at=root.created_at) for name, root in named
        ),
        signers=MappingProxyType({purpose: openers[purpose][signing] for purpose in Purpose}),
        openers=MappingProxyType(openers),
    )


def key_id(secret: bytes) -> str:
    """Return the name of a root secret: "k1-" and 16 hexadecimal digits."""
    return f"k1-{_expanded(secret, _ID_LABEL).hex()[:_ID_HEX_CHARS]}"


def _derived(name: str, root: RootKey, purpose: Purpose) -> MacKey:
    return MacKey(id=name, secret=_expanded(root.secret, purpose.value))


def _expanded(secret: bytes, label: str) -> bytes:
    info = f"{_LABEL}{label}".encode("ascii")
    return HKDF(algorithm=SHA256(), length=SECRET_BYTES, salt=None, info=info).derive(secret)


def _check_secret(secret: bytes, which: str) -> None:
    if len(secret) != SECRET_BYTES:
        raise ConfigError(
            f"{which} has {len(secret)} bytes, exactly {SECRET_BYTES} are needed",
            move="make a key with `counterfoil keys add`, or 32 bytes from a random source",
        )
    if len(set(secret)) == 1:
        raise ConfigError(
            f"{which} is one byte repeated, which anyone can guess",
            move="make a key with `counterfoil keys add`, or 32 bytes from a random source",
        )


def clean(read: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Have errors leave `read` without its frames, whose local variables hold keys.

    Tools that report errors print the local variables of every frame in a traceback,
    and some errors of decoders carry the text that they could not read.
    """

    @wraps(read)
    def cleaned(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        try:
            return read(*args, **kwargs)
        except CounterfoilError as error:
            failure = type(error)(*error.args)
        del args, kwargs
        raise failure

    return cleaned
