"""Identifiers and the closed word sets that tasks, intents and receipts share.

One word, one meaning: docs/glossary.md. Doors for text from outside live here
too, so that an identifier is judged alike wherever it comes in.
"""

import re
from enum import StrEnum
from typing import Any, NewType, TypeAlias

from counterfoil.core.bounds import IDENTIFIER_CHARS_MAX, KEY_CHARS_MAX, TEXT_CHARS_MAX
from counterfoil.core.errors import ContractError

RunId = NewType("RunId", str)
Key = NewType("Key", str)
Digest = NewType("Digest", str)
"""SHA-256 as 64 lower-case hexadecimal digits."""
IntentDigest = NewType("IntentDigest", str)
"""Canonicalisation version, a colon, and a `Digest`."""

Json: TypeAlias = Any
"""A JSON value: the one place where the checker gives up on a type."""


_POSITION = re.compile(r"@-?[0-9]+")
"""What `trace.position_name` returns: keys and positions share one index."""


class Risk(StrEnum):
    """What a kind of action may do to the world."""

    READ_ONLY = "read_only"
    VERIFICATION = "verification"
    CONTROL = "control"
    REVERSIBLE_WRITE = "reversible_write"
    IRREVERSIBLE_WRITE = "irreversible_write"

    @property
    def writes(self) -> bool:
        """Whether an action of this class changes its environment."""
        return self in (Risk.REVERSIBLE_WRITE, Risk.IRREVERSIBLE_WRITE)


class Level(StrEnum):
    """What an adapter can prove about a call whose answer was lost."""

    TRANSACTIONAL = "transactional"
    DEDUPLICATING = "deduplicating"
    CONDITIONAL = "conditional"
    QUERYABLE = "queryable"
    BLIND = "blind"


def is_printable(text: str) -> bool:
    """Return whether `text` holds no control character and no lone surrogate."""
    return text.isprintable()


def identifier(text: object, field: str) -> str:
    """Return `text` if it can name a run, a task, a kind or a signer.

    Raises:
        ContractError: It is no text, is empty, is longer than
            `IDENTIFIER_CHARS_MAX` characters, or holds unprintable characters.
    """
    return _name(text, field, IDENTIFIER_CHARS_MAX)


def idempotency_key(text: object, field: str = "key") -> Key:
    """Return `text` if it can be an idempotency key, at every door alike.

    Raises:
        ContractError: As `identifier`, with `KEY_CHARS_MAX` characters; or it reads as a
            position of the plan, such as "@3".
    """
    key = _name(text, field, KEY_CHARS_MAX)
    if _POSITION.fullmatch(key):
        raise ContractError(f"{field} {key} is the name of a position, take another one")
    return Key(key)


def free_text(text: object, field: str) -> str:
    """Return `text` if a person can be shown it: printable, at most `TEXT_CHARS_MAX`.

    Raises:
        ContractError: It is no text, too long, or holds unprintable characters.
    """
    if not isinstance(text, str):
        raise ContractError(f"{field} must be text, not {type(text).__name__}")
    if len(text) > TEXT_CHARS_MAX:
        raise ContractError(f"{field} has {len(text)} characters, the bound is {TEXT_CHARS_MAX}")
    if not is_printable(text.replace("\n", " ")):
        raise ContractError(f"{field} holds a control character or half a character")
    return text


def _name(text: object, field: str, chars_max: int) -> str:
    if not isinstance(text, str):
        raise ContractError(f"{field} must be text, not {type(text).__name__}")
    if not text:
        raise ContractError(f"{field} is empty")
    if len(text) > chars_max:
        raise ContractError(f"{field} has {len(text)} characters, the bound is {chars_max}")
    if not is_printable(text):
        raise ContractError(f"{field} holds a control character or half a character")
    return text
