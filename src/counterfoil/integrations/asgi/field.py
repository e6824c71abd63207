"""The key in its header field: a String of structured fields, or a bare token.

Source: draft-ietf-httpapi-idempotency-key-header, 2.1; RFC 8941, 3.3 and 4.2.
"""

import re
from collections.abc import Sequence

from counterfoil.core.errors import ContractError

KEY_CHARS_MAX = 255
"""What payment services take, and what a URL has room for."""

_STRING = r'"((?:[ !#-\[\]-~]|\\["\\])*)"'
_BARE_ITEM = (
    r'(?:-?[0-9]{1,15}(?:\.[0-9]{1,3})?|"(?:[ !#-\[\]-~]|\\["\\])*"'
    r"|[A-Za-z*][A-Za-z0-9!#$%&'*+.^_`|~:/-]*|:[A-Za-z0-9+/=]*:|\?[01])"
)
_PARAMETERS = rf"(?:; *[a-z*][a-z0-9_.*-]*(?:={_BARE_ITEM})?)*"
_ITEM = re.compile(rf" *{_STRING}{_PARAMETERS} *")
"""An Item that is a String; parameters say nothing here, and are passed over."""

_TOKEN = re.compile(r"[ \t]*([A-Za-z0-9!#$%&'*+.^_`|~:/=-]+)[ \t]*")
_ESCAPED = re.compile(r'\\(["\\])')


def parse_key(values: Sequence[bytes], *, bare: bool) -> str:
    """Return the key of a request, 1 to `KEY_CHARS_MAX` printable ASCII characters.

    Args:
        values: Values of all fields of the name, in order; at least one.
        bare: Whether a token without quotes is a key too.

    Raises:
        ContractError: There are several fields, it is no String, or it is out of bounds.
    """
    if len(values) > 1:
        raise ContractError("Idempotency-Key is there more than once")
    text = values[0].decode("latin-1")
    item = _ITEM.fullmatch(text)
    if item is not None:
        return checked_key(_ESCAPED.sub(r"\1", item[1]))
    token = _TOKEN.fullmatch(text)
    if token is None:
        raise ContractError('Idempotency-Key is no String of structured fields, such as "k-1"')
    if not bare:
        raise ContractError("Idempotency-Key stands without quotes, which is not taken here")
    return checked_key(token[1])


def checked_key(key: str) -> str:
    """Return a key that is in its bounds.

    Raises:
        ContractError: It is empty, too long, or holds other than printable ASCII.
    """
    if not 1 <= len(key) <= KEY_CHARS_MAX:
        raise ContractError(
            f"Idempotency-Key has {len(key)} characters, the bounds are 1 and {KEY_CHARS_MAX}"
        )
    if not (key.isascii() and key.isprintable()):
        raise ContractError("Idempotency-Key holds other than printable ASCII characters")
    return key
